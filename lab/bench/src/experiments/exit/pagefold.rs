//! Pagefold: spaces that have mapped a file. A mapping has no page table, so only a few entries
//! have to be removed when it ends. Each page's use was already recorded in its word when it was
//! read.

use pagefold::{Advice, File, Group, Pagefold, Protection, Space};

use super::{Memory, SHARED, measure};
use crate::experiments::OURS;
use crate::experiments::zeros::{self, PAGE};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "Pagefold: a mapping is an entry, whatever its size; there is nothing to hand on at its end",
    hidden: false,
    measure: measure::<Product>,
};

struct Product {
    group: Group,
    shared: File,
    _manager: Pagefold,
}

impl Memory for Product {
    type Space = Space;

    fn new(_: usize) -> Self {
        let manager = zeros::manager(2 * SHARED);
        let group = manager.group("spaces").build().expect("room for a group");
        let shared = zeros::open(&group, 0);
        shared.advise(0..SHARED * PAGE, Advice::WillNeed).expect("zeros");
        Self { group, shared, _manager: manager }
    }

    fn begin(&self) -> Space {
        let space = self.group.space().expect("room for a space");
        let mapped = space.map_file(&self.shared, 0, SHARED * PAGE, Protection::Read).expect("a mapping");
        for page in 0..SHARED {
            space.read_at(&mut [0; 8], mapped.start + page * PAGE).expect("zeros");
        }
        space
    }

    /// All of it goes at the end.
    fn unmap(&self, _: &mut Space, _: u64) {}

    fn end(&self, space: Space) {
        drop(space);
    }
}
