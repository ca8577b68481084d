//! All groups, by number and by name.

use sync::Arc;
use sync::atomic::Ordering;
use sync::lock::RwLock;

use crate::error::Error;
use crate::group_state::GroupState;

/// The groups. A group's number is its place, and is used again when the group's last page is gone.
#[derive(Debug, Default)]
pub(crate) struct GroupTable {
    slots: RwLock<Vec<Option<Arc<GroupState>>>>,
}

impl GroupTable {
    /// Adds a group with a limit in pages.
    pub(crate) fn add(
        &self,
        name: &str,
        max: Option<u64>,
        budget: impl FnOnce() -> u64,
    ) -> Result<Arc<GroupState>, Error> {
        let mut slots = self.slots.write();
        forget(&mut slots);
        let taken = |group: &Arc<GroupState>| group.name == name && !group.abandoned.load(Ordering::Relaxed);
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

    /// The group with the number `id`.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<GroupState>> {
        self.slots.read().get(id as usize)?.clone()
    }

    /// All groups that have a handle or a page.
    pub(crate) fn all(&self) -> Vec<Arc<GroupState>> {
        self.slots.read().iter().flatten().cloned().collect()
    }

    /// The group that uses the largest share of its limit.
    pub(crate) fn fullest(&self) -> Option<Arc<GroupState>> {
        let slots = self.slots.read();
        slots.iter().flatten().max_by(|a, b| a.fullness().total_cmp(&b.fullness())).cloned()
    }

    /// Whether `is` holds for any group.
    pub(crate) fn any(&self, is: impl Fn(&GroupState) -> bool) -> bool {
        self.slots.read().iter().flatten().any(|group| is(group))
    }

    /// One more than the highest number of a group.
    pub(crate) fn len(&self) -> u32 {
        self.slots.read().len() as u32
    }

    /// Forgets abandoned groups that hold no page any more.
    pub(crate) fn sweep(&self) {
        forget(&mut self.slots.write());
    }
}

fn forget(slots: &mut [Option<Arc<GroupState>>]) {
    for slot in slots {
        slot.take_if(|group| group.abandoned.load(Ordering::Relaxed) && group.charged() == 0);
    }
}
