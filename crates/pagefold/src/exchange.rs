//! Pages that change places: one comes back from swap although all memory and all slots of its group are in use.
//!
//! One has to go before another comes, and for a moment that takes a slot more than there are: one that areas keep for this
//! (`swap`'s reserve). The frame passes from the page that goes to the one that comes, with its charge, so that nobody gets it
//! in between; and the slot of the one that comes, when it is freed, is the next one to be kept. So as many pages as there
//! are places for can go on changing them.
//!
//! While they do, the group may have one slot more than its `swap_max` for each of its threads that is at it.

use frames::{IsolatedFrame, OwnedFrame};
use swap::{PageEntry, SlotId};

use crate::group_state::GroupState;
use crate::manager::{ChargedFrame, Manager};
use crate::stats::Counters;
use crate::stripe::{BATCH_MAX, Batch, Leftovers};

impl Manager {
    /// Has a page of the group go so that the one in `slot` can come, and says which frame it left.
    pub(crate) fn exchange<'a>(&'a self, group: &'a GroupState, slot: SlotId) -> Option<ChargedFrame<'a>> {
        let start = group.lists.to_reclaim();
        (0..group.lists.stripe_count()).find_map(|step| {
            let stripe = group.lists.stripe((start + step) % group.lists.stripe_count());
            let mut leftovers = Leftovers::default();
            let cut = stripe.cut(&self.frames, BATCH_MAX, 0, &mut leftovers);
            let mut stay = Batch::<{ 2 * BATCH_MAX }>::new();
            let mut left = None;
            for frame in cut.cold.into_iter().chain(cut.surplus) {
                let gone = if left.is_none() { self.leave_for(group, slot, frame) } else { Err(frame) };
                match gone {
                    Ok(frame) => left = Some(frame),
                    Err(frame) => stay.push(frame),
                }
            }
            stripe.put_back(&self.frames, stay, &mut leftovers);
            self.settle(group, leftovers);
            let mut frame: OwnedFrame<'a> = left?;
            if frame.renew() {
                return Some(ChargedFrame::new(self, group, frame));
            }
            self.release(group, [frame]); // It has held all the pages that it can.
            None
        })
    }

    /// Writes a page to a slot that is kept for this, and has it leave memory.
    fn leave_for(
        &self,
        group: &GroupState,
        slot: SlotId,
        frame: IsolatedFrame,
    ) -> Result<OwnedFrame<'_>, IsolatedFrame> {
        let page = if self.is_anonymous(&frame) { self.frames.look_unwritten(&frame) } else { None };
        let Some(page) = page else { return Err(frame) };
        let Ok(reserved) = self.swap.swap_out_for(slot, &Self::page_out(group, &page)) else { return Err(frame) };
        group.swapped.charge_one_more();
        let left = self.leave(group, frame, &page, PageEntry::Slot(reserved), false);
        match left {
            Ok(_) => {
                Counters::add(&group.swapped.written, 1);
                Counters::add(&group.swapped.outs, 1);
                group.evicted(1);
            }
            Err(_) => self.free_slots(group, [reserved]),
        }
        left
    }
}
