//! All groups, by number and by name.

use smp_list::TwoModeLock;
use sync::Arc;

use crate::error::Error;
use crate::group::state::GroupState;

/// The groups. A group's number is its place, and is used again when the group's last page is gone.
///
/// Shared mode is for looking at the table, which every batch of pages does. It isn't entered twice by one thread: who waits
/// for exclusive mode may stand between.
#[derive(Debug)]
pub(crate) struct GroupTable {
    slots: TwoModeLock<Vec<Option<Arc<GroupState>>>>,
}

impl Default for GroupTable {
    fn default() -> Self {
        Self { slots: TwoModeLock::new(Vec::new()) }
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
        let mut slots = self.slots.exclusive();
        forget(&mut slots);
        let taken = |group: &Arc<GroupState>| group.name == name && !group.is_abandoned();
        if slots.iter().flatten().any(taken) {
            return Err(Error::GroupExists { group: name.to_owned() });
        }
        let free = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        let group = Arc::new(GroupState::new(free as u32, name, max, budget())?);
        slots[free] = Some(Arc::clone(&group));
        Ok(group)
    }

    /// Does something with the group numbered `id`, which doesn't look for groups.
    pub(crate) fn with<T>(&self, id: u32, what: impl FnOnce(&GroupState) -> T) -> Option<T> {
        self.slots.shared().get(id as usize)?.as_deref().map(what)
    }

    /// The group with the number `id`.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<GroupState>> {
        self.slots.shared().get(id as usize)?.clone()
    }

    /// All groups that have a handle or a page.
    pub(crate) fn all(&self) -> Vec<Arc<GroupState>> {
        self.slots.shared().iter().flatten().cloned().collect()
    }

    /// The group that uses the largest share of its limit.
    pub(crate) fn fullest(&self) -> Option<Arc<GroupState>> {
        let slots = self.slots.shared();
        slots.iter().flatten().max_by(|a, b| a.fullness().total_cmp(&b.fullness())).cloned()
    }

    /// Whether `is` holds for any group.
    pub(crate) fn any(&self, is: impl Fn(&GroupState) -> bool) -> bool {
        self.slots.shared().iter().flatten().any(|group| is(group))
    }

    /// One more than the highest number of a group.
    pub(crate) fn len(&self) -> u32 {
        self.slots.shared().len() as u32
    }

    /// Forgets abandoned groups that hold no page any more.
    pub(crate) fn sweep(&self) {
        forget(&mut self.slots.exclusive());
    }
}

fn forget(slots: &mut [Option<Arc<GroupState>>]) {
    for slot in slots {
        slot.take_if(|group| group.is_abandoned() && group.charged() == 0 && group.swapped.pages() == 0);
    }
}
