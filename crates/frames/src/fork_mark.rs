//! A mark that a forked child doesn't inherit.
//!
//! The child of a fork has none of the parent's frames: their memory isn't copied, and page words read as *vacant*
//! there. So a lookup in the child finds nothing, goes on to load, and is refused there by this mark; the hit path
//! pays nothing for it.

use sync::atomic::{AtomicU64, Ordering};

use crate::error::ReserveError;
use crate::region::{Protection, Region};

/// Zero in a child, one in the process that made it.
#[derive(Debug)]
pub(crate) struct ForkMark(Region<AtomicU64>);

impl ForkMark {
    pub(crate) fn new() -> Result<Self, ReserveError> {
        let words = if cfg!(pagefold_loom) { 1 } else { rustix::param::page_size() / size_of::<AtomicU64>() };
        let page: Region<AtomicU64> =
            Region::reserve(words, Protection { zeros_in_child: true, ..Protection::default() })?;
        page[0].store(1, Ordering::Relaxed);
        Ok(Self(page))
    }

    #[inline]
    pub(crate) fn is_child(&self) -> bool {
        // Relaxed: written before the structure was shared.
        self.0[0].load(Ordering::Relaxed) == 0
    }
}
