//! The product: a task's region is a part of a file of its own, of zeros; pages are touched by
//! reading them, and unmapped by saying that they aren't needed.

use pagefold::{Advice, File, Group, Pagefold};

use super::{Memory, REGION, measure};
use crate::experiments::OURS;
use crate::experiments::zeros::{self, PAGE};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "Pagefold: concurrent lists for each group, batches in and out, stocks of frames and charges with each CPU",
    hidden: false,
    measure: measure::<Product>,
};

struct Product {
    groups: Vec<Group>,
    _manager: Pagefold,
}

impl Memory for Product {
    type Task = File;

    fn new(tasks: usize, groups: usize) -> Self {
        let manager = zeros::manager(tasks as u64 * 4 * REGION);
        Self { groups: zeros::groups(&manager, groups, None), _manager: manager }
    }

    fn begin(&self, task: usize) -> File {
        zeros::open(&self.groups[task % self.groups.len()], task)
    }

    fn touch(&self, file: &mut File, page: u64) {
        file.read_at(&mut [0; 8], page * PAGE).expect("zeros");
    }

    fn unmap(&self, file: &mut File) {
        file.advise(0..REGION * PAGE, Advice::DontNeed).expect("the range is in the file");
    }
}
