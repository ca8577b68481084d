//! The product: a task's region is a part of a file of its own, of zeros; pages are touched by reading them, and unmapped by
//! saying that they aren't needed.

use pagefold::{Advice, File, Group, Pagefold};

use super::{Memory, REGION, measure};
use crate::experiments::OURS;
use crate::experiments::zeros::Zeros;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "Pagefold: concurrent lists for each group, batches in and out, stocks of frames and charges with each CPU",
    hidden: false,
    measure: measure::<Product>,
};

const PAGE: u64 = 4096;

struct Product {
    groups: Vec<Group>,
    _manager: Pagefold,
}

impl Memory for Product {
    type Task = File;

    fn new(tasks: usize, groups: usize) -> Self {
        // Frames that CPUs keep in stock, and extents that aren't full, besides the regions; files and groups.
        let budget = tasks as u64 * 4 * REGION * PAGE + (256 << 20);
        let manager = Pagefold::builder().memory(budget).backend(Zeros).build().expect("a budget that is large enough");
        let group = |number| manager.group(&format!("group {number}")).build().expect("room for a group");
        Self { groups: (0..groups).map(group).collect(), _manager: manager }
    }

    fn begin(&self, task: usize) -> File {
        self.groups[task % self.groups.len()].open(format!("/{task}")).expect("the file is there")
    }

    fn touch(&self, file: &mut File, page: u64) {
        file.read_at(&mut [0; 8], page * PAGE).expect("zeros");
    }

    fn unmap(&self, file: &mut File) {
        file.advise(Advice::DontNeed, 0..REGION * PAGE).expect("the range is in the file");
    }
}
