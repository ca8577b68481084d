//! Reclaim: making room, from a group's own pages when its limit is short, from the fullest group's when the whole
//! budget is.
//!
//! A *pass* cuts a batch off the lists of one stripe of a group, looks at each page, evicts those that have to go, and
//! puts the others back where `lru` says. A page is looked at only by who has it isolated, so passes of
//! several threads over one group, or one stripe, run side by side.
//!
//! A page that its file doesn't have can't go. It goes round in cold, which so becomes as long as writing back takes, and
//! main gives up a page in its place: if main kept all of its own while cold is full of such pages, nobody would get a
//! frame before they are written.
//!
//! A page that no file has goes to swap (`swap_out`), all of a pass together; where that can't be, it stays in the same way.
//!
//! Nor is a page to go that was read ahead and whose use is still to come: it is passed over, once.
//!
//! Every loop is bounded: a call looks at no page much more than twice, and then says how many it freed, be it none.

pub(crate) mod reclaimer;
pub(crate) mod reserve;
pub(crate) mod room;

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame, OwnedFrame, Refused};

use crate::group::state::{ANONYMOUS, GroupState};
use crate::lru::rank::Rank;
use crate::lru::stripe::{BATCH_MAX, Batch, Cut, Leftovers, Stripe};
use crate::manager::Manager;
use crate::stats::Counters;
use crate::swapping::swap_out::SwappedOut;

/// Pages of main that one page from cold may challenge.
const TRIES: usize = 3;
/// Most frames that a pass can have to put back: all that it cut off.
const STAY_MAX: usize = (4 + TRIES) * BATCH_MAX;

/// Most frames that a pass can evict: what it cut off cold and main, or main's loser of a duel.
const VICTIMS_MAX: usize = 2 * BATCH_MAX;

/// What came of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pass {
    pub(crate) freed: usize,
    looked_at: usize,
}

/// A pass in the making.
#[derive(Default)]
struct Sorting {
    victims: ArrayVec<IsolatedFrame, VICTIMS_MAX>,
    stay: ArrayVec<IsolatedFrame, STAY_MAX>,
    /// Pages that were passed over, because they were read ahead and their use is still to come.
    spared: usize,
}

impl Sorting {
    /// The page stays, at the hot end of the list that `rank` says.
    fn stay(&mut self, frames: &Frames, frame: IsolatedFrame, rank: Rank) {
        rank.give(frames, &frame);
        self.stay.push(frame);
    }
}

impl Manager {
    /// Frees about `wanted` pages of one group. Says how many; 0 when none of its pages can be evicted now.
    pub(crate) fn reclaim_group(&self, group: &GroupState, wanted: usize) -> usize {
        let (mut freed, mut looked_at, mut fruitless) = (0, 0, 0);
        let bound = 2 * group.lists.len() + BATCH_MAX;
        let start = group.lists.to_reclaim();
        while freed < wanted && looked_at < bound {
            // Pages that are used again and again while they are looked at have to go in the end.
            let insist = looked_at > bound / 2;
            let stripe = group.lists.stripe((start + fruitless) % group.lists.stripe_count());
            let pass = self.pass(group, stripe, wanted - freed, insist);
            freed += pass.freed;
            looked_at += pass.looked_at;
            // What can't go in one stripe leaves the others to be looked at.
            fruitless += usize::from(pass.freed == 0);
            if pass.looked_at == 0 && fruitless >= group.lists.stripe_count() {
                break;
            }
        }
        freed
    }

    /// Frees about `wanted` pages: of the group that uses the largest share of its limit, and if that has too few that
    /// can go, of the others in turn.
    pub(crate) fn reclaim_any(&self, wanted: usize) -> usize {
        let fullest = self.groups.fullest();
        let mut freed = fullest.as_ref().map_or(0, |group| self.reclaim_group(group, wanted));
        for number in 0..self.groups.len() {
            if freed >= wanted {
                break;
            }
            let other = self.groups.get(number).filter(|group| fullest.as_ref().is_none_or(|it| it.id != group.id));
            freed += other.map_or(0, |group| self.reclaim_group(&group, wanted - freed));
        }
        freed
    }

    /// One pass over the lists of the stripe that this CPU should reclaim from.
    pub(crate) fn pass_here(&self, group: &GroupState, wanted: usize) -> Pass {
        self.pass(group, group.lists.stripe(group.lists.to_reclaim()), wanted, false)
    }

    /// One pass over a stripe's lists that frees up to `wanted` pages; if it has to `insist`, it takes them as they come.
    fn pass(&self, group: &GroupState, stripe: &Stripe, wanted: usize, insist: bool) -> Pass {
        let frames = &*self.frames;
        let mut leftovers = Leftovers::default();
        let mut sorting = Sorting::default();
        let mut cut = stripe.cut(frames, wanted, stripe.ageing_due(), &mut leftovers);
        let mut looked_at = cut.cold.len() + cut.surplus.len();

        age(frames, stripe, std::mem::take(&mut cut.ageing), &mut sorting);
        let challengers = sort_cut(frames, cut, insist, &mut sorting);
        if !challengers.is_empty() {
            duel(frames, stripe, challengers, &mut sorting, &mut leftovers);
        }
        let (mut freed, unclean) = self.evict_victims(group, &mut sorting);
        let staying = (unclean + sorting.spared).min(BATCH_MAX);
        if staying > 0 {
            looked_at += cut_substitutes(frames, stripe, staying, insist, &mut sorting, &mut leftovers);
            freed += self.evict_victims(group, &mut sorting).0;
        }

        stripe.put_back(frames, sorting.stay, &mut leftovers);
        freed += leftovers.orphans as usize;
        self.settle(group, leftovers);
        Pass { freed, looked_at }
    }

    /// Evicts the victims; those that are pinned, or that their file doesn't have, stay. Says how many went, and how many
    /// stay for the latter reason.
    fn evict_victims(&self, group: &GroupState, sorting: &mut Sorting) -> (usize, usize) {
        let mut unclean_victims = 0;
        let victims = std::mem::take(&mut sorting.victims).into_iter();
        let (anonymous, of_files) = victims.partition::<Batch<VICTIMS_MAX>, _>(|frame| self.is_anonymous(frame));
        let SwappedOut { gone: mut evicted, stay: mut refused } =
            if anonymous.is_empty() { SwappedOut::default() } else { self.swap_out(group, anonymous) };
        for frame in of_files {
            match self.evict(group, frame) {
                Ok(frame) => evicted.push(frame),
                Err(refusal) => refused.push(refusal),
            }
        }
        for Refused { frame, unclean } in refused {
            let rank = Rank::of(&self.frames, frame.id());
            unclean_victims += usize::from(unclean);
            // What its file doesn't have yet goes round once more; pinned is in use: one
            // level up, or a few at the lowest would be met again and again, and hide all others.
            let rank = if unclean { rank.cold() } else { rank.main(rank.level().up()) };
            sorting.stay(&self.frames, frame, rank);
        }
        self.count_evictions(group, &evicted);
        (self.release(group, evicted), unclean_victims)
    }

    /// Evicts an isolated page, leaving its shadow.
    pub(crate) fn evict(&self, group: &GroupState, frame: IsolatedFrame) -> Result<OwnedFrame<'_>, Refused> {
        let level = Rank::of(&self.frames, frame.id()).level();
        self.frames.evict(frame, group.shadow(level))
    }

    /// Counts evictions for the group and the files that the pages were of.
    pub(crate) fn count_evictions(&self, group: &GroupState, evicted: &[OwnedFrame<'_>]) {
        for run in evicted.chunk_by(|a, b| self.frames.owner(a.id()) == self.frames.owner(b.id())) {
            self.files.count(self.frames.owner(run[0].id()), |file| {
                file.evictions.add(run.len() as u64);
            });
        }
        self.count_wasted(evicted, group);
        group.evicted(evicted.len() as u64);
    }
}

impl Manager {
    /// Counts pages that were read ahead for nobody, of those that have just left memory.
    pub(crate) fn count_wasted(&self, gone: &[OwnedFrame<'_>], group: &GroupState) {
        for frame in gone.iter().filter(|frame| self.frames.is_unused_ahead(frame.id())) {
            self.count_wasted_of(&[self.frames.owner(frame.id())], group);
        }
    }

    /// The same of pages that were files' with these numbers, or no file's.
    pub(crate) fn count_wasted_of(&self, owners: &[u32], group: &GroupState) {
        for &owner in owners {
            self.files.count(owner, |file| Counters::add(&file.read_ahead_wasted, 1));
            let along = &group.swapped.along_wasted;
            Counters::add(if owner == ANONYMOUS { along } else { &group.counters.read_ahead_wasted }, 1);
        }
    }
}

/// Pages of main go up a level if they were used since they were looked at last, and down if they weren't.
fn age(frames: &Frames, stripe: &Stripe, ageing: Batch<BATCH_MAX>, sorting: &mut Sorting) {
    for frame in &ageing {
        frames.prefetch_word(frame);
    }
    let (mut used, all) = (0, ageing.len());
    for frame in ageing {
        let rank = Rank::of(frames, frame.id());
        let is_used = frames.take_referenced(frame.id());
        used += usize::from(is_used);
        sorting.stay(frames, frame, rank.main(if is_used { rank.level().up() } else { rank.level().down() }));
    }
    stripe.aged(used, all - used);
}

/// Decides on what was cut off, but for the pages that have to fight for a place in main.
fn sort_cut(frames: &Frames, cut: Cut, insist: bool, sorting: &mut Sorting) -> Batch<BATCH_MAX> {
    for frame in cut.cold.iter().chain(&cut.surplus) {
        frames.prefetch_word(frame);
    }
    for frame in cut.surplus {
        let rank = Rank::of(frames, frame.id());
        if frames.take_referenced(frame.id()) && !insist {
            sorting.stay(frames, frame, rank.main(rank.level().up()));
        } else {
            sorting.victims.push(frame);
        }
    }
    let mut main_room = cut.main_room;
    let mut challengers = Batch::new();
    for frame in cut.cold {
        let rank = Rank::of(frames, frame.id());
        let level = if frames.take_referenced(frame.id()) { rank.level().up() } else { rank.level() };
        if !insist && frames.spare_ahead(frame.id()) {
            sorting.spared += 1;
            sorting.stay(frames, frame, rank.cold());
        } else if level.index() == 0 || insist {
            sorting.victims.push(frame);
        } else if main_room > 0 {
            main_room -= 1;
            sorting.stay(frames, frame, rank.main(level));
        } else {
            rank.main(level).give(frames, &frame);
            challengers.push(frame);
        }
    }
    challengers
}

/// Has main give up pages in the place of so many that can't go. Says how many were looked at.
fn cut_substitutes(
    frames: &Frames,
    stripe: &Stripe,
    wanted: usize,
    insist: bool,
    sorting: &mut Sorting,
    leftovers: &mut Leftovers,
) -> usize {
    let mut substitutes = Batch::<BATCH_MAX>::new();
    stripe.cut_main(frames, wanted, &mut substitutes, leftovers);
    let looked_at = substitutes.len();
    for substitute in substitutes {
        let rank = Rank::of(frames, substitute.id());
        if frames.take_referenced(substitute.id()) && !insist {
            sorting.stay(frames, substitute, rank.main(rank.level().up()));
        } else {
            sorting.victims.push(substitute);
        }
    }
    looked_at
}

/// Each challenger meets pages from the cold end of main, until one is unused: the lower level of the two is evicted.
fn duel(
    frames: &Frames,
    stripe: &Stripe,
    challengers: Batch<BATCH_MAX>,
    sorting: &mut Sorting,
    leftovers: &mut Leftovers,
) {
    let mut opponents = Batch::<{ TRIES * BATCH_MAX }>::new();
    stripe.cut_main(frames, TRIES * challengers.len(), &mut opponents, leftovers);
    for opponent in &opponents {
        frames.prefetch_word(opponent);
    }
    let mut opponents = opponents.into_iter();
    let mut lost = 0;
    for challenger in challengers {
        let level = Rank::of(frames, challenger.id()).level();
        let mut unused = opponents.by_ref().take(TRIES).filter_map(|opponent| {
            let rank = Rank::of(frames, opponent.id());
            if frames.take_referenced(opponent.id()) {
                sorting.stay(frames, opponent, rank.main(rank.level().up()));
                return None;
            }
            Some((opponent, rank))
        });
        match unused.next() {
            Some((opponent, rank)) if rank.level() < level => {
                sorting.victims.push(opponent);
                sorting.stay.push(challenger);
            }
            Some((opponent, rank)) => {
                sorting.stay(frames, opponent, rank);
                sorting.victims.push(challenger);
                lost += 1;
            }
            None => sorting.victims.push(challenger),
        }
    }
    stripe.lost(lost);
    stripe.return_cut::<{ TRIES * BATCH_MAX }>(frames, opponents.collect(), leftovers);
}
