//! Pagefold: one group with all of the budget.

use std::hint::black_box;

use anyhow::{Context, Result, ensure};
use pagefold::{File, Group, ReadRequest};

use super::Plan;
use crate::peers::contents::{PAGE, offset_of};
use crate::peers::data_file::DataFile;
use crate::peers::subject::{Misses, Operation, Pages, Subject, place};

/// Pages by `read_at`. With only one file (`TWO` is false), reads don't choose between files.
pub(super) struct Pagefold<const TWO: bool> {
    files: Files,
}

/// Pages of one file by `page(n)`: pin, copy from the slice, unpin.
pub(super) struct PinnedPages {
    files: Files,
}

/// One file, or two under one numbering.
struct Files {
    main: File,
    main_pages: u32,
    scanned: Option<File>,
    // Keeps the group and its memory.
    _group: Group,
}

impl Files {
    fn open(plan: &Plan<'_>) -> Result<Self> {
        let budget = offset_of(plan.budget_pages);
        let fold = pagefold::Pagefold::builder().memory(budget).page_size(PAGE).build();
        let fold = fold.with_context(|| format!("pagefold refuses a budget of {budget} bytes"))?;
        let group = fold.group("bench").max(budget).build().context("pagefold refuses the group")?;
        let open = |data: &DataFile| group.open(data.path()).context("pagefold cannot open the data file");
        let (main, scanned) = (open(plan.data)?, plan.scanned.map(open).transpose()?);
        Ok(Self { main, main_pages: plan.data.pages(), scanned, _group: group })
    }

    /// The file of `page`, and its number there.
    #[inline(always)]
    fn place<const TWO: bool>(&self, page: u32) -> Result<(&File, u32)> {
        if !TWO || page < self.main_pages {
            return Ok((&self.main, page));
        }
        let file = self.scanned.as_ref().with_context(|| format!("there is no page {page}"))?;
        Ok((file, page - self.main_pages))
    }

    fn misses(&self) -> Misses {
        let scanned = self.scanned.as_ref().map_or(0, |file| file.stats().misses);
        Misses { main: self.main.stats().misses, scanned }
    }
}

impl<const TWO: bool> Pagefold<TWO> {
    /// Over the plan's files.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        Ok(Self { files: Files::open(plan)? })
    }
}

impl<const TWO: bool> Pages for Pagefold<TWO> {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let (file, page) = self.files.place::<TWO>(page)?;
        let len = file.read_at(into, offset_of(page) + offset as u64)?;
        ensure!(len == into.len(), "the data file is shorter than it was");
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.files.misses()
    }
}

impl PinnedPages {
    /// Over the plan's files.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        Ok(Self { files: Files::open(plan)? })
    }
}

impl Pages for PinnedPages {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let pinned = self.files.main.page_at(u64::from(page) * PAGE as u64)?;
        into.copy_from_slice(&pinned[offset..offset + into.len()]);
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.files.misses()
    }
}

/// Pages of one file by `read_batch`, so many at a time.
pub(super) struct Batches(PinnedPages);

const BATCH: usize = 64;

impl Batches {
    /// Over the plan's files.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        PinnedPages::new(plan).map(Self)
    }

    #[inline(never)]
    fn read_all<const N: usize>(&self, accesses: &[u32], offset: impl Fn(usize) -> usize) -> Result<u64> {
        let file = &self.0.files.main;
        let mut sum = 0_u64;
        let mut bytes = vec![0_u8; N * BATCH];
        let mut number = 0;
        for part in accesses.chunks(BATCH) {
            let mut requests: arrayvec::ArrayVec<_, BATCH> = part
                .iter()
                .zip(bytes.chunks_mut(N))
                .zip(number..)
                .map(|((&page, into), number)| ReadRequest::new(offset_of(page) + offset(number) as u64, into))
                .collect();
            file.read_batch(&mut requests);
            for request in requests {
                ensure!(request.result? == N, "the data file is shorter than it was");
                let (words, _) = request.into.as_chunks::<8>();
                sum = sum.wrapping_add(u64::from_le_bytes(words[0]));
            }
            number += part.len();
        }
        Ok(black_box(sum))
    }
}

impl Subject for Batches {
    fn run(&self, operation: Operation, accesses: &[u32]) -> Result<u64> {
        match operation {
            Operation::First8 => self.read_all::<8>(accesses, |_| 0),
            Operation::Read8 => self.read_all::<8>(accesses, place::<8>),
            // Each needs the bytes before: there are no batches of those.
            Operation::Chained8 => self.0.run(operation, accesses),
            Operation::Read100 => self.read_all::<100>(accesses, place::<100>),
            Operation::Read4096 => self.read_all::<PAGE>(accesses, |_| 0),
        }
    }

    fn read_once(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let mut requests = [ReadRequest::new(offset_of(page) + offset as u64, into)];
        self.0.files.main.read_batch(&mut requests);
        let [request] = requests;
        ensure!(request.result? == request.into.len(), "the data file is shorter than it was");
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.0.files.misses()
    }
}
