//! From one attempt at a read to all of its bytes.
//!
//! The system may answer a read with fewer bytes than asked for, or with none. What counts:
//!
//! - R1. Only bytes that the latest attempt delivered are vouched for: whatever lies behind them in the buffer is
//!   unspecified, also where an earlier attempt had put the right bytes. So `done` can fall back, and `best` remembers
//!   how far any attempt came.
//! - R2. Attempts start at multiples of [`RESTART`], as direct I/O and [`BackingFile::read`] require. What an attempt
//!   brought beyond the last such multiple is read again.
//! - R3. A short read is the end of the file exactly if the file's length says so. Reading again to find out would be
//!   no proof under direct I/O, where the last block of a file gives the same bytes as often as it is asked.
//! - R4. An attempt that doesn't come further than `best` is no progress, whatever it answered; so the loop ends.

use sync::SharedBytes;

use crate::{BackingFile, IoError};

/// How often in a row [`read_full`] takes `EINTR`, `EAGAIN` or a short read without any new byte for an answer.
const ATTEMPTS_WITHOUT_PROGRESS_MAX: u32 = 2;

/// Reads start at multiples of this: the smallest page size, and the largest logical block size of disks.
const RESTART: usize = 4096;

/// Reads `into.len()` bytes at `offset`, going on after short reads, `EINTR` and `EAGAIN`; then zeroes what lies past
/// the end of the file. Says how many bytes the file had.
///
/// A full answer to the first attempt is one call to the backend; an answer that ends with the file is two, a
/// [`read`](BackingFile::read) and a [`len`](BackingFile::len).
///
/// # Errors
/// The backend's; [`IoError::NoProgress`], `EINTR` or `EAGAIN` if two tries in a row brought nothing; `EINVAL` for a
/// range that no file has. The bytes of `into` are unspecified then.
pub fn read_full(file: &dyn BackingFile, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
    if offset.checked_add(into.len() as u64).is_none() {
        return Err(IoError::INVALID);
    }
    let (mut done, mut best, mut fruitless) = (0, 0, 0);
    while done < into.len() {
        let failure = match attempt(file, offset, into, &mut done) {
            Ok(Ended(true)) => {
                into.zero_from(done);
                return Ok(done);
            }
            Ok(Ended(false)) => IoError::NoProgress,
            Err(error) if error == IoError::INTERRUPTED || error == IoError::AGAIN => error,
            Err(error) => return Err(error),
        };
        fruitless = if done > best { 0 } else { fruitless + 1 };
        best = best.max(done);
        if fruitless == ATTEMPTS_WITHOUT_PROGRESS_MAX {
            return Err(failure);
        }
    }
    Ok(done)
}

/// Whether the file ends where the bytes do.
struct Ended(bool);

/// Reads on from the last multiple of [`RESTART`] before `done`, and sets `done` to the end of the bytes that are
/// there now (R1). If it fails, `done` stays, and the next attempt starts where this one did.
fn attempt(file: &dyn BackingFile, offset: u64, into: SharedBytes<'_>, done: &mut usize) -> Result<Ended, IoError> {
    let start = *done / RESTART * RESTART;
    let rest = into.suffix(start);
    let n = file.read(offset + start as u64, rest)?;
    *done = start + n.min(rest.len());
    Ok(Ended(*done < into.len() && file.len()? <= offset + *done as u64))
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::Identity;
    use sync::atomic::AtomicU64;
    use sync::lock::Mutex;

    /// Answers each read with the next step of a script, and notes the calls; a whole answer when the script is over.
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

        fn read(&self, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
            assert!(offset.is_multiple_of(4096), "misaligned read at {offset}");
            self.reads.lock().push(offset);
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
        // The first attempt delivers 6000 bytes; the second starts at 4096, fails, and leaves nothing but rubbish.
        let file = scripted(6_500, &[Ok(6000), Err(IoError::INTERRUPTED), Ok(2000)]);
        assert_eq!(read(&file, 0, 2), Ok(6_500));
    }

    #[test]
    fn interruptions_are_retried_once_each() {
        let file = scripted(1 << 20, &[Err(IoError::INTERRUPTED), Ok(4096), Err(IoError::AGAIN), Ok(4096)]);
        assert_eq!(read(&file, 0, 4), Ok(16384));
        for error in [IoError::INTERRUPTED, IoError::AGAIN] {
            let file = scripted(1 << 20, &[Err(error), Err(error), Ok(4096)]);
            assert_eq!(read(&file, 0, 1), Err(error));
            assert_eq!(file.reads.lock().len(), 2);
        }
    }

    #[test]
    fn no_progress_twice_is_an_error() {
        let file = scripted(1 << 20, &[Ok(0), Ok(0), Ok(4096)]);
        assert_eq!(read(&file, 0, 1), Err(IoError::NoProgress));
        let file = scripted(1 << 20, &[Ok(100), Ok(100), Ok(50), Ok(4096)]);
        assert_eq!(read(&file, 0, 1), Err(IoError::NoProgress));
        // Coming back to where an earlier attempt was is none: the two could alternate for ever.
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
