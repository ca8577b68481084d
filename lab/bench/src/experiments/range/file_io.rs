//! Reads and writes of one cached file, 4 KiB each. With an older design, a lock over ranges
//! protects the file's pages. Pagefold is used like in an application.

use std::hint::black_box;

use anyhow::Result;
use pagefold::{File, Pagefold};
use span_lock::LockRange;
use sync::random::Random;
use test_disks::{SimulatedDisk, Timing};

use super::{FileLock, OVERLAPPING_IO};
use crate::experiments::older::records::Pages;
use crate::experiments::older::rw_sem::Use;
use crate::scaling::job::Job;
use crate::scaling::sample::Sample;
use crate::scaling::stage::own_work;

const PAGE: u64 = 4096;
/// The number of pages of each task's own part, and of the part that all tasks share.
const PART: u64 = 1024;
/// The time of an operation of the older designs under the lock. It is the only figure that is
/// fitted to the published table, in which one process made 57,000 reads and as many writes a
/// second.
const INSIDE_NS: u64 = 7_800;
/// What they do before and after: the system call. A guess.
const OUTSIDE_NS: u64 = 500;

/// A file whose pages are all in memory.
trait CachedFile: Sync {
    /// For so many tasks, with a part for each.
    fn new(tasks: usize) -> Self;
    /// Reads a page.
    fn read(&self, task: usize, page: u64, into: &mut [u8; PAGE as usize]);
    /// Writes one.
    fn write(&self, task: usize, page: u64, from: &[u8; PAGE as usize]);
}

/// Pages under a lock.
struct Locked<L> {
    lock: L,
    pages: Pages,
}

impl<L: FileLock> Locked<L> {
    fn with(&self, task: usize, page: u64, what: Use, inside: impl FnOnce()) {
        own_work(OUTSIDE_NS);
        let range = LockRange::at(black_box(page * PAGE), black_box(PAGE)).unwrap_or(LockRange::FULL);
        self.lock.with(task, range, what, || {
            own_work(INSIDE_NS);
            inside();
        });
    }
}

impl<L: FileLock> CachedFile for Locked<L> {
    fn new(tasks: usize) -> Self {
        Self { lock: L::new(tasks), pages: Pages::new(tasks * PART as usize) }
    }

    fn read(&self, task: usize, page: u64, into: &mut [u8; PAGE as usize]) {
        self.with(task, page, Use::Read, || self.pages.copy(page as u32, into));
    }

    fn write(&self, task: usize, page: u64, from: &[u8; PAGE as usize]) {
        self.with(task, page, Use::Write, || self.pages.fill(page as u32, from));
    }
}

/// Pagefold's file.
struct Own {
    file: File,
    _manager: Pagefold,
}

impl CachedFile for Own {
    fn new(tasks: usize) -> Self {
        let disk = SimulatedDisk::new(Timing::default());
        let bytes = tasks as u64 * PART * PAGE;
        disk.add_bytes("/file", vec![0; bytes as usize]);
        let builder = Pagefold::builder().memory(2 * bytes + (64 << 20)).backend(disk);
        let manager = builder.build().expect("a budget that is large enough");
        let group = manager.group("tasks").build().expect("a group without a limit of its own");
        let file = group.open_options().write(true).open("/file").expect("the disk has the file");
        Self { file, _manager: manager }
    }

    fn read(&self, _: usize, page: u64, into: &mut [u8; PAGE as usize]) {
        self.file.read_exact_at(into, page * PAGE).expect("the page is in memory");
    }

    fn write(&self, _: usize, page: u64, from: &[u8; PAGE as usize]) {
        self.file.write_at(from, page * PAGE).expect("the page is in memory");
    }
}

/// A task, and what it does next.
struct User {
    task: usize,
    first: u64,
    random: Random,
    bytes: Box<[u8; PAGE as usize]>,
}

fn run<F: CachedFile + Send>(job: &Job<'_>) -> Result<Sample> {
    let shares = job.workload.name == OVERLAPPING_IO.name;
    let operation = |file: &F, user: &mut User| {
        let page = user.first + user.random.below(PART);
        match user.random.one_in(2) {
            true => file.read(user.task, page, &mut user.bytes),
            false => file.write(user.task, page, &user.bytes),
        }
    };
    let begin = |file: &F, task: usize| {
        let first = if shares { 0 } else { task as u64 * PART };
        let mut user = User { task, first, random: Random::seeded(task as u64), bytes: Box::new([1; PAGE as usize]) };
        (0..PART).for_each(|page| file.read(task, first + page, &mut user.bytes));
        (0..64).for_each(|_| operation(file, &mut user));
        user
    };
    job.measure(|| F::new(job.tasks), begin, operation)
}

/// Measures the file under a lock.
pub(super) fn measure_locked<L: FileLock + Send>(job: &Job<'_>) -> Result<Sample> {
    run::<Locked<L>>(job)
}

/// Measures Pagefold's file.
pub(super) fn measure_own(job: &Job<'_>) -> Result<Sample> {
    run::<Own>(job)
}
