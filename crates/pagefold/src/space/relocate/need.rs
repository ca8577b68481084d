//! What a move needs in memory at once, and whether the group may have it.
//!
//! The parts of page maps with the new words are charged to the group (`memory::part_charge`). A
//! charge may need reclaim, so these charges are made before any access has to wait. The parts with
//! the old words stay charged as well: they become idle only when the pages have moved.

use frames::PageState;

use super::super::SpaceState;
use super::super::address::Pages;
use super::super::region::{REGION_PAGES, Region};
use crate::error::Error;
use crate::memory::part_charge::PartCharge;

/// See the module's head.
#[derive(Default)]
struct Need {
    pages: u64,
    /// Parts of page maps at the new place.
    parts: u64,
    /// The first page that is in swap, or whose new word needs a new part. If there is no such
    /// page, the move takes no memory.
    first: Option<u64>,
}

impl SpaceState {
    /// Charges the parts of page maps that a move needs, and returns these charges. Fails at once
    /// if the move needs more memory at one time than the group may have.
    pub(super) fn charge_parts(&self, old: Pages, by: u64) -> Result<Vec<PartCharge<'_>>, Error> {
        let (manager, group) = (&**self.manager(), self.group.state());
        let beyond = |need: &Need| {
            let room = group.room_for_pages(manager.memory.budget_pages());
            (need.pages + manager.memory.pages_for_parts(group, need.parts)).saturating_sub(room)
        };
        let mut need = self.need(old, by);
        let Some(page) = need.first else { return Ok(Vec::new()) };
        if beyond(&need) > 0 {
            // Idle parts, which are charged, too, leave the group less room.
            manager.reclaim_all_idle_parts(group, beyond(&need));
            need = self.need(old, by);
        }
        if beyond(&need) > 0 {
            return Err(self.at(page, manager.limit_reached(group)));
        }
        let charge = |_| manager.charge_part(group, 0, &|| true).map_err(|error| self.at(page, error));
        (0..need.parts).map(charge).collect()
    }

    /// Returns what must be in memory at once if the pages `old` move `by` pages up.
    fn need(&self, old: Pages, by: u64) -> Need {
        let part_pages = self.manager().memory.frames.map_part_bytes() / size_of::<u64>() as u64;
        let (mut need, mut last_part) = (Need::default(), None);
        for (region, page) in self.own_pages(old) {
            let (state, to) = (region.map.state(page), (region.first() + page).wrapping_add(by));
            need.pages += u64::from(!matches!(state, PageState::Vacant { .. }));
            let mut takes_memory = matches!(state, PageState::Swapped { .. });
            if last_part.replace(to / part_pages) != Some(to / part_pages) {
                // An idle part may be given back before the page moves there.
                let is_used = |region: &Region| region.map.uses_part(to % REGION_PAGES);
                let is_new = !self.index.look(to).1.is_some_and(is_used);
                need.parts += u64::from(is_new);
                takes_memory |= is_new;
            }
            if takes_memory {
                need.first.get_or_insert(region.first() + page);
            }
        }
        need
    }
}
