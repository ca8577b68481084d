//! Exchanges: if all memory and all slots of a group are in use, one of its pages is swapped out so
//! that another can be swapped in.
//!
//! The outgoing page has to leave before the incoming page's slot is free, so for a moment the
//! group needs one slot more than it may have. Areas reserve slots for this (`swap`'s reserve). The
//! outgoing page is written to a reserved slot. When the incoming page's slot is freed, it refills
//! the reserve.
//!
//! The outgoing page's frame, with its charge, passes directly to the incoming page, so no other
//! thread gets the frame in between. After an exchange, the group has as many slots and frames in
//! use as before. So a group whose pages take all of its memory and slots can go on exchanging
//! them.
//!
//! An exchange is wasted if another thread brings the incoming page back first, or if the incoming
//! page can't be read. Then the outgoing page occupies a slot, so the group has one more slot in
//! use than before. Any thread may get the frame that the outgoing page left. Three rules limit
//! this loss:
//! - The outgoing page leaves memory only if the incoming page is still *wanted* after the outgoing
//!   page was written.
//! - If the incoming page then doesn't come in, the outgoing page is brought back at once.
//! - The group never has more than `BEYOND_MAX` slots beyond its `swap_max`, or beyond what it had
//!   in use when `swap_max` was lowered.
//!
//! The first exchange comes only after reclaim has looked at all pages of the group and found none
//! that it could evict, which takes a long time. If the exchange succeeds, the next few exchanges
//! skip reclaim, because normally no page has become evictable since then.

use std::cell::Cell;
use std::ops::ControlFlow;

use frames::{IsolatedFrame, OwnedFrame};
use swap::{Owner, SlotId};

use crate::group::state::GroupState;
use crate::lru::batch::{BATCH_MAX, Batch, Leftovers};
use crate::lru::stripe::{Reach, Stripe};
use crate::memory::Memory;
use crate::memory::charges::ChargedFrame;
use crate::swapping::Swapping;
use crate::swapping::exchange_count::Exchanging;
use crate::swapping::swap_out::Stored;

/// The most pages of a stripe that are looked at for one that can leave.
const LOOKED_AT_MAX: usize = 2 * BATCH_MAX;

/// A half-finished exchange: one page has left memory.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    _under_way: Exchanging<'a>,
    gone: Owner,
}

impl Exchange<'_> {
    /// Ends the exchange because the incoming page didn't come in. Returns the owner of the page
    /// that has left memory.
    pub(crate) fn end(self) -> Owner {
        self.gone
    }
}

/// The frame of a page that has left memory, and the page's owner.
type Gone<'a> = (OwnedFrame<'a>, Owner);

/// Why a page didn't leave.
enum Stays {
    /// This page can't leave; another one may.
    This(IsolatedFrame),
    /// No page can leave: there is no slot, the slot can't be written, or the incoming page isn't
    /// wanted any more.
    All(IsolatedFrame),
}

impl Swapping {
    /// Swaps out a page of the group so that the page in `slot` can come in. Calls `wanted` once
    /// the outgoing page is written. If `wanted` returns false, no thread needs the incoming page
    /// any more, and the outgoing page stays in memory. Returns the outgoing page's frame, and the
    /// [`Exchange`], which the caller must keep until `slot` is free. Returns `None` if no page was
    /// swapped out.
    pub(crate) fn exchange<'a>(
        &'a self,
        memory: &'a Memory,
        group: &'a GroupState,
        slot: SlotId,
        wanted: &dyn Fn() -> bool,
    ) -> Option<(ChargedFrame<'a>, Exchange<'a>)> {
        let under_way = self.exchanges.begin();
        let start = group.lists.to_reclaim();
        let in_vain = Cell::new(0);
        for step in 0..group.lists.stripe_count() {
            let stripe = group.lists.stripe((start + step) % group.lists.stripe_count());
            for _ in 0..stripe.len().min(LOOKED_AT_MAX) {
                match self.leave_from(memory, group, stripe, &|frame| {
                    self.leave_for(memory, group, slot, frame, &in_vain, wanted)
                }) {
                    ControlFlow::Continue(()) => {}
                    ControlFlow::Break(left) => {
                        let (mut frame, gone) = left?;
                        if frame.renew() {
                            let exchange = Exchange { _under_way: under_way, gone };
                            return Some((ChargedFrame::new(memory, group, frame), exchange));
                        }
                        memory.release(group, [frame]); // The frame has used up its generations.
                    }
                }
            }
        }
        None
    }

    /// Tries to swap out the coldest page of a stripe. Returns `Break` with the frame and the
    /// page's owner if the page was swapped out; `Continue` if it wasn't, but another page might
    /// be; and `Break(None)` if no page can be swapped out.
    fn leave_from<'a>(
        &self,
        memory: &Memory,
        group: &GroupState,
        stripe: &Stripe,
        leave: &dyn Fn(IsolatedFrame) -> Result<Gone<'a>, Stays>,
    ) -> ControlFlow<Option<Gone<'a>>> {
        let mut leftovers = Leftovers::default();
        let is_stuck = group.walk.insists(|| group.lists.len());
        // An exchange is for a fault of the group itself, so it may take even young pages.
        let reach = if is_stuck { Reach::All } else { Reach::Usual };
        let cut = stripe.cut(&memory.frames, 1, reach, group.now(), &mut leftovers);
        let away = cut.window.len() + cut.main.len();
        let mut pages = cut.window.into_iter().chain(cut.main);
        let left = pages.next().map(leave);
        let mut untried: Batch<2> = pages.collect();
        let flow = match left {
            None => ControlFlow::Continue(()),
            Some(Ok(gone)) => ControlFlow::Break(Some(gone)),
            Some(Err(Stays::This(frame))) => {
                stripe.put_back(&memory.frames, Batch::<1>::from([frame]), &mut leftovers);
                ControlFlow::Continue(())
            }
            Some(Err(Stays::All(frame))) => {
                untried.insert(0, frame);
                ControlFlow::Break(None)
            }
        };
        stripe.return_cut(&memory.frames, untried, &mut leftovers);
        stripe.returned(away);
        memory.settle(group, leftovers);
        flow
    }

    /// Writes a page to a reserved slot, and removes it from memory if the incoming page is still
    /// `wanted`. `in_vain` has a bit for each area that couldn't be written to, as in
    /// [`Swap::swap_out_for`](swap::Swap::swap_out_for).
    fn leave_for<'a>(
        &self,
        memory: &'a Memory,
        group: &GroupState,
        slot: SlotId,
        frame: IsolatedFrame,
        in_vain: &Cell<u32>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Gone<'a>, Stays> {
        let page = if memory.is_anonymous(&frame) { memory.frames.look_unwritten(&frame) } else { None };
        let Some(page) = page else { return Err(Stays::This(frame)) };
        let is_charged = group.swapped.charge_one_more()
            || self.drain_charges(memory, Some(group.id)) > 0 && group.swapped.charge_one_more();
        if !is_charged {
            return Err(Stays::All(frame));
        }
        let out = Self::page_out(group, &page);
        let mut areas = in_vain.get();
        let written = self.areas.swap_out_for(slot, &out, &mut areas);
        in_vain.set(areas);
        group.swapped.was_written(written.map(|_| ()).map_err(|not| not.error));
        let reserved = match written {
            Ok(reserved) => reserved,
            Err(not) => {
                self.uncharge(memory, group, 1);
                // Another page that compresses better may fit.
                return Err(if not.another_may_fit { Stays::This(frame) } else { Stays::All(frame) });
            }
        };
        group.swapped.written.add(1);
        if !wanted() {
            self.free_slots(memory, group, [reserved]);
            return Err(Stays::All(frame));
        }
        let left = self.leave(memory, group, frame, &page, Stored::Written(reserved), group.now());
        match &left {
            Ok(gone) => {
                group.swapped.outs.add(1);
                memory.count_wasted(std::slice::from_ref(gone), group);
                memory.count_left(group, std::slice::from_ref(gone));
            }
            Err(_) => self.free_slots(memory, group, [reserved]),
        }
        left.map(|frame| (frame, out.owner)).map_err(Stays::This)
    }
}
