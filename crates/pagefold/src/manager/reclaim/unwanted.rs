//! Frees frames for pages that a tenant's advice asks to load (`Advice::WillNeed`). No page in use
//! is evicted to make room for these pages.
//!
//! Ordinary reclaim may look at a page several times while it frees many, and by the second look a
//! page in use may count as unused. Here no page is looked at more than once for the whole advice.
//!
//! An advice looks at no more pages of a group than the group had when the advice first asked it
//! for pages. Pages of the LRU list *window* come first (see `lru`):
//! - A page of the window that was used since reclaim last looked at it moves to main.
//! - A page that was read ahead, and not used yet, is spared for some time (`Stripe::waiting`).
//! - A page of main stays if it was used since reclaim last looked at it. It also stays if its mean
//!   interval is known, and the page has been unused for less than twice that interval.
//! - All other pages are evicted.
//!
//! Pages that the advice itself has loaded come behind all candidates in the lists, so they aren't
//! evicted to make room for further pages of the advice. The advice doesn't use the reserves
//! either: threads that use pages would have to refill them by ordinary reclaim, which may evict
//! pages in use.

use frames::{Frames, IsolatedFrame, Use};

use super::{Pass, Sorting, sort_cut};
use crate::group::state::GroupState;
use crate::lru::batch::Leftovers;
use crate::lru::clock::Now;
use crate::lru::rank::{Kind, Rank};
use crate::lru::stripe::Stripe;
use crate::manager::Manager;
use crate::memory::charges::{ChargedFrame, Short};

/// How many pages of each group may still be looked at for one advice.
#[derive(Debug)]
pub(crate) struct Looks(Vec<(u32, usize)>);

impl Looks {
    /// Creates the counts for an advice that loads pages for this group. Other groups are added
    /// when they are first asked.
    pub(crate) fn new(group: &GroupState) -> Self {
        Self(vec![(group.id, group.lists.len())])
    }

    fn left_in(&mut self, group: &GroupState) -> &mut usize {
        let at = self.0.iter().position(|(id, _)| *id == group.id).unwrap_or_else(|| {
            self.0.push((group.id, group.lists.len()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl Manager {
    /// Appends up to `wanted` frames to `into`, for an advice. Evicts no pages in use, and leaves
    /// the reserves as they are. See also [`spare_frames`](Self::spare_frames).
    pub(crate) fn frames_beside_use<'a>(
        &'a self,
        group: &'a GroupState,
        wanted: usize,
        looks: &mut Looks,
        into: &mut Vec<ChargedFrame<'a>>,
    ) {
        let end = into.len() + wanted;
        while into.len() < end {
            let missing = end - into.len();
            let short = match self.memory.beside_reserves(group) {
                [0, _] => Short::Charge,
                [_, 0] => Short::Frames,
                [of_limit, of_budget] => {
                    let wanted = missing.min(of_limit.min(of_budget) as usize);
                    match self.memory.frames_of_reserve(group, wanted, |frame| into.push(frame)) {
                        Ok(_) => continue,
                        Err(short) => short,
                    }
                }
            };
            if self.reclaim_unwanted(group, short, missing, looks) == 0 {
                return;
            }
        }
    }

    /// Frees up to `wanted` pages. If the group's limit is `short`, they are pages of the group;
    /// otherwise of the groups that `ranking` names. Returns the number.
    fn reclaim_unwanted(&self, group: &GroupState, short: Short, wanted: usize, looks: &mut Looks) -> usize {
        if short == Short::Charge {
            return self.unwanted_of(group, wanted, looks);
        }
        let candidates = self.memory.ranking.candidates(
            &self.memory.groups,
            self.memory.page_for(group),
            self.memory.budget_pages(),
        );
        let mut groups = candidates.iter().filter_map(|it| self.memory.groups.get(it.group));
        groups.find_map(|group| Some(self.unwanted_of(&group, wanted, looks)).filter(|&freed| freed > 0)).unwrap_or(0)
    }

    fn unwanted_of(&self, group: &GroupState, wanted: usize, looks: &mut Looks) -> usize {
        let left = looks.left_in(group);
        let (start, stripes) = (group.lists.to_reclaim(), group.lists.stripe_count());
        let (mut freed, mut empty) = (0, 0);
        while freed < wanted && *left > 0 && empty < stripes {
            let stripe = group.lists.stripe((start + empty) % stripes);
            let pass = self.unwanted_pass(group, stripe, (wanted - freed).min(*left));
            *left -= pass.looked_at;
            freed += pass.freed;
            empty += usize::from(pass.looked_at == 0);
        }
        freed
    }

    /// Looks at up to `wanted` pages of a stripe.
    fn unwanted_pass(&self, group: &GroupState, stripe: &Stripe, wanted: usize) -> Pass {
        let frames = &*self.memory.frames;
        let (mut leftovers, mut sorting) = (Leftovers::default(), Sorting::default());
        let now = group.fitted_now();
        let mut cut = stripe.cut_unwanted(frames, wanted, &mut leftovers);
        let looked_at = cut.window.len() + cut.main.len();
        for frame in std::mem::take(&mut cut.main) {
            sort_main(frames, now, frame, &mut sorting);
        }
        // There are no challengers: main has room for all pages that are in use.
        let challengers = sort_cut(frames, stripe, now, cut, false, &mut sorting);
        debug_assert!(challengers.usual.is_empty() && challengers.hot.is_empty(), "main has room");
        stripe.left_unused(sorting.unused);
        let (mut freed, _) = self.evict_victims(group, now, &mut sorting);
        stripe.put_back(frames, sorting.stay, &mut leftovers);
        freed += leftovers.orphans as usize;
        self.memory.settle(group, leftovers);
        Pass { freed, looked_at, is_last_resort: false }
    }
}

/// Decides whether a page of main stays.
fn sort_main(frames: &Frames, now: Now, frame: IsolatedFrame, sorting: &mut Sorting) {
    let rank = Rank::of(frames, frame.id());
    let is_late = rank.interval().loads().is_none_or(|mean| rank.age(now) >= 2 * mean);
    match frames.take_use(frame.id()) {
        Use::None if is_late => sorting.victims.push(frame),
        Use::None => sorting.stay(frames, frame, rank.on(Kind::Main)),
        used => {
            let rank = rank.seen(used.count(), now, frame.id());
            sorting.stay(frames, frame, rank.on(Kind::Main));
        }
    }
}
