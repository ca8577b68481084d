//! Spilling: where compressed pages have no room left, those that have been there longest go on to the other areas.
//!
//! Otherwise the area would fill up with pages that nobody wants, and those that are wanted again soon would go to the device. A
//! clock goes round the slots; a page that it meets twice is old (`compressed`).
//!
//! A page's slot is its owner's, so the owner has the page held ([`Owners::move_slot`]) while it is read, written elsewhere and
//! given the new slot; a fault waits for that as for another's. The old slot is freed when the owner has let go. If anything fails,
//! or the page came back meanwhile, nothing has happened.
//!
//! Whoever is about to write pages spills a batch if there was no room the last time: one at a time does, and others go on.

use std::ops::ControlFlow;

use sync::{Arc, SharedBytes};

use crate::SwapOutError;
use crate::area::Area;
use crate::page_out::{PageOut, Tried, write_out};
use crate::slot_word::{Owner, SlotId, SlotState};
use crate::swap::{Owners, Swap};

/// Pages that are spilled at a time: a sixteenth of a small area, but so many that what they leave is of use.
const SHARE: usize = 16;
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 64;

impl Swap {
    /// Makes room for compressed pages, where there was none. Called without any page word held.
    pub fn spill(&self, owners: &dyn Owners) {
        for area in self.crowded() {
            let Some(compressed) = area.compressed() else { continue };
            let wanted = (area.slots.slots() as usize / SHARE).clamp(BATCH_MIN, BATCH_MAX);
            compressed.spill(wanted, |number, page| {
                let Some((SlotState::Swapped { owner }, slot)) = area.slots.state(number) else {
                    return ControlFlow::Continue(false);
                };
                let mut outcome = Ok(None);
                owners.move_slot(owner, slot, &mut || {
                    outcome = self.write_on(&area, slot, owner, page);
                    outcome.unwrap_or_default()
                });
                match outcome {
                    Ok(Some(_)) => {
                        let _ = area.free(slot); // Its page has another one.
                        ControlFlow::Continue(true)
                    }
                    Ok(None) => ControlFlow::Continue(false),
                    Err(_) => ControlFlow::Break(()),
                }
            });
        }
    }

    /// Areas that have no room for compressed pages, if there are others. No lock is held while owners are asked.
    fn crowded(&self) -> Vec<Arc<Area>> {
        let areas = self.here();
        let is_crowded = |area: &&Arc<Area>| area.compressed().is_some_and(|compressed| compressed.is_crowded());
        let others = || areas.all().any(|area| area.compressed().is_none() && areas.is_filled(area));
        if areas.all().any(|area| is_crowded(&area)) && others() {
            areas.all().filter(is_crowded).cloned().collect()
        } else {
            Vec::new()
        }
    }

    /// Writes a page that is held to an area where it isn't compressed. `None` if it can't be read; who wants it is told then.
    fn write_on(
        &self,
        area: &Area,
        slot: SlotId,
        owner: Owner,
        page: SharedBytes<'_>,
    ) -> Result<Option<SlotId>, SwapOutError> {
        let Ok(note) = area.slots.note(slot) else { return Ok(None) };
        if area.read(slot, owner, page).is_err() {
            return Ok(None);
        }
        let areas = self.here();
        let compressed = areas.all().filter(|area| area.compressed().is_some());
        let tried = Tried::refused_by(compressed.fold(0, |bits, area| bits | 1 << area.number));
        // It is in no frame; no frame has this slot, so nobody is misled by the number.
        let out = PageOut { bytes: page, frame: 0, owner, group: note.group() };
        let mut written = Err(SwapOutError::Full);
        write_out(&areas, &[out], tried, &mut |_, result| written = result);
        let new = written?;
        if let Some(area) = areas.get(new.area()) {
            let _ = area.slots.set_swapped(new, owner, note); // It was allocated just now.
        }
        Ok(Some(new))
    }
}
