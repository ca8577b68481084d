//! Tells the first call in a process from all others, for messages that are logged once.

use core::sync::atomic::{AtomicBool, Ordering};

/// A flag that is raised once. Unlike [`std::sync::Once`], no thread ever waits for it. So a forked
/// child can't wait for a thread of its parent that was about to log the message.
///
/// It is the same in models and on virtual CPUs: only logs depend on it.
#[derive(Debug, Default)]
pub struct FirstTime(AtomicBool);

impl FirstTime {
    /// Creates a flag that isn't raised.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Raises the flag. Returns true for the first caller only.
    pub fn is_now(&self) -> bool {
        // Relaxed: it doesn't matter which thread logs the message.
        !self.0.swap(true, Ordering::Relaxed)
    }
}
