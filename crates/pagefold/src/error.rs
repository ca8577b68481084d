//! What can go wrong, in terms that a caller can act on.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

use crate::protection::Protection;
use crate::size::{Size, SizeError};
use io::IoError;

/// Why a call failed. Nothing is lost by any of these, and every call may be tried again.
///
/// The text says all of it, the device's or the system's answer included; but that of
/// [`LimitReached`](Self::LimitReached) leaves a swap area's failure to the source. The answer is
/// also the [`source`](std::error::Error::source), so a program that prints the whole chain of
/// sources prints it twice.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// use std::io::ErrorKind;
///
/// use pagefold::Error;
///
/// match group.open("not-there") {
///     Err(error @ Error::OpenFailed { .. }) => {
///         assert_eq!(error.kind(), ErrorKind::NotFound);
///         let error = std::io::Error::from(error); // For those that expect one.
///         println!("{error}");
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that isn't a size.
    #[error(transparent)]
    BadSize(#[from] SizeError),
    /// A page size that isn't supported.
    #[error("a page size of {size} isn't supported: it has to be a power of two from {min} to {max}")]
    BadPageSize {
        /// What was asked for.
        size: Size,
        /// The smallest one, which is the system's.
        min: Size,
        /// The largest one.
        max: Size,
    },
    /// A budget or limit that nothing can run in.
    #[error("{what} of {size} is too small: at least {min} are needed with pages of {page_size}")]
    TooSmall {
        /// The budget, or a group's limit.
        what: &'static str,
        /// What was asked for.
        size: Size,
        /// What would do.
        min: Size,
        /// Bytes in a page.
        page_size: Size,
    },
    /// A budget of more than 2^30 pages, or larger than the address space reserved at the start.
    #[error(
        "a budget of {size} is too large: at most {max} are possible, 2^30 pages or the `memory_max` it was built with"
    )]
    BudgetTooLarge {
        /// What was asked for.
        size: Size,
        /// The most that is possible.
        max: Size,
    },
    /// The budget can't shrink, because the pages in it are pinned or being loaded. It stays as it
    /// was.
    #[error("the budget can't shrink to {size}: {used} are in use, and pinned or being loaded")]
    BudgetBusy {
        /// What was asked for.
        size: Size,
        /// What couldn't be given back.
        used: Size,
    },
    /// The system refused address space, memory or a thread.
    #[error("can't {what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        #[source]
        error: IoError,
    },
    /// A group of that name exists.
    #[error("there is a group `{group}` already")]
    GroupExists {
        /// The name.
        group: String,
    },
    /// The group has no page that could make room: all are pinned, being loaded, or have no place
    /// in swap. Unpin some, or raise the limit. Where it is the budget that is full, groups that
    /// use a smaller share of theirs give nothing for this one.
    #[error(
        "group `{group}` has reached its limit of {max}, or its part of a full budget, and nothing in it can be \
         reclaimed: {charged} are pinned, being loaded, or have no place in swap"
    )]
    LimitReached {
        /// The group that asked for a page.
        group: String,
        /// Its limit, or the whole budget if that was the one reached.
        max: Size,
        /// What is charged.
        charged: Size,
        /// Why its pages have no place in swap, if an area's device failed when one was last
        /// written there. The error's [`source`](std::error::Error::source).
        #[source]
        swap: Option<SwapFailure>,
    },
    /// The group belongs to another Pagefold, whose pages are none of this one's.
    #[error("group `{group}` belongs to another Pagefold")]
    OtherPagefold {
        /// The group given.
        group: String,
    },
    /// The file couldn't be opened.
    #[error("can't open {}: {error}", path.display())]
    OpenFailed {
        /// The path given.
        path: PathBuf,
        /// The backend's answer.
        #[source]
        error: IoError,
    },
    /// The file is to be made or cut off, but not to be opened for writing.
    #[error("can't open {}: `create`, `create_new` and `truncate` need `write`", path.display())]
    NotForWriting {
        /// The path given.
        path: PathBuf,
    },
    /// Another Pagefold or another process has the file locked, because it writes to it.
    #[error(
        "{} is in use: another Pagefold or another process has it open for writing, and locked (see \
         `OpenOptions::lock`)",
        path.display()
    )]
    FileInUse {
        /// The path given.
        path: PathBuf,
    },
    /// A page couldn't be read. It isn't in memory; reading it again tries again.
    #[error("can't read page {page} of {}: {error}", path.display())]
    ReadFailed {
        /// The file.
        path: PathBuf,
        /// The page's number.
        page: u64,
        /// The backend's answer.
        #[source]
        error: IoError,
    },
    /// The file was opened for reading alone.
    #[error("{} isn't open for writing", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Written data couldn't be stored in the file, or couldn't be made durable. Pages that the
    /// file doesn't have stay in memory, and are written again at the next sync, or a while later.
    #[error("can't write {}: {error}", path.display())]
    WriteFailed {
        /// The file.
        path: PathBuf,
        /// The backend's answer.
        #[source]
        error: IoError,
    },
    /// The file's device hasn't answered for as long as
    /// [`Builder::io_timeout`](crate::Builder::io_timeout) allows. Until it answers, calls that
    /// need it fail at once. What was written stays in memory, and what was asked of the device may
    /// still be done.
    #[error("the device of {} doesn't answer", path.display())]
    DeviceTimeout {
        /// The file.
        path: PathBuf,
    },
    /// A guard has had the page pinned, or a writer has been changing it, for seconds.
    #[error("page {page} of {} is in use: pinned, or being changed", path.display())]
    PageBusy {
        /// The file.
        path: PathBuf,
        /// The page's number.
        page: u64,
    },
    /// A page or an exact range past the end of the file.
    #[error("{} has {len} bytes: {offset} + {wanted} is past its end", path.display())]
    PastEnd {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// Where the access starts.
        offset: u64,
        /// How many bytes it wants.
        wanted: u64,
    },
    /// The file would have more bytes than can be counted, `i64::MAX`; or no address space is left
    /// for what has to be known of one of its pages, because of `RLIMIT_AS`, or of many other files
    /// that are used over terabytes.
    #[error("{} is too large: there is no place in a page map for its {pages} pages", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// How many pages it has, or would have, up to the one that there is no place for.
        pages: u64,
    },
    /// A page has more pins than can be counted.
    #[error("page {page} of {} has too many pins", path.display())]
    TooManyPins {
        /// The file.
        path: PathBuf,
        /// The page's number.
        page: u64,
    },
    /// A range of a space that can't be one.
    #[error("{len:#x} bytes at {address:#x} can't be used in a space: {why}")]
    BadAddress {
        /// Where it starts.
        address: u64,
        /// How many bytes it has.
        len: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Nothing is mapped there.
    #[error("nothing is mapped at {address:#x}, in {:#x}-{:#x}", hole.start, hole.end)]
    NotMapped {
        /// The first address at which nothing is, of a whole page.
        address: u64,
        /// The addresses around it at which nothing is either, as far as a short look shows.
        hole: Range<u64>,
    },
    /// What can go wrong with files and limits, at an address of a space.
    #[error("at {address:#x}, in the area {:#x}-{:#x}: {error}", area.start, area.end)]
    AtAddress {
        /// The address, of a whole page.
        address: u64,
        /// The area, as far as a short look shows.
        area: Range<u64>,
        /// What went wrong.
        error: Box<Error>,
        /// That error's [`source`](std::error::Error::source), which is also this one's.
        source: Option<DeviceFailure>,
    },
    /// A guard has had the page pinned, or a writer has been changing it, for seconds.
    #[error("the page at {address:#x} is in use: pinned, or being changed")]
    AddressBusy {
        /// The page's address.
        address: u64,
    },
    /// The memory is mapped, but not for this.
    #[error("{address:#x} is in the area {:#x}-{:#x}, which is mapped as {protection:?}", area.start, area.end)]
    NotPermitted {
        /// The address, of a whole page.
        address: u64,
        /// The area, as far as a short look shows.
        area: Range<u64>,
        /// What is permitted.
        protection: Protection,
    },
    /// Something is mapped there already.
    #[error("something is mapped in {:#x}-{:#x} already", range.start, range.end)]
    Mapped {
        /// What was asked for.
        range: Range<u64>,
    },
    /// A space has no free addresses in a row for so many bytes.
    #[error("a space has no room for {len} bytes in a row any more")]
    NoAddresses {
        /// What was asked for.
        len: u64,
    },
    /// A swap area that can't be one, or not now. There is none then.
    #[error(transparent)]
    SwapRefused(#[from] swap::AddError),
    /// A swap area couldn't be removed. It is in use as before.
    #[error(transparent)]
    SwapInUse(#[from] swap::RemoveError),
    /// A page couldn't be read back from swap. It is there still; another access tries again.
    #[error("can't read the page at {address:#x} from {}: {error}", swap_area(area.as_deref()))]
    SwapReadFailed {
        /// Where the page begins.
        address: u64,
        /// The name of the area that it is in, if it is there still.
        area: Option<String>,
        /// The device's answer.
        #[source]
        error: IoError,
    },
    /// What came back from swap isn't what was written there. No caller gets any of it. The page
    /// fails until all of it is overwritten, or it is discarded or unmapped.
    #[error(
        "the page at {address:#x} came back from {} as something else than was written there",
        swap_area(area.as_deref())
    )]
    SwapCorrupt {
        /// Where the page begins.
        address: u64,
        /// The name of the area that it is in, if it is there still.
        area: Option<String>,
    },
    /// A space has had so many mappings of files that there is no number left for another one.
    #[error("a space has too many mappings of files: unmap some, or use another space")]
    TooManyMappings,
    /// This is a child of the process that the Pagefold was built in. Memory isn't shared with it:
    /// build another one.
    #[error("a Pagefold can't be used in a forked child process")]
    Forked,
}

fn swap_area(name: Option<&str>) -> String {
    name.map_or_else(|| "swap".to_owned(), |name| format!("the swap area {name}"))
}

/// A swap area's device failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("can't write to the swap area {area}: {error}")]
#[non_exhaustive]
pub struct SwapFailure {
    /// The area's name.
    pub area: String,
    /// The backend's answer.
    pub error: IoError,
}

/// A device's answer that a call failed for.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum DeviceFailure {
    /// A file's.
    File(IoError),
    /// A swap area's.
    Swap(SwapFailure),
}

impl Error {
    /// The system refused address space or memory.
    pub(crate) fn no_memory(error: frames::ReserveError) -> Self {
        let what = format!("reserve {} bytes of address space", error.bytes);
        Self::System { what, error: IoError::Os(error.errno) }
    }

    /// The backend couldn't start threads.
    pub(crate) fn no_threads(error: IoError) -> Self {
        Self::System { what: "start threads".to_owned(), error }
    }

    /// The system refused a thread. Without a number it is what systems say then.
    pub(crate) fn no_thread(error: std::io::Error) -> Self {
        Self::no_threads(error.raw_os_error().map_or(IoError::AGAIN, IoError::Os))
    }

    /// The kind of error that the standard library has for this, as `std::fs` would return it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::System { error, .. }
            | Self::OpenFailed { error, .. }
            | Self::ReadFailed { error, .. }
            | Self::WriteFailed { error, .. }
            | Self::SwapReadFailed { error, .. } => error.kind(),
            Self::AtAddress { error, .. } => error.kind(),
            Self::LimitReached { swap: Some(failure), .. } => failure.error.kind(),
            Self::LimitReached { swap: None, .. } | Self::NoAddresses { .. } => ErrorKind::OutOfMemory,
            Self::BadSize(_)
            | Self::BadPageSize { .. }
            | Self::TooSmall { .. }
            | Self::BudgetTooLarge { .. }
            | Self::OtherPagefold { .. }
            | Self::NotForWriting { .. }
            | Self::BadAddress { .. }
            | Self::NotMapped { .. } => ErrorKind::InvalidInput,
            Self::SwapRefused(refusal) => refusal.kind(),
            Self::GroupExists { .. } | Self::Mapped { .. } => ErrorKind::AlreadyExists,
            Self::BudgetBusy { .. } | Self::FileInUse { .. } | Self::PageBusy { .. } | Self::AddressBusy { .. } => {
                ErrorKind::ResourceBusy
            }
            Self::SwapInUse(refusal) => refusal.kind(),
            Self::ReadOnly { .. } | Self::NotPermitted { .. } => ErrorKind::PermissionDenied,
            Self::DeviceTimeout { .. } => ErrorKind::TimedOut,
            Self::PastEnd { .. } => ErrorKind::UnexpectedEof,
            Self::FileTooLarge { .. } => ErrorKind::FileTooLarge,
            Self::SwapCorrupt { .. } => ErrorKind::InvalidData,
            Self::Forked => ErrorKind::Unsupported,
            Self::TooManyPins { .. } | Self::TooManyMappings => ErrorKind::Other,
        }
    }

    /// The device's answer that the call failed for.
    pub(crate) fn device_failure(&self) -> Option<DeviceFailure> {
        match self {
            Self::LimitReached { swap, .. } => swap.clone().map(DeviceFailure::Swap),
            Self::AtAddress { source, .. } => source.clone(),
            Self::OpenFailed { error, .. } | Self::ReadFailed { error, .. } | Self::WriteFailed { error, .. } => {
                Some(DeviceFailure::File(*error))
            }
            _ => None,
        }
    }

    /// What went wrong, without the address in a space.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::AtAddress { error, .. } => error,
            error => error,
        }
    }
}

impl From<Error> for std::io::Error {
    /// Of the same [`kind`](Error::kind), with the error in it.
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    fn chain(error: &dyn std::error::Error) -> Vec<String> {
        std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
    }

    /// The device's answer was in the text alone, so a program couldn't tell a full disk from a
    /// broken one.
    #[test]
    fn what_a_device_answers_is_the_source() {
        let failed = Error::ReadFailed { path: "data".into(), page: 5, error: IoError::IO };
        let there = |error: &Error| {
            let source = error.device_failure();
            Error::AtAddress { address: 4096, area: 0..8192, error: Box::new(error.clone()), source }
        };
        for error in [&failed, &there(&failed)] {
            let answer = IoError::IO.to_string();
            assert_eq!(chain(error), [error.to_string(), answer.clone()]);
            assert!(error.to_string().ends_with(&answer), "{error}");
            assert_eq!(std::io::Error::from(error.clone()).kind(), std::io::Error::from(IoError::IO).kind());
        }
        let full = SwapFailure { area: "/swap".to_owned(), error: IoError::NO_SPACE };
        let (group, max) = ("g1".to_owned(), Size(1 << 20));
        let limit = Error::LimitReached { group, max, charged: max, swap: Some(full.clone()) };
        for error in [&limit, &there(&limit)] {
            assert_eq!(chain(error), [error.to_string(), full.to_string()]);
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
    }

    #[test]
    fn an_error_of_the_system_keeps_its_number() {
        let error = std::io::Error::from(IoError::NO_SPACE);
        assert_eq!(error.raw_os_error(), IoError::NO_SPACE.errno());
        assert_eq!(std::io::Error::from(IoError::CutOff).kind(), ErrorKind::UnexpectedEof);
    }
}
