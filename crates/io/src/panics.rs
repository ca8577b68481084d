//! Calls of a backend that panic. Backends may be users' code.

use sync::tasks::survive;

use crate::IoError;

/// Calls a backend. A call that panics counts as an I/O error, so that its caller takes back what
/// it has begun and reports the failure.
///
/// # Errors
/// The call's; [`IoError::IO`] if it panics.
pub fn failing_if_it_panics<T>(call: impl FnOnce() -> Result<T, IoError>) -> Result<T, IoError> {
    let mut result = Err(IoError::IO);
    if !survive(|| result = call()) {
        // Sometimes: a backend panics.
        tracing::error!("a call of the backend panicked");
    }
    result
}
