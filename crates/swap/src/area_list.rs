//! One CPU's copy of the list of areas.
//!
//! Each copy has its own [`Handle`] for each area. A thread that reads or writes pages clones the
//! handle in its CPU's copy, and then releases the copy's lock. Cloning changes the handle's
//! reference count. Because each CPU has its own handle, no other CPU writes to the cache line of
//! this count.

use std::ops::Deref;

use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};

use crate::SlotId;
use crate::area::Area;
use crate::slot_word::{AREA_BITS, SlotBatch};

/// The maximum number of areas at a time.
pub(crate) const AREAS_MAX: usize = 1 << AREA_BITS;

/// One CPU's reference to an area.
pub(crate) struct Handle(Arc<Area>);

impl Deref for Handle {
    type Target = Arc<Area>;

    fn deref(&self) -> &Arc<Area> {
        &self.0
    }
}

/// Areas by number, and in the order in which they are filled.
#[derive(Default)]
pub(crate) struct AreaList {
    table: [Option<Arc<Handle>>; AREAS_MAX],
    /// Highest priority first.
    order: Vec<Level>,
}

/// Areas of equal priority.
struct Level {
    areas: Vec<Arc<Handle>>,
    /// The next area of the round robin.
    turn: AtomicUsize,
}

impl AreaList {
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<Handle>> {
        self.table.get(number as usize)?.as_ref()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Handle>> {
        self.table.iter().flatten()
    }

    /// Returns whether an area gets new pages.
    pub(crate) fn is_filled(&self, area: &Area) -> bool {
        self.order.iter().flat_map(|level| &level.areas).any(|other| other.number == area.number)
    }

    /// Returns the area of `slot`, if a page that is read back may keep this slot.
    pub(crate) fn that_may_keep(&self, slot: SlotId) -> Option<&Arc<Handle>> {
        self.get(slot.area()).filter(|area| self.is_filled(area) && area.may_keep(slot))
    }

    pub(crate) fn add(&mut self, area: &Arc<Area>) {
        self.table[area.number as usize] = Some(Arc::new(Handle(Arc::clone(area))));
    }

    pub(crate) fn remove(&mut self, area: &Area) {
        self.table[area.number as usize] = None;
    }

    /// Adds the area to the order, so that it gets new pages.
    pub(crate) fn fill(&mut self, area: &Area) {
        let Some(handle) = self.get(area.number).cloned() else { return };
        let at = self.order.partition_point(|level| level.areas[0].priority > area.priority);
        match self.order.get_mut(at).filter(|level| level.areas[0].priority == area.priority) {
            Some(level) => level.areas.push(handle),
            None => self.order.insert(at, Level { areas: vec![handle], turn: AtomicUsize::new(0) }),
        }
    }

    pub(crate) fn stop_filling(&mut self, area: &Area) {
        self.order.iter_mut().for_each(|level| level.areas.retain(|other| other.number != area.number));
        self.order.retain(|level| !level.areas.is_empty());
    }

    /// Allocates up to `want` slots in the first area that has free slots, and returns this area.
    /// Searches the areas in three rounds: first the areas that aren't in `avoid`, then those in
    /// `avoid`, and finally those whose devices don't answer. Each round tries areas in order of
    /// priority, and areas of equal priority round robin. Areas in `never` aren't used. `avoid` and
    /// `never` have a bit for each area.
    pub(crate) fn allocate(&self, want: usize, avoid: u32, never: u32, into: &mut SlotBatch) -> Option<&Arc<Handle>> {
        self.allocate_beside(Area::is_stalled, want, avoid, never, into)
    }

    /// Does what [`allocate`](Self::allocate) does. `is_stalled` returns whether an area's device
    /// seems not to answer; tests replace it.
    fn allocate_beside(
        &self,
        is_stalled: impl Fn(&Area) -> bool,
        want: usize,
        avoid: u32,
        never: u32,
        into: &mut SlotBatch,
    ) -> Option<&Arc<Handle>> {
        let is_in = |areas: u32, area: &Area| areas >> area.number & 1 == 1;
        let preference = |area: &Area| if is_stalled(area) { 2 } else { u32::from(is_in(avoid, area)) };
        // If a device stops or begins to answer between two rounds, its area belongs to another
        // round from then on. So each round also tries areas that now belong to an earlier round.
        // No area is tried twice.
        let mut tried = never;
        (0..3).filter(|&round| round != 1 || avoid != 0).find_map(|round| {
            self.order.iter().flat_map(Level::in_turn).find(|area| {
                let is_due = !is_in(tried, area) && preference(area) <= round;
                tried |= u32::from(is_due) << area.number;
                is_due && area.allocate(want, into) > 0
            })
        })
    }
}

impl Level {
    /// Returns all areas in round-robin order, starting with the next one.
    fn in_turn(&self) -> impl Iterator<Item = &Arc<Handle>> {
        // Relaxed, and not one atomic operation: only this CPU uses the counter, and a search may
        // begin with any area.
        let turn = if self.areas.len() > 1 { self.turn.load(Ordering::Relaxed) } else { 0 };
        if self.areas.len() > 1 {
            self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        }
        (0..self.areas.len()).map(move |step| &self.areas[turn.wrapping_add(step) % self.areas.len()])
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use std::cell::Cell;

    use test_disks::SimulatedDisk;

    use super::*;
    use crate::area::{AreaOptions, Source};

    /// Regression: the device of an area began to answer again during an allocation. The area was
    /// in none of the rounds: it was stalled in the first one, and not in the last one. So its free
    /// slots weren't found.
    #[test]
    fn an_area_whose_device_begins_to_answer_is_tried() {
        let source = Source::Memory { bytes: 100 * 4096 };
        let area = Area::open(0, &source, &SimulatedDisk::default(), AreaOptions::default(), 4096, &mut |_| true);
        let (area, mut list) = (Arc::new(area.unwrap()), AreaList::default());
        list.add(&area);
        list.fill(&area);
        for avoid in [0, 1] {
            for stalls in 0..3 {
                let looks = Cell::new(0);
                let is_stalled = |_: &Area| looks.replace(looks.get() + 1) < stalls;
                let mut batch = SlotBatch::new();
                let found = list.allocate_beside(is_stalled, 1, avoid, 0, &mut batch).is_some();
                assert!(found && batch.len() == 1, "avoid {avoid}, stalled in {stalls} rounds");
            }
        }
    }
}
