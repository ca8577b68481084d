//! The table of all groups, by number and by name.

use std::collections::{HashMap, VecDeque};

use smp_list::CombiningLock;
use sync::Arc;
use sync::lock::Mutex;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::numbered::Numbered;

/// Each close of a file or a group checks this many groups without a handle, and forgets those that
/// have no page either. A fixed number keeps the cost of a close independent of the number of
/// groups. The groups are checked in turn, so each is checked again eventually.
pub(crate) const SWEPT_GROUPS: usize = 8;

/// The groups. A group's number is its index. The number is reused after the group's last page and
/// the last reference to the group are gone. So while a thread holds a group, it can tell by the
/// number in any page's frame whether the page belongs to that group.
///
/// Lookups take the table in shared mode, because every batch of pages makes them. Insertions take
/// it in shared mode, too. A thread that forgets a group may leave the removal to a thread that is
/// removing another group. So a group that has neither a handle nor a page may still be found for a
/// short time.
///
/// A thread must not enter shared mode twice. If another thread asks for exclusive mode in between,
/// both threads deadlock.
///
/// Lock order: `names` → `slots`; `abandoned` is a leaf.
#[derive(Debug)]
pub(crate) struct GroupTable {
    slots: CombiningLock<Numbered<GroupState>, u32>,
    /// The numbers of groups with a handle.
    names: Mutex<HashMap<String, u32>>,
    /// The numbers of groups without a handle, which may still have pages, in the order in which
    /// they are looked at.
    abandoned: Mutex<VecDeque<u32>>,
}

impl Default for GroupTable {
    fn default() -> Self {
        Self { slots: CombiningLock::new(Numbered::default()), names: Mutex::default(), abandoned: Mutex::default() }
    }
}

impl GroupTable {
    /// Adds a group with a limit in pages. `budget` returns the present budget in pages.
    pub(crate) fn add(
        &self,
        name: &str,
        max: Option<u64>,
        budget: impl FnOnce() -> u64,
    ) -> Result<Arc<GroupState>, Error> {
        let mut names = self.names.lock();
        if names.contains_key(name) {
            return Err(Error::GroupExists { group: name.to_owned() });
        }
        let budget = budget();
        let new = |number| Arc::new(GroupState::new(number, name, max, budget));
        let group = Arc::clone(self.slots.shared().insert(new).1);
        names.insert(name.to_owned(), group.id);
        Ok(group)
    }

    /// Passes a new budget of `pages` pages to all groups. No group is added meanwhile, because
    /// `names` is locked. A group that is added later reads the new budget itself.
    pub(crate) fn budget_changed(&self, pages: u64) {
        let _names = self.names.lock();
        self.slots.shared().iter().for_each(|group| group.budget_changed(pages));
    }

    /// Notes that the group's last handle is being dropped. Another group may use the name from now
    /// on.
    pub(crate) fn abandon(&self, group: &GroupState) {
        group.abandon(); // First: a new group of this name finds this one marked.
        self.names.lock().remove(&group.name);
        self.abandoned.lock().push_front(group.id);
    }

    /// Calls `what` with the group numbered `id`. `what` must not access this table (deadlock).
    pub(crate) fn with<T>(&self, id: u32, what: impl FnOnce(&GroupState) -> T) -> Option<T> {
        self.slots.shared().get(id).map(|group| what(group))
    }

    /// Returns the group with this name, if it has a handle.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<GroupState>> {
        let names = self.names.lock();
        self.get(*names.get(name)?)
    }

    /// Returns the group numbered `id`.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<GroupState>> {
        self.slots.shared().get(id).cloned()
    }

    /// Returns all groups that have a handle or a page.
    pub(crate) fn all(&self) -> Vec<Arc<GroupState>> {
        self.slots.shared().iter().cloned().collect()
    }

    /// Calls `what` with each existing group of those numbered `ids`. `what` must not access this
    /// table (deadlock).
    pub(crate) fn visit(&self, ids: impl IntoIterator<Item = u32>, mut what: impl FnMut(&GroupState)) {
        let slots = self.slots.shared();
        ids.into_iter().filter_map(|id| slots.get(id)).for_each(|group| what(group));
    }

    /// Returns whether `is` holds for any group.
    pub(crate) fn any(&self, is: impl Fn(&GroupState) -> bool) -> bool {
        self.slots.shared().iter().any(|group| is(group))
    }

    /// Returns one more than the highest number that a group ever had.
    pub(crate) fn len(&self) -> u32 {
        self.slots.shared().end()
    }

    /// Forgets groups that have neither a handle nor a page. Looks at up to `most` groups without a
    /// handle, and calls `drain` for each first, to empty its stocks. Returns how many groups it
    /// forgot.
    pub(crate) fn sweep(&self, most: usize, drain: impl Fn(u32)) -> usize {
        let mut gone = 0;
        let count = self.abandoned.lock().len().min(most);
        for _ in 0..count {
            let Some(id) = self.abandoned.lock().pop_front() else { break };
            drain(id);
            // If the group has no page now, it gets none later: no page is charged to a group
            // without a handle. No other thread sweeps `id` meanwhile, because `id` isn't in
            // `abandoned`.
            if self.with(id, GroupState::is_over) == Some(true) {
                self.slots.change(id, Numbered::remove);
                gone += 1;
            } else {
                self.abandoned.lock().push_back(id);
            }
        }
        gone
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    /// Regression: a reclaiming thread held a group, and hadn't isolated any of its pages yet.
    /// Meanwhile the group was removed, and a new group got the number and one of the frames of the
    /// old group. The thread took the frame for a page of the old group, and unlinked it from the
    /// old group's list. That never ended, because the frame was on the new group's list.
    #[test]
    fn no_group_gets_the_number_of_a_removed_group_that_a_thread_still_uses() {
        let groups = GroupTable::default();
        let add = |name: &str| groups.add(name, None, || 100).unwrap();
        let remove = |group: &GroupState| {
            groups.abandon(group);
            assert_eq!(groups.sweep(SWEPT_GROUPS, |_| ()), 1);
        };
        let old = add("a");
        remove(&old);
        let new = add("b");
        assert_ne!(new.id, old.id);
        let number = old.id;
        drop(old);
        assert_eq!(add("c").id, number, "no thread uses the removed group any more");
    }
}
