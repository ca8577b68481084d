//! Spilling: when an area of compressed pages has no room left, the pages that have been there
//! longest are recompressed, or go on to the other areas.
//!
//! Otherwise the area would fill up with pages that aren't used, and pages that are used again soon
//! would go to the device. A clock goes round the slots; a page that it meets twice is old
//! (`compressed`).
//!
//! What has been there for long is cold, so it pays to take more care with it: it is first
//! *tightened*, compressed again with Zstandard, in the place that it has (`BlockPool::shrink`: it
//! takes less, so that can't fail). If that saves an eighth of it, it is new again, and stays for
//! as long; otherwise, or when it is old for the second time, it goes.
//!
//! A page's slot is its owner's, so the owner has the page held ([`Owners::move_slot`]) while it is
//! read, written elsewhere and given the new slot, or while its bytes change in the old one; a
//! fault waits for that as for another's. The old slot is freed when the owner has let go. If
//! anything fails, or the page came back meanwhile, nothing has happened.
//!
//! Where there is less memory than there was, an area may have less of it, too, and those pages go
//! that are beyond.
//!
//! A thread that is about to write pages spills a batch if there was no room the last time: one at
//! a time does, and others go on. It is a fault that waits for it, so a batch is so many pages that
//! were *tried*. Where the other areas are full, or there are none, or their devices don't answer,
//! those are only tightened, each once.

use arrayvec::ArrayVec;
use sync::{Arc, SharedBytes};

use crate::SwapOutError;
use crate::area::Area;
use crate::area_list::{AREAS_MAX, Handle};
use crate::compressed::{Compressed, Fate, Turn};
use crate::page_out::PageOut;
use crate::slot_word::{Note, Owner, SlotId, SlotState};
use crate::swap::{Owners, Swap};
use crate::write_out::Tried;

/// Pages that are tried at a time: a sixteenth of a small area, but so many that what they leave is
/// of use.
const SHARE: usize = 16;
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 64;

impl Swap {
    /// Makes room for compressed pages, where there was none. Called without any page word held.
    pub fn spill(&self, owners: &dyn Owners) {
        let (crowded, can_go) = self.compressed_areas(Compressed::is_crowded);
        crowded.iter().for_each(|area| _ = self.spill_from(area, can_go, owners));
    }

    /// Has pages go on from areas that have more memory than they may, as there is less of it. Says
    /// whether any did. Called as [`spill`](Self::spill).
    pub fn give_way(&self, owners: &dyn Owners) -> bool {
        let (beyond, can_go) = self.compressed_areas(Compressed::is_beyond);
        can_go && beyond.iter().any(|area| self.spill_from(area, true, owners) > 0)
    }

    /// Has old pages of an area take less room, or go on. Says how many.
    fn spill_from(&self, area: &Area, can_go: bool, owners: &dyn Owners) -> usize {
        let Some(compressed) = area.compressed() else { return 0 };
        let wanted = (area.slots.slots() as usize / SHARE).clamp(BATCH_MIN, BATCH_MAX);
        compressed.spill(wanted, can_go, |number, Turn { page, compressor, can_go }| {
            let Some((SlotState::Swapped { owner }, slot)) = area.slots.state(number) else { return Ok(Fate::Stays) };
            let mut outcome = Ok(Fate::Stays);
            owners.move_slot(owner, slot, &mut || {
                // If it can't be read, the next fault of the page reports that.
                let note = area.slots.note(slot).ok().filter(|_| area.read(slot, owner, page).is_ok())?;
                if compressed.tighten(number, page, compressor) {
                    outcome = Ok(Fate::Tightened);
                    return None;
                }
                let moved = if can_go { self.write_on(owner, note, page) } else { return None };
                outcome = moved.map(|_| Fate::Gone);
                moved.ok()
            });
            if outcome == Ok(Fate::Gone) {
                let _ = area.free(slot); // Its page has another one.
            }
            outcome
        })
    }

    /// The areas of compressed pages of which `is_due` is so, and whether there are others. No lock
    /// is held while owners are asked.
    fn compressed_areas(&self, is_due: fn(&Compressed) -> bool) -> (ArrayVec<Arc<Handle>, AREAS_MAX>, bool) {
        let areas = self.here();
        let due: ArrayVec<_, AREAS_MAX> =
            areas.all().filter(|area| area.compressed().is_some_and(is_due)).cloned().collect();
        let others = || areas.all().any(|area| !is_no_place(area) && areas.is_filled(area));
        let can_go = !due.is_empty() && others();
        (due, can_go)
    }

    /// Writes a page that is held to an area where it isn't compressed.
    fn write_on(&self, owner: Owner, note: Note, page: SharedBytes<'_>) -> Result<SlotId, SwapOutError> {
        let no_places = self.here().all().filter(|area| is_no_place(area)).map(|area| 1 << area.number).sum();
        let tried = Tried::refused_by(no_places);
        // The page is in no frame. The number 0 does no harm: that frame doesn't have this slot.
        let out = PageOut { bytes: page, frame: 0, owner, group: note.group() };
        let mut written = Err(SwapOutError::Full);
        self.write_out(&[out], tried, &mut |_, result| written = result);
        let new = written?;
        let _ = self.set_swapped(new, owner, note); // It was allocated just now.
        Ok(new)
    }
}

/// Whether pages don't go on to an area: they would be compressed there as well, or its device
/// doesn't answer.
fn is_no_place(area: &Area) -> bool {
    area.compressed().is_some() || area.is_stalled()
}
