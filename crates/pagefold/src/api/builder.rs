//! Building a Pagefold.

use std::path::PathBuf;

use frames::{Config, Frames};
use sync::FirstTime;
use sync::time::Duration;

use crate::api::pagefold::Pagefold;
use crate::budget::check_budget;
use crate::error::Error;
use crate::machine;
use crate::manager::Manager;
use crate::manager::file_io::FileIo;
use crate::memory::Memory;
use crate::size::{IntoSize, Size, SizeError};
use crate::swapping::Swapping;
use crate::swapping::area::SwapArea;
use io::{self, Backend, ThreadPool};

/// The configuration of a [`Pagefold`]. Sizes are checked by [`build`](Self::build).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use pagefold::Pagefold;
///
/// let mm = Pagefold::builder()
///     .memory("64MiB")
///     .memory_max("1GiB") // As far as `resize` may go.
///     .page_size("16KiB")
///     .io_timeout(Duration::from_secs(30))
///     .build()?;
/// assert_eq!(mm.page_size(), 16384);
/// # Ok(())
/// # }
/// ```
pub struct Builder {
    memory: Result<Option<Size>, SizeError>,
    memory_max: Result<Option<Size>, SizeError>,
    page_size: Result<Size, SizeError>,
    backend: Option<Box<dyn Backend>>,
    pretouch: bool,
    huge_pages: bool,
    nodes: Option<usize>,
    swap: Vec<SwapArea>,
    io_timeout: Option<Duration>,
}

/// The largest page: the system's huge page.
const PAGE_SIZE_MAX: u64 = 2 << 20;
impl Default for Builder {
    fn default() -> Self {
        Self {
            memory: Ok(None),
            memory_max: Ok(None),
            page_size: Ok(Size(4096)),
            backend: None,
            pretouch: false,
            huge_pages: true,
            nodes: None,
            swap: Vec::new(),
            io_timeout: None,
        }
    }
}

impl Pagefold {
    /// Creates a builder with the default configuration.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets the memory budget, at most 2^30 pages. Default: a quarter of the memory that the
    /// process may use, which is the machine's memory, or the limit of the process's memory cgroup
    /// if that is less. A budget larger than this memory is accepted, with one warning in the log.
    #[must_use]
    pub fn memory(mut self, size: impl IntoSize) -> Self {
        self.memory = size.into_size().map(Some);
        self
    }

    /// Sets the maximum to which [`Pagefold::resize`] may raise the budget. Reserves address space
    /// for this maximum, but no memory. Default: the larger of the budget and the memory that the
    /// process may use, or less if the process can't reserve enough address space. A `resize`
    /// beyond the maximum fails with [`Error::BudgetTooLarge`], which contains the maximum.
    #[must_use]
    pub fn memory_max(mut self, size: impl IntoSize) -> Self {
        self.memory_max = size.into_size().map(Some);
        self
    }

    /// Sets the page size: a power of two from 4 KiB, the default, to 2 MiB.
    #[must_use]
    pub fn page_size(mut self, size: impl IntoSize) -> Self {
        self.page_size = size.into_size();
        self
    }

    /// Sets where files are opened. Default: [`io::automatic`], the machine's file systems through
    /// the best interface that the system has.
    #[must_use]
    pub fn backend(mut self, backend: impl Backend) -> Self {
        self.backend = Some(Box::new(backend));
        self
    }

    /// Takes all memory from the system at the start, rather than on first use. Default: no.
    #[must_use]
    pub fn pretouch(mut self, yes: bool) -> Self {
        self.pretouch = yes;
        self
    }

    /// Uses the system's huge pages if the budget is large enough for them. Default: yes.
    #[must_use]
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge_pages = yes;
        self
    }

    /// Pretends that the CPUs belong to this many NUMA nodes, for tests. Default: the system's
    /// nodes.
    #[must_use]
    pub fn numa_nodes(mut self, nodes: usize) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Sets how long a call waits for a file's device. Default: until the device answers, like
    /// `pread` and `fsync`.
    ///
    /// A call that has waited this long for an answer fails with [`Error::DeviceTimeout`]. The
    /// call's request continues, because the kernel can't cancel it: a page that is being loaded
    /// stays charged and arrives later, a sync continues, and a new length may still take effect.
    ///
    /// Until the device answers a request, further calls that need the device fail at once. Calls
    /// that find their pages in memory succeed. Written data stays in memory, and is written when
    /// the device answers.
    ///
    /// Closing a file also waits at most this long for each answer. If the time runs out, another
    /// thread completes the closing later. Dropping the last handle of the Pagefold waits at most
    /// this long for each answer, too. If the process then ends before the device has answered,
    /// data that wasn't written to the device is lost.
    ///
    /// With a timeout, requests are always executed by the kernel or by other threads. So a read
    /// takes some microseconds longer if its page isn't in memory. The timeout doesn't apply to
    /// opening files, or to swapping. Choose a time that is longer than a healthy device ever takes
    /// to answer: with a long queue, that may be a second.
    #[must_use]
    pub fn io_timeout(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.io_timeout = time.into();
        self
    }

    /// Adds a swap area: a new, unnamed file of `size`. The file is created in the directory
    /// `path`, or in the parent directory of `path` if `path` doesn't exist. For areas of other
    /// kinds, or with a priority, see [`swap_area`](Self::swap_area).
    #[must_use]
    pub fn swap(self, path: impl Into<PathBuf>, size: impl IntoSize) -> Self {
        self.swap_area(SwapArea::unlinked(path, size))
    }

    /// Adds a swap area of compressed pages, which is filled before all other areas. It takes up to
    /// `limit` bytes of the budget. If compression saves less than a quarter of a page, the page
    /// goes to another area. When this area is full, the pages that have been in it longest move to
    /// the other areas.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("swap");
    /// use pagefold::{Pagefold, Protection};
    ///
    /// let mm = Pagefold::builder().memory("16MiB").compressed_swap("8MiB").swap(path, "64MiB").build()?;
    /// let space = mm.group("tenant-a").build()?.space()?;
    /// let area = space.map(24 << 20, Protection::ReadWrite)?;
    /// for page in area.clone().step_by(4096) {
    ///     space.write_at(&page.to_le_bytes(), page)?;
    /// }
    /// let stats = mm.stats();
    /// let compressed = stats.swap[0].compressed.as_ref().expect("the first area is it");
    /// assert!(compressed.compressed_bytes < compressed.original_bytes / 2);
    /// assert!(stats.used_bytes <= stats.budget_bytes);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn compressed_swap(self, limit: impl IntoSize) -> Self {
        self.swap_area(SwapArea::compressed(limit))
    }

    /// Adds a swap area. May be called several times. See also [`Pagefold::add_swap`].
    #[must_use]
    pub fn swap_area(mut self, area: SwapArea) -> Self {
        self.swap.push(area);
        self
    }

    /// Builds the Pagefold.
    ///
    /// # Errors
    /// Fails if a swap area can't be used, a text isn't a size, or the page size isn't supported.
    /// Also fails if the budget is too small for 16 pages or larger than 2^30 pages, or the system
    /// refuses address space, memory or a thread.
    pub fn build(self) -> Result<Pagefold, Error> {
        let page_size = checked_page_size(self.page_size?)?;
        let memory = self.memory?.unwrap_or_else(|| Size(machine::memory_allowed().bytes / 4));
        check_budget(memory, page_size)?;
        let memory_max = match self.memory_max? {
            Some(size) => size.0,
            None => frames::room_to_grow(memory.0, machine::memory_allowed().bytes),
        };
        let config = Config {
            memory_max,
            huge_pages: self.huge_pages,
            pretouch: self.pretouch,
            nodes: self.nodes,
            ..Config::new(memory.0, page_size)
        };
        let frames = Frames::new(&config).map_err(Error::no_memory)?;
        tell_of_precautions();
        let mut backend = self.backend.unwrap_or_else(io::automatic);
        if self.io_timeout.is_some() && backend.waits_in_submit() {
            backend = Box::new(ThreadPool::new(backend, ThreadPool::THREADS_DEFAULT).map_err(Error::no_threads)?);
        }
        let memory = Memory::new(frames);
        let file_io = FileIo::new(backend, self.io_timeout);
        let swapping = Swapping::new(page_size);
        let pagefold = Pagefold::start(Manager { memory, file_io, swapping, spaces: Default::default() })?;
        if self.io_timeout.is_some() {
            pagefold.manager().file_io.workers()?;
        }
        for area in self.swap {
            pagefold.add_swap(area)?;
        }
        Ok(pagefold)
    }
}

/// Warns in the log, once, about protections that the system doesn't offer.
fn tell_of_precautions() {
    static CHILDREN: FirstTime = FirstTime::new();
    static DUMPS: FirstTime = FirstTime::new();
    if sync::fork::is_wiped_by_children() && CHILDREN.is_now() {
        tracing::warn!(
            "the system doesn't wipe memory in forked children (MADV_WIPEONFORK), so children wipe it themselves; but \
             a child of a direct `clone` system call keeps all pages, and behaves as if it were the parent"
        );
    }
    if sync::memory::is_in_dumps() && DUMPS.is_now() {
        tracing::warn!("the system doesn't leave pages out of core dumps (MADV_DONTDUMP)");
    }
}

fn checked_page_size(size: Size) -> Result<usize, Error> {
    let min = machine::page_size() as u64;
    if !size.0.is_power_of_two() || !(min..=PAGE_SIZE_MAX).contains(&size.0) {
        return Err(Error::BadPageSize { size, min: Size(min), max: Size(PAGE_SIZE_MAX) });
    }
    Ok(size.0 as usize)
}
