//! Combines attempts at a read or write until all of its bytes are moved.
//!
//! The system may move fewer bytes than requested, or none. The rules:
//!
//! - R1. When a read completes, its buffer is valid up to the end of the bytes that the latest
//!   attempt delivered. The bytes after this position are unspecified, even if an earlier attempt
//!   had read them correctly. So `done` can decrease, and `best` records the furthest position that
//!   any attempt reached.
//! - R2. Each attempt starts at a multiple of [`RESTART`], because direct I/O, `BackingFile::read`
//!   and `BackingFile::write` require that. If an attempt ends between two multiples, the next
//!   attempt starts at the lower one, and reads or writes the bytes from there to the end of the
//!   previous attempt a second time.
//! - R3. After a short read, only the file's length shows whether the file ends there. Another read
//!   can't show it: it would start at a multiple of [`RESTART`] (R2), which usually lies before the
//!   file's end, and so return the file's last bytes again instead of none.
//! - R4. An attempt makes progress if it gets further than `best`. Attempts that make no progress
//!   and report no error are counted; at the second one, the request ends with `NoProgress`. An
//!   attempt that makes progress resets the count to 0. An attempt that fails with a transient
//!   error isn't counted; `retry` decides whether another attempt is made.
//! - W1. Bytes that an attempt reported as written stay written, so a write's `done` never
//!   decreases. A later attempt may write some of these bytes again (R2) and fail. In the file,
//!   each of these bytes then has the value that one of the two attempts wrote, but not all of them
//!   need come from the same attempt.

use arrayvec::ArrayVec;
use sync::SharedBytes;

use crate::IoError;
use crate::retry::Retries;

/// The number of fruitless attempts after which a request ends. An attempt is fruitless if it moves
/// no new byte and reports no error; an attempt that moves a new byte resets the count (R4).
const ATTEMPTS_WITHOUT_PROGRESS_MAX: u32 = 2;

/// Attempts start at multiples of this: the smallest page size, and the largest logical block size
/// of disks.
pub(crate) const RESTART: usize = 4096;

/// The most slices that one attempt moves: 1 MiB of the smallest pages. The next attempt continues
/// after them.
pub(crate) const SLICES_MAX: usize = 256;

/// The slices of one attempt.
pub(crate) type Slices<'a> = ArrayVec<SharedBytes<'a>, SLICES_MAX>;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// Returns the length of the file that a request is for.
pub(crate) type FileLen<'a> = dyn Fn() -> Result<u64, IoError> + 'a;

/// The state of a read or write: how much of it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    direction: Direction,
    offset: u64,
    len: usize,
    done: usize,
    best: usize,
    fruitless: u32,
    retries: Retries,
}

impl Progress {
    /// Creates the state of a transfer of `len` bytes at `offset` of which nothing is done.
    ///
    /// # Errors
    /// `EINVAL` for a range that no file has.
    pub(crate) fn new(direction: Direction, offset: u64, len: usize) -> Result<Self, IoError> {
        offset.checked_add(len as u64).ok_or(IoError::INVALID)?;
        Ok(Self { direction, offset, len, done: 0, best: 0, fruitless: 0, retries: Retries::default() })
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns whether all bytes are done.
    pub(crate) fn is_complete(&self) -> bool {
        self.done == self.len
    }

    /// Waits before the next attempt, if the last error requires it.
    pub(crate) fn pause(&self) {
        self.retries.pause();
    }

    /// Returns the offset in the file at which the next attempt starts.
    pub(crate) fn offset(&self) -> u64 {
        self.offset + self.start() as u64
    }

    fn start(&self) -> usize {
        self.done / RESTART * RESTART
    }

    /// Returns the slices that the next attempt moves, and the number of bytes to move. An attempt
    /// that starts within a slice moves only the rest of that slice. `each` must call its argument
    /// with every slice of the request, in order.
    pub(crate) fn next<'a>(&self, each: impl FnOnce(&mut dyn FnMut(SharedBytes<'a>))) -> (Slices<'a>, usize) {
        let (mut skip, mut most) = (self.start(), self.len - self.start());
        let (mut slices, mut asked) = (Slices::new(), 0);
        each(&mut |slice| {
            if most == asked || slices.is_full() {
            } else if skip >= slice.len() {
                skip -= slice.len();
            } else {
                let rest = if skip == 0 { slice } else { slice.suffix(skip) };
                slices.push(rest);
                asked += rest.len().min(most - asked);
                if skip > 0 {
                    (skip, most) = (0, asked);
                }
            }
        });
        (slices, asked)
    }

    /// Processes the answer to an attempt to move `asked` bytes. Returns the request's result if
    /// the request has completed, and `None` if another attempt is needed. The result is an error
    /// or the number of bytes moved. A read moves fewer bytes than requested if the file ends
    /// earlier.
    pub(crate) fn answered(
        &mut self,
        len: &FileLen<'_>,
        asked: usize,
        answer: Result<usize, IoError>,
    ) -> Option<Result<usize, IoError>> {
        let failure = match answer.and_then(|n| self.moved(len, self.start() + n.min(asked))) {
            Ok(Ended(true)) => return Some(Ok(self.done)),
            Ok(Ended(false)) => IoError::NoProgress,
            Err(error) => error,
        };
        if self.done > self.best && (failure == IoError::NoProgress || Retries::passes(failure)) {
            (self.best, self.fruitless, self.retries) = (self.done, 0, Retries::default());
        } else if failure == IoError::NoProgress {
            self.fruitless += 1;
            if self.fruitless == ATTEMPTS_WITHOUT_PROGRESS_MAX {
                return Some(Err(failure));
            }
        } else if !self.retries.again_after(failure) {
            return Some(Err(failure));
        }
        self.is_complete().then_some(Ok(self.done))
    }

    fn moved(&mut self, len: &FileLen<'_>, end: usize) -> Result<Ended, IoError> {
        match self.direction {
            Direction::Read => {
                self.done = end;
                Ok(Ended(end < self.len && len()? <= self.offset + end as u64))
            }
            Direction::Write => {
                self.done = self.done.max(end);
                Ok(Ended(false))
            }
        }
    }
}

/// Whether the file ends where the bytes end.
struct Ended(bool);

/// Zeroes all bytes of the slices from position `from` on.
pub(crate) fn zero_rest<'a>(from: usize, each: impl FnOnce(&mut dyn FnMut(SharedBytes<'a>))) {
    let mut start = 0;
    each(&mut |slice| {
        let within = from.saturating_sub(start);
        if within < slice.len() {
            slice.zero_from(within);
        }
        start += slice.len();
    });
}
