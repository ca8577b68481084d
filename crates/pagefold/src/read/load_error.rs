//! Encodes the error of a load for the threads that wait for it.

use frames::LoadFailure;

use io::IoError;

/// Encodes an [`IoError`] as a number for the waiting threads: the system's error number, which is
/// positive, or −1 if the error has none.
pub(crate) fn encode(error: IoError) -> LoadFailure {
    LoadFailure(error.errno().unwrap_or(-1))
}

pub(crate) fn decode(failure: LoadFailure) -> IoError {
    if failure.0 > 0 { IoError::Os(failure.0) } else { IoError::NoProgress }
}
