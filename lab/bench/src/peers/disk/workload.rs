//! What is read and written, in which order.
//!
//! Before the run, caches are filled with the first tenth of the file, for which the budget has
//! just enough room. Operations use only the rest of the file, and each page at most once. So every
//! subject must read each page from the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::ValueEnum;

use crate::peers::measure::OPERATIONS_MIN;
use crate::random::{Random, mix};

/// Pages that a sequential reader asks for at once: 64 KiB.
const PIECE: u32 = 16;
/// From each page of a strided reader to the next.
const STRIDE: u32 = 8;
const INTERLEAVED: u32 = 10;
/// Of a hundred operations.
pub(super) const READS_OF_MIXED: u64 = 70;

/// One kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Random pages, one after the other
    #[value(name = "random-1")]
    Random1,
    /// Random pages, 16 at once
    #[value(name = "random-16")]
    Random16,
    /// Random pages, 64 at once
    #[value(name = "random-64")]
    Random64,
    /// From one end to the other
    Sequential,
    /// Ten sequential readers in turn, in one thread
    Interleaved,
    /// Each eighth page, from one end to the other
    Strided,
    /// Random pages, 16 at once, 70 % read and 30 % overwritten
    Mixed,
    /// Ten open files, and nothing to do
    Idle,
}

impl Workload {
    /// As on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("no workload is skipped").get_name().to_owned()
    }

    /// Above its figures.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Random1 => "random 4 KiB, 1 at once",
            Self::Random16 => "random 4 KiB, 16 at once",
            Self::Random64 => "random 4 KiB, 64 at once",
            Self::Sequential => "sequential, 64 KiB at a time",
            Self::Interleaved => "ten sequential readers in turn, 64 KiB at a time",
            Self::Strided => "each 8th page, 1 at once",
            Self::Mixed => "random 4 KiB, 70 % read, 16 at once",
            Self::Idle => "ten open files, idle",
        }
    }

    /// Operations at the same time.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Random16 | Self::Mixed => 16,
            Self::Random64 => 64,
            Self::Random1 | Self::Sequential | Self::Interleaved | Self::Strided | Self::Idle => 1,
        }
    }

    /// The number of handles of the file: one for each reader, and one that fills caches before the
    /// run.
    pub(super) fn handles(self) -> usize {
        self.readers() + 1
    }

    fn readers(self) -> usize {
        if self == Self::Interleaved { INTERLEAVED as usize } else { 1 }
    }

    /// Returns whether its pages are in random order.
    pub(super) fn is_random(self) -> bool {
        matches!(self, Self::Random1 | Self::Random16 | Self::Random64 | Self::Mixed)
    }
}

/// The number of pages, from the beginning of the file, with which caches are filled before the
/// run.
pub(super) fn warm_pages(pages: u32) -> u32 {
    pages / 10 / PIECE * PIECE
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// Which of the handles.
    pub(super) handle: usize,
    /// The first page,
    pub(super) page: u32,
    /// and how many.
    pub(super) pages: u32,
    /// One page is overwritten, rather than read.
    pub(super) write: bool,
}

/// The operations of a run. Any number of threads take them from here.
#[derive(Debug)]
pub(super) struct Operations {
    workload: Workload,
    /// Of the first reader.
    handle: usize,
    start: u32,
    end: u32,
    /// If the workload is random.
    order: Vec<u32>,
    next: AtomicU64,
    deadline: Instant,
}

impl Operations {
    /// The operations of `workload` on a file of `pages` pages. They end at `deadline`, but there
    /// is always a minimum number of them.
    pub(super) fn new(workload: Workload, pages: u32, seed: u64, deadline: Instant) -> Self {
        let start = warm_pages(pages);
        let mut order: Vec<u32> = if workload.is_random() { (start..pages).collect() } else { vec![] };
        let mut random = Random::new(seed);
        for last in (1..order.len()).rev() {
            // Fisher and Yates.
            order.swap(last, random.below(last as u32 + 1) as usize);
        }
        Self { workload, handle: 0, start, end: pages, order, next: AtomicU64::new(0), deadline }
    }

    /// Sequential reads of what caches are to be full of before `workload`.
    pub(super) fn warming(workload: Workload, pages: u32) -> Self {
        // All of them, however long that takes.
        let deadline = Instant::now() + std::time::Duration::from_secs(3600);
        let (handle, end) = (workload.readers(), warm_pages(pages));
        let (workload, order, next) = (Workload::Sequential, vec![], AtomicU64::new(0));
        Self { workload, handle, start: 0, end, order, next, deadline }
    }

    /// Pages of one operation, at most.
    pub(super) fn pages_at_once(&self) -> usize {
        match self.workload {
            Workload::Sequential | Workload::Interleaved => PIECE as usize,
            _ => 1,
        }
    }

    /// The next one; none if everything was done, or time is up.
    pub(super) fn next(&self) -> Option<Operation> {
        // Relaxed: nothing but the number itself is handed on.
        if self.next.load(Ordering::Relaxed) >= OPERATIONS_MIN && Instant::now() >= self.deadline {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.operation(number)
    }

    fn operation(&self, number: u64) -> Option<Operation> {
        let number = u32::try_from(number).ok()?;
        let within = |page: Option<u32>, end| page.filter(|page| page.checked_add(PIECE).is_some_and(|to| to <= end));
        let one = |page| Operation { handle: self.handle, page, pages: 1, write: false };
        Some(match self.workload {
            Workload::Random1 | Workload::Random16 | Workload::Random64 => one(*self.order.get(number as usize)?),
            Workload::Mixed => {
                let write = mix(u64::from(number)) % 100 >= READS_OF_MIXED;
                Operation { write, ..one(*self.order.get(number as usize)?) }
            }
            Workload::Strided => {
                let page = self.start.checked_add(number.checked_mul(STRIDE)?)?;
                one(Some(page).filter(|page| *page < self.end)?)
            }
            Workload::Sequential => {
                let page = within(self.start.checked_add(number.checked_mul(PIECE)?), self.end)?;
                Operation { pages: PIECE, ..one(page) }
            }
            Workload::Interleaved => {
                let (reader, piece) = (number % INTERLEAVED, number / INTERLEAVED);
                let part = (self.end - self.start) / INTERLEAVED;
                let (start, end) = (self.start + reader * part, self.start + (reader + 1) * part);
                let page = within(start.checked_add(piece.checked_mul(PIECE)?), end)?;
                Operation { handle: reader as usize, pages: PIECE, ..one(page) }
            }
            Workload::Idle => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PAGES: u32 = 20_000;

    fn all(workload: Workload) -> Vec<Operation> {
        let operations = Operations::new(workload, PAGES, 7, Instant::now() + Duration::from_secs(3600));
        std::iter::from_fn(|| operations.next()).collect()
    }

    #[test]
    fn each_page_beyond_the_first_tenth_is_asked_for_once_at_most() {
        for workload in Workload::value_variants() {
            let operations = all(*workload);
            let mut asked = vec![false; PAGES as usize];
            for page in operations.iter().flat_map(|operation| operation.page..operation.page + operation.pages) {
                assert!(page >= warm_pages(PAGES), "{workload:?}");
                assert!(!std::mem::replace(&mut asked[page as usize], true), "{workload:?}: page {page} twice");
            }
            let share = asked.iter().filter(|asked| **asked).count() as f64 / f64::from(PAGES);
            match workload {
                Workload::Idle => assert_eq!(share, 0.0),
                Workload::Strided => assert!((0.11..0.12).contains(&share), "{share}"),
                _ => assert!((0.88..=0.91).contains(&share), "{workload:?}: {share}"),
            }
        }
    }

    #[test]
    fn orders_are_what_they_are_called() {
        let pages = |workload| all(workload).iter().map(|operation| operation.page).collect::<Vec<_>>();
        assert!(pages(Workload::Sequential).is_sorted() && pages(Workload::Strided).is_sorted());
        assert!(!pages(Workload::Random1).is_sorted());
        let readers: Vec<_> = all(Workload::Interleaved).iter().take(12).map(|operation| operation.handle).collect();
        assert_eq!(readers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        let mixed = all(Workload::Mixed);
        let writes = 100 * mixed.iter().filter(|operation| operation.write).count() / mixed.len();
        assert!((28..=32).contains(&writes), "{writes} %");
        let late = Operations::new(Workload::Random1, PAGES, 7, Instant::now());
        assert_eq!(std::iter::from_fn(|| late.next()).count() as u64, OPERATIONS_MIN);
    }
}
