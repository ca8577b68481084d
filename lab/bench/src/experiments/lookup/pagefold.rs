//! The product: `File::read_at` of a file that is in memory.

use pagefold::{File, Pagefold};
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
    _manager: Pagefold,
}

impl Cached {
    /// A file of so many pages, all in memory.
    pub(super) fn new(pages: u64) -> Self {
        let disk = SimulatedDisk::new(Timing::default());
        let word = |_, offset: u64| if offset.is_multiple_of(PAGE as u64) { contents(offset / PAGE as u64) } else { 0 };
        disk.add_with("/file", 0, pages * PAGE as u64, word);
        let budget = 2 * pages * PAGE as u64 + (16 << 20);
        let manager = Pagefold::builder().memory(budget).backend(disk).build().expect("a budget that is large enough");
        let group = manager.group("readers").build().expect("a group without a limit of its own");
        let file = group.open("/file").expect("the disk has the file");
        for page in 0..pages {
            file.read_at(&mut [0; 8], page * PAGE as u64).expect("the budget holds the file");
        }
        Self { file, _manager: manager }
    }
}

impl PageCache for Cached {
    #[inline]
    fn read(&self, page: u64, into: &mut [u8]) {
        self.file.read_at(into, page * PAGE as u64).expect("the page is in memory");
    }
}
