//! Spilling: when an area of compressed pages is full, the pages that have been there longest are
//! recompressed, or moved to other areas.
//!
//! Without spilling, the area would fill up with pages that aren't used, and pages that are used
//! again soon would go to a device. A clock goes round the slots to find old pages. A page is
//! *old* when the clock meets it for the second time (`compressed`).
//!
//! An old page probably won't be used soon, so it is worth the time to compress it better. The page
//! is first *tightened*: recompressed in place with Zstandard. If that saves at least an eighth of
//! the page's blocks, the page counts as new again, and stays for another round. If it saves less,
//! the page moves to another area. A recompressed page that becomes old again moves as well.
//! Storing the recompressed page (`BlockPool::shrink`) can't fail, because it needs only blocks
//! that the page has already.
//!
//! A page's slot belongs to the page's owner. So the owner holds the page ([`Owners::move_slot`])
//! while the spilling thread works on it. The spilling thread reads the page. Then it either
//! replaces the compressed bytes in the old slot with fewer bytes, or writes the page to another
//! area and passes the new slot to the owner. Meanwhile a fault on the page waits, as if another
//! thread were reading the page in. If the page has moved, the spilling thread frees the old slot
//! after the owner has released the page. If anything fails, or the page has come back into memory
//! before the owner holds it, nothing changes.
//!
//! If the memory budget shrinks, the limits of compressed areas may shrink with it. The pages in
//! excess of the limit then move to other areas.
//!
//! If there was no room for a page, the next thread that is about to write pages spills a batch
//! first. Only one thread spills at a time. The others don't wait for it, except a thread that
//! lowers the budget. The spilling thread may be serving a fault, so a batch is limited by the
//! number of pages that are *tried*, not moved.
//!
//! No page can move if the other areas are full, don't exist, or have devices that don't answer.
//! Then pages are only recompressed, each once.

use arrayvec::ArrayVec;
use sync::{Arc, SharedBytes};

use crate::SwapOutError;
use crate::allowance::Need;
use crate::area::Area;
use crate::area_list::{AREAS_MAX, Handle};
use crate::compressed::{Compressed, Fate, Turn};
use crate::page_out::PageOut;
use crate::slot_word::{Note, Owner, SlotId, SlotState};
use crate::swap::{Owners, Swap};
use crate::write_out::Tried;

/// One batch tries `slots / SHARE` pages, where `slots` is the number of the area's slots, but at
/// least `BATCH_MIN` and at most `BATCH_MAX`. Fewer than `BATCH_MIN` pages would free too little
/// room.
const SHARE: usize = 16;
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 64;

/// What [`give_way`](Swap::give_way) has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// It has moved or recompressed pages, so another call may do more.
    Some,
    /// It has done nothing, because another thread was spilling. A later call may do something.
    Busy,
    /// There is nothing to do, or no page can move.
    Nothing,
}

impl Swap {
    /// Makes room in each compressed area that has lately run out of room: recompresses a batch of
    /// old pages, or moves them to other areas. The caller must not hold a page word.
    pub fn spill(&self, owners: &dyn Owners) {
        let (crowded, can_go) = self.compressed_areas(Compressed::is_crowded);
        crowded.iter().for_each(|area| _ = self.spill_from(area, can_go, owners));
    }

    /// Makes room in areas that exceed their limits because the budget shrank. Spills batches from
    /// one of these areas after the other, until a batch has moved or recompressed a page. Returns
    /// [`Nothing`](GaveWay::Nothing) at once if no other area takes pages. The caller must not hold
    /// a page word.
    pub fn give_way(&self, owners: &dyn Owners) -> GaveWay {
        let (beyond, can_go) = self.compressed_areas(Compressed::is_beyond);
        // An area gets enough calls for two rounds of the clock, because the first round may only
        // mark pages.
        let calls = |area: &Area| area.compressed().map_or(0, Compressed::calls_in_two_rounds);
        let mut is_busy = false;
        let mut goes = |area: &Area| {
            (0..calls(area)).any(|_| {
                let spilled = self.spill_from(area, true, owners);
                is_busy |= spilled.is_none();
                spilled > Some(0)
            })
        };
        match can_go && beyond.iter().any(|area| goes(area)) {
            true => GaveWay::Some,
            false if is_busy => GaveWay::Busy,
            false => GaveWay::Nothing,
        }
    }

    /// Recompresses old pages of an area, or moves them to other areas. Returns the number of these
    /// pages, or `None` if another thread is doing the same.
    fn spill_from(&self, area: &Area, can_go: bool, owners: &dyn Owners) -> Option<usize> {
        let compressed = area.compressed()?;
        let wanted = (area.slots.slots() as usize / SHARE).clamp(BATCH_MIN, BATCH_MAX);
        let mut without_buffer = 0;
        compressed.spill(wanted, can_go, |number, Turn { page, compressor, can_go }| {
            let Some((SlotState::Swapped { owner }, slot)) = area.slots.state(number) else { return Ok(Fate::Stays) };
            let mut outcome = Ok(Fate::Stays);
            owners.move_slot(owner, slot, &mut || {
                // If the page can't be read, its next fault reports that.
                let note = area.slots.note(slot).ok().filter(|_| area.read(slot, owner, page).is_ok())?;
                if compressed.tighten(number, page, compressor) {
                    outcome = Ok(Fate::Tightened);
                    return None;
                }
                let moved = if can_go { self.write_on(owner, note, page, &mut without_buffer) } else { return None };
                outcome = moved.map(|_| Fate::Gone);
                moved.ok()
            });
            if outcome == Ok(Fate::Gone) {
                let _ = area.free(slot); // Its page has the new slot.
            }
            outcome
        })
    }

    /// Returns the areas of compressed pages for which `is_due` returns true, and whether their
    /// pages can move to other areas. Locks this CPU's copy of the list of areas only during this
    /// call: afterwards the caller calls owners of pages, and no lock of a copy may be held during
    /// such a call.
    fn compressed_areas(&self, is_due: fn(&Compressed) -> bool) -> (ArrayVec<Arc<Handle>, AREAS_MAX>, bool) {
        let areas = self.here();
        let due: ArrayVec<_, AREAS_MAX> =
            areas.all().filter(|area| area.compressed().is_some_and(is_due)).cloned().collect();
        let others = || areas.all().any(|area| !is_no_place(area) && areas.is_filled(area));
        let can_go = !due.is_empty() && others();
        (due, can_go)
    }

    /// Writes a page, which its owner holds, to an area without compression. For `without_buffer`,
    /// see [`write_out()`](crate::write_out::write_out).
    fn write_on(
        &self,
        owner: Owner,
        note: Note,
        page: SharedBytes<'_>,
        without_buffer: &mut u32,
    ) -> Result<SlotId, SwapOutError> {
        let no_places = self.here().all().filter(|area| is_no_place(area)).map(|area| 1 << area.number).sum();
        let tried = Tried::refused_by(no_places);
        // The page is in no frame, but a slot in state *cached* records one. Frame number 0 does no
        // harm, because the page in frame 0 doesn't have this slot.
        let out = PageOut { bytes: page, frame: 0, owner, group: note.group() };
        let mut written = Err(SwapOutError::Full);
        self.write_out(&[out], Need::Usual, tried, without_buffer, &mut |_, result| written = result);
        let new = written?;
        let _ = self.set_swapped(new, owner, note); // It was allocated just now.
        Ok(new)
    }
}

/// Returns whether pages must not move to an area: they would be compressed there as well, or its
/// device doesn't answer.
fn is_no_place(area: &Area) -> bool {
    area.compressed().is_some() || area.is_stalled()
}
