//! What can go wrong, in terms that a caller can act on.

use std::io::ErrorKind;

use io::IoError;

use crate::Owner;
use crate::header::HeaderError;

/// Bytes as a reader counts them: `16 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let fitting =
        (0..units.len()).rev().find(|unit| bytes > 0 && bytes.trailing_zeros() >= 10 * *unit as u32).unwrap_or(0);
    format!("{} {}", bytes >> (10 * fitting), units[fitting])
}

/// Why an area couldn't be added. There is none then, and what was found is as it was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The file or device couldn't be made or opened.
    #[error("can't open the swap area {area}: {error}")]
    OpenFailed {
        /// The area's name.
        area: String,
        /// The system's answer.
        #[source]
        error: IoError,
    },
    /// Its beginning couldn't be read or written.
    #[error("can't read or write the header of the swap area {area}: {error}")]
    HeaderFailed {
        /// The area's name.
        area: String,
        /// The system's answer.
        #[source]
        error: IoError,
    },
    /// What is there isn't a swap area, so it isn't touched.
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
    /// The area was made for pages of another size.
    #[error(
        "the swap area {area} was made for pages of {found} bytes, not of {page_size}; with `overwrite` it is made anew"
    )]
    OtherPageSize {
        /// The area's name.
        area: String,
        /// Bytes in a page of it.
        found: u32,
        /// Bytes in a page here.
        page_size: u32,
    },
    /// Its header promises more than there is.
    #[error("the swap area {area} has {}, and its header says {}", size(*bytes), size(*wanted))]
    Truncated {
        /// The area's name.
        area: String,
        /// Bytes that there are.
        bytes: u64,
        /// Bytes that there should be.
        wanted: u64,
    },
    /// There is no place for a header and a page.
    #[error("the swap area {area} is too small: it has {}, and at least {} are needed", size(*bytes), size(*min))]
    TooSmall {
        /// The area's name.
        area: String,
        /// Bytes that there are.
        bytes: u64,
        /// Bytes that would do.
        min: u64,
    },
    /// It may not take more memory than there is for everything.
    #[error("the swap area {area} can't have {}: the budget has {}", size(*bytes), size(*max))]
    BeyondMemory {
        /// The area's name.
        area: String,
        /// Bytes that it was to take at most.
        bytes: u64,
        /// Bytes that there are.
        max: u64,
    },
    /// There is no number for each of its pages.
    #[error("the swap area {area} is too large: it has {pages} pages, and an area has at most {max}")]
    TooLarge {
        /// The area's name.
        area: String,
        /// Pages that there are.
        pages: u64,
        /// Pages that an area may have.
        max: u64,
    },
    /// As many areas as there are numbers for.
    #[error("there are {max} swap areas already: remove one")]
    TooMany {
        /// How many there can be.
        max: usize,
    },
    /// The file or device is an area already, of this process or another one, or a device that the
    /// system uses.
    #[error("{area} is in use as a swap area, of this process or another one, or by the system")]
    InUse {
        /// The area's name.
        area: String,
    },
    /// It was to be encrypted, and this build can't.
    #[error("the swap area {area} can't be encrypted: this build is without the feature `encrypted-swap`")]
    NoEncryption {
        /// The area's name.
        area: String,
    },
    /// It was to be encrypted, and the system gives no random bytes for a key.
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
        /// What they take.
        bytes: u64,
    },
    /// The tables for its slots don't fit into memory.
    #[error("no memory for the tables of the swap area {area}: {}", size(*bytes))]
    NoMemory {
        /// The area's name.
        area: String,
        /// What they take.
        bytes: u64,
    },
}

impl AddError {
    /// The kind of error that the standard library has for this.
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

/// Why a page wasn't written to any slot. It stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapOutError {
    /// No area has room for it: all are full, or those that aren't don't take it; or there is none.
    #[error("no swap area has room for the page")]
    Full,
    /// It couldn't be written wherever that was tried.
    #[error("can't write to swap area {area}: {error}")]
    WriteFailed {
        /// The area that was tried last, by its number,
        area: u32,
        /// and what its device answered.
        #[source]
        error: IoError,
    },
}

impl RemoveError {
    /// The kind of error that the standard library has for this.
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

/// Why a page didn't come back. It is where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapInError {
    /// The device failed. Another attempt may go well.
    #[error("can't read page {} from swap: {error}", page.number())]
    ReadFailed {
        /// The page.
        page: Owner,
        /// The system's answer.
        #[source]
        error: IoError,
    },
    /// What came isn't what was written: it has rotted, or was torn, or is another page's or an
    /// older one; or the slot isn't the page's any more. Nothing of it may be used.
    #[error("page {} in swap isn't what was written", page.number())]
    SwapCorrupt {
        /// The page.
        page: Owner,
    },
}

/// Why an area wasn't removed. It is in use as before, with fewer pages in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// No area has the number.
    #[error("there is no swap area {area}")]
    Unknown {
        /// The number.
        area: u32,
    },
    /// There is no room in memory for what is in it.
    #[error("swap area {area} can't be removed: {} more of memory are needed", size(*missing_bytes))]
    NoMemory {
        /// The area.
        area: u32,
        /// Bytes of the pages left in it.
        missing_bytes: u64,
    },
    /// Some pages have a place in it that can't be taken away now: users have guards of them, or
    /// they are being read or written, or another thread removes the area. It can be removed when
    /// that is over.
    #[error(
        "swap area {area} is in use: {pages} pages in it are held by guards, or being read or written; try again later"
    )]
    InUse {
        /// The area.
        area: u32,
        /// How many.
        pages: u64,
    },
    /// Some pages can't be read, or aren't what was written.
    #[error("swap area {area} can't be removed: {pages} pages in it can't be read: {}", why_stuck(*error))]
    Stuck {
        /// The area.
        area: u32,
        /// How many.
        pages: u64,
        /// The device's answer for the last of them, if it failed.
        #[source]
        error: Option<IoError>,
    },
}
