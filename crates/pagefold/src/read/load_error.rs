//! The error of a load, for the threads that waited for it.

use frames::LoadFailure;

use io::IoError;

/// An [`IoError`] in the number that waiters get. Error numbers of the system are positive.
pub(crate) fn encode(error: IoError) -> LoadFailure {
    LoadFailure(error.errno().unwrap_or(-1))
}

pub(crate) fn decode(failure: LoadFailure) -> IoError {
    if failure.0 > 0 { IoError::Os(failure.0) } else { IoError::NoProgress }
}
