//! Pagefold: a file that is in memory, read by `File::read_at`, or through a space that maps it.

use std::ops::Range;
use std::sync::OnceLock;

use pagefold::{Advice, File, Group, Pagefold, Protection, Space};

use super::{PAGE, PageCache, contents, measure};
use crate::experiments::OURS;
use crate::experiments::zeros;
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
    /// What each task has. These cells are `std`'s, so that they cost nothing on virtual CPUs: a
    /// real process has its address space from the start.
    processes: Box<[OnceLock<Process>]>,
    group: Group,
    bytes: u64,
    _manager: Pagefold,
}

/// A task's space, where the file is mapped there, and its own handle of the file.
struct Process {
    space: Space,
    start: u64,
    file: File,
}

impl Cached {
    /// A file of so many pages.
    pub(super) fn new(pages: u64, tasks: usize) -> Self {
        // Without a device, because the older designs put pages back without one.
        let manager = zeros::manager_of(2 * pages, contents);
        let group = manager.group("readers").build().expect("a group without a limit of its own");
        let file = zeros::open(&group, 0);
        let processes = (0..tasks).map(|_| OnceLock::new()).collect();
        Self { file, processes, group, bytes: pages * PAGE as u64, _manager: manager }
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
        self.processes[task].get_or_init(|| {
            let space = self.group.space().expect("room for a space");
            let mapped = space.map_file(&self.file, 0, self.bytes, Protection::Read).expect("a mapping");
            Process { space, start: mapped.start, file: zeros::open(&self.group, 0) }
        });
    }

    fn fault(&self, task: usize, page: u64, into: &mut [u8]) {
        let Process { space, start, .. } = self.processes[task].get().expect("the task has mapped the file");
        space.read_at(into, start + page * PAGE as u64).expect("the page is in memory");
    }

    fn change(&self, task: usize, page: u64) {
        let start = page * PAGE as u64;
        let file = &self.processes[task].get().expect("the task has mapped the file").file;
        file.advise(start..start + PAGE as u64, Advice::DontNeed).expect("the page is clean");
        file.read_at(&mut [0; 8], start).expect("the budget holds the file");
    }
}
