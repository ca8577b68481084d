//! Errors, each in terms that a caller can act on.

use std::io::ErrorKind;

use io::IoError;

use crate::Owner;
use crate::header::HeaderError;

/// Formats a number of bytes for people: `16 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let fitting =
        (0..units.len()).rev().find(|unit| bytes > 0 && bytes.trailing_zeros() >= 10 * *unit as u32).unwrap_or(0);
    format!("{} {}", bytes >> (10 * fitting), units[fitting])
}

/// The reason why an area couldn't be added. No area was added. The contents of the file or device
/// are unchanged, except perhaps for the header.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The file or device couldn't be created or opened.
    #[error("can't open the swap area {area}: {error}")]
    OpenFailed {
        /// The area's name.
        area: String,
        /// The system's error.
        #[source]
        error: IoError,
    },
    /// The header couldn't be read or written.
    #[error("can't read or write the header of the swap area {area}: {error}")]
    HeaderFailed {
        /// The area's name.
        area: String,
        /// The system's error.
        #[source]
        error: IoError,
    },
    /// The file or device doesn't hold a swap area, so its contents aren't overwritten.
    #[error(
        "{area} can't be used for swap: {error}; with `overwrite` it is made a swap area, and what it holds is lost"
    )]
    BadHeader {
        /// The area's name.
        area: String,
        /// What is wrong with it.
        #[source]
        error: HeaderError,
    },
    /// The area was created for pages of another size.
    #[error(
        "the swap area {area} was made for pages of {found} bytes, not of {page_size}; with `overwrite` it is made anew"
    )]
    OtherPageSize {
        /// The area's name.
        area: String,
        /// The area's page size in bytes.
        found: u32,
        /// This program's page size in bytes.
        page_size: u32,
    },
    /// The header declares more bytes than the file or device has.
    #[error("the swap area {area} has {}, and its header says {}", size(*bytes), size(*wanted))]
    Truncated {
        /// The area's name.
        area: String,
        /// Its actual size in bytes.
        bytes: u64,
        /// The size that the header declares, in bytes.
        wanted: u64,
    },
    /// There is no room for a header and a page.
    #[error("the swap area {area} is too small: it has {}, and at least {} are needed", size(*bytes), size(*min))]
    TooSmall {
        /// The area's name.
        area: String,
        /// Its size in bytes.
        bytes: u64,
        /// The minimum size in bytes.
        min: u64,
    },
    /// The limit of compressed pages is larger than the whole memory budget.
    #[error("the swap area {area} can't have {}: the budget has {}", size(*bytes), size(*max))]
    BeyondMemory {
        /// The area's name.
        area: String,
        /// The requested limit in bytes.
        bytes: u64,
        /// The budget in bytes.
        max: u64,
    },
    /// The area has more pages than slot numbers.
    #[error("the swap area {area} is too large: it has {pages} pages, and an area has at most {max}")]
    TooLarge {
        /// The area's name.
        area: String,
        /// The number of its pages.
        pages: u64,
        /// The maximum number of pages in an area.
        max: u64,
    },
    /// All numbers of areas are in use.
    #[error("there are {max} swap areas already: remove one")]
    TooMany {
        /// The maximum number of areas.
        max: usize,
    },
    /// The file or device is already an area, in this process or another one, or a device that the
    /// system uses.
    #[error("{area} is in use as a swap area, of this process or another one, or by the system")]
    InUse {
        /// The area's name.
        area: String,
    },
    /// Encryption was requested, and this build doesn't support it.
    #[error("the swap area {area} can't be encrypted: this build is without the feature `encrypted-swap`")]
    NoEncryption {
        /// The area's name.
        area: String,
    },
    /// Encryption was requested, and the system provides no random bytes for a key.
    #[error("the swap area {area} can't be encrypted: the system gives no random bytes for a key")]
    NoKey {
        /// The area's name.
        area: String,
    },
    /// The tables for its slots don't fit into the budget.
    #[error("no room in the budget for the tables of the swap area {area}: {}", size(*bytes))]
    NoRoom {
        /// The area's name.
        area: String,
        /// Bytes that the tables take.
        bytes: u64,
    },
    /// Memory for the area's tables or buffers couldn't be allocated.
    #[error("no memory for the tables of the swap area {area}: {}", size(*bytes))]
    NoMemory {
        /// The area's name.
        area: String,
        /// Bytes that were requested.
        bytes: u64,
    },
}

impl AddError {
    /// Returns the corresponding [`ErrorKind`] of the standard library.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::OpenFailed { error, .. } | Self::HeaderFailed { error, .. } => error.kind(),
            Self::BadHeader { .. } | Self::OtherPageSize { .. } | Self::Truncated { .. } => ErrorKind::InvalidData,
            Self::TooSmall { .. } | Self::BeyondMemory { .. } | Self::TooLarge { .. } => ErrorKind::InvalidInput,
            Self::InUse { .. } => ErrorKind::ResourceBusy,
            Self::NoEncryption { .. } => ErrorKind::Unsupported,
            Self::NoRoom { .. } | Self::NoMemory { .. } => ErrorKind::OutOfMemory,
            Self::TooMany { .. } | Self::NoKey { .. } => ErrorKind::Other,
        }
    }
}

/// Why a page wasn't written to any slot. The page stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapOutError {
    /// No area has room for the page: there is no area, all areas are full, or the areas with free
    /// slots refuse the page.
    #[error("no swap area has room for the page")]
    Full,
    /// The page couldn't be written to any area that was tried.
    #[error("can't write to swap area {area}: {error}")]
    WriteFailed {
        /// The number of the area that was tried last.
        area: u32,
        /// The error of that area's device.
        #[source]
        error: IoError,
    },
}

/// Why a page wasn't written to a reserved slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotExchanged {
    /// [`WriteFailed`](SwapOutError::WriteFailed) if a device reported an error. Otherwise
    /// [`Full`](SwapOutError::Full): all reserved slots are in use, or can't be written to now.
    pub error: SwapOutError,
    /// Some area had no room for the contents of this page. Another page may fit.
    pub another_may_fit: bool,
}

impl RemoveError {
    /// Returns the corresponding [`ErrorKind`] of the standard library.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::NoMemory { .. } => ErrorKind::OutOfMemory,
            Self::InUse { .. } => ErrorKind::ResourceBusy,
            Self::Stuck { error, .. } => error.map_or(ErrorKind::InvalidData, |error| error.kind()),
        }
    }
}

fn why_stuck(error: Option<IoError>) -> String {
    error.map_or_else(|| "they aren't what was written".to_owned(), |error| error.to_string())
}

/// Why a page couldn't be read back. It stays in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapInError {
    /// The device reports an error. A retry may succeed.
    #[error("can't read page {} from swap: {error}", page.number())]
    ReadFailed {
        /// The page.
        page: Owner,
        /// The system's error.
        #[source]
        error: IoError,
    },
    /// The bytes that were read aren't those that were written, and must not be used. They are
    /// corrupt or torn, or they belong to another page or an older version of this page. Or the
    /// slot no longer belongs to the page.
    #[error("page {} in swap isn't what was written", page.number())]
    SwapCorrupt {
        /// The page.
        page: Owner,
    },
}

/// Why an area wasn't removed. The area is in use as before, perhaps with fewer pages in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// No area has the number.
    #[error("there is no swap area {area}")]
    Unknown {
        /// The number.
        area: u32,
    },
    /// There is no room in memory for the pages in the area.
    #[error("swap area {area} can't be removed: {} more of memory are needed", size(*missing_bytes))]
    NoMemory {
        /// The area.
        area: u32,
        /// Bytes of the pages that are left in it.
        missing_bytes: u64,
    },
    /// Some pages in the area can't leave their slots now, because a user's guards pin them, or
    /// because they are being read or written. Or another thread is removing the area. A later
    /// retry can succeed.
    #[error(
        "swap area {area} can't be removed now: {pages} pages are left in it, because guards hold them, they are being \
         read or written, or another call is removing the area; try again later"
    )]
    InUse {
        /// The area.
        area: u32,
        /// The number of pages that are left in the area.
        pages: u64,
    },
    /// Some pages can't be read, or their bytes aren't those that were written.
    #[error("swap area {area} can't be removed: {pages} pages in it can't be read: {}", why_stuck(*error))]
    Stuck {
        /// The area.
        area: u32,
        /// The number of these pages.
        pages: u64,
        /// The device's last error. `None` if reads succeeded with wrong bytes.
        #[source]
        error: Option<IoError>,
    },
}
