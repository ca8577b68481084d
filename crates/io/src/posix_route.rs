//! How a read or write of a file goes, direct or buffered, and what its answer means.
//!
//! A file has one descriptor, and the flag `O_DIRECT` belongs to that. The write of a part page
//! takes the flag away for its time ([`PosixFile::buffered`]). The kernel looks at the flag once,
//! as it begins a read or write; so one that began before stays direct, and one that begins in
//! between is buffered, whatever its [`Way`] says. Both are right: the flag decides about copies in
//! the kernel, not about bytes. Only the part page must not meet the flag. So it is written by a
//! call, never through a ring.

use std::ops::Range;

use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use sync::atomic::Ordering;

use super::{ALIGNMENT, PosixFile};
use crate::{Direction, IoError};

/// The way of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    direction: Direction,
    /// What is read or written: of a direct write, the whole pages. The part page is the next
    /// attempt's.
    range: Range<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Direct,
    Buffered,
    /// The write of a part page of a direct file: buffered.
    PartPage,
}

impl Way {
    pub(crate) fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Whether the write has to be made by a call that holds [`PosixFile::buffered`].
    pub(crate) fn is_part_page(&self) -> bool {
        self.kind == Kind::PartPage
    }
}

/// As long as it is there, reads and writes that begin are buffered.
pub(crate) struct Buffered<'a>(&'a PosixFile);

impl Drop for Buffered<'_> {
    fn drop(&mut self) {
        let mut writes = self.0.part_page_writes.lock();
        *writes -= 1;
        // Relaxed: changes under this lock.
        if *writes == 0
            && self.0.direct.load(Ordering::Relaxed)
            && let Err(error) = self.0.set_direct(true)
        {
            self.0.stay_buffered(error);
        }
    }
}

impl PosixFile {
    pub(crate) fn way(&self, direction: Direction, range: &Range<u64>) -> Way {
        // Relaxed: a hint (`leave_direct`).
        let direct = self.direct.load(Ordering::Relaxed);
        let Range { start, end } = *range;
        let whole_pages = start..start + (end - start) / u64::from(ALIGNMENT) * u64::from(ALIGNMENT);
        let (range, kind) = match direction {
            _ if !direct => (start..end, Kind::Buffered),
            Direction::Read => (start..end, Kind::Direct),
            Direction::Write if !whole_pages.is_empty() => (whole_pages, Kind::Direct),
            Direction::Write => (start..end, Kind::PartPage),
        };
        Way { direction, range, kind }
    }

    /// Has what begins from now on be buffered.
    pub(crate) fn buffered(&self) -> Result<Buffered<'_>, Errno> {
        let mut writes = self.part_page_writes.lock();
        if *writes == 0 {
            self.set_direct(false)?;
        }
        *writes += 1;
        Ok(Buffered(self))
    }

    fn set_direct(&self, direct: bool) -> Result<(), Errno> {
        let flags = fs::fcntl_getfl(&self.fd)?;
        fs::fcntl_setfl(&self.fd, if direct { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT })
    }

    /// Takes the answer to an attempt. None if direct I/O was refused: the attempt is to be made
    /// again, and has another route now. Calls `forget` for ranges that it is time to drop from the
    /// kernel's cache, which may take a while.
    pub(crate) fn answered(
        &self,
        way: &Way,
        answer: Result<usize, IoError>,
        forget: impl FnMut(Range<u64>),
    ) -> Option<Result<usize, IoError>> {
        if way.kind == Kind::Direct {
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
    pub(super) fn leave_direct(&self) -> Result<(), Errno> {
        let _writes = self.part_page_writes.lock();
        self.set_direct(false)?;
        self.stay_buffered(Errno::INVAL);
        Ok(())
    }

    /// The descriptor hasn't got its flag any more, and won't have it again: the kernel has refused
    /// it.
    #[cold]
    fn stay_buffered(&self, refusal: Errno) {
        self.start_buffered();
        // Relaxed: the kernel has the flag that matters; a thread that still sees true doesn't note
        // a range (head of `posix`).
        if self.direct.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                file = ?self.identity, %refusal,
                "direct I/O refused; going through the kernel's page cache"
            );
        }
    }
}
