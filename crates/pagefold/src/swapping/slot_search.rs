//! The state of the search for outdated swap slots, which pages in memory still hold (`swap_out`).

use swap::Position;

/// When and where the last search ended.
#[derive(Debug, Default)]
pub(crate) struct SlotSearch {
    pub(crate) last: Option<sync::time::Instant>,
    pub(crate) position: Position,
}
