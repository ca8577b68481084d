//! Complete reads, in the caller's thread.

use sync::SharedBytes;

use crate::progress::{Direction, Progress, zero_rest};
use crate::{BackingFile, IoError};

/// Reads `into.len()` bytes at `offset`. Continues after short reads, `EINTR` and `EAGAIN`. If the
/// file ends earlier, zeroes the bytes of `into` past the file's end. Returns the number of bytes
/// that the file had.
///
/// Makes one call to the backend if the first attempt reads everything. Makes two calls if the
/// first attempt reaches the end of the file: a [`read`](BackingFile::read) and a
/// [`len`](BackingFile::len).
///
/// # Errors
/// The backend's, except `EINTR`; `EAGAIN` if the system has no room for the read for about 20 ms;
/// [`IoError::NoProgress`] if two attempts in a row read no new bytes; `EINVAL` for a range that no
/// file has. After an error the bytes of `into` are unspecified.
pub fn read_full(file: &dyn BackingFile, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
    read_full_vectored(file, offset, &[into])
}

/// Reads as [`read_full`] does, but into the slices of `into`, one after the other. Each slice must
/// consist of whole pages.
///
/// # Errors
/// See [`read_full`].
pub fn read_full_vectored(file: &dyn BackingFile, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
    let len = into.iter().fold(0_usize, |sum, slice| sum.saturating_add(slice.len()));
    let mut progress = Progress::new(Direction::Read, offset, len)?;
    while !progress.is_complete() {
        let (slices, asked) = progress.next(|f| into.iter().for_each(|&slice| f(slice)));
        progress.pause();
        let answer = file.read(progress.offset(), &slices);
        if let Some(result) = progress.answered(&|| file.len(), asked, answer) {
            return result.inspect(|&n| zero_rest(n, |f| into.iter().for_each(|&slice| f(slice))));
        }
    }
    Ok(len)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::Identity;
    use crate::retry::AGAIN_MAX;
    use sync::atomic::AtomicU64;
    use sync::lock::Mutex;

    /// Answers each read with the next step of a script, and records the calls. After the last
    /// step, each read delivers all of its bytes.
    struct Scripted {
        len: u64,
        steps: Mutex<Vec<Result<usize, IoError>>>,
        reads: Mutex<Vec<u64>>,
        len_answers: Mutex<Vec<IoError>>,
        len_calls: Mutex<u32>,
    }

    fn scripted(len: u64, steps: &[Result<usize, IoError>]) -> Scripted {
        Scripted {
            len,
            steps: Mutex::new(steps.iter().rev().copied().collect()),
            reads: Mutex::default(),
            len_answers: Mutex::default(),
            len_calls: Mutex::default(),
        }
    }

    fn byte(at: u64) -> u8 {
        (at % 251 + 1) as u8
    }

    impl BackingFile for Scripted {
        fn identity(&self) -> Identity {
            Identity { device: 0, inode: 0 }
        }

        fn len(&self) -> Result<u64, IoError> {
            *self.len_calls.lock() += 1;
            self.len_answers.lock().pop().map_or(Ok(self.len), Err)
        }

        fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
            assert!(offset.is_multiple_of(4096), "misaligned read at {offset}");
            self.reads.lock().push(offset);
            let [into] = *into else { panic!("{} slices", into.len()) };
            into.copy_from(0, &vec![0xee; into.len()]);
            let most = self.steps.lock().pop().unwrap_or(Ok(usize::MAX))?;
            let n = most.min(into.len()).min(self.len.saturating_sub(offset) as usize);
            into.copy_from(0, &(offset..offset + n as u64).map(byte).collect::<Vec<_>>());
            Ok(n)
        }
    }

    /// Reads `pages` pages at `offset` and checks every byte.
    fn read(file: &Scripted, offset: u64, pages: usize) -> Result<usize, IoError> {
        let words: Vec<_> = (0..pages * 512).map(|_| AtomicU64::new(u64::MAX)).collect();
        let shared = SharedBytes::new(&words);
        let n = read_full(file, offset, shared)?;
        let mut bytes = vec![0; shared.len()];
        shared.copy_to(0, &mut bytes);
        for (at, &got) in bytes.iter().enumerate() {
            let wanted = if at < n { byte(offset + at as u64) } else { 0 };
            assert_eq!(got, wanted, "byte {at} of {n}");
        }
        Ok(n)
    }

    #[test]
    fn a_whole_answer_is_one_call() {
        let file = scripted(1 << 20, &[]);
        assert_eq!(read(&file, 8192, 4), Ok(16384));
        assert_eq!((file.reads.lock().len(), *file.len_calls.lock()), (1, 0));
    }

    #[test]
    fn the_end_of_the_file_is_one_read_and_one_look_at_the_length() {
        for (len, offset, n) in [(10_000, 8192, 1808), (8192, 8192, 0), (100, 8192, 0), (12_288, 8192, 4096)] {
            let file = scripted(len, &[]);
            assert_eq!(read(&file, offset, 2), Ok(n));
            assert_eq!((file.reads.lock().len(), *file.len_calls.lock()), (1, 1));
        }
    }

    #[test]
    fn short_reads_go_on_from_the_last_aligned_byte() {
        let file = scripted(1 << 20, &[Ok(5000), Ok(4096), Ok(100)]);
        assert_eq!(read(&file, 0, 4), Ok(16384));
        assert_eq!(*file.reads.lock(), [0, 4096, 8192, 8192]);
    }

    #[test]
    fn short_in_the_middle_and_then_the_end() {
        let file = scripted(10_000, &[Ok(4608)]);
        assert_eq!(read(&file, 0, 4), Ok(10_000));
        assert_eq!(*file.reads.lock(), [0, 4096]);
    }

    #[test]
    fn bytes_that_a_later_attempt_lost_are_not_vouched_for() {
        // The first attempt delivers 6000 bytes. The second starts at 4096, fails, and leaves
        // garbage in the buffer.
        let file = scripted(6_500, &[Ok(6000), Err(IoError::INTERRUPTED), Ok(2000)]);
        assert_eq!(read(&file, 0, 2), Ok(6_500));
    }

    #[test]
    fn what_was_interrupted_is_tried_until_it_is_over() {
        let file = scripted(1 << 20, &[Err(IoError::INTERRUPTED), Ok(4096), Err(IoError::AGAIN), Ok(4096)]);
        assert_eq!(read(&file, 0, 4), Ok(16384));
        let mut steps = vec![Err(IoError::INTERRUPTED); 1000];
        let file = scripted(1 << 20, &steps);
        assert_eq!((read(&file, 0, 1), file.reads.lock().len()), (Ok(4096), 1001));
        // An attempt that reads no byte and reports no error doesn't end the retries. A second such
        // attempt is an error.
        steps.splice(10..11, [Ok(0)]);
        assert_eq!(read(&scripted(1 << 20, &steps), 0, 1), Ok(4096));
        steps.splice(20..21, [Ok(0)]);
        assert_eq!(read(&scripted(1 << 20, &steps), 0, 1), Err(IoError::NoProgress));
    }

    #[test]
    fn what_there_is_no_room_for_is_tried_a_number_of_times() {
        let tries = AGAIN_MAX as usize;
        let file = scripted(1 << 20, &vec![Err(IoError::AGAIN); tries]);
        assert_eq!((read(&file, 0, 1), file.reads.lock().len()), (Ok(4096), tries + 1));
        let file = scripted(1 << 20, &vec![Err(IoError::AGAIN); tries + 1]);
        assert_eq!((read(&file, 0, 1), file.reads.lock().len()), (Err(IoError::AGAIN), tries + 1));
        // Each page has the full number of retries.
        let mut steps = vec![Err(IoError::AGAIN); tries];
        steps.push(Ok(4096));
        let steps = steps.repeat(3);
        assert_eq!(read(&scripted(1 << 20, &steps), 0, 3), Ok(12_288));
    }

    #[test]
    fn no_progress_twice_is_an_error() {
        let file = scripted(1 << 20, &[Ok(0), Ok(0), Ok(4096)]);
        assert_eq!(read(&file, 0, 1), Err(IoError::NoProgress));
        let file = scripted(1 << 20, &[Ok(100), Ok(100), Ok(50), Ok(4096)]);
        assert_eq!(read(&file, 0, 1), Err(IoError::NoProgress));
        // Returning to the position of an earlier attempt is no progress: the two could alternate
        // forever.
        let file = scripted(1 << 20, &[Ok(100), Ok(50), Ok(100), Ok(4096)]);
        assert_eq!(read(&file, 0, 1), Err(IoError::NoProgress));
        let file = scripted(1 << 20, &[Ok(100), Ok(50), Ok(101), Ok(0), Ok(4096)]);
        assert_eq!(read(&file, 0, 1), Ok(4096));
    }

    #[test]
    fn other_errors_come_through_at_once() {
        let file = scripted(1 << 20, &[Ok(4096), Err(IoError::IO)]);
        assert_eq!(read(&file, 0, 2), Err(IoError::IO));
        assert_eq!(file.reads.lock().len(), 2);
    }

    #[test]
    fn an_unreadable_length_is_treated_like_an_unreadable_file() {
        let file = scripted(100, &[]);
        file.len_answers.lock().push(IoError::INTERRUPTED);
        assert_eq!(read(&file, 0, 1), Ok(100));
        file.len_answers.lock().push(IoError::IO);
        assert_eq!(read(&file, 0, 1), Err(IoError::IO));
    }

    #[test]
    fn an_impossible_range_is_refused_and_an_empty_one_needs_no_call() {
        let file = scripted(100, &[]);
        assert_eq!(read(&file, u64::MAX - 4095, 1), Err(IoError::INVALID));
        assert_eq!(read(&file, 0, 0), Ok(0));
        assert!(file.reads.lock().is_empty());
    }
}
