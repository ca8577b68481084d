//! A group in use: the handle that files, spaces and users of a group share.

use std::any::Any;
use std::fmt;

use sync::{Arc, Weak};

use crate::group::state::{GROUP_BYTES, GroupState};
use crate::group::table::SWEPT_GROUPS;
use crate::manager::Manager;

/// The shared handle of a group. It lives as long as users, spaces or open files hold it. Dropping
/// the handle evicts the group's pages. Only pinned and dirty pages of files that other groups
/// still have open stay in memory.
pub(crate) struct GroupHandle {
    pub(crate) state: Arc<GroupState>,
    pub(crate) manager: Arc<Manager>,
    /// Keeps the Pagefold's threads alive as long as any group is in use.
    _kept: Arc<dyn Any + Send + Sync>,
}

impl GroupHandle {
    /// Creates the handle of a new group.
    pub(crate) fn new(state: Arc<GroupState>, manager: &Arc<Manager>, kept: Arc<dyn Any + Send + Sync>) -> Arc<Self> {
        let handle = Arc::new(Self { state, manager: Arc::clone(manager), _kept: kept });
        let known: Weak<Self> = Arc::downgrade(&handle);
        let _ = handle.state.handle.set(known); // It had none.
        handle
    }

    /// Returns the group's handle, if the group is in use.
    pub(crate) fn of(state: &GroupState) -> Option<Arc<Self>> {
        state.handle.get()?.upgrade()?.downcast().ok()
    }

    #[inline]
    pub(crate) fn state(&self) -> &Arc<GroupState> {
        &self.state
    }
}

impl Drop for GroupHandle {
    fn drop(&mut self) {
        let manager = &*self.manager;
        if manager.memory.frames.forked() {
            return;
        }
        manager.memory.groups.abandon(&self.state);
        manager.memory.drain_charges(Some(self.state.id));
        // The remaining pages are those of files that are still open through other groups.
        if self.state.charged() > 0 {
            manager.memory.drain_entries();
            self.state.walk.forget();
            manager.reclaim_group(&self.state, self.state.charged() as usize);
        }
        manager.sweep_groups(SWEPT_GROUPS);
    }
}

impl Manager {
    /// Forgets groups that have neither a handle nor a page. Looks at up to `most` groups without a
    /// handle.
    pub(crate) fn sweep_groups(&self, most: usize) {
        let gone = self.memory.groups.sweep(most, |id| {
            self.memory.drain_charges(Some(id));
            self.swapping.drain_charges(&self.memory, Some(id));
        });
        if gone > 0 {
            self.memory.frames.budget().uncharge(gone as u64 * GROUP_BYTES);
        }
    }
}

impl fmt::Debug for GroupHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupHandle").field("group", &self.state.name).finish_non_exhaustive()
    }
}
