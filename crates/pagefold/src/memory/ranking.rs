//! Decides which groups give up pages when the whole budget is short.
//!
//! The choice depends on two numbers of each group, both divided by `min(limit, budget)`. The
//! *share* of a group counts everything that is charged to the group, even charges in stock, and
//! parts of page maps that no page needs. (The group gives both of these back before a call of the
//! group fails.) Its *spare share* leaves out metadata, which can't be evicted, and dirty pages.
//!
//! - R1. A group takes pages only from itself, and from groups whose share is at least its own. So
//!   a group that pins, maps or dirties all of its pages can't empty smaller groups: if only
//!   smaller groups have pages to give, the calls of the large group fail. There is one exception.
//!   A group that has hardly any pages, for example because its charges are for the indexes of its
//!   spaces, may take a few pages from any group. Without a page it could make no progress.
//! - R2. Of the groups that R1 permits, reclaim first asks the group that can give the most. A
//!   group can give `min(spare share, share - asking group's share)`. For the asking group itself
//!   the result is 0, so that group comes last. So another group gives its clean pages before the
//!   asking group gives any, even if most of the other group's pages are dirty. (In the exception
//!   to R1, the asking group's share counts as 0 in the formula.)
//! - R3. Reclaim asks a group for one batch, and looks at only a bounded number of the group's
//!   pages. Then it asks the group that can now give the most, so groups of equal share take turns.
//!   A group that had nothing to give isn't asked again for a while
//!   ([`Walk`](crate::group::walk::Walk)). By R2 such a group may seem to have pages to give,
//!   although all of them are pinned. Pins aren't counted anywhere, so reclaim finds out only by
//!   looking at the pages.
//! - R4. While frames are short, a group gets no free frame if two things hold: none of its own
//!   pages can be evicted, and by R1 no other group can give it any. In this situation the free
//!   frames were freed by other groups for their own use (`Memory::has_to_give_first`).
//! - R5. Some pages are freed in advance, before any group needs them. These pages come only from
//!   groups whose share is close to the largest. So a small group gives up pages only for its own
//!   use. There is one exception. A group with hardly any pages but many page words of pages in
//!   swap may have the largest share, and nothing to give. So groups whose share is close to the
//!   largest share *of pages* are asked, too, but only after the others.
//! - R6. If no other group with at least the same share gave anything, the asking group gives up
//!   only the one page that it needs. If it gave up a whole batch, larger groups would take the
//!   rest of the batch. So, batch by batch, the asking group would lose the pages that it uses.
//!
//! If there are few groups, each batch looks at all of them. If there are many, the most promising
//! groups are remembered. Each batch then looks at the remembered groups, at the asking group, and
//! at the next `LOOKS` of the other groups, round robin.
//!
//! A group that grows while memory is short asks for pages, so it is looked at immediately. A group
//! that grew earlier is looked at after at most `groups / LOOKS` batches. The list of remembered
//! groups is only a hint: each batch computes all shares anew.

use arrayvec::ArrayVec;
use sync::atomic::{AtomicU32, Ordering};
use sync::lock::Mutex;

use crate::group::state::GroupState;
use crate::group::table::GroupTable;

/// The number of groups that are remembered.
const TOP: usize = 16;
/// The number of other groups that each batch looks at, round robin.
const LOOKS: u32 = 32;
/// The number of groups that a batch can look at.
const SEEN_MAX: usize = TOP + LOOKS as usize + 1;

/// A share counts as close to the largest share if it is at least this part of it (R5).
const LARGE: f64 = 7.0 / 8.0;

/// Before a call fails, reclaim also asks groups whose share is below the asking group's share, by
/// at most this many pages.
const SLACK_PAGES: f64 = 32.0;

/// A group that pages may be taken from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) group: u32,
    share: f64,
    /// The share without metadata.
    of_pages: f64,
    spare: f64,
}

/// The most promising groups of a large number.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    /// Group numbers plus one, 0 for none. On a cache line that is written only when a number
    /// changes.
    top: [AtomicU32; TOP],
    /// Where the next look at the other groups begins.
    hand: Mutex<u32>,
}

impl Candidate {
    /// Returns `None` if nothing is charged to the group. `budget` is in pages.
    fn of(group: &GroupState, budget: u64) -> Option<Self> {
        let charged = group.charged();
        if charged == 0 {
            return None;
        }
        let most = group.max().min(budget).max(1) as f64;
        let share = |pages: u64| if group.is_abandoned() { f64::INFINITY } else { pages as f64 / most };
        let of_pages = charged.saturating_sub(group.metadata());
        let spare = of_pages.saturating_sub(group.unclean.get());
        Some(Self { group: group.id, share: share(charged), of_pages: share(of_pages), spare: share(spare) })
    }

    /// Returns how much the group can give up, as a share, before it has less than `floor`.
    fn gives(&self, floor: f64) -> f64 {
        self.spare.min(self.share - floor)
    }
}

/// The group that needs pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For<'a> {
    /// For this group: R1 holds.
    Group(&'a GroupState),
    /// For this group, which has hardly any pages: any group may have to give up some.
    First(&'a GroupState),
    /// For the reserve, which this group took pages from: R1 and R5 hold.
    Reserve(&'a GroupState),
    /// For no particular group: R5 holds.
    All,
}

impl<'a> For<'a> {
    /// Returns whether `group` may have to give up a page (R1).
    pub(crate) fn may_take_of(self, group: &GroupState, budget: u64) -> bool {
        self.is_of(group) || Candidate::of(group, budget).is_some_and(|it| it.share >= self.floor(budget))
    }

    /// Returns the smallest share of a group that may have to give up pages (R1).
    fn floor(self, budget: u64) -> f64 {
        match self {
            Self::First(_) | Self::All => 0.0,
            Self::Group(group) | Self::Reserve(group) => Candidate::of(group, budget).map_or(0.0, |it| it.share),
        }
    }

    fn group(self) -> Option<&'a GroupState> {
        match self {
            Self::Group(group) | Self::First(group) | Self::Reserve(group) => Some(group),
            Self::All => None,
        }
    }
}

impl For<'_> {
    /// Returns whether pages are needed for `group`.
    pub(crate) fn is_of(self, group: &GroupState) -> bool {
        self.group().is_some_and(|it| it.id == group.id)
    }
}

impl Ranking {
    /// Returns the groups that pages may be taken from, in the order in which they are asked.
    pub(crate) fn candidates(&self, groups: &GroupTable, need: For<'_>, budget: u64) -> ArrayVec<Candidate, SEEN_MAX> {
        let mut seen = ArrayVec::<Candidate, SEEN_MAX>::new();
        let mut look = |group: &GroupState| {
            if !seen.is_full()
                && let Some(candidate) = Candidate::of(group, budget)
                && seen.iter().all(|it| it.group != candidate.group)
            {
                seen.push(candidate);
            }
        };
        if let Some(group) = need.group() {
            look(group);
        }
        let len = groups.len();
        if len as usize <= TOP + LOOKS as usize {
            groups.visit(0..len, look);
        } else {
            // Relaxed, here and below: hints.
            let top = self.top.iter().filter_map(|number| number.load(Ordering::Relaxed).checked_sub(1));
            groups.visit(top, &mut look);
            if let Some(mut hand) = self.hand.try_lock() {
                groups.visit((0..LOOKS).map(|step| (*hand + step) % len), &mut look);
                *hand = (*hand + LOOKS) % len;
                self.remember(&mut seen);
            }
        }
        let own = need.floor(budget);
        // A group without a handle has an infinite share, so it is asked first. It doesn't count
        // towards `large`: otherwise `large` would be infinite and exclude all other groups, even
        // if none of that group's pages can be evicted.
        let close_to_largest = |share: fn(&Candidate) -> f64| {
            LARGE * seen.iter().map(share).filter(|share| share.is_finite()).fold(0.0, f64::max)
        };
        let (large, large_of_pages) = (close_to_largest(|it| it.share), close_to_largest(|it| it.of_pages));
        let asks = |it: &Candidate| need.group().is_some_and(|group| group.id == it.group);
        seen.retain(|it| match need {
            For::Group(_) | For::First(_) => it.share >= own || asks(it),
            For::Reserve(_) => it.share >= own.max(large_of_pages),
            For::All => it.share >= large_of_pages,
        });
        // Moves the asking group to the end. The second sort is stable, so among groups that can
        // give equally much, the asking group comes last.
        seen.sort_by_key(asks);
        seen.sort_by(|a, b| b.gives(own).total_cmp(&a.gives(own)));
        if matches!(need, For::Reserve(_) | For::All) {
            seen.sort_by_key(|it| it.share < large || it.spare == 0.0); // R5
        }
        seen
    }

    /// Remembers the most promising of the groups that were looked at.
    fn remember(&self, seen: &mut [Candidate]) {
        seen.sort_unstable_by(|a, b| b.spare.total_cmp(&a.spare));
        let best = &seen[..seen.len().min(TOP)];
        let holds = |number: u32| best.iter().any(|it| it.group + 1 == number);
        let mut new = best.iter().filter(|it| self.top.iter().all(|slot| slot.load(Ordering::Relaxed) != it.group + 1));
        for slot in &self.top {
            if !holds(slot.load(Ordering::Relaxed)) {
                slot.store(new.next().map_or(0, |it| it.group + 1), Ordering::Relaxed);
            }
        }
    }

    /// Returns all groups that pages may be taken from; those that can give the most come first.
    /// For a caller that would fail otherwise.
    pub(crate) fn all_candidates(&self, groups: &GroupTable, need: For<'_>, budget: u64) -> Vec<Candidate> {
        let floor = need.floor(budget);
        let mut all = Vec::new();
        groups.visit(0..groups.len(), |it| all.extend(Candidate::of(it, budget)));
        let slack = need.group().map_or(0.0, |group| SLACK_PAGES / group.max().min(budget).max(1) as f64);
        all.retain(|it| it.share >= floor - slack || need.group().is_some_and(|group| group.id == it.group));
        if self.hand.try_lock().is_some() {
            self.remember(&mut all);
        }
        all.sort_unstable_by(|a, b| b.gives(floor).total_cmp(&a.gives(floor)));
        all
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use sync::Arc;

    const BUDGET: u64 = 1000;

    fn group(groups: &GroupTable, number: usize, max: Option<u64>, charged: u64) -> Arc<GroupState> {
        let group = groups.add(&format!("g{number}"), max, || BUDGET).unwrap();
        assert_eq!(group.try_charge(charged, 0), charged);
        group
    }

    fn ids(candidates: &[Candidate]) -> Vec<u32> {
        candidates.iter().map(|it| it.group).collect()
    }

    #[test]
    fn a_group_takes_of_itself_and_of_those_that_have_more() {
        let groups = GroupTable::default();
        let ranking = Ranking::default();
        let made: Vec<_> =
            [100, 300, 0, 200].iter().enumerate().map(|(i, &pages)| group(&groups, i, None, pages)).collect();
        let for_group = |number: usize| ids(&ranking.candidates(&groups, For::Group(&made[number]), BUDGET));
        assert_eq!(for_group(0), [1, 3, 0]);
        assert_eq!(for_group(1), [1]);
        assert_eq!(for_group(2), [1, 3, 0], "it has nothing itself");
        assert_eq!(ids(&ranking.candidates(&groups, For::All, BUDGET)), [1]);
    }

    /// Regression: all pages of a group without a handle were pinned. Its infinite share counted as
    /// the largest share, so R5 excluded all other groups, and reclaim freed nothing. Such a group
    /// must come first, but exclude no other group.
    #[test]
    fn a_group_without_a_handle_comes_first_and_keeps_no_other_out() {
        let groups = GroupTable::default();
        let ranking = Ranking::default();
        let made: Vec<_> = [1, 900, 10].iter().enumerate().map(|(i, &pages)| group(&groups, i, None, pages)).collect();
        groups.abandon(&made[0]);
        assert_eq!(ids(&ranking.candidates(&groups, For::All, BUDGET)), [0, 1]);
        assert_eq!(ids(&ranking.candidates(&groups, For::Reserve(&made[2]), BUDGET)), [0, 1]);
    }

    /// Regression: the budget was full, a tenant had thousands of mappings but hardly any pages,
    /// and each of the other tenants had only a few pages. The tenant with the mappings was refused
    /// every page.
    #[test]
    fn a_group_that_has_hardly_any_pages_gets_a_few_of_any_group() {
        let groups = GroupTable::default();
        let ranking = Ranking::default();
        let maps = group(&groups, 0, None, 400);
        let _other = group(&groups, 1, None, 100);
        assert_eq!(ids(&ranking.candidates(&groups, For::Group(&maps), BUDGET)), [0]);
        assert_eq!(ids(&ranking.candidates(&groups, For::First(&maps), BUDGET)), [0, 1]);
        assert_eq!(ids(&ranking.all_candidates(&groups, For::First(&maps), BUDGET)), [0, 1]);
    }

    /// Regression: all that was charged to a group was page words of pages in swap. By R5, its
    /// share excluded all groups that had pages to give, so no thread refilled the reserve. By R2,
    /// it was asked first.
    #[test]
    fn a_group_that_has_only_metadata_keeps_no_other_out_and_comes_last() {
        let groups = GroupTable::default();
        let ranking = Ranking::default();
        let words = group(&groups, 0, Some(100), 100);
        words.add_metadata(100);
        let _large = group(&groups, 1, None, 600);
        let small = group(&groups, 2, None, 100);
        let asked = |need| ids(&ranking.candidates(&groups, need, BUDGET));
        assert_eq!(asked(For::All), [1, 0]);
        assert_eq!(asked(For::Reserve(&small)), [1, 0]);
        assert_eq!(asked(For::Group(&small)), [1, 0, 2]);
        assert_eq!(asked(For::Group(&words)), [0], "it takes nothing of groups with a smaller share");
    }

    /// Regression: most of a group's share was page words. A group with a smaller share, but more
    /// pages, was asked first, and lost pages that were freed in advance for the group with the
    /// page words.
    #[test]
    fn a_group_with_much_metadata_gives_its_pages_before_one_with_a_smaller_share() {
        let groups = GroupTable::default();
        let ranking = Ranking::default();
        let words = group(&groups, 0, None, 700);
        words.add_metadata(600);
        let small = group(&groups, 1, None, 250);
        let asked = |need| ids(&ranking.candidates(&groups, need, BUDGET));
        assert_eq!(asked(For::All), [0, 1]);
        assert_eq!(asked(For::Reserve(&small)), [0, 1]);
        assert_eq!(asked(For::Reserve(&words)), [0]);
        words.add_metadata(100);
        assert_eq!(asked(For::All), [1, 0], "it has no page to give");
    }

    /// Regression: a writer had most of the budget, and most of its pages were dirty. A reader in
    /// another group had only a few pages, but its spare share was larger than the writer's. So the
    /// reader had to give up one of its own pages when it needed one.
    #[test]
    fn what_is_dirty_in_a_large_group_is_not_made_up_for_by_a_small_one() {
        let groups = GroupTable::default();
        let ranking = Ranking::default();
        let writer = group(&groups, 0, None, 700);
        let reader = group(&groups, 1, Some(250), 100);
        for _ in 0..550 {
            writer.unclean.add();
        }
        assert_eq!(ids(&ranking.candidates(&groups, For::Group(&reader), BUDGET)), [0, 1]);
        assert_eq!(ids(&ranking.candidates(&groups, For::Group(&writer), BUDGET)), [0]);
        assert_eq!(
            ids(&ranking.candidates(&groups, For::Reserve(&reader), BUDGET)),
            [0],
            "it gives for its own use alone"
        );
    }

    #[test]
    fn a_limit_above_the_budget_counts_as_the_budget() {
        let groups = GroupTable::default();
        let _small = group(&groups, 0, Some(100), 55);
        let _large = group(&groups, 1, Some(1_000_000), 600);
        assert_eq!(ids(&Ranking::default().candidates(&groups, For::All, BUDGET)), [1, 0]);
    }

    /// The fullest of 10,000 groups is found once the batches have looked at every group, and is
    /// remembered from then on. No batch looks at more than a few groups.
    #[test]
    fn the_fullest_of_many_is_found_and_remembered() {
        const COUNT: usize = 10_000;
        let groups = GroupTable::default();
        let ranking = Ranking::default();
        let made: Vec<_> = (0..COUNT).map(|i| group(&groups, i, None, if i == 7_777 { 500 } else { 1 })).collect();
        let asks = || ranking.candidates(&groups, For::Group(&made[3]), BUDGET);
        let found = (0..COUNT / LOOKS as usize + 2).position(|_| asks()[0].group == made[7_777].id);
        assert!(found.is_some());
        assert!((0..100).all(|_| asks()[0].group == made[7_777].id));
        assert!(asks().len() <= SEEN_MAX);
        let hog = &made[9_000];
        assert_eq!(hog.try_charge(900, 0), 900);
        assert_eq!(ids(&ranking.candidates(&groups, For::Group(hog), BUDGET)), [hog.id], "it asks, so it is known");
        assert_eq!(asks()[0].group, hog.id);
    }
}
