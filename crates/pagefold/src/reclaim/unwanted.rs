//! Reclaim for pages that an advice asks for (`Advice::WillNeed`). Pages in use aren't evicted for
//! them.
//!
//! Ordinary reclaim may look at a page several times while it frees many, and by the second look a
//! page in use may count as unused. Here each page is looked at at most once for the whole advice.
//!
//! Candidates are the pages of the list *cold* and of the lowest level of the list *main* (see
//! `lru`). The number of looks is the number of candidates that the group had when it was first
//! asked to give pages for this advice. A page that was used since the last look, or has refaulted,
//! moves to a higher level of main. A page that may have been used is put back to be looked at
//! again later. The other pages are evicted.
//!
//! Pages that the advice itself has loaded come behind all candidates in the lists, so they aren't
//! evicted to make room for further pages of the advice. The advice doesn't use the reserves
//! either: threads that use pages would have to refill them by ordinary reclaim, which may evict
//! pages in use.

use super::{Pass, Sorting, sort_cut};
use crate::group::state::GroupState;
use crate::lru::batch::Leftovers;
use crate::lru::stripe::Stripe;
use crate::manager::Manager;
use crate::manager::take_frame::{ChargedFrame, Short};

/// How many pages of each group may still be looked at for one advice.
#[derive(Debug)]
pub(crate) struct Looks(Vec<(u32, usize)>);

impl Looks {
    /// Creates the counts for an advice that loads pages for this group. Other groups are added
    /// when they are first asked.
    pub(crate) fn new(group: &GroupState) -> Self {
        Self(vec![(group.id, group.lists.maybe_unwanted())])
    }

    fn left_in(&mut self, group: &GroupState) -> &mut usize {
        let at = self.0.iter().position(|(id, _)| *id == group.id).unwrap_or_else(|| {
            self.0.push((group.id, group.lists.maybe_unwanted()));
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
            let short = match self.beside_reserves(group) {
                [0, _] => Short::Charge,
                [_, 0] => Short::Frames,
                [of_limit, of_budget] => {
                    let wanted = missing.min(of_limit.min(of_budget) as usize);
                    match self.frames_of_reserve(group, wanted, |frame| into.push(frame)) {
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

    /// Frees up to `wanted` pages: of the group if its limit is `short`, otherwise of the groups
    /// that `ranking` names. Returns the number.
    fn reclaim_unwanted(&self, group: &GroupState, short: Short, wanted: usize, looks: &mut Looks) -> usize {
        if short == Short::Charge {
            return self.unwanted_of(group, wanted, looks);
        }
        let candidates = self.ranking.candidates(&self.groups, self.page_for(group), self.budget_pages());
        let mut groups = candidates.iter().filter_map(|it| self.groups.get(it.group));
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
        let frames = &*self.frames;
        let (mut leftovers, mut sorting) = (Leftovers::default(), Sorting::default());
        let cut = stripe.cut_unwanted(frames, wanted, &mut leftovers);
        let looked_at = cut.cold.len() + cut.surplus.len();
        // There are no challengers: main has room for all pages that go up.
        let challengers = sort_cut(frames, cut, false, &mut sorting);
        debug_assert!(challengers.is_empty(), "main has room");
        let (mut freed, _) = self.evict_victims(group, &mut sorting);
        stripe.put_back(frames, sorting.stay, &mut leftovers);
        freed += leftovers.orphans as usize;
        self.settle(group, leftovers);
        Pass { freed, looked_at, is_last_resort: false }
    }
}
