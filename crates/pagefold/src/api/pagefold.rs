//! A Pagefold: one budget, its groups and its files.

use std::any::Any;
use std::fmt;

use sync::Arc;

use crate::api::census;
use crate::api::files::Files;
use crate::budget::check_budget;
use crate::error::Error;
use crate::manager::Manager;
use crate::manager::reclaim::reclaimer::Reclaimer;
use crate::size::{IntoSize, Size};
use crate::stats::Stats;
use crate::swapping::area::SwapArea;
use crate::write::flusher::FlusherThread;

/// A memory manager with one budget. Clones are the same Pagefold. A Pagefold lives as long as
/// there is any handle of the Pagefold itself, of one of its groups or of one of its files.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pagefold::Pagefold;
///
/// let mm = Pagefold::builder().memory("64MiB").build()?;
/// let tenant = mm.group("tenant-a").max("16MiB").build()?;
/// mm.resize("32MiB")?;
/// assert_eq!((mm.budget(), tenant.max()), (32 << 20, 16 << 20));
/// assert!(mm.used() <= mm.budget());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pagefold {
    shared: Arc<Shared>,
}

struct Shared {
    manager: Arc<Manager>,
    files: Files,
    /// Both threads end with the last handle.
    _flusher: FlusherThread,
    _reclaimer: Reclaimer,
}

impl Pagefold {
    pub(crate) fn start(manager: Manager) -> Result<Self, Error> {
        let manager = Arc::new(manager);
        let reclaimer = Reclaimer::start(&manager)?;
        let (files, flusher) = (Files::new(&manager), FlusherThread(Arc::clone(&manager)));
        Ok(Self { shared: Arc::new(Shared { files, _flusher: flusher, manager, _reclaimer: reclaimer }) })
    }

    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.shared.manager
    }

    /// Returns a reference that keeps this Pagefold's threads alive.
    pub(crate) fn kept(&self) -> Arc<dyn Any + Send + Sync> {
        let shared: Arc<Shared> = Arc::clone(&self.shared);
        shared
    }

    pub(crate) fn files(&self) -> &Files {
        &self.shared.files
    }

    /// Returns the budget in bytes. Frames, page maps and other metadata together never exceed it.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.manager().memory.frames.budget().max()
    }

    /// Returns what is charged to the budget now, in bytes: the same as [`Stats::used_bytes`],
    /// without visiting groups and files.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.manager().memory.frames.budget().used()
    }

    /// Changes the budget. Lowering it evicts pages and gives their memory back to the system
    /// before the call returns.
    ///
    /// # Errors
    /// A budget that isn't a size, is too small, or is larger than `memory_max` at the start.
    /// [`Error::BudgetBusy`] if pinned pages prevent it; then the budget stays as it was.
    pub fn resize(&self, memory: impl IntoSize) -> Result<(), Error> {
        let size = memory.into_size()?;
        check_budget(size, self.page_size())?;
        let max = self.manager().memory.frames.budget_max();
        if size.0 > max {
            return Err(Error::BudgetTooLarge { size, max: Size(max) });
        }
        self.manager().resize(size)
    }

    /// Adds a swap area and returns the area's number. The area's tables are charged to the budget:
    /// 20 bytes for each page that fits into the area.
    ///
    /// # Errors
    /// [`Error::BadSize`]; [`Error::SwapRefused`], also for a file or device that is in use, and if
    /// the budget has no room for the tables; [`Error::BudgetBusy`] if the budget has no room for
    /// the stock of memory of a compressed area.
    pub fn add_swap(&self, area: SwapArea) -> Result<u32, Error> {
        self.manager().add_swap(area)
    }

    /// Brings all pages of a swap area back into memory, and then removes the area. Waits for the
    /// area's device, and about two seconds for pages that are in use. Other areas may be added and
    /// removed during the wait.
    ///
    /// If only a compressed area is left, that area may refuse pages that don't shrink, and memory
    /// may fill with such pages. Accesses to pages in the compressed area then fail with
    /// [`Error::LimitReached`] until memory is unmapped, or another area is added.
    ///
    /// # Errors
    /// [`Error::SwapInUse`], which contains how much memory is missing, how many pages are in use
    /// (usually by guards), or how many can't be read. The area then stays in use, with fewer pages
    /// in it.
    pub fn remove_swap(&self, number: u32) -> Result<(), Error> {
        self.manager().remove_swap(number)
    }

    /// Returns the number of bytes in a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.manager().memory.frames.page_size()
    }

    /// Returns all statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        census::stats(self.manager(), || self.files().all())
    }
}

impl fmt::Debug for Pagefold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pagefold").field("budget", &self.budget()).finish_non_exhaustive()
    }
}
