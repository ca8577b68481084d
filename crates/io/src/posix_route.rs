//! Through which descriptor a read or write of a file goes, and what its answer means.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use sync::atomic::Ordering;

use super::{ALIGNMENT, PosixFile};
use crate::{Direction, IoError};

/// The way of one attempt.
pub(crate) struct Route<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) way: Way,
}

/// What is left of a [`Route`] when the descriptor isn't needed any more.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    direction: Direction,
    /// What is read or written: of a direct write, the whole pages. The part page is the next attempt's.
    range: Range<u64>,
    direct: bool,
}

impl Route<'_> {
    pub(crate) fn len(&self) -> usize {
        self.way.len()
    }
}

impl Way {
    pub(crate) fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }
}

impl PosixFile {
    pub(crate) fn route(&self, direction: Direction, range: &Range<u64>) -> Route<'_> {
        // Relaxed: a hint (`leave_direct`).
        let direct = self.direct.load(Ordering::Relaxed);
        let Range { start, end } = *range;
        let whole_pages = start..start + (end - start) / u64::from(ALIGNMENT) * u64::from(ALIGNMENT);
        let way = |range, direct| Way { direction, range, direct };
        match direction {
            Direction::Read => Route { fd: self.fd.as_fd(), way: way(start..end, direct) },
            Direction::Write if direct && !whole_pages.is_empty() => {
                Route { fd: self.fd.as_fd(), way: way(whole_pages, true) }
            }
            Direction::Write => {
                let fd = self.for_part_pages.as_ref().unwrap_or(&self.fd);
                Route { fd: fd.as_fd(), way: way(start..end, false) }
            }
        }
    }

    /// Takes the answer to an attempt. None if direct I/O was refused: the attempt is to be made again, and has another
    /// route now. Calls `forget` for ranges that it is time to drop from the kernel's cache, which may take a while.
    pub(crate) fn answered(
        &self,
        way: &Way,
        answer: Result<usize, IoError>,
        forget: impl FnMut(Range<u64>),
    ) -> Option<Result<usize, IoError>> {
        if way.direct {
            if answer == Err(IoError::INVALID) && self.fall_back {
                return self.leave_direct().err().map(|error| Err(error.into()));
            }
        } else if !self.in_memory {
            match way.direction {
                Direction::Read => self.drop_behind.note(way.range.clone(), forget),
                Direction::Write => self.written.note(way.range.clone()),
            }
        }
        Some(answer)
    }

    /// Turns a direct file into a buffered one.
    #[cold]
    fn leave_direct(&self) -> Result<(), Errno> {
        let flags = fs::fcntl_getfl(&self.fd)?;
        fs::fcntl_setfl(&self.fd, flags - OFlags::DIRECT)?;
        self.start_buffered();
        // Relaxed: the kernel has the flag that matters; who still sees true doesn't note a range (module head).
        if self.direct.swap(false, Ordering::Relaxed) {
            tracing::warn!(file = ?self.identity, "direct I/O refused; going through the kernel's page cache");
        }
        Ok(())
    }
}
