//! One CPU's copy of the list of areas.

use io::Identity;
use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};

use crate::area::Area;
use crate::error::AddError;
use crate::slot_word::AREA_BITS;
use crate::slots::SlotBatch;

/// Areas that there can be at a time.
const AREAS_MAX: usize = 1 << AREA_BITS;

/// Areas by their numbers, and in the order in which they are filled.
#[derive(Default)]
pub(crate) struct AreaList {
    table: [Option<Arc<Area>>; AREAS_MAX],
    /// Highest priority first.
    order: Vec<Level>,
}

/// Areas of equal priority.
struct Level {
    areas: Vec<Arc<Area>>,
    /// Whose turn it is.
    turn: AtomicUsize,
}

impl AreaList {
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<Area>> {
        self.table.get(number as usize)?.as_ref()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Area>> {
        self.table.iter().flatten()
    }

    /// Whether an area gets new pages.
    pub(crate) fn is_filled(&self, area: &Area) -> bool {
        self.order.iter().flat_map(|level| &level.areas).any(|other| other.number == area.number)
    }

    pub(crate) fn has(&self, identity: Identity) -> bool {
        self.all().any(|area| area.identity == identity)
    }

    pub(crate) fn free_number(&self) -> Result<u32, AddError> {
        let free = self.table.iter().position(Option::is_none);
        free.map(|number| number as u32).ok_or(AddError::TooMany { max: AREAS_MAX })
    }

    pub(crate) fn add(&mut self, area: &Arc<Area>) {
        self.table[area.number as usize] = Some(Arc::clone(area));
    }

    pub(crate) fn remove(&mut self, area: &Area) {
        self.table[area.number as usize] = None;
    }

    /// From now on it gets new pages.
    pub(crate) fn fill(&mut self, area: &Arc<Area>) {
        let at = self.order.partition_point(|level| level.areas[0].priority > area.priority);
        match self.order.get_mut(at).filter(|level| level.areas[0].priority == area.priority) {
            Some(level) => level.areas.push(Arc::clone(area)),
            None => self.order.insert(at, Level { areas: vec![Arc::clone(area)], turn: AtomicUsize::new(0) }),
        }
    }

    pub(crate) fn stop_filling(&mut self, area: &Area) {
        self.order.iter_mut().for_each(|level| level.areas.retain(|other| other.number != area.number));
        self.order.retain(|level| !level.areas.is_empty());
    }

    /// Allocates up to `want` slots in one area: the first that has any, those aside whose bit is in `avoid`; if there is
    /// none, among those. Not in areas whose bit is in `never`.
    pub(crate) fn allocate(&self, want: usize, avoid: u32, never: u32, into: &mut SlotBatch) -> Option<&Arc<Area>> {
        let is_in = |areas: u32, area: &Area| areas >> area.number & 1 == 1;
        [false, true].into_iter().filter(|&avoided| !avoided || avoid != 0).find_map(|avoided| {
            let mut all = self.order.iter().flat_map(Level::in_turn).filter(|area| !is_in(never, area));
            all.find(|area| is_in(avoid, area) == avoided && area.allocate(want, into) > 0)
        })
    }
}

impl Level {
    /// All areas, the next one first.
    fn in_turn(&self) -> impl Iterator<Item = &Arc<Area>> {
        // Relaxed, and not one operation: a CPU's own, and any area will do.
        let turn = if self.areas.len() > 1 { self.turn.load(Ordering::Relaxed) } else { 0 };
        if self.areas.len() > 1 {
            self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        }
        (0..self.areas.len()).map(move |step| &self.areas[turn.wrapping_add(step) % self.areas.len()])
    }
}
