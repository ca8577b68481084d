//! Write errors of one file: each of its handles hears of each failure once.
//!
//! What couldn't be written stays in memory, dirty, and is tried again; the latch is for telling.
//! It is the idea of Linux's `errseq_t`: failures are numbered, and a handle remembers the last one
//! that it was told.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use io::IoError;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct ErrorLatch {
    /// Failures so far, and the last one.
    last: Mutex<(u64, Option<IoError>)>,
    /// The last attempt failed, and none since has gone well.
    failing: AtomicU64,
}

/// What one handle was told.
#[derive(Debug)]
pub(crate) struct Heard(AtomicU64);

impl ErrorLatch {
    /// Notes a failure.
    pub(crate) fn fail(&self, error: IoError) {
        let mut last = self.last.lock();
        *last = (last.0 + 1, Some(error));
        self.failing.store(1, Ordering::Relaxed);
    }

    /// Notes that all that was tried went well.
    pub(crate) fn heal(&self) {
        self.failing.store(0, Ordering::Relaxed);
    }

    /// Why the file can't be written now, if so.
    pub(crate) fn failing(&self) -> Option<IoError> {
        // Relaxed: a hint to threads that would wait for the file's pages to become clean.
        if self.failing.load(Ordering::Relaxed) == 0 { None } else { self.last.lock().1 }
    }

    /// For a handle that is opened now: it isn't told of what was before.
    pub(crate) fn listen(&self) -> Heard {
        Heard(AtomicU64::new(self.last.lock().0))
    }

    /// The last failure, if there was one that the handle wasn't told of.
    pub(crate) fn tell(&self, heard: &Heard) -> Option<IoError> {
        let last = self.last.lock();
        // Relaxed: under the lock.
        let before = heard.0.swap(last.0, Ordering::Relaxed);
        last.1.filter(|_| before != last.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_hears_once() {
        let latch = ErrorLatch::default();
        let (one, other) = (latch.listen(), latch.listen());
        assert_eq!((latch.tell(&one), latch.failing()), (None, None));
        latch.fail(IoError::IO);
        latch.fail(IoError::INVALID);
        assert_eq!((latch.tell(&one), latch.tell(&one)), (Some(IoError::INVALID), None));
        assert_eq!(latch.failing(), Some(IoError::INVALID));
        latch.heal();
        assert_eq!(
            (latch.failing(), latch.tell(&other), latch.tell(&latch.listen())),
            (None, Some(IoError::INVALID), None)
        );
    }
}
