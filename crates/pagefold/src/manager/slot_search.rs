//! The search for slots that pages in memory keep in vain (`swap_out`).

use swap::Position;

/// Where slots that are kept in vain were last looked for.
#[derive(Debug, Default)]
pub(crate) struct SlotSearch {
    pub(crate) last: Option<sync::time::Instant>,
    pub(crate) position: Position,
}
