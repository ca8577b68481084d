//! Takes frames and charges them to groups, after reclaim if memory is short. All frames come from
//! here, except the frames that pages are moved to within memory.

use std::time::Duration;

use sync::thread::sleep;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::lru::window::step;
use crate::manager::Manager;
use crate::memory::charges::{ChargedFrame, Short};
use crate::memory::lowering::MAPS_BATCH;
use crate::size::Size;

/// The most pages that a thread frees at a time when it has to reclaim for itself.
const DIRECT_BATCH: usize = 32;
/// Failed attempts before a thread gives up, while pages are in flight that may become evictable.
const ATTEMPTS_MAX: u32 = 400;
/// Failed attempts before a thread gives up if all pages are listed and pinned. In that case
/// waiting helps only if another thread drops a pin. A page that another thread is changing counts
/// as pinned, too. That thread may be a writer that gets no CPU, or a user may keep a guard for
/// changing the page. The thread that needs a frame can't tell which.
const ATTEMPTS_PINNED_MAX: u32 = 8;
/// After each `KEPT_EACH` failed attempts, a thread takes the pins that mailboxes keep for futures
/// that haven't been polled.
const KEPT_EACH: u32 = 8;
/// The longest pause between attempts. 400 pauses take about four seconds.
const PAUSE_MAX: Duration = Duration::from_millis(10);

impl Manager {
    /// Charges a page to `group` and gets a frame for it. Reclaims as much as necessary. The caller
    /// must hold no lock and no page word.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if nothing can be reclaimed. Returned within a bounded time.
    pub(crate) fn take_frame<'a>(&'a self, group: &'a GroupState) -> Result<ChargedFrame<'a>, Error> {
        self.take_frame_or(group, || Otherwise::Nothing { isolated: 0 })
    }

    /// Charges a page to `group` and gets a frame for it, like [`take_frame`](Self::take_frame). If
    /// nothing can be reclaimed, calls `otherwise`, which may get a frame by other means.
    pub(crate) fn take_frame_or<'a>(
        &'a self,
        group: &'a GroupState,
        otherwise: impl Fn() -> Otherwise<'a>,
    ) -> Result<ChargedFrame<'a>, Error> {
        let (mut failed, mut failed_for_good, mut in_earnest) = (0, 0, false);
        loop {
            let short = match self.try_frame(group) {
                Ok(frame) => return Ok(frame),
                Err(short) => short,
            };
            group.counters.direct_reclaims.add(1);
            // The group has to reclaim from its own pages.
            let of_its_own = short != Short::Frames;
            if group.swapped.skips_reclaim() {
                if short == Short::Charge && self.reclaim_idle_parts(group, 1) > 0 {
                    continue;
                }
                match otherwise() {
                    Otherwise::Frame(frame) => return Ok(frame),
                    Otherwise::Over => return Err(self.limit_reached(group)),
                    Otherwise::Soon | Otherwise::Nothing { .. } => {}
                }
            }
            let more_stock_is_due = self.stock_up_swap();
            let limit = if short == Short::Charge { group.max() } else { self.memory.budget_pages() };
            if self.reclaim_for(group, short, step(limit as usize).min(DIRECT_BATCH)) > 0 {
                (failed, failed_for_good) = (0, 0);
                continue;
            }
            // Reclaim freed nothing. Only now are these sources searched: charges in other CPUs'
            // stocks, frames in other CPUs' lists, and empty parts of page maps, whose memory can
            // serve as frames.
            let has_more = match short {
                // Of several failed attempts in a row, only the first one looks at all of the
                // group's maps.
                Short::Charge => {
                    self.memory.drain_charges(Some(group.id)) > 0
                        || (failed == 0 && self.reclaim_all_idle_parts(group, 1) > 0)
                }
                Short::Frames => self.memory.frames.gather() > 0 || self.sweep_maps(MAPS_BATCH) > 0,
                Short::Share => self.sweep_maps(MAPS_BATCH) > 0,
            };
            if has_more {
                continue;
            }
            failed += 1;
            self.memory.drain_entries();
            let (soon, isolated) = match otherwise() {
                Otherwise::Frame(frame) => {
                    group.swapped.skip_reclaims(group.lists.len());
                    return Ok(frame);
                }
                Otherwise::Soon => (true, 0),
                Otherwise::Nothing { isolated } => (false, isolated),
                Otherwise::Over => return Err(self.limit_reached(group)),
            };
            let whose = of_its_own.then_some(group);
            let unclean = self.ask_for_clean(whose);
            if failed % KEPT_EACH == 0 && self.file_io.mailboxes.take_pins(whose.map(|group| group.id)) > 0 {
                failed_for_good = 0;
                continue;
            }
            // Even if no page is in flight any more, another attempt follows: a page may have
            // landed just after the last look.
            let awaited = soon || unclean || self.memory.in_flight_beside(whose, (group, isolated));
            if awaited {
                failed_for_good = 0;
            } else if !more_stock_is_due {
                failed_for_good += 1;
            }
            if failed > ATTEMPTS_MAX || failed_for_good > ATTEMPTS_PINNED_MAX {
                // This is the last resort. Pages of resting groups may have been unpinned, and
                // parts of page maps may have become idle without being noted. If there are many
                // groups, not all of them were asked.
                if !std::mem::replace(&mut in_earnest, true)
                    && self.reclaim_in_earnest(group, short == Short::Charge, DIRECT_BATCH) > 0
                {
                    (failed, failed_for_good) = (0, 0);
                    continue;
                }
                return Err(self.limit_reached(group));
            }
            sleep(Duration::from_micros(20 << failed.min(9)).min(PAUSE_MAX));
        }
    }

    /// Takes frames for up to `wanted` pages, and may take fewer. Other threads can take the frames
    /// that reclaim has freed, so this function retries reclaim a few times. Unlike
    /// [`take_frame`](Self::take_frame), it doesn't sleep between attempts. Reclaim itself may wait
    /// for a device while it writes pages to swap.
    pub(crate) fn spare_frames<'a>(&'a self, group: &'a GroupState, wanted: usize, into: &mut Vec<ChargedFrame<'a>>) {
        let end = into.len() + wanted;
        let mut turns = 1 + wanted.div_ceil(DIRECT_BATCH);
        while into.len() < end {
            let missing = end - into.len();
            if let Err(short) = self.try_frames(group, missing, |frame| into.push(frame)) {
                turns -= 1;
                if turns == 0 {
                    return;
                }
                self.stock_up_swap();
                if self.reclaim_for(group, short, missing) == 0 {
                    return;
                }
            }
        }
    }

    /// Charges a page and gets a free frame, without reclaim.
    fn try_frame<'a>(&'a self, group: &'a GroupState) -> Result<ChargedFrame<'a>, Short> {
        let mut got = None;
        self.try_frames(group, 1, |frame| got = Some(frame))?;
        got.ok_or(Short::Frames)
    }

    /// Charges up to `wanted` pages at once and gets free frames for them. If there is no frame at
    /// all, returns what was short.
    fn try_frames<'a>(
        &'a self,
        group: &'a GroupState,
        wanted: usize,
        give: impl FnMut(ChargedFrame<'a>),
    ) -> Result<(), Short> {
        if !self.memory.charges.has(group.id, wanted as u64) {
            // Reclaims first, and charges afterwards: the charges of the pages that reclaim frees
            // go to this CPU's stock. So the group's counter, which all CPUs share, may not have to
            // change.
            self.keep_reserves(group);
        }
        self.memory.frames_of_reserve(group, wanted, give)
    }

    /// Reclaims some of the resource that is short. Returns the number of pages. The caller has
    /// tried to fill the stocks of compressed areas.
    fn reclaim_for(&self, group: &GroupState, short: Short, wanted: usize) -> usize {
        match short {
            Short::Charge => self.reclaim_group(group, wanted),
            Short::Frames | Short::Share => self.reclaim_any(self.memory.page_for(group), wanted),
        }
    }

    /// Returns whether a group that can't get a frame now may get one even if no pin is dropped.
    pub(crate) fn may_find_room(&self, group: &GroupState) -> bool {
        self.memory.drain_entries();
        let whose = (group.charged() >= group.max()).then_some(group);
        self.ask_for_clean(whose) || self.memory.in_flight(None)
    }

    pub(crate) fn limit_reached(&self, group: &GroupState) -> Error {
        let page_size = self.memory.frames.page_size() as u64;
        let max = group.max().saturating_mul(page_size).min(self.memory.frames.budget().max());
        let (name, charged) = (group.name.clone(), Size(group.charged() * page_size));
        Error::LimitReached { group: name, max: Size(max), charged, swap: self.swapping.failure_of(group) }
    }

    /// Charges memory that isn't pages to a group, as if it were `pages` pages. The group counts
    /// these charges as anonymous pages that are on no list. Reclaims as for a page.
    ///
    /// # Errors
    /// Those of [`take_frame`](Self::take_frame).
    pub(crate) fn charge_pages(&self, group: &GroupState, pages: u64) -> Result<(), Error> {
        self.charge_pages_beside(group, pages, 0, &|| true)
    }

    /// Charges like [`charge_pages`](Self::charge_pages), for a caller that has taken `isolated`
    /// pages of the group off their lists. Whenever nothing can be reclaimed, calls `is_needed`,
    /// and fails if that returns false.
    pub(crate) fn charge_pages_beside(
        &self,
        group: &GroupState,
        pages: u64,
        isolated: u64,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let otherwise = || if is_needed() { Otherwise::Nothing { isolated } } else { Otherwise::Over };
        for charged in 0..pages {
            let frame = self.take_frame_or(group, otherwise);
            let frame = frame.inspect_err(|_| self.memory.uncharge_pages(group, charged))?;
            frame.into_charge();
        }
        Ok(())
    }
}

/// What a caller can offer when nothing can be reclaimed.
pub(crate) enum Otherwise<'a> {
    Frame(ChargedFrame<'a>),
    /// No frame now, but other threads are about to free one.
    Soon,
    /// No frame. The caller has taken `isolated` pages of the group off their lists. It puts them
    /// back only after it has got a frame or an error.
    Nothing {
        isolated: u64,
    },
    /// No frame, and the caller no longer needs one.
    Over,
}
