//! Which errors are due.

use pagefold::Error;
use pagefold::io::IoError;
use test_disks::FaultKind;

use crate::world::World;

impl World {
    /// An error is fine if a fault fired, or if pins stand in the way.
    pub(crate) fn tolerate(&mut self, error: &Error, pins: usize) {
        match error {
            Error::ReadFailed { error, .. } | Error::WriteFailed { error, .. } => self.was_made(*error),
            Error::LimitReached { .. } => {
                assert!(pins > 0 || self.rate > 0, "{error}");
                self.seen.limit_reached += 1;
            }
            error => panic!("{error}"),
        }
    }

    /// Fails unless the device was told to answer so. What is interrupted or cut short is continued;
    /// no other process changes the files. `EAGAIN` is repeated for reads and writes alone.
    pub(crate) fn was_made(&self, error: IoError) {
        let kind = match error {
            IoError::Os(5 | 28 | 12) => FaultKind::Errno,
            IoError::AGAIN => FaultKind::Again,
            _ => panic!("{error}"),
        };
        assert!(self.faulty.fired(kind) > 0, "without a fault: {error}");
    }
}
