//! The product: files of zeros, and groups with limits.

use pagefold::{File, Group, Pagefold};

use super::{MEMORY, PageCache, STRIDE, measure};
use crate::experiments::OURS;
use crate::experiments::zeros::{self, PAGE};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "Pagefold: concurrent lists for each group, by stripes where a group is large; reclaim cuts batches off \
            side by side",
    hidden: false,
    measure: measure::<Product>,
};

struct Product {
    groups: Vec<Group>,
    _manager: Pagefold,
}

struct Reader {
    file: File,
    first: u64,
}

impl PageCache for Product {
    type Reader = Reader;

    fn new(parts: usize, one_group: bool) -> Self {
        let memory = parts as u64 * MEMORY;
        let manager = zeros::manager(2 * memory);
        let (groups, max) = if one_group { (1, memory) } else { (parts, MEMORY) };
        Self { groups: zeros::groups(&manager, groups, Some(max)), _manager: manager }
    }

    fn begin(&self, part: usize, _: usize) -> Reader {
        let group = part % self.groups.len();
        let file = zeros::open(&self.groups[group], group);
        Reader { file, first: if self.groups.len() == 1 { part as u64 * STRIDE } else { 0 } }
    }

    fn read(&self, reader: &mut Reader, page: u64, into: &mut [u8]) {
        reader.file.read_at(into, (reader.first + page) * PAGE).expect("zeros");
    }
}
