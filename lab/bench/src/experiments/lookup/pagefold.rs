//! The product: `File::read_at` of a file that is in memory.

use std::ops::Range;
use std::sync::OnceLock;

use pagefold::{Advice, File, Group, Pagefold, Protection, Space};
use test_disks::{SimulatedDisk, Timing};

use super::{PAGE, PageCache, contents, measure};
use crate::experiments::OURS;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "Pagefold's read_at: load the page's word, copy, look again; nothing shared is written",
    hidden: false,
    measure: |job| measure(job, Cached::new),
};

/// A file, and what keeps it in memory.
pub(super) struct Cached {
    file: File,
    /// A space for each task, and where the file is mapped there. `std`'s cells: a process has its
    /// space from the start.
    mappings: Box<[OnceLock<(Space, u64)>]>,
    group: Group,
    bytes: u64,
    _manager: Pagefold,
}

impl Cached {
    /// A file of so many pages.
    pub(super) fn new(pages: u64, tasks: usize) -> Self {
        // What the older designs put back, they put back without a device.
        let instant = Timing { latency_ns: 0, bytes_per_second: 0, queue_depth: 256, sync_ns: 0 };
        let disk = SimulatedDisk::new(instant);
        let word = |_, offset: u64| if offset.is_multiple_of(PAGE as u64) { contents(offset / PAGE as u64) } else { 0 };
        disk.add_with("/file", 0, pages * PAGE as u64, word);
        let budget = 2 * pages * PAGE as u64 + (16 << 20);
        let manager = Pagefold::builder().memory(budget).backend(disk).build().expect("a budget that is large enough");
        let group = manager.group("readers").build().expect("a group without a limit of its own");
        let file = group.open("/file").expect("the disk has the file");
        let mappings = (0..tasks).map(|_| OnceLock::new()).collect();
        Self { file, mappings, group, bytes: pages * PAGE as u64, _manager: manager }
    }
}

impl PageCache for Cached {
    /// A read through a mapping is a call, without a trap.
    const FAULT_NS: u64 = 0;

    #[inline]
    fn read(&self, page: u64, into: &mut [u8]) {
        self.file.read_at(into, page * PAGE as u64).expect("the page is in memory");
    }

    fn map(&self, task: usize, pages: Range<u64>) {
        for page in pages {
            self.read(page, &mut [0; 8]);
        }
        self.mappings[task].get_or_init(|| {
            let space = self.group.space().expect("room for a space");
            let mapped = space.map_file(&self.file, 0, self.bytes, Protection::Read).expect("a mapping");
            (space, mapped.start)
        });
    }

    fn fault(&self, task: usize, page: u64, into: &mut [u8]) {
        let (space, start) = self.mappings[task].get().expect("the task has mapped the file");
        space.read_at(into, start + page * PAGE as u64).expect("the page is in memory");
    }

    fn change(&self, page: u64) {
        let start = page * PAGE as u64;
        self.file.advise(start..start + PAGE as u64, Advice::DontNeed).expect("the page is clean");
        self.read(page, &mut [0; 8]);
    }
}
