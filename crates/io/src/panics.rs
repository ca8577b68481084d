//! Calls of a backend that panic. Backends may be users' code.

use sync::tasks::survive;

use crate::IoError;

/// Calls `what`. Returns `None` if it panics, as the user's backend may. This is for callers that
/// have to continue after a panic. For example, a worker still has to notify the thread or the task
/// that waits for it.
pub fn unless_it_panics<T>(what: impl FnOnce() -> T) -> Option<T> {
    let mut result = None;
    if !survive(|| result = Some(what())) {
        // Sometimes: a backend panics.
        tracing::error!("a call of the backend panicked");
    }
    result
}

/// Calls a backend. A call that panics counts as an I/O error, so that its caller takes back what
/// it has begun and reports the failure.
///
/// # Errors
/// The call's; [`IoError::IO`] if it panics.
pub fn failing_if_it_panics<T>(call: impl FnOnce() -> Result<T, IoError>) -> Result<T, IoError> {
    unless_it_panics(call).unwrap_or(Err(IoError::IO))
}
