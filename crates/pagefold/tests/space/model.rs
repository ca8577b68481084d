//! Several threads make random calls in one space, each in its own part of it, and compare the
//! results with a simple model.

use std::cell::Cell;
use std::ops::{AddAssign, Range};
use std::panic::{catch_unwind, resume_unwind};

use pagefold::{Advice, Error, File, Protection, Space};
use sync::random::{Random, mix};
use sync::{Arc, lock::Mutex};

use crate::support::{assert_same, eventually};
use crate::trouble::Trouble;
use crate::world::{PAGE, RW, World, join, threads};

/// A thread's part of the space, and its part of a file. The file's part may be mapped anywhere in
/// the space's part.
struct Model {
    first: u64,
    pages: Vec<Option<(Protection, Content)>>,
    file: File,
    /// The thread's pages of the file.
    file_first: u64,
    file_pages: Vec<Bytes>,
    trouble: Option<Trouble>,
    /// Calls that failed because of a fault.
    failed: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Own(Bytes),
    File(usize),
}

/// The bytes of a page: the first ones, and what determines the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bytes {
    head: [u8; HEAD],
    tail: Tail,
}

const HEAD: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tail {
    Filled(u8),
    /// Can't be compressed.
    Random(u64),
    /// Compresses to a quarter.
    Sparse(u64),
}

impl Bytes {
    const ZEROS: Self = Self::filled(0);

    const fn filled(byte: u8) -> Self {
        Self { head: [byte; HEAD], tail: Tail::Filled(byte) }
    }

    fn new(random: &mut Random) -> Self {
        let (seed, byte) = (random.next_u64(), random.below(3) as u8);
        let tail = [Tail::Filled(byte), Tail::Random(seed), Tail::Sparse(seed)][random.below(3) as usize];
        Self { head: [byte; HEAD], tail }
    }

    fn all(&self) -> Vec<u8> {
        let word = |at: u64| match self.tail {
            Tail::Filled(byte) => [byte; 8],
            Tail::Sparse(seed) if !at.is_multiple_of(8) => [seed as u8; 8],
            Tail::Random(seed) | Tail::Sparse(seed) => mix(seed ^ at).to_ne_bytes(),
        };
        let mut all: Vec<u8> = (0..PAGE / 8).flat_map(word).collect();
        all[..HEAD].copy_from_slice(&self.head);
        all
    }
}

impl Model {
    fn bytes(&mut self, page: usize) -> Option<&mut Bytes> {
        match &mut self.pages[page] {
            None => None,
            Some((_, Content::Own(bytes))) => Some(bytes),
            Some((_, Content::File(page))) => self.file_pages.get_mut(*page),
        }
    }

    /// Makes a call to the pages at `range`, and checks whether it succeeds. Returns `None` if it
    /// fails, as it should, or because of a fault.
    fn call<T>(&self, range: &Range<u64>, should: bool, mut call: impl FnMut() -> Result<T, Error>) -> Option<T> {
        if let Some(trouble) = self.trouble.as_ref().filter(|_| should) {
            let result = trouble.call(range, call);
            self.failed.set(self.failed.get() + u64::from(result.is_none()));
            return result;
        }
        let result = call();
        assert_eq!(result.is_ok(), should, "{range:#x?}: {:?}", result.err());
        result.ok()
    }

    fn step(&mut self, space: &Space, random: &mut Random) {
        let count = self.pages.len();
        let start = random.below(count as u64) as usize;
        let end = start + 1 + random.below((count - start) as u64).min(random.below(6)) as usize;
        let (at, first) = (start..end, self.first);
        let address_of = |page: usize| (first + page as u64) * PAGE;
        let range = address_of(start)..address_of(end);
        let protection = [RW, RW, Protection::Read, Protection::None][random.below(4) as usize];
        let mapped = self.pages[at.clone()].iter().all(Option::is_some);
        let free = self.pages[at.clone()].iter().all(Option::is_none);
        let offset = random.below(9) as usize;
        let address = range.start + offset as u64;
        let may = self.pages[start].map(|page| page.0);
        let here = range.start..range.start + PAGE;
        let (may_read, may_write) = (may.is_some_and(|may| may != Protection::None), may == Some(RW));
        match random.below(16) {
            0 => {
                if self.call(&range, free, || space.map_at(range.clone(), protection)).is_some() {
                    self.pages[at].fill(Some((protection, Content::Own(Bytes::ZEROS))));
                }
            }
            1 | 2 => {
                // The range may reach past the thread's part of the file, where there are other
                // threads' pages, or none.
                let page = random.below(self.file_pages.len() as u64);
                let page = page.min((self.file_pages.len() - at.len()) as u64) as usize;
                let offset = (self.file_first + page as u64) * PAGE;
                let map = || space.map_file_at(range.clone(), &self.file, offset, protection);
                if self.call(&range, free, map).is_some() {
                    for (at, page) in at.zip(page..) {
                        self.pages[at] = Some((protection, Content::File(page)));
                    }
                }
            }
            3 => {
                if self.call(&range, mapped, || space.unmap(range.clone())).is_some() {
                    self.pages[at].fill(None);
                }
            }
            4 => {
                if self.call(&range, mapped, || space.protect(range.clone(), protection)).is_some() {
                    self.pages[at].iter_mut().flatten().for_each(|page| page.0 = protection);
                }
            }
            5 => {
                let advice = [Advice::DontNeed, Advice::PageOut, Advice::Cold, Advice::WillNeed, Advice::Sequential];
                let advice = advice[random.below(5) as usize];
                let discards = random.below(3) == 0;
                let advise =
                    || if discards { space.discard(range.clone()) } else { space.advise(range.clone(), advice) };
                let is_done = self.call(&range, mapped, advise).is_some();
                if is_done && (discards || advice == Advice::DontNeed) {
                    let zero = |page: &mut (Protection, Content)| {
                        if let Content::Own(bytes) = &mut page.1 {
                            *bytes = Bytes::ZEROS;
                        }
                    };
                    self.pages[at].iter_mut().flatten().for_each(zero);
                }
            }
            6 => {
                let to = random.below((count - at.len() + 1) as u64) as usize;
                let target = to..to + at.len();
                let disjoint = target.end <= start || end <= target.start;
                let possible = mapped && disjoint && self.pages[target.clone()].iter().all(Option::is_none);
                if self.call(&range, possible, || space.move_to(range.clone(), address_of(to))).is_some() {
                    for (from, to) in at.zip(target) {
                        self.pages[to] = self.pages[from].take();
                    }
                }
            }
            7..=9 => {
                let bytes = random.next_u64().to_ne_bytes();
                let by_guard = random.below(3) == 0;
                let write = || match by_guard {
                    true => space.page_mut_at(address).map(|mut page| page[offset..offset + 8].copy_from_slice(&bytes)),
                    false => space.write_at(&bytes, address),
                };
                if self.call(&here, may_write, write).is_some()
                    && let Some(page) = self.bytes(start)
                {
                    page.head[offset..offset + 8].copy_from_slice(&bytes);
                }
            }
            10 => {
                let update = || space.update_u64(range.start, |before| Some(before.wrapping_add(3)));
                if let (Some(before), Some(page)) = (self.call(&here, may_write, update), self.bytes(start)) {
                    assert_eq!(before.to_ne_bytes(), page.head[..8]);
                    page.head[..8].copy_from_slice(&before.wrapping_add(3).to_ne_bytes());
                }
            }
            11 => {
                let page = random.below(self.file_pages.len() as u64) as usize;
                let bytes = random.next_u64().to_ne_bytes();
                let write = || self.file.write_at(&bytes, (self.file_first + page as u64) * PAGE + 8);
                if self.call(&here, true, write).is_some() {
                    self.file_pages[page].head[8..].copy_from_slice(&bytes);
                }
            }
            12 => self.overwrite(space, start, random),
            13 => match &self.trouble {
                Some(trouble) if random.one_in(4) => trouble.meddle(random),
                _ => self.check(space, start),
            },
            _ => {
                let by_guard = random.below(3) == 0;
                let mut bytes = [1; 8];
                let read = || match by_guard {
                    true => space.page_at(address).map(|page| bytes.copy_from_slice(&page[offset..offset + 8])),
                    false => space.read_at(&mut bytes, address),
                };
                if self.call(&here, may_read, read).is_some()
                    && let Some(page) = self.bytes(start)
                {
                    assert_eq!(bytes, page.head[offset..offset + 8], "at {address:#x}");
                }
            }
        }
    }

    /// Maps and writes all pages.
    fn fill(&mut self, space: &Space, random: &mut Random) {
        let all = self.first * PAGE..(self.first + self.pages.len() as u64) * PAGE;
        if self.call(&all, true, || space.map_at(all.clone(), RW)).is_some() {
            self.pages.fill(Some((RW, Content::Own(Bytes::ZEROS))));
        }
        for page in 0..self.pages.len() {
            self.overwrite(space, page, random);
        }
    }

    /// Writes a whole page.
    fn overwrite(&mut self, space: &Space, page: usize, random: &mut Random) {
        let address = (self.first + page as u64) * PAGE;
        let may = self.pages[page].is_some_and(|page| page.0 == RW);
        let new = Bytes::new(random);
        let bytes = new.all();
        if self.call(&(address..address + PAGE), may, || space.write_at(&bytes, address)).is_some()
            && let Some(page) = self.bytes(page)
        {
            *page = new;
        }
    }

    /// Reads a whole page.
    fn check(&mut self, space: &Space, page: usize) {
        let address = (self.first + page as u64) * PAGE;
        let may = self.pages[page].is_some_and(|page| page.0 != Protection::None);
        let mut bytes = vec![0xa5; PAGE as usize];
        if self.call(&(address..address + PAGE), may, || space.read_at(&mut bytes, address)).is_some()
            && let Some(page) = self.bytes(page)
        {
            assert_same(&bytes, &page.all(), &format!("the page at {address:#x}"));
        }
    }

    /// Makes all that is mapped accessible, and checks it.
    fn check_all(&mut self, space: &Space) {
        for page in 0..self.pages.len() {
            let start = (self.first + page as u64) * PAGE;
            let here = start..start + PAGE;
            if self.pages[page].is_some() && self.call(&here, true, || space.protect(here.clone(), RW)).is_some() {
                self.pages[page].iter_mut().for_each(|page| page.0 = RW);
            }
            self.check(space, page);
        }
    }
}

const THREADS: u64 = 4;
const PART: u64 = 37;
const FILE_PART: u64 = 16;

/// What happened.
#[derive(Debug, Default)]
struct Seen {
    faults: u64,
    failed: u64,
    swapped_out: u64,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.faults += more.faults;
        self.failed += more.failed;
        self.swapped_out += more.swapped_out;
    }
}

/// Runs the threads, for `steps` steps each.
fn run(seed: u64, world: &World, trouble: Option<&Trouble>, steps: u64) -> Seen {
    let space = world.group.space().unwrap();
    let file = world.file("f", THREADS * FILE_PART * PAGE);
    trouble.into_iter().for_each(|trouble| trouble.begin(seed));
    let first = (1 << 18) + 512 - 2 * PART;
    let models = Arc::new(Mutex::new(Vec::new()));
    let (theirs, shared, done, trouble_of_all) = (space.clone(), file.clone(), Arc::clone(&models), trouble.cloned());
    let at_work = threads(THREADS, move |thread| {
        let file_first = thread * FILE_PART;
        let file_pages = (file_first..file_first + FILE_PART).map(|page| Bytes::filled(page as u8 + 1)).collect();
        let mut model = Model {
            first: first + thread * PART,
            pages: vec![None; PART as usize],
            file: shared.clone(),
            file_first,
            file_pages,
            trouble: trouble_of_all.clone(),
            failed: Cell::new(0),
        };
        let mut random = Random::seeded(seed * THREADS + thread);
        if model.trouble.is_some() {
            model.fill(&theirs, &mut random);
        }
        (0..steps).for_each(|_| model.step(&theirs, &mut random));
        done.lock().push(model);
    });
    join(at_work);
    let mut models = std::mem::take(&mut *models.lock());
    let mut seen = Seen { failed: models.iter().map(|model| model.failed.get()).sum(), ..Seen::default() };
    trouble.into_iter().for_each(Trouble::end);
    models.iter_mut().for_each(|model| model.check_all(&space));
    if let Some(trouble) = trouble {
        trouble.remove_all();
        models.iter_mut().for_each(|model| model.check_all(&space));
        (seen.faults, seen.swapped_out) = (trouble.fired(), world.group.stats().swap_outs);
    }
    drop((space, file, models));
    assert!(world.is_freed(), "seed {seed}");
    seen
}

#[test]
fn many_threads_agree_with_a_plain_model() {
    for seed in sync::random::seeds(40) {
        // On half of the seeds, the limit is so low that pages of files are evicted.
        let world = World::new(if seed % 2 == 0 { "32MiB" } else { "1MiB" });
        run(seed, &world, None, 400);
    }
}

/// The order in which the threads run decides which areas come and go meanwhile, and which calls
/// meet a fault. The verdict doesn't depend on it.
#[test]
#[ignore = "for cargo xtask prove swap --hours: the threads' order decides how each run goes"]
fn pages_stay_what_was_written_while_swap_areas_come_and_go_and_fail() {
    let mut seen = Seen::default();
    for seed in sync::random::seeds(40) {
        let run = || {
            let trouble = Trouble::new(seed);
            let world = World::of(trouble.mm().clone(), trouble.group().clone());
            let seen = run(seed, &world, Some(&trouble), 800);
            eventually("a slot of no page isn't free", || {
                world.mm.stats().swap.iter().all(|area| area.used_bytes == 0) && world.group.stats().swapped_bytes == 0
            });
            eventually("frames are lost", || {
                let stats = world.mm.stats();
                stats.free_bytes + stats.retired_frames * PAGE == stats.used_bytes - stats.metadata_bytes
            });
            seen
        };
        seen += catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("repeat with: PAGEFOLD_SEED={seed} cargo test -p pagefold --test space -- --ignored pages_stay");
            resume_unwind(panic)
        });
    }
    println!("{seen:?}");
}
