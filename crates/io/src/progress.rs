//! From attempts at a read or write to all of its bytes.
//!
//! The system may move fewer bytes than it was asked to, or none. What counts:
//!
//! - R1. Of a read, only bytes that the latest attempt delivered are vouched for: whatever lies
//!   behind them in the buffer is unspecified, also where an earlier attempt had put the right
//!   bytes. So `done` can fall back, and `best` remembers how far any attempt came.
//! - R2. Attempts start at multiples of [`RESTART`], as direct I/O, `BackingFile::read` and `write`
//!   require. What an attempt moved beyond the last such multiple is moved again.
//! - R3. A short read is the end of the file exactly if the file's length says so. Reading again to
//!   find out would be no proof under direct I/O, where the last block of a file gives the same
//!   bytes as often as it is asked.
//! - R4. An attempt that doesn't come further than `best` is no progress. Two of them in a row are
//!   the end of it if nothing went wrong (`NoProgress`). After an error that passes by itself the
//!   next attempt is made as `retry` has it.
//! - W1. Bytes that an attempt says it wrote stay written, so `done` of a write never falls back. A
//!   later attempt may write some of them again, and fail over it: then they are those of one
//!   attempt or the other.

use arrayvec::ArrayVec;
use sync::SharedBytes;

use crate::IoError;
use crate::retry::Retries;

/// How often in a row an attempt without any new byte, and without an error, is taken for an
/// answer.
const ATTEMPTS_WITHOUT_PROGRESS_MAX: u32 = 2;

/// Attempts start at multiples of this: the smallest page size, and the largest logical block size
/// of disks.
pub(crate) const RESTART: usize = 4096;

/// Slices that one attempt moves: those of 1 MiB in the smallest pages. What there is beyond is the
/// next one's.
pub(crate) const SLICES_MAX: usize = 256;

/// Slices of one attempt.
pub(crate) type Slices<'a> = ArrayVec<SharedBytes<'a>, SLICES_MAX>;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// The length of the file that a request is for.
pub(crate) type FileLen<'a> = dyn Fn() -> Result<u64, IoError> + 'a;

/// How far a read or write has come.
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
    /// Nothing yet of `len` bytes at `offset`.
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

    /// Whether all is done.
    pub(crate) fn is_complete(&self) -> bool {
        self.done == self.len
    }

    /// Waits before the next attempt, if the last one wants that.
    pub(crate) fn pause(&self) {
        self.retries.pause();
    }

    /// Where in the file the next attempt starts.
    pub(crate) fn offset(&self) -> u64 {
        self.offset + self.start() as u64
    }

    fn start(&self) -> usize {
        self.done / RESTART * RESTART
    }

    /// What the next attempt moves, of the slices that `each` calls with: to or from these, so many
    /// bytes. An attempt that starts within a slice is given the rest of that slice alone.
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

    /// Takes the answer to an attempt at `asked` bytes. Says what came of it all, if it is over:
    /// how many bytes were moved, fewer than there were to move if the file ends there.
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

/// Whether the file ends where the bytes do.
struct Ended(bool);

/// Zeroes all of the slices from `from` on.
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
