//! Whether the budget is being lowered (`room`).

use sync::atomic::AtomicBool;
use sync::lock::Mutex;

/// A budget that is being lowered.
#[derive(Debug, Default)]
pub(crate) struct Lowering {
    /// One at a time.
    pub(super) turn: Mutex<()>,
    /// Extents are being given back just now.
    pub(super) drains: AtomicBool,
}
