//! Why a request failed.

use std::fmt;
use std::io::ErrorKind;

/// Why a request to a backend failed. Small and `Copy`, because every thread that waits for the
/// page gets its own copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum IoError {
    /// The system's error number.
    Os(i32),
    /// The system reported neither an error nor progress, twice in a row.
    NoProgress,
    /// Another process has truncated the file and cut off changed bytes that weren't written back
    /// yet. These bytes are lost.
    CutOff,
    /// The file has no length, or none that the system knows: a pipe, a terminal, another device
    /// without a size, or a file whose contents are generated on reading, as in `/proc` and `/sys`.
    NoLength,
}

impl IoError {
    /// `EINTR`.
    pub const INTERRUPTED: Self = Self::Os(rustix::io::Errno::INTR.raw_os_error());
    /// `EAGAIN`.
    pub const AGAIN: Self = Self::Os(rustix::io::Errno::AGAIN.raw_os_error());
    /// `EINVAL`.
    pub const INVALID: Self = Self::Os(rustix::io::Errno::INVAL.raw_os_error());
    /// `ENOENT`.
    pub const NOT_FOUND: Self = Self::Os(rustix::io::Errno::NOENT.raw_os_error());
    /// `EIO`.
    pub const IO: Self = Self::Os(rustix::io::Errno::IO.raw_os_error());
    /// `EBADF`: the file wasn't opened for this.
    pub const BAD_FILE: Self = Self::Os(rustix::io::Errno::BADF.raw_os_error());
    /// `ENOSPC`.
    pub const NO_SPACE: Self = Self::Os(rustix::io::Errno::NOSPC.raw_os_error());
    /// `EFBIG`: larger than the file system, or `RLIMIT_FSIZE`, allows.
    pub const FILE_TOO_LARGE: Self = Self::Os(rustix::io::Errno::FBIG.raw_os_error());
    /// `EEXIST`.
    pub const EXISTS: Self = Self::Os(rustix::io::Errno::EXIST.raw_os_error());
    /// `EBUSY`.
    pub const BUSY: Self = Self::Os(rustix::io::Errno::BUSY.raw_os_error());

    /// Returns whether a device may report this error because bytes changed while they were being
    /// written. This is so for `EIO`, and for `EILSEQ`, which disks with protection information
    /// report.
    #[must_use]
    pub fn may_be_about_changed_bytes(self) -> bool {
        self == Self::IO || self == Self::Os(rustix::io::Errno::ILSEQ.raw_os_error())
    }

    /// Returns the standard library's kind for this error.
    #[must_use]
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::Os(errno) => std::io::Error::from_raw_os_error(errno).kind(),
            Self::NoProgress => ErrorKind::WriteZero,
            Self::CutOff => ErrorKind::UnexpectedEof,
            Self::NoLength => ErrorKind::Unsupported,
        }
    }

    /// Returns the system's error number, if there is one.
    #[must_use]
    pub fn errno(self) -> Option<i32> {
        match self {
            Self::Os(errno) => Some(errno),
            Self::NoProgress | Self::CutOff | Self::NoLength => None,
        }
    }
}

impl From<IoError> for std::io::Error {
    fn from(error: IoError) -> Self {
        error.errno().map_or_else(|| Self::new(error.kind(), error), Self::from_raw_os_error)
    }
}

impl From<rustix::io::Errno> for IoError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Os(errno.raw_os_error())
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(errno) => std::io::Error::from_raw_os_error(*errno).fmt(f),
            Self::NoProgress => f.write_str("the system reported neither an error nor progress"),
            Self::CutOff => {
                f.write_str("another process has cut the file off, and with it changes that weren't written back")
            }
            Self::NoLength => f.write_str(
                "the system doesn't know how long it is (as of pipes, terminals, and files in /proc and /sys)",
            ),
        }
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoError({self})")
    }
}

impl std::error::Error for IoError {}
