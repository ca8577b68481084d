//! The one way to a frame: charged to a group, and reclaimed if there is none.

use std::ops::Deref;
use std::time::Duration;

use frames::OwnedFrame;
use sync::thread::sleep;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::manager::charges::Charge;
use crate::manager::lowering::MAPS_BATCH;
use crate::size::Size;
use crate::stats::Counters;

/// Pages that a thread frees when it has to do so itself.
const DIRECT_BATCH: usize = 32;
/// How often a thread tries to get a frame before it gives up, if pages are in flight that may
/// become evictable.
const ATTEMPTS_MAX: u32 = 400;
/// The same if all pages are listed, and pinned: then waiting helps only if a thread drops its pin.
const ATTEMPTS_PINNED_MAX: u32 = 8;
/// After so many it takes the pins of pages that wait for futures that aren't polled.
const KEPT_EACH: u32 = 8;
/// The longest wait between attempts: 400 of them are about four seconds.
const PAUSE_MAX: Duration = Duration::from_millis(10);

impl Manager {
    /// Charges a page to `group` and gets a frame for it, reclaiming as much as that takes. The
    /// caller holds no lock and no page word.
    ///
    /// # Errors
    /// [`Error::LimitReached`], in bounded time, when nothing can be reclaimed.
    pub(crate) fn take_frame<'a>(&'a self, group: &'a GroupState) -> Result<ChargedFrame<'a>, Error> {
        self.take_frame_or(group, || Otherwise::Nothing)
    }

    /// As [`take_frame`](Self::take_frame); when nothing can be reclaimed, `otherwise` may get one
    /// in another way.
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
            Counters::add(&group.counters.direct_reclaims, 1);
            // What the group needs has to come from its own pages.
            let of_its_own = short != Short::Frames;
            if group.swapped.skips_reclaim() {
                match otherwise() {
                    Otherwise::Frame(frame) => return Ok(frame),
                    Otherwise::Over => return Err(self.limit_reached(group)),
                    Otherwise::Soon | Otherwise::Nothing => {}
                }
            }
            if self.reclaim_for(group, short, DIRECT_BATCH) > 0 {
                (failed, failed_for_good) = (0, 0);
                continue;
            }
            // What CPUs have in stock, and few looked for; and parts of page maps in which nothing
            // is: their room does for frames.
            let has_more = match short {
                Short::Charge => self.drain_charges(Some(group.id)) > 0,
                Short::Frames => self.frames.gather() > 0 || self.frames.sweep_maps(MAPS_BATCH) > 0,
                Short::Share => self.frames.sweep_maps(MAPS_BATCH) > 0,
            };
            if has_more {
                continue;
            }
            failed += 1;
            self.drain_entries();
            let soon = match otherwise() {
                Otherwise::Frame(frame) => {
                    group.swapped.skip_reclaims(group.lists.len());
                    return Ok(frame);
                }
                Otherwise::Soon => true,
                Otherwise::Nothing => false,
                Otherwise::Over => return Err(self.limit_reached(group)),
            };
            let whose = of_its_own.then_some(group);
            let unclean = self.ask_for_clean(whose);
            if failed % KEPT_EACH == 0 && self.mailboxes.take_pins(whose.map(|group| group.id)) > 0 {
                failed_for_good = 0;
                continue;
            }
            // When that is over, what was waited for may have come just after the last look.
            let awaited = soon || unclean || self.in_flight(whose);
            failed_for_good = if awaited { 0 } else { failed_for_good + 1 };
            if failed > ATTEMPTS_MAX || failed_for_good > ATTEMPTS_PINNED_MAX {
                // Groups may rest whose pages were unpinned since, and of many not all were asked.
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

    /// Takes frames for up to `wanted` pages. May return fewer. It retries reclaim a few times,
    /// because other threads can take the freed frames first, and waits for nothing else. See also
    /// [`take_frame`](Self::take_frame).
    pub(crate) fn spare_frames<'a>(&'a self, group: &'a GroupState, wanted: usize, into: &mut Vec<ChargedFrame<'a>>) {
        let end = into.len() + wanted;
        let mut turns = 1 + wanted.div_ceil(DIRECT_BATCH);
        while into.len() < end {
            let missing = end - into.len();
            if let Err(short) = self.try_frames(group, missing, |frame| into.push(frame)) {
                turns -= 1;
                if turns == 0 || self.reclaim_for(group, short, missing) == 0 {
                    return;
                }
            }
        }
    }

    /// Charges a page and gets a frame, if there is one.
    fn try_frame<'a>(&'a self, group: &'a GroupState) -> Result<ChargedFrame<'a>, Short> {
        let mut got = None;
        self.try_frames(group, 1, |frame| got = Some(frame))?;
        got.ok_or(Short::Frames)
    }

    /// Charges up to `wanted` pages in one go, and gets frames for them. Says what there was too
    /// little of for any.
    fn try_frames<'a>(
        &'a self,
        group: &'a GroupState,
        wanted: usize,
        give: impl FnMut(ChargedFrame<'a>),
    ) -> Result<(), Short> {
        if self.frames_of_reserve(group, wanted, give)? {
            self.keep_reserves(group);
        }
        Ok(())
    }

    /// The same by a caller that sees to the reserves itself. Returns whether they may be short.
    pub(crate) fn frames_of_reserve<'a>(
        &'a self,
        group: &'a GroupState,
        wanted: usize,
        mut give: impl FnMut(ChargedFrame<'a>),
    ) -> Result<bool, Short> {
        if self.has_to_give_first(group) {
            return Err(Short::Share);
        }
        let charged = self.charge(group, wanted as u64);
        let give = |frame| give(ChargedFrame::new(self, group, frame));
        let got = self.frames.allocate_each(charged.pages as usize, give) as u64;
        if got < charged.pages {
            self.uncharge(group, charged.pages - got);
        }
        match (charged.pages, got) {
            (0, _) => Err(Short::Charge),
            (_, 0) => Err(Short::Frames),
            _ => Ok(charged.by_counter),
        }
    }

    /// Reclaims some of what there is too little of. Says how many pages.
    fn reclaim_for(&self, group: &GroupState, short: Short, wanted: usize) -> usize {
        self.stock_up_swap();
        match short {
            Short::Charge => self.reclaim_group(group, wanted),
            Short::Frames | Short::Share => self.reclaim_any(self.page_for(group), wanted),
        }
    }

    /// Whether a group that can't get a frame may get one without a pin being dropped.
    pub(crate) fn may_find_room(&self, group: &GroupState) -> bool {
        self.drain_entries();
        let whose = (group.charged() >= group.max()).then_some(group);
        self.ask_for_clean(whose) || self.in_flight(None)
    }

    /// Whether pages of `group`, or of any group, are being loaded, or looked at by reclaim: those
    /// may become evictable by themselves.
    fn in_flight(&self, group: Option<&GroupState>) -> bool {
        let some = |group: &GroupState| self.pages_of(group) > group.lists.len() as u64 + group.anonymous();
        group.map_or_else(|| self.groups.any(some), some)
    }

    pub(crate) fn limit_reached(&self, group: &GroupState) -> Error {
        let page_size = self.frames.page_size() as u64;
        let max = group.max().saturating_mul(page_size).min(self.frames.budget().max());
        let (name, charged) = (group.name.clone(), Size(group.charged() * page_size));
        Error::LimitReached { group: name, max: Size(max), charged, swap: self.swap_failure(group) }
    }

    /// Charges `pages` to a group for what isn't pages: as its pages that no list has. Reclaims as
    /// for a page.
    ///
    /// # Errors
    /// As [`take_frame`](Self::take_frame).
    pub(crate) fn charge_pages(&self, group: &GroupState, pages: u64) -> Result<(), Error> {
        for charged in 0..pages {
            let frame = self.take_frame(group).inspect_err(|_| self.uncharge_pages(group, charged))?;
            frame.into_charge();
        }
        Ok(())
    }

    /// As [`charge_pages`](Self::charge_pages), if that takes no reclaim.
    pub(crate) fn try_charge_pages(&self, group: &GroupState, pages: u64) -> bool {
        let charged = if pages == 0 { 0 } else { self.charge(group, pages).pages };
        if charged < pages {
            self.uncharge(group, charged);
            return false;
        }
        (0..pages).for_each(|_| group.becomes_anonymous());
        true
    }

    /// Gives back what [`charge_pages`](Self::charge_pages) charged.
    pub(crate) fn uncharge_pages(&self, group: &GroupState, pages: u64) {
        if pages > 0 {
            group.anonymous_gone(pages);
            self.uncharge(group, pages);
        }
    }

    /// Waits a moment for pages that are on their way into memory, and so can't be evicted yet, if
    /// there are some: of `group`, or of any.
    pub(crate) fn await_landings(&self, group: Option<&GroupState>, turns: &mut u32) -> bool {
        self.drain_entries();
        let awaited = *turns < LANDING_TURNS && self.in_flight(group);
        if awaited {
            *turns += 1;
            sleep(Duration::from_millis(1));
        }
        awaited
    }
}

/// Times that pages on their way into memory are waited for, a millisecond each.
const LANDING_TURNS: u32 = 200;

/// A frame that is charged to a group. Dropped, it is freed and uncharged.
pub(crate) struct ChargedFrame<'a> {
    frame: OwnedFrame<'a>,
    charge: Charge<'a>,
}

/// What there is where nothing can be reclaimed.
pub(crate) enum Otherwise<'a> {
    Frame(ChargedFrame<'a>),
    /// Nothing now; but others are about to give back what it takes.
    Soon,
    Nothing,
    /// Nothing, and the caller no longer needs a frame.
    Over,
}

/// Why there is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// The group's limit is reached.
    Charge,
    /// All frames are in use.
    Frames,
    /// Those that are free are other groups' ([`Manager::has_to_give_first`]).
    Share,
}

impl<'a> ChargedFrame<'a> {
    /// A frame that is charged to `group` already.
    pub(crate) fn new(manager: &'a Manager, group: &'a GroupState, frame: OwnedFrame<'a>) -> Self {
        Self { frame, charge: Charge::new(manager, group) }
    }

    /// The frame for a page of a space, which has the charge from now on.
    pub(crate) fn into_anonymous(self) -> OwnedFrame<'a> {
        self.charge.group().becomes_anonymous();
        self.into_frame()
    }

    /// The charge without the frame, which is free again: for a page that has one.
    pub(crate) fn into_page_charge(self) -> Charge<'a> {
        self.charge
    }

    /// The charge without the frame, which is free again: for what isn't a page.
    pub(crate) fn into_charge(self) {
        self.charge.group().becomes_anonymous();
        self.charge.hand_over();
    }

    /// The frame, whose charge goes on to the page in it.
    pub(crate) fn into_frame(self) -> OwnedFrame<'a> {
        self.charge.hand_over();
        self.frame
    }
}

impl<'a> Deref for ChargedFrame<'a> {
    type Target = OwnedFrame<'a>;

    fn deref(&self) -> &OwnedFrame<'a> {
        &self.frame
    }
}
