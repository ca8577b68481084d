//! Calls of a backend that panic. Backends may be users' code.

use sync::tasks::survive;

use crate::IoError;

/// Calls `what`. Returns `None` if `what` panics, for example in the user's backend. This is for
/// callers that have to continue after a panic. For example, a worker still has to notify the
/// thread or the task that waits for it.
pub fn unless_it_panics<T>(what: impl FnOnce() -> T) -> Option<T> {
    let mut result = None;
    if !survive(|| result = Some(what())) {
        // Sometimes: a backend panics.
        tracing::error!("a call of the backend panicked");
    }
    result
}

/// Calls a backend. A call that panics counts as an I/O error. So the caller can undo the operation
/// that it has begun, and report the failure.
///
/// # Errors
/// The call's; [`IoError::IO`] if it panics.
pub fn failing_if_it_panics<T>(call: impl FnOnce() -> Result<T, IoError>) -> Result<T, IoError> {
    unless_it_panics(call).unwrap_or(Err(IoError::IO))
}
