//! A Pagefold: one budget, its groups, its files.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;

use sync::lock::Mutex;
use sync::{Arc, Weak};

use crate::api::files::Files;
use crate::budget::check_budget;
use crate::error::Error;
use crate::manager::Manager;
use crate::manager::group_handle::GroupHandle;
use crate::reclaim::reclaimer::Reclaimer;
use crate::size::{IntoSize, Size};
use crate::stats::Stats;
use crate::swapping::area::SwapArea;
use crate::write::flusher::FlusherThread;

/// A memory manager with one budget. Clones are the same one; it lives as long as any handle of it,
/// of its groups or of its files.
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
    /// Groups by name; those that are gone, too, until room is wanted for others.
    groups: Mutex<HashMap<String, Weak<GroupHandle>>>,
    /// Both end with the last handle.
    _flusher: FlusherThread,
    _reclaimer: Reclaimer,
}

impl Pagefold {
    pub(crate) fn start(manager: Manager) -> Result<Self, Error> {
        let manager = Arc::new(manager);
        let reclaimer = Reclaimer::start(&manager)?;
        let (files, flusher) = (Files::new(&manager), FlusherThread(Arc::clone(&manager)));
        Ok(Self {
            shared: Arc::new(Shared {
                groups: Mutex::default(),
                files,
                _flusher: flusher,
                manager,
                _reclaimer: reclaimer,
            }),
        })
    }

    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.shared.manager
    }

    /// What lasts as long as this Pagefold.
    pub(crate) fn kept(&self) -> Arc<dyn Any + Send + Sync> {
        let shared: Arc<Shared> = Arc::clone(&self.shared);
        shared
    }

    /// Makes a group that was just built known by its name.
    pub(crate) fn add_group(&self, handle: &Arc<GroupHandle>) {
        let mut groups = self.shared.groups.lock();
        if groups.len() == groups.capacity() {
            groups.retain(|_, handle| handle.strong_count() > 0);
            let room = groups.len().max(1); // So that the next time is as many groups away.
            groups.reserve(room);
        }
        groups.insert(handle.state.name.clone(), Arc::downgrade(handle));
    }

    /// The group with this name, if it is in use.
    pub(crate) fn group_handle(&self, name: &str) -> Option<Arc<GroupHandle>> {
        self.shared.groups.lock().get(name)?.upgrade()
    }

    /// All groups that are in use.
    pub(crate) fn group_handles(&self) -> Vec<Arc<GroupHandle>> {
        self.shared.groups.lock().values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn files(&self) -> &Files {
        &self.shared.files
    }

    /// The budget in bytes: frames, page maps and other metadata together never take more.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.manager().frames.budget().max()
    }

    /// What is charged to the budget now, in bytes: the same as [`Stats::used_bytes`], without a
    /// look at groups and files.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.manager().frames.budget().used()
    }

    /// Changes the budget. Lowering it evicts pages and gives their memory back to the system
    /// before the call returns.
    ///
    /// # Errors
    /// A budget that isn't a size, too small, or larger than `memory_max` at the start;
    /// [`Error::BudgetBusy`] if pinned pages stand in the way: then the budget stays as it was.
    pub fn resize(&self, memory: impl IntoSize) -> Result<(), Error> {
        let size = memory.into_size()?;
        check_budget(size, self.page_size())?;
        let max = self.manager().frames.budget_max();
        if size.0 > max {
            return Err(Error::BudgetTooLarge { size, max: Size(max) });
        }
        self.manager().resize(size)
    }

    /// Adds a swap area. Returns its number. Its tables are charged to the budget: 20 bytes for
    /// each page that it has room for.
    ///
    /// # Errors
    /// [`Error::SwapRefused`], also for a file or device that is in use; [`Error::BudgetBusy`] if
    /// there is no room for the tables.
    pub fn add_swap(&self, area: SwapArea) -> Result<u32, Error> {
        self.manager().add_swap(area)
    }

    /// Removes a swap area, when all that is in it is back in memory. Waits for its device, and
    /// about two seconds for pages that are in use. Other areas may come and go meanwhile.
    ///
    /// # Errors
    /// [`Error::SwapInUse`], which says how much memory is missing, how many pages are in use (by
    /// guards, as a rule), or how many can't be read. The area is in use as before then, with fewer
    /// pages in it.
    pub fn remove_swap(&self, number: u32) -> Result<(), Error> {
        self.manager().remove_swap(number)
    }

    /// Bytes in a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.manager().frames.page_size()
    }

    /// All numbers.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.manager().stats(&self.files().all())
    }
}

impl fmt::Debug for Pagefold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pagefold").field("budget", &self.budget()).finish_non_exhaustive()
    }
}
