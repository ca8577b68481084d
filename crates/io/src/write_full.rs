//! From one attempt at a write to all of its bytes.
//!
//! The system may write fewer bytes than it was given, or none. What counts:
//!
//! - W1. Bytes that an attempt says it wrote stay written, so `done` never falls back. A later attempt may write some
//!   of them again, and fail over it: then they are those of one attempt or the other.
//! - W2. Attempts start at multiples of [`RESTART`], as direct I/O and [`BackingFile::write`] require. What an attempt
//!   wrote beyond the last such multiple is written again.
//! - W3. An attempt that doesn't come further than any before is no progress, whatever it answered; so the loop ends.
//!
//! Nothing is allocated: write-back has to work when memory is short. An attempt that starts within a slice is given
//! the rest of that slice alone, and the next one goes on with the slices that follow.

use sync::SharedBytes;

use crate::{BackingFile, IoError};

/// How often in a row [`write_full`] takes `EINTR`, `EAGAIN` or a write of no new byte for an answer.
const ATTEMPTS_WITHOUT_PROGRESS_MAX: u32 = 2;

/// Writes start at multiples of this: the smallest page size, and the largest logical block size of disks.
const RESTART: usize = 4096;

/// Writes the first `len` bytes of `from`, one slice after the other, at `offset`, going on after short writes, `EINTR`
/// and `EAGAIN`. The slices are whole pages. They are on the disk for good only after a [`sync`](BackingFile::sync).
///
/// A full answer to the first attempt is one call to the backend.
///
/// # Errors
/// The backend's; [`IoError::NoProgress`], `EINTR` or `EAGAIN` if two tries in a row wrote nothing new; `EINVAL` for a
/// range that no file has, and if there aren't `len` bytes. Any of the range may have been written then.
pub fn write_full(file: &dyn BackingFile, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<(), IoError> {
    let there = from.iter().fold(0_usize, |sum, slice| sum.saturating_add(slice.len()));
    if offset.checked_add(len as u64).is_none() || len > there {
        return Err(IoError::INVALID);
    }
    let (mut done, mut fruitless) = (0, 0);
    while done < len {
        let start = done / RESTART * RESTART;
        let failure = match attempt(file, offset, from, start..len) {
            Ok(end) if end > done => {
                (done, fruitless) = (end, 0);
                continue;
            }
            Ok(_) => IoError::NoProgress,
            Err(error) if error == IoError::INTERRUPTED || error == IoError::AGAIN => error,
            Err(error) => return Err(error),
        };
        fruitless += 1;
        if fruitless == ATTEMPTS_WITHOUT_PROGRESS_MAX {
            return Err(failure);
        }
    }
    Ok(())
}

/// Tries once to write `range` of the bytes of `from`, or only as much of it as the slice has in which it starts. Says
/// where the bytes end that were written.
fn attempt(
    file: &dyn BackingFile,
    offset: u64,
    from: &[SharedBytes<'_>],
    range: std::ops::Range<usize>,
) -> Result<usize, IoError> {
    let (mut first, mut within) = (0, range.start);
    while within > 0 && within >= from[first].len() {
        within -= from[first].len();
        first += 1;
    }
    let (offset, most) = (offset + range.start as u64, range.len());
    let (n, most) = if within == 0 {
        (file.write(offset, &from[first..], most)?, most)
    } else {
        let rest = from[first].suffix(within);
        let most = most.min(rest.len());
        (file.write(offset, &[rest], most)?, most)
    };
    Ok(range.start + n.min(most))
}

#[cfg(all(test, not(pagefold_loom)))]
#[path = "write_full_tests.rs"]
mod tests;
