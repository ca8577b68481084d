//! Chooses how a read or write of a file goes, direct or buffered, and interprets its answer.
//!
//! A file has one descriptor, and the flag `O_DIRECT` belongs to the descriptor, so it applies to
//! all reads and writes of the file. The flag is cleared while a part page is being written
//! ([`PosixFile::buffered`]).
//!
//! The kernel checks the flag once for each read or write, when the read or write begins. A read or
//! write that began before the flag was cleared stays direct. A read or write that begins while the
//! flag is clear is buffered, even if its [`Way`] is direct. Neither case does any harm: the flag
//! decides only whether the kernel keeps a copy of the bytes, not which bytes are read or written.
//!
//! Only the part page itself must not be written while the flag is set. A ring's write may begin
//! some time after it was submitted, when the flag may be set. So a system call writes the part
//! page, never a ring.

use std::ops::Range;

use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use sync::atomic::Ordering;

use super::{ALIGNMENT, PosixFile};
use crate::{Direction, IoError};

/// How one attempt is made.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    direction: Direction,
    /// The range that is read or written. For a direct write, only the whole pages; the next
    /// attempt writes the part page.
    range: Range<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Direct,
    Buffered,
    /// The write of a part page of a direct file; buffered.
    PartPage,
}

impl Way {
    pub(crate) fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Returns whether the write must be made by a system call, while the result of
    /// [`PosixFile::buffered`] exists.
    pub(crate) fn is_part_page(&self) -> bool {
        self.kind == Kind::PartPage
    }
}

/// While this exists, new reads and writes are buffered.
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
        // Relaxed: a hint; an outdated value does no harm (`stay_buffered`).
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

    /// Makes all reads and writes that begin from now on buffered, until the result is dropped.
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

    /// Processes the answer to an attempt, and returns the answer. If the system rejected direct
    /// I/O, makes the file buffered from now on and returns `None`: the caller must retry the
    /// attempt. Calls `forget` with each range that the kernel should drop from its cache now.
    /// Dropping a range may take a while.
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

    /// Marks the file as buffered. The descriptor's flag is cleared and stays so, because the
    /// kernel has rejected it.
    #[cold]
    fn stay_buffered(&self, refusal: Errno) {
        self.start_buffered();
        // Relaxed: only the kernel's flag matters for correctness. A thread that still reads true
        // merely doesn't record a range (head of `posix`).
        if self.direct.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                file = ?self.identity, %refusal,
                "direct I/O refused; going through the kernel's page cache"
            );
        }
    }
}
