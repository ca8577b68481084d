//! Memory groups: tenants, each with a limit.

pub(crate) mod charges;
pub(crate) mod recharge;
pub(crate) mod state;
pub(crate) mod table;

use std::path::Path;

use sync::Arc;

use crate::error::Error;
use crate::file::File;
use crate::file::open_options::OpenOptions;
use crate::group::state::GroupState;
use crate::group::table::SWEPT_GROUPS;
use crate::io::Access;
use crate::manager::Manager;
use crate::pagefold::Pagefold;
use crate::size::{IntoSize, Size, SizeError};
use crate::space::Space;
use crate::stats::GroupStats;

/// What a group takes, rounded up: charged until its last page is gone.
pub(crate) const GROUP_BYTES: u64 = 2 << 10;
/// The least that a group can do anything with.
const PAGES_MIN: u64 = 4;

/// A group in the making.
#[derive(Debug)]
pub struct GroupBuilder {
    pagefold: Pagefold,
    name: String,
    max: Result<Option<Size>, SizeError>,
    swap_max: Result<Option<Size>, SizeError>,
}

impl GroupBuilder {
    pub(crate) fn new(pagefold: Pagefold, name: &str) -> Self {
        Self { pagefold, name: name.to_owned(), max: Ok(None), swap_max: Ok(None) }
    }

    /// The group's limit: its pages never take more. Several groups' limits may add up to more than
    /// the budget. Without one the limit is the budget. When the budget is full, a group gets pages
    /// only of groups that use at least as large a share of their limits, or of the budget, as it
    /// does; so without a limit it can't empty the others.
    #[must_use]
    pub fn max(mut self, size: impl IntoSize) -> Self {
        self.max = size.into_size().map(Some);
        self
    }

    /// How much of the group may be in swap slots. Without this limit, as much as there is room
    /// for; 0 is nothing. (Pages that repeat one word need no slot.) While pages change places, up
    /// to eight more are in slots.
    #[must_use]
    pub fn swap_max(mut self, size: impl IntoSize) -> Self {
        self.swap_max = size.into_size().map(Some);
        self
    }

    /// Makes the group.
    ///
    /// # Errors
    /// A limit that isn't a size or too small for a few pages; a name that another group has.
    pub fn build(self) -> Result<Group, Error> {
        let manager = self.pagefold.manager();
        let max = self.max?.map(|size| pages_of(size, manager.frames.page_size())).transpose()?;
        let swap_max = self.swap_max?;
        manager.charge_metadata(GROUP_BYTES)?;
        let budget = || manager.frames.budget().max() / manager.frames.page_size() as u64;
        let state = manager
            .groups
            .add(&self.name, max, budget)
            .inspect_err(|_| manager.frames.budget().uncharge(GROUP_BYTES))?;
        if let Some(size) = swap_max {
            state.swapped.set_max(size.0 / manager.frames.page_size() as u64);
        }
        Ok(Group { handle: Arc::new(Handle { state, pagefold: self.pagefold }) })
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

/// A memory group. Clones are the same group; when the last one and all files opened through it are
/// gone, so are its pages, but for those that another group has pinned at that moment: they go when
/// they are next reclaimed.
#[derive(Clone, Debug)]
pub struct Group {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    state: Arc<GroupState>,
    pagefold: Pagefold,
}

impl Group {
    pub(crate) fn state(&self) -> &Arc<GroupState> {
        &self.handle.state
    }

    pub(crate) fn pagefold(&self) -> &Pagefold {
        &self.handle.pagefold
    }

    /// The group's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state().name
    }

    /// The group's limit in bytes.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.state().max() * self.page_size()
    }

    /// What is charged to the group now, in bytes.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.pagefold().manager().pages_of(self.state()) * self.page_size()
    }

    fn page_size(&self) -> u64 {
        self.pagefold().page_size() as u64
    }

    /// Changes the limit. Lowering it reclaims what is beyond it before the call returns, as far as
    /// that isn't pinned and can be written to its file; the rest goes when the group next needs a
    /// page. The call waits for the group's own dirty pages, and gives up when none of them was
    /// written for two seconds.
    ///
    /// # Errors
    /// A limit that isn't a size, or too small for a few pages.
    pub fn set_max(&self, size: impl IntoSize) -> Result<(), Error> {
        let manager = self.pagefold().manager();
        manager.refuse_child()?;
        let max = pages_of(size.into_size()?, manager.frames.page_size())?;
        self.state().set_max(max);
        manager.drain_entries();
        let (mut clean, mut awaited) = (manager.clean_wait(Some(self.state())), 0);
        loop {
            manager.drain_charges(Some(self.state().id));
            // Another thread may have raised the limit again.
            let beyond = self.state().charged().saturating_sub(self.state().max()) as usize;
            // What was in vain before may not be now: pages were written back, or unpinned.
            self.state().walk.forget();
            if beyond == 0 {
                return Ok(());
            }
            if manager.reclaim_group(self.state(), beyond) > 0 {
                clean.progressed();
            } else if !clean.wait() && !manager.await_landings(Some(self.state()), &mut awaited) {
                return Ok(());
            }
        }
    }

    /// Changes how much of the group may be in swap slots. What is there beyond a lower limit stays
    /// there until it is used.
    ///
    /// # Errors
    /// A limit that isn't a size.
    pub fn set_swap_max(&self, size: impl IntoSize) -> Result<(), Error> {
        self.pagefold().manager().refuse_child()?;
        self.state().swapped.set_max(size.into_size()?.0 / self.page_size());
        Ok(())
    }

    /// Charges this group's pages to another group, as before an end of this one that would evict
    /// them. Says how many bytes. Memory of spaces stays here, and what [`File::charge_to`]
    /// wouldn't move.
    ///
    /// # Errors
    /// Those of [`File::charge_to`].
    pub fn hand_over(&self, to: &Self) -> Result<u64, Error> {
        let manager = self.pagefold().manager();
        manager.refuse_child()?;
        to.check_manager(manager)?;
        if self.state().id == to.state().id {
            return Ok(0);
        }
        manager.drain_entries();
        manager.make_place(to.state(), self.state().lists.len() as u64);
        let mut pages = 0;
        for file in manager.files.all() {
            pages += manager.recharge(&file, 0..u64::MAX, Some(self.state().id), to.state())?;
        }
        Ok(pages * self.page_size())
    }

    /// Whether the group is one of `manager`'s.
    pub(crate) fn check_manager(&self, manager: &Arc<Manager>) -> Result<(), Error> {
        let same = Arc::ptr_eq(manager, self.pagefold().manager());
        if same { Ok(()) } else { Err(Error::OtherPagefold { group: self.name().to_owned() }) }
    }

    /// Opens a file for reading. Its pages are charged to this group if it is this handle that
    /// loads them. A file that is open already, in this group or another, under this name or
    /// another, is the same cache. That ends at the Pagefold: another one has a cache of its own,
    /// and doesn't hear of writes.
    ///
    /// # Errors
    /// The backend's, as [`IoError::NoLength`](crate::io::IoError::NoLength) for a pipe or a file
    /// in `/proc`; no room for another open file in the budget, or for its page map in the address
    /// space.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        File::open(self, path.as_ref(), Access::Read)
    }

    /// An empty address space, whose memory is charged to this group. Where there is swap, it goes
    /// there when memory is short; otherwise it isn't evicted: the group's limit answers with an
    /// error.
    ///
    /// # Errors
    /// No room in the budget for its index.
    pub fn space(&self) -> Result<Space, Error> {
        Space::new(self)
    }

    /// A file about to be opened, for writing or otherwise than [`open`](Self::open) does.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions::new(self)
    }

    /// The group's numbers.
    #[must_use]
    pub fn stats(&self) -> GroupStats {
        self.pagefold().manager().group_stats(self.state())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let manager = self.pagefold.manager();
        if manager.frames.forked() {
            return;
        }
        manager.groups.abandon(&self.state);
        manager.drain_charges(Some(self.state.id));
        // Pages of files that are still open through other groups.
        if self.state.charged() > 0 {
            manager.drain_entries();
            self.state.walk.forget();
            manager.reclaim_group(&self.state, self.state.charged() as usize);
        }
        manager.sweep_groups(SWEPT_GROUPS);
    }
}
