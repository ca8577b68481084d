//! Errors, in terms that a caller can act on.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

use crate::protection::Protection;
use crate::size::{Size, SizeError};
use io::IoError;

/// Why a call failed. The failure itself loses no data, and every call may be retried. Two errors
/// report that data has been lost already: [`SwapCorrupt`](Self::SwapCorrupt), and
/// [`WriteFailed`](Self::WriteFailed) with [`IoError::CutOff`](crate::io::IoError::CutOff).
///
/// An error's text includes the error of the device or the system. That error is also the
/// [`source`](std::error::Error::source). So a program that prints the whole chain of sources
/// prints that error twice. Exception: the text of [`LimitReached`](Self::LimitReached) doesn't
/// include a swap area's failure, which is only in the source.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
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
    /// A text isn't a size.
    #[error(transparent)]
    BadSize(#[from] SizeError),
    /// A page size isn't supported.
    #[error("a page size of {size} isn't supported: it has to be a power of two from {min} to {max}")]
    BadPageSize {
        /// The requested size.
        size: Size,
        /// The smallest page size: that of the system.
        min: Size,
        /// The largest page size.
        max: Size,
    },
    /// A budget or a limit is too small to work with.
    #[error("{what} of {size} is too small: at least {min} are needed with pages of {page_size}")]
    TooSmall {
        /// What was too small: the budget, or a group's limit.
        what: &'static str,
        /// The requested size.
        size: Size,
        /// The smallest size that works.
        min: Size,
        /// Bytes in a page.
        page_size: Size,
    },
    /// A budget has more than 2^30 pages, or exceeds the address space reserved at the start.
    #[error(
        "a budget of {size} is too large: at most {max} are possible, 2^30 pages or the `memory_max` it was built with"
    )]
    BudgetTooLarge {
        /// The requested budget.
        size: Size,
        /// The largest possible budget.
        max: Size,
    },
    /// The budget can't be lowered, or has no room for metadata, because the pages in memory are
    /// pinned or being loaded. The budget stays as it was.
    #[error("no room in a budget of {size}: {used} are in use, and pinned or being loaded")]
    BudgetBusy {
        /// The budget: the requested one, or the present one if the call needs room for metadata.
        size: Size,
        /// The memory that couldn't be freed.
        used: Size,
    },
    /// The system refused address space, memory or a thread.
    #[error("can't {what}: {error}")]
    System {
        /// The operation that failed.
        what: String,
        /// The system's error.
        #[source]
        error: IoError,
    },
    /// A group with this name exists already.
    #[error("there is a group `{group}` already")]
    GroupExists {
        /// The name.
        group: String,
    },
    /// Nothing in the group can be evicted: all of its pages are pinned, being loaded, or have no
    /// slot in swap. Unpin some pages, or raise the limit. If the budget is full, raising the limit
    /// may not help: a group can't take pages from groups that use a smaller share of their limits
    /// than it does.
    #[error(
        "group `{group}` has reached its limit of {max}, or its part of a full budget, and nothing in it can be \
         reclaimed: {charged} are pinned, being loaded, or have no place in swap"
    )]
    LimitReached {
        /// The group that needed a page.
        group: String,
        /// Its limit, or the whole budget if that is less.
        max: Size,
        /// What is charged to the group.
        charged: Size,
        /// The failure of a swap area's device, if the group's most recent write to swap failed. A
        /// page whose write failed has no slot in swap. This failure is the error's
        /// [`source`](std::error::Error::source).
        #[source]
        swap: Option<SwapFailure>,
    },
    /// The group belongs to another Pagefold.
    #[error("group `{group}` belongs to another Pagefold")]
    OtherPagefold {
        /// The name of that group.
        group: String,
    },
    /// The file couldn't be opened.
    #[error("can't open {}: {error}", path.display())]
    OpenFailed {
        /// The given path.
        path: PathBuf,
        /// The backend's error.
        #[source]
        error: IoError,
    },
    /// The options ask to create or truncate the file, but not to open it for writing.
    #[error("can't open {}: `create`, `create_new` and `truncate` need `write`", path.display())]
    NotForWriting {
        /// The given path.
        path: PathBuf,
    },
    /// Another Pagefold or another process has the file open for writing, and has locked it.
    #[error(
        "{} is in use: another Pagefold or another process has it open for writing, and locked (see \
         `OpenOptions::lock`)",
        path.display()
    )]
    FileInUse {
        /// The given path.
        path: PathBuf,
    },
    /// A page couldn't be read. It isn't in memory; the next access retries.
    #[error("can't read page {page} of {}: {error}", path.display())]
    ReadFailed {
        /// The file.
        path: PathBuf,
        /// The page's number.
        page: u64,
        /// The backend's error.
        #[source]
        error: IoError,
    },
    /// The file isn't open for writing.
    #[error("{} isn't open for writing", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Written data couldn't be stored in the file, or couldn't be made durable. Pages that
    /// couldn't be stored stay in memory, and are written again by the next sync, or later in the
    /// background.
    #[error("can't write {}: {error}", path.display())]
    WriteFailed {
        /// The file.
        path: PathBuf,
        /// The backend's error.
        #[source]
        error: IoError,
    },
    /// The file's device hasn't answered for as long as
    /// [`Builder::io_timeout`](crate::Builder::io_timeout) allows. Until the device answers, calls
    /// that need it fail at once. Written data stays in memory. Requests to the device may still
    /// complete.
    #[error("the device of {} doesn't answer", path.display())]
    DeviceTimeout {
        /// The file.
        path: PathBuf,
    },
    /// A guard pins the page, or a writer is changing it. Most calls wait for seconds before they
    /// fail with this error; a truncation by [`File::set_len`](crate::File::set_len) waits only
    /// milliseconds for a pinned page.
    #[error("page {page} of {} is in use: pinned, or being changed", path.display())]
    PageBusy {
        /// The file.
        path: PathBuf,
        /// The page's number.
        page: u64,
    },
    /// The file has no such page, or ends before the end of a range that the call needs entirely.
    #[error("{} has {len} bytes: {offset} + {wanted} is past its end", path.display())]
    PastEnd {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// Where the access starts, in bytes.
        offset: u64,
        /// The length of the access in bytes.
        wanted: u64,
    },
    /// The file would exceed the largest possible length, `i64::MAX` bytes. Or no address space is
    /// left for the metadata of one of the file's pages, because `RLIMIT_AS` is too low, or because
    /// many other files, each terabytes long, are in use.
    #[error("{} is too large: there is no place in a page map for its {pages} pages", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// The approximate number of pages that the file's page map would need.
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
    /// A range can't be used in a space.
    #[error("{len:#x} bytes at {address:#x} can't be used in a space: {why}")]
    BadAddress {
        /// The start of the range.
        address: u64,
        /// The length of the range in bytes.
        len: u64,
        /// Why the range can't be used.
        why: &'static str,
    },
    /// Nothing is mapped at an address.
    #[error("nothing is mapped at {address:#x}, in {:#x}-{:#x}", hole.start, hole.end)]
    NotMapped {
        /// The first unmapped address, rounded down to a page.
        address: u64,
        /// The unmapped range around that address, as far as a short search shows.
        hole: Range<u64>,
    },
    /// An operation on a space failed at an address, because of `error`.
    #[error("at {address:#x}, in the area {:#x}-{:#x}: {error}", area.start, area.end)]
    AtAddress {
        /// The address, rounded down to a page.
        address: u64,
        /// The mapped area, as far as a short search shows.
        area: Range<u64>,
        /// The error.
        error: Box<Error>,
        /// The device's error, if there is one: the [`source`](std::error::Error::source) of
        /// `error`, and of this error.
        source: Option<DeviceFailure>,
    },
    /// A guard pins the page, or a writer is changing it. Reads and writes wait for seconds before
    /// they fail with this error; calls that unmap, move or protect memory wait only milliseconds
    /// for a guard.
    #[error("the page at {address:#x} is in use: pinned, or being changed")]
    AddressBusy {
        /// The page's address.
        address: u64,
    },
    /// The memory is mapped, but not for this access.
    #[error("{address:#x} is in the area {:#x}-{:#x}, which is mapped as {protection:?}", area.start, area.end)]
    NotPermitted {
        /// The address, rounded down to a page.
        address: u64,
        /// The mapped area, as far as a short search shows.
        area: Range<u64>,
        /// The permitted accesses.
        protection: Protection,
    },
    /// The range is mapped already, at least partly.
    #[error("something is mapped in {:#x}-{:#x} already", range.start, range.end)]
    Mapped {
        /// The requested range.
        range: Range<u64>,
    },
    /// A space has no free range of this length.
    #[error("a space has no room for {len} bytes in a row any more")]
    NoAddresses {
        /// The requested length in bytes.
        len: u64,
    },
    /// A swap area can't be used, or can't be used now. It wasn't added.
    #[error(transparent)]
    SwapRefused(#[from] swap::AddError),
    /// A swap area couldn't be removed. It stays in use.
    #[error(transparent)]
    SwapInUse(#[from] swap::RemoveError),
    /// A page couldn't be read back from swap. Its content is still in swap: the next access
    /// retries.
    #[error("can't read the page at {address:#x} from {}: {error}", swap_area(area.as_deref()))]
    SwapReadFailed {
        /// Where the page begins.
        address: u64,
        /// The name of the page's area, if the area still exists.
        area: Option<String>,
        /// The device's error.
        #[source]
        error: IoError,
    },
    /// A page came back from swap with content that differs from what was written. No caller gets
    /// any of that content. Accesses to the page fail until the page is overwritten entirely,
    /// discarded or unmapped.
    #[error(
        "the page at {address:#x} came back from {} as something else than was written there",
        swap_area(area.as_deref())
    )]
    SwapCorrupt {
        /// Where the page begins.
        address: u64,
        /// The name of the page's area, if the area still exists.
        area: Option<String>,
    },
    /// A space has had so many mappings of files that no number is left for another one.
    #[error("a space has too many mappings of files: unmap some, or use another space")]
    TooManyMappings,
    /// This process is a forked child of the process that built the Pagefold. The child doesn't
    /// share the Pagefold's memory: it can only build a Pagefold of its own.
    #[error("a Pagefold can't be used in a forked child process")]
    Forked,
}

fn swap_area(name: Option<&str>) -> String {
    name.map_or_else(|| "swap".to_owned(), |name| format!("the swap area {name}"))
}

/// The failure of a swap area's device.
#[derive(Clone, Debug, thiserror::Error)]
#[error("can't write to the swap area {area}: {error}")]
#[non_exhaustive]
pub struct SwapFailure {
    /// The area's name.
    pub area: String,
    /// The backend's error.
    pub error: IoError,
}

/// The error of a device that made a call fail: of a file's device, or of a swap area's.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum DeviceFailure {
    /// The error of a file's device.
    File(IoError),
    /// The error of a swap area's device.
    Swap(SwapFailure),
}

impl Error {
    /// Wraps the system's refusal of address space or memory.
    pub(crate) fn no_memory(error: frames::ReserveError) -> Self {
        let what = format!("reserve {} bytes of address space", error.bytes);
        Self::System { what, error: IoError::Os(error.errno) }
    }

    /// Wraps the backend's failure to start threads.
    pub(crate) fn no_threads(error: IoError) -> Self {
        Self::System { what: "start threads".to_owned(), error }
    }

    /// Wraps the system's refusal of a thread. Without an error number, assumes `EAGAIN`.
    pub(crate) fn no_thread(error: std::io::Error) -> Self {
        Self::no_threads(error.raw_os_error().map_or(IoError::AGAIN, IoError::Os))
    }

    /// Returns the standard library's kind for this error, as `std::fs` would return it.
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

    /// Returns the device's error that made the call fail.
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

    /// Returns the underlying error, without the address in a space.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::AtAddress { error, .. } => error,
            error => error,
        }
    }
}

impl From<Error> for std::io::Error {
    /// Creates an error of the same [`kind`](Error::kind) that contains this error.
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

    /// Regression: the device's error was only in the text, so a program couldn't tell a full disk
    /// from a broken one.
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
