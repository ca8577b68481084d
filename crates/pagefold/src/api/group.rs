//! Memory groups: tenants, each with a limit.

use sync::Arc;

use crate::api::census;
use crate::api::pagefold::Pagefold;
use crate::error::Error;
use crate::file::recharge;
use crate::group::state::{GROUP_BYTES, GroupState};
use crate::manager::Manager;
use crate::manager::group_handle::GroupHandle;
use crate::memory::waits::Landings;
use crate::size::{IntoSize, Size, SizeError};
use crate::stats::GroupStats;

/// The smallest limit of a group, in pages.
const PAGES_MIN: u64 = 4;

/// The configuration of a new group.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mm = pagefold::Pagefold::builder().memory("16MiB").build()?;
/// let group = mm.group("batch-jobs").max("4MiB").swap_max("64MiB").build()?;
/// assert_eq!(group.name(), "batch-jobs");
/// assert!(mm.group("batch-jobs").build().is_err(), "another group has the name");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GroupBuilder {
    pagefold: Pagefold,
    name: String,
    max: Result<Option<Size>, SizeError>,
    swap_max: Result<Option<Size>, SizeError>,
}

impl Pagefold {
    /// Begins to configure a new group. A group is a tenant with a limit. A page is charged to the
    /// group whose handle loads it.
    #[must_use]
    pub fn group(&self, name: &str) -> GroupBuilder {
        GroupBuilder { pagefold: self.clone(), name: name.to_owned(), max: Ok(None), swap_max: Ok(None) }
    }

    /// Returns the group with this name, if it is in use. A group is in use while there is a
    /// [`Group`] of it, or a file or a space that was opened through it.
    ///
    /// ```
    /// # fn main() -> Result<(), pagefold::Error> {
    /// # use pagefold::Pagefold;
    /// let mm = Pagefold::builder().memory("16MiB").build()?;
    /// let tenant = mm.group("tenant-a").max("4MiB").build()?;
    /// assert_eq!(mm.find_group("tenant-a").map(|group| group.max()), Some(4 << 20));
    /// drop(tenant);
    /// assert!(mm.find_group("tenant-a").is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn find_group(&self, name: &str) -> Option<Group> {
        self.manager().memory.refuse_child().ok()?;
        let state = self.manager().memory.groups.named(name)?;
        Some(Group::of(GroupHandle::of(&state)?, self.clone()))
    }

    /// Returns all groups that are in use, in no particular order.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        if self.manager().memory.refuse_child().is_err() {
            return Vec::new();
        }
        let handles = self.manager().memory.groups.all().into_iter().filter_map(|state| GroupHandle::of(&state));
        handles.map(|handle| Group::of(handle, self.clone())).collect()
    }
}

impl GroupBuilder {
    /// Sets the group's limit. The memory of the group's pages never exceeds it. The limits of
    /// several groups may add up to more than the budget. Default: the budget.
    ///
    /// When the budget is full, a group takes pages only from groups that are at least as full as
    /// itself. A group's fullness is the share of its limit that it uses; a limit above the budget
    /// counts as the budget here. So even a group without a limit can't empty the others: when it
    /// has become fuller than they are, it takes pages only from itself. Exception: a group with
    /// hardly any pages gets a few from any group.
    #[must_use]
    pub fn max(mut self, size: impl IntoSize) -> Self {
        self.max = size.into_size().map(Some);
        self
    }

    /// Sets how many of the group's bytes may be in swap slots. Default: as many as fit into the
    /// swap areas. With 0, no page gets a slot. A page that repeats a single word needs no slot, so
    /// it may be swapped out in any case. During exchanges, which swap out one page so that another
    /// can be swapped in, up to eight slots more than this limit may be in use.
    #[must_use]
    pub fn swap_max(mut self, size: impl IntoSize) -> Self {
        self.swap_max = size.into_size().map(Some);
        self
    }

    /// Creates the group.
    ///
    /// # Errors
    /// A limit that isn't a size, or is too small for a few pages; a name that another group has;
    /// [`Error::BudgetBusy`] if the budget has no room for the group's metadata.
    pub fn build(self) -> Result<Group, Error> {
        let manager = self.pagefold.manager();
        let max = self.max?.map(|size| pages_of(size, manager.memory.frames.page_size())).transpose()?;
        let swap_max = self.swap_max?;
        let charge = manager.hold_metadata(GROUP_BYTES)?;
        let budget = || manager.memory.frames.budget().max() / manager.memory.frames.page_size() as u64;
        let state = manager.memory.groups.add(&self.name, max, budget)?;
        charge.hand_over();
        if let Some(size) = swap_max {
            state.swapped.set_max(size.0 / manager.memory.frames.page_size() as u64);
        }
        let handle = GroupHandle::new(state, manager, self.pagefold.kept());
        Ok(Group::of(handle, self.pagefold))
    }
}

fn pages_of(size: Size, page_size: usize) -> Result<u64, Error> {
    let pages = size.0 / page_size as u64;
    if pages < PAGES_MIN {
        let min = Size(PAGES_MIN * page_size as u64);
        return Err(Error::TooSmall { what: "a group's limit", size, min, page_size: Size(page_size as u64) });
    }
    Ok(pages)
}

/// A memory group. Clones are the same group. When the last clone and all files opened through the
/// group are dropped, the group's pages are evicted. A page that a handle of another group has
/// pinned at that moment stays until it is unpinned and reclaim visits it again.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// let tenant = mm.group("tenant-a").max("8MiB").build()?;
/// let file = tenant.open("data")?;
/// file.read_exact_at(&mut [0; 5000], 0)?;
/// assert_eq!((tenant.charged(), tenant.stats().misses), (2 * 4096, 2));
/// tenant.set_max("4MiB")?; // Evicts what is beyond it.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The only part that an opening of a file (`file::handle`) holds.
    handle: Arc<GroupHandle>,
    pagefold: Pagefold,
}

impl Group {
    fn of(handle: Arc<GroupHandle>, pagefold: Pagefold) -> Self {
        Self { inner: Arc::new(Inner { handle, pagefold }) }
    }

    #[inline]
    pub(crate) fn handle(&self) -> &Arc<GroupHandle> {
        &self.inner.handle
    }

    #[inline]
    pub(crate) fn state(&self) -> &Arc<GroupState> {
        &self.handle().state
    }

    #[inline]
    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.handle().manager
    }

    pub(crate) fn pagefold(&self) -> &Pagefold {
        &self.inner.pagefold
    }

    /// Returns the group's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state().name
    }

    /// Returns the group's limit in bytes.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.state().max() * self.page_size()
    }

    /// Returns what is charged to the group now, in bytes.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.manager().memory.pages_of(self.state()) * self.page_size()
    }

    fn page_size(&self) -> u64 {
        self.pagefold().page_size() as u64
    }

    /// Changes the limit. If the limit is lowered, the call reclaims the excess before it returns.
    /// It waits for the group's own dirty pages, and gives up if none of them is written for two
    /// seconds. Pinned pages stay, and so do pages that can't be written to their file. The excess
    /// that is left is reclaimed when the group next needs a page. The metadata of swapped pages
    /// stays, too; it is charged to the group in chunks of a system page. If this metadata alone
    /// exceeds the limit, no page comes into memory until the limit is raised, or pages are
    /// discarded or unmapped.
    ///
    /// # Errors
    /// A limit that isn't a size, or is too small for a few pages.
    pub fn set_max(&self, size: impl IntoSize) -> Result<(), Error> {
        let manager = self.manager();
        manager.memory.refuse_child()?;
        let max = pages_of(size.into_size()?, manager.memory.frames.page_size())?;
        self.state().set_max(max);
        manager.memory.drain_entries();
        let (mut clean, mut awaited) = (manager.clean_wait(Some(self.state())), Landings::default());
        loop {
            manager.memory.drain_charges(Some(self.state().id));
            // Another thread may have raised the limit again.
            let beyond = self.state().charged().saturating_sub(self.state().max()) as usize;
            // A walk that found nothing to evict before may succeed now: pages may have been
            // written back or unpinned.
            self.state().walk.forget();
            if beyond == 0 {
                return Ok(());
            }
            let of_parts = manager.reclaim_all_idle_parts(self.state(), beyond as u64);
            if of_parts > 0 || manager.reclaim_group(self.state(), beyond) > 0 {
                clean.progressed();
            } else if !clean.wait() && !manager.memory.await_landings(Some(self.state()), &mut awaited) {
                return Ok(());
            }
        }
    }

    /// Changes how much of the group may be in swap slots. Pages beyond a lower limit stay in their
    /// slots until they are used. Until then, exchanges may use up to eight slots more than the
    /// group had when the limit was changed.
    ///
    /// # Errors
    /// A limit that isn't a size.
    pub fn set_swap_max(&self, size: impl IntoSize) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        let pages = size.into_size()?.0 / self.page_size();
        // Slots in CPUs' stocks aren't in use.
        self.manager().swapping.drain_charges(&self.manager().memory, Some(self.state().id));
        self.state().swapped.set_max(pages);
        Ok(())
    }

    /// Charges this group's pages to another group, for example because dropping this group would
    /// evict them. Returns the number of bytes that were recharged. Memory of spaces stays charged
    /// to this group, and so do the pages that [`charge_to`] skips.
    ///
    /// # Errors
    /// Those of [`charge_to`].
    ///
    /// [`charge_to`]: crate::File::charge_to
    pub fn hand_over(&self, to: &Self) -> Result<u64, Error> {
        let manager = self.manager();
        manager.memory.refuse_child()?;
        to.check_manager(manager)?;
        if self.state().id == to.state().id {
            return Ok(0);
        }
        manager.memory.drain_entries();
        let (files, from) = (self.pagefold().files().all(), Some(self.state().id));
        let movable = files.iter().map(|file| recharge::movable(manager, file, 0..u64::MAX, from, to.state()));
        recharge::make_place(manager, to.state(), movable.sum());
        let mut pages = 0;
        for file in files {
            pages += recharge::recharge(manager, &file, 0..u64::MAX, from, to.state())?;
        }
        Ok(pages * self.page_size())
    }

    /// Checks that the group belongs to `manager`.
    pub(crate) fn check_manager(&self, manager: &Arc<Manager>) -> Result<(), Error> {
        let same = Arc::ptr_eq(manager, self.manager());
        if same { Ok(()) } else { Err(Error::OtherPagefold { group: self.name().to_owned() }) }
    }

    /// Returns the group's statistics.
    #[must_use]
    pub fn stats(&self) -> GroupStats {
        census::group_stats(self.manager(), self.state())
    }
}
