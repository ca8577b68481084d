//! Complete writes, in the caller's thread. They allocate nothing, because writeback has to work
//! when memory is short.

use sync::SharedBytes;

use crate::progress::{Direction, Progress};
use crate::{BackingFile, IoError, failing_if_it_panics};

/// Writes the first `len` bytes of `from`, one slice after the other, at `offset`. The slices must
/// be whole pages. Continues after short writes, `EINTR` and `EAGAIN`. The bytes are durable only
/// after a [`sync`](BackingFile::sync).
///
/// If the first attempt writes everything, this makes one call to the backend.
///
/// # Errors
/// The backend's, except `EINTR`; `EIO` if it panics; `EAGAIN` if the system has no room for the
/// write for about 20 ms; [`IoError::NoProgress`] if two attempts in a row wrote no new bytes;
/// `EINVAL` for a range that no file has, and if `from` has fewer than `len` bytes. After an error,
/// any part of the range may have been written.
pub fn write_full(file: &dyn BackingFile, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<(), IoError> {
    let there = from.iter().fold(0_usize, |sum, slice| sum.saturating_add(slice.len()));
    if len > there {
        return Err(IoError::INVALID);
    }
    let mut progress = Progress::new(Direction::Write, offset, len)?;
    while !progress.is_complete() {
        let (slices, asked) = progress.next(|f| from.iter().for_each(|&slice| f(slice)));
        progress.pause();
        let answer = failing_if_it_panics(|| file.write(progress.offset(), &slices, asked));
        if let Some(result) = progress.answered(&|| failing_if_it_panics(|| file.len()), asked, answer) {
            return result.map(|_| ());
        }
    }
    Ok(())
}

#[cfg(all(test, not(pagefold_loom)))]
#[path = "write_full_tests.rs"]
mod tests;
