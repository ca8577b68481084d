//! Write errors of one file. After one or more failures, each handle of the file reports the last
//! failure, once. A later failure never hides that changes were cut off: each handle first reports
//! the last [`IoError::CutOff`], and then the last failure, if that is a different failure.
//!
//! Pages that couldn't be written stay in memory, dirty, and the flusher retries the write. The
//! latch only reports the failure to the file's handles. The idea is that of Linux's `errseq_t`:
//! failures are numbered, and each handle remembers the number of the last failure that the handle
//! reported.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use io::IoError;

/// A cycle met a truncation by another process that isn't adopted yet.
const CUT_OFF: u64 = 1;
/// A write or a sync failed otherwise.
const FAILED: u64 = 2;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct ErrorLatch {
    last: Mutex<Last>,
    /// Why the file can't be written: the flags [`CUT_OFF`] and [`FAILED`]. 0 if it can be written,
    /// as far as is known.
    failing: AtomicU64,
}

#[derive(Debug, Default)]
struct Last {
    /// The number of failures so far, which is the number of the last failure.
    number: u64,
    /// The last failure other than [`IoError::CutOff`].
    error: Option<IoError>,
    /// The number of the last failure that was [`IoError::CutOff`]; 0 if none was.
    cut: u64,
}

/// The number of the last failure that one handle has reported.
#[derive(Debug)]
pub(crate) struct Heard(AtomicU64);

impl ErrorLatch {
    /// Notes a failure.
    pub(crate) fn fail(&self, error: IoError) {
        let mut last = self.last.lock();
        last.number += 1;
        let why = if error == IoError::CutOff {
            last.cut = last.number;
            CUT_OFF
        } else {
            last.error = Some(error);
            FAILED
        };
        self.failing.fetch_or(why, Ordering::Relaxed);
    }

    /// Notes that the file's length was adopted after a truncation. Returns whether only the
    /// truncation kept the file from being written.
    pub(crate) fn cut_adopted(&self) -> bool {
        self.failing.fetch_and(!CUT_OFF, Ordering::Relaxed) == CUT_OFF
    }

    /// Notes that another process's truncation has discarded changes. The file's handles report
    /// this, but it doesn't keep the file from being written.
    pub(crate) fn cut_off(&self) {
        let mut last = self.last.lock();
        last.number += 1;
        last.cut = last.number;
    }

    /// Notes that a whole round of writes succeeded.
    pub(crate) fn heal(&self) {
        self.failing.store(0, Ordering::Relaxed);
    }

    /// Returns why the file can't be written now, if it can't.
    pub(crate) fn failing(&self) -> Option<IoError> {
        // Relaxed: a hint to threads that would wait for the file's pages to become clean.
        match self.failing.load(Ordering::Relaxed) {
            0 => None,
            CUT_OFF => Some(IoError::CutOff),
            _ => self.last.lock().error,
        }
    }

    /// Returns the state for a newly opened handle, which doesn't report earlier failures.
    pub(crate) fn listen(&self) -> Heard {
        Heard(AtomicU64::new(self.last.lock().number))
    }

    /// Returns a failure that the handle hasn't reported yet: the last cut first, then the last
    /// failure.
    pub(crate) fn tell(&self, heard: &Heard) -> Option<IoError> {
        let last = self.last.lock();
        let before = heard.0.load(Ordering::Relaxed); // Under the lock.
        // If the last failure is a cut, its number is `cut`.
        let (number, error) =
            if before < last.cut { (last.cut, Some(IoError::CutOff)) } else { (last.number, last.error) };
        heard.0.store(number, Ordering::Relaxed);
        error.filter(|_| before != number)
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

    /// Regression: changes were cut off, and then a write failed. The next sync reported only the
    /// second failure, and the sync after it was `Ok`. So no call reported the lost changes. The
    /// first sync must report [`IoError::CutOff`], and the second sync must report the other
    /// failure.
    #[test]
    fn no_later_failure_hides_a_cut() {
        let latch = ErrorLatch::default();
        let handle = latch.listen();
        [IoError::IO, IoError::CutOff, IoError::INVALID].into_iter().for_each(|error| latch.fail(error));
        let told = [(); 3].map(|()| latch.tell(&handle));
        assert_eq!(told, [Some(IoError::CutOff), Some(IoError::INVALID), None]);
        latch.fail(IoError::CutOff);
        assert_eq!([(); 2].map(|()| latch.tell(&handle)), [Some(IoError::CutOff), None]);
    }

    /// Regression: a write failed, and then a cycle met a truncation. Once the truncation was
    /// adopted, only the first failure kept the file from being written, but writers were told of
    /// the truncation.
    #[test]
    fn a_cut_that_was_adopted_is_not_why_a_file_cannot_be_written() {
        let latch = ErrorLatch::default();
        latch.fail(IoError::IO);
        latch.fail(IoError::CutOff);
        assert!(!latch.cut_adopted());
        assert_eq!(latch.failing(), Some(IoError::IO));
        latch.heal();
        latch.fail(IoError::CutOff);
        assert_eq!(latch.failing(), Some(IoError::CutOff));
    }

    #[test]
    fn a_cut_that_was_adopted_is_told_once_and_is_no_failure_to_write() {
        let latch = ErrorLatch::default();
        let (one, other) = (latch.listen(), latch.listen());
        latch.cut_off();
        assert_eq!([(); 2].map(|()| latch.tell(&one)), [Some(IoError::CutOff), None]);
        assert_eq!(latch.failing(), None);
        latch.fail(IoError::IO);
        latch.cut_off();
        assert_eq!([(); 2].map(|()| latch.tell(&one)), [Some(IoError::CutOff), None]);
        assert_eq!([(); 2].map(|()| latch.tell(&other)), [Some(IoError::CutOff), None]);
        assert_eq!(latch.failing(), Some(IoError::IO), "why the file can't be written");
        latch.fail(IoError::CutOff);
        assert!(!latch.cut_adopted() && latch.failing().is_some(), "the other failure isn't over");
        latch.heal();
        latch.fail(IoError::CutOff);
        assert!(latch.cut_adopted() && latch.failing().is_none());
    }
}
