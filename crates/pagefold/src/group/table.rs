//! All groups, by number and by name.

use std::collections::{HashMap, VecDeque};

use smp_list::TwoModeLock;
use sync::Arc;
use sync::lock::Mutex;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::slab::Slab;

/// Groups without a handle that each close of a file or a group looks at, to forget those without a
/// page. So what a close costs doesn't depend on how many there are, and each is looked at again
/// some time.
pub(crate) const SWEPT_GROUPS: usize = 8;

/// The groups. A group's number is its place, and is used again when the group's last page is gone.
///
/// Shared mode is for looking at the table, which every batch of pages does. It isn't entered twice
/// by one thread: a thread that waits for exclusive mode may stand between.
///
/// Lock order: `names` → `slots` in exclusive mode; `abandoned` is a leaf.
#[derive(Debug)]
pub(crate) struct GroupTable {
    slots: TwoModeLock<Slab<Arc<GroupState>>>,
    /// Of groups with a handle.
    names: Mutex<HashMap<String, u32>>,
    /// Numbers of groups without a handle, which may still have pages: the next one to look at
    /// first.
    abandoned: Mutex<VecDeque<u32>>,
}

impl Default for GroupTable {
    fn default() -> Self {
        Self { slots: TwoModeLock::new(Slab::default()), names: Mutex::default(), abandoned: Mutex::default() }
    }
}

impl GroupTable {
    /// Adds a group with a limit in pages.
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
        let mut slots = self.slots.exclusive();
        let group = Arc::new(GroupState::new(slots.next_number(), name, max, budget()));
        slots.insert(Arc::clone(&group));
        drop(slots);
        names.insert(name.to_owned(), group.id);
        Ok(group)
    }

    /// The group's last handle is going: another group may have the name from now on.
    pub(crate) fn abandon(&self, group: &GroupState) {
        self.names.lock().remove(&group.name);
        group.abandon();
        self.abandoned.lock().push_front(group.id);
    }

    /// Does something with the group numbered `id`, which doesn't look for groups.
    pub(crate) fn with<T>(&self, id: u32, what: impl FnOnce(&GroupState) -> T) -> Option<T> {
        self.slots.shared().get(id).map(|group| what(group))
    }

    /// The group with the number `id`.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<GroupState>> {
        self.slots.shared().get(id).cloned()
    }

    /// All groups that have a handle or a page.
    pub(crate) fn all(&self) -> Vec<Arc<GroupState>> {
        self.slots.shared().iter().cloned().collect()
    }

    /// Shows those of the groups numbered `ids` that exist to `what`, which doesn't look for
    /// groups.
    pub(crate) fn visit(&self, ids: impl IntoIterator<Item = u32>, mut what: impl FnMut(&GroupState)) {
        let slots = self.slots.shared();
        ids.into_iter().filter_map(|id| slots.get(id)).for_each(|group| what(group));
    }

    /// Whether `is` holds for any group.
    pub(crate) fn any(&self, is: impl Fn(&GroupState) -> bool) -> bool {
        self.slots.shared().iter().any(|group| is(group))
    }

    /// One more than the highest number of a group.
    pub(crate) fn len(&self) -> u32 {
        self.slots.shared().end()
    }

    /// Forgets groups without a handle that hold no page any more, of up to `most` that it looks
    /// at; each of those has given up its stocks before, in `drain`. Returns how many are gone.
    pub(crate) fn sweep(&self, most: usize, drain: impl Fn(u32)) -> usize {
        let mut gone = 0;
        let count = self.abandoned.lock().len().min(most);
        for _ in 0..count {
            let Some(id) = self.abandoned.lock().pop_front() else { break };
            drain(id);
            // No thread but this one looks at `id` meanwhile, and no page is charged to a group
            // without a handle.
            if self.with(id, GroupState::is_over) == Some(true) {
                drop(self.slots.exclusive().remove(id));
                gone += 1;
            } else {
                self.abandoned.lock().push_back(id);
            }
        }
        gone
    }
}
