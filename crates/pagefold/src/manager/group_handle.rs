//! A group in use: what files, spaces and users hold of it.

use std::any::Any;
use std::fmt;

use sync::Arc;

use crate::group::state::GroupState;
use crate::group::table::SWEPT_GROUPS;
use crate::manager::Manager;

/// A group has a handle as long as users or open files have it. When that goes, so do its pages,
/// but for those of files that are still open through other groups, and are pinned.
pub(crate) struct GroupHandle {
    pub(crate) state: Arc<GroupState>,
    pub(crate) manager: Arc<Manager>,
    /// What has to last as long as any group is in use: the Pagefold's threads.
    _kept: Arc<dyn Any + Send + Sync>,
}

impl GroupHandle {
    pub(crate) fn new(state: Arc<GroupState>, manager: &Arc<Manager>, kept: Arc<dyn Any + Send + Sync>) -> Self {
        Self { state, manager: Arc::clone(manager), _kept: kept }
    }

    #[inline]
    pub(crate) fn state(&self) -> &Arc<GroupState> {
        &self.state
    }
}

impl Drop for GroupHandle {
    fn drop(&mut self) {
        let manager = &*self.manager;
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

impl fmt::Debug for GroupHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupHandle").field("group", &self.state.name).finish_non_exhaustive()
    }
}
