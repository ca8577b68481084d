//! Write errors of one file. After one or more failures, each handle of the file reports the last
//! failure, once.
//!
//! Pages that couldn't be written stay in memory, dirty, and the flusher retries the write. The
//! latch only reports the failure to the file's handles. The idea is that of Linux's `errseq_t`:
//! failures are numbered, and each handle remembers the number of the last failure that the handle
//! reported.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use io::IoError;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct ErrorLatch {
    /// The number of failures so far, and the last failure.
    last: Mutex<(u64, Option<IoError>)>,
    /// 1 if a write failed, and no round of the whole file has succeeded since.
    failing: AtomicU64,
}

/// The last failure that one handle has reported.
#[derive(Debug)]
pub(crate) struct Heard(AtomicU64);

impl ErrorLatch {
    /// Notes a failure.
    pub(crate) fn fail(&self, error: IoError) {
        let mut last = self.last.lock();
        *last = (last.0 + 1, Some(error));
        self.failing.store(1, Ordering::Relaxed);
    }

    /// Notes that a whole round of writes succeeded.
    pub(crate) fn heal(&self) {
        self.failing.store(0, Ordering::Relaxed);
    }

    /// Returns why the file can't be written now, if it can't.
    pub(crate) fn failing(&self) -> Option<IoError> {
        // Relaxed: a hint to threads that would wait for the file's pages to become clean.
        if self.failing.load(Ordering::Relaxed) == 0 { None } else { self.last.lock().1 }
    }

    /// Returns the state for a newly opened handle, which doesn't report earlier failures.
    pub(crate) fn listen(&self) -> Heard {
        Heard(AtomicU64::new(self.last.lock().0))
    }

    /// Returns the last failure, if the handle hasn't reported it yet.
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
