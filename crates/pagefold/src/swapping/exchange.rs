//! Exchanges: a page comes back from swap although all memory and all slots of its group are in
//! use.
//!
//! Another page has to go first, and for a moment that takes a slot more than there are: one that
//! areas keep for this (`swap`'s reserve). The frame passes from the page that goes to the page
//! that comes, with its charge, so no other thread gets it in between. The slot of the page that
//! comes, when it is freed, is the next one to be kept. So a group whose pages take all of its
//! memory and slots can go on exchanging them.
//!
//! A frame may be taken in vain all the same: other threads were faster, or the page that comes
//! can't be read. Then the group has one more slot than before, and any thread may get the frame.
//! So a page only goes if the other one is still *wanted* once it is written; it comes back at once
//! if the other one doesn't come after all; and the group never has more than `BEYOND_MAX` slots
//! beyond its `swap_max`, whatever happens.
//!
//! Before pages change places, reclaim has looked for others in vain, which takes long. So the next
//! few do so at once: meanwhile nothing else will have become free, as a rule.

use std::ops::ControlFlow;

use frames::{IsolatedFrame, OwnedFrame};
use swap::{Owner, PageEntry, SlotId};

use crate::group::state::GroupState;
use crate::lru::batch::{BATCH_MAX, Batch, Leftovers};
use crate::lru::stripe::Stripe;
use crate::manager::Manager;
use crate::manager::exchange_count::Exchanging;
use crate::manager::take_frame::ChargedFrame;
use crate::stats::Counters;

/// Pages of a stripe that are looked at for one that can go, at most.
const LOOKED_AT_MAX: usize = 2 * BATCH_MAX;

/// An exchange half done: one page has gone.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    _under_way: Exchanging<'a>,
    gone: Owner,
}

/// The frame of a page that went, and whose it is.
type Gone<'a> = (OwnedFrame<'a>, Owner);

/// Why a page didn't go.
enum Stays {
    /// Another one may.
    This(IsolatedFrame),
    /// None can: there is no slot, or it can't be written, or the page that was to come isn't
    /// wanted any more.
    All(IsolatedFrame),
}

impl Manager {
    /// Has a page of the group go so that the one in `slot` can come, if that is still `wanted`
    /// then. Gives the frame that it left, and what is to be dropped once the slot is free.
    pub(crate) fn exchange<'a>(
        &'a self,
        group: &'a GroupState,
        slot: SlotId,
        wanted: &dyn Fn() -> bool,
    ) -> Option<(ChargedFrame<'a>, Exchange<'a>)> {
        let under_way = self.exchanges.begin();
        let start = group.lists.to_reclaim();
        for step in 0..group.lists.stripe_count() {
            let stripe = group.lists.stripe((start + step) % group.lists.stripe_count());
            for _ in 0..stripe.len().min(LOOKED_AT_MAX) {
                match self.leave_from(group, stripe, &|frame| self.leave_for(group, slot, frame, wanted)) {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(left) => {
                        let (mut frame, gone) = left?;
                        if frame.renew() {
                            let exchange = Exchange { _under_way: under_way, gone };
                            return Some((ChargedFrame::new(self, group, frame), exchange));
                        }
                        self.release(group, [frame]); // It has held all the pages that it can.
                    }
                }
            }
        }
        None
    }

    /// Brings the page back that has gone in vain, if there is memory for it.
    pub(crate) fn undo_exchange(&self, exchange: Exchange<'_>) {
        let gone = exchange.gone;
        drop(exchange); // No thread needs to wait for the rest.
        // Otherwise it stays in its slot, which is as good.
        let _ = self.spaces.swap_in(gone.number());
    }

    /// Has the coldest page of a stripe leave. `Continue` if it stays and others may leave,
    /// `Break(None)` if none will.
    fn leave_from<'a>(
        &self,
        group: &GroupState,
        stripe: &Stripe,
        leave: &dyn Fn(IsolatedFrame) -> Result<Gone<'a>, Stays>,
    ) -> ControlFlow<Option<Gone<'a>>> {
        let mut leftovers = Leftovers::default();
        let cut = stripe.cut(&self.frames, 1, 0, &mut leftovers);
        let mut pages = cut.cold.into_iter().chain(cut.surplus);
        let left = pages.next().map(leave);
        let mut untried: Batch<2> = pages.collect();
        let flow = match left {
            None => ControlFlow::Continue(()),
            Some(Ok(gone)) => ControlFlow::Break(Some(gone)),
            Some(Err(Stays::This(frame))) => {
                stripe.put_back(&self.frames, Batch::<1>::from([frame]), &mut leftovers);
                ControlFlow::Continue(())
            }
            Some(Err(Stays::All(frame))) => {
                untried.insert(0, frame);
                ControlFlow::Break(None)
            }
        };
        stripe.return_cut(&self.frames, untried, &mut leftovers);
        self.settle(group, leftovers);
        flow
    }

    /// Writes a page to a slot that is kept for this, and has it leave memory.
    fn leave_for(
        &self,
        group: &GroupState,
        slot: SlotId,
        frame: IsolatedFrame,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Gone<'_>, Stays> {
        let page = if self.is_anonymous(&frame) { self.frames.look_unwritten(&frame) } else { None };
        let Some(page) = page else { return Err(Stays::This(frame)) };
        let is_charged = group.swapped.charge_one_more()
            || self.drain_swapped(Some(group.id)) > 0 && group.swapped.charge_one_more();
        if !is_charged {
            return Err(Stays::All(frame));
        }
        let out = Self::page_out(group, &page);
        let reserved = match self.swap.swap_out_for(slot, &out) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.uncharge_swapped(group, 1);
                error.into_iter().for_each(|error| group.swapped.was_written(Err(error)));
                // A page that shrinks further may have room.
                return Err(if error.is_none() { Stays::This(frame) } else { Stays::All(frame) });
            }
        };
        Counters::add(&group.swapped.written, 1);
        if !wanted() {
            self.free_slots(group, [reserved]);
            return Err(Stays::All(frame));
        }
        let left = self.leave(group, frame, &page, PageEntry::Slot(reserved), false);
        match left {
            Ok(_) => {
                Counters::add(&group.swapped.outs, 1);
                group.evicted(1);
            }
            Err(_) => self.free_slots(group, [reserved]),
        }
        left.map(|frame| (frame, out.owner)).map_err(Stays::This)
    }
}
