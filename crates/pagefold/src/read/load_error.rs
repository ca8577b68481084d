//! Encodes the error of a load for the threads that wait for it.

use frames::LoadFailure;

use io::IoError;

/// Encodes an [`IoError`] as the number that waiting threads get. Error numbers of the system are
/// positive.
pub(crate) fn encode(error: IoError) -> LoadFailure {
    LoadFailure(error.errno().unwrap_or(-1))
}

pub(crate) fn decode(failure: LoadFailure) -> IoError {
    if failure.0 > 0 { IoError::Os(failure.0) } else { IoError::NoProgress }
}
