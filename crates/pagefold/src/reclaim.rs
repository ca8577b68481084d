//! Reclaim: making room, from a group's own pages when its limit is short, from the fullest group's when the whole
//! budget is.
//!
//! A *pass* cuts a batch off a group's lists, looks at each page without the lock, evicts those that have to go, and
//! puts the others back where `group_lists` says. A page is looked at only by who has it isolated, so passes of
//! several threads over one group run side by side.
//!
//! A page that its file doesn't have can't go. It goes round in cold, which so becomes as long as writing back takes, and
//! main gives up a page in its place: if main kept all of its own while cold is full of such pages, nobody would get a
//! frame before they are written.
//!
//! Every loop is bounded: a call looks at no page much more than twice, and then says how many it freed, be it none.

use sync::atomic::Ordering;

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame, OwnedFrame, Refused};

use crate::group_lists::{BATCH_MAX, Batch, Cut, Orphans, Rank};
use crate::group_state::GroupState;
use crate::manager::Manager;
use crate::stats::Counters;

/// Pages of main that one page from cold may challenge.
const TRIES: usize = 3;
/// Most frames that a pass can have to put back: all that it cut off.
const STAY_MAX: usize = (4 + TRIES) * BATCH_MAX;

/// Most frames that a pass can evict: what it cut off cold and main, or main's loser of a duel.
const VICTIMS_MAX: usize = 2 * BATCH_MAX;

/// What came of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pass {
    freed: usize,
    looked_at: usize,
}

/// A pass in the making.
#[derive(Default)]
struct Sorting {
    victims: ArrayVec<IsolatedFrame, VICTIMS_MAX>,
    stay: ArrayVec<IsolatedFrame, STAY_MAX>,
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
        let (mut freed, mut looked_at) = (0, 0);
        let bound = 2 * group.lists.lock().len() + BATCH_MAX;
        while freed < wanted && looked_at < bound {
            // Pages that are used again and again while they are looked at have to go in the end.
            let insist = looked_at > bound / 2;
            let pass = self.pass(group, wanted - freed, insist);
            if pass.looked_at == 0 {
                break;
            }
            freed += pass.freed;
            looked_at += pass.looked_at;
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

    /// One pass over a group's lists that frees up to `wanted` pages; if it has to `insist`, it takes them as they come.
    pub(crate) fn pass(&self, group: &GroupState, wanted: usize, insist: bool) -> Pass {
        let frames = &*self.frames;
        let mut orphans = Orphans::default();
        let mut sorting = Sorting::default();
        // Relaxed: a number of pages that may as well age a pass later.
        let ageing = group.ageing_due.swap(0, Ordering::Relaxed) as usize;
        let cut = group.lists.lock().cut(frames, wanted, ageing);
        let mut looked_at = cut.cold.len() + cut.surplus.len();

        let challengers = sort_cut(frames, cut, insist, &mut sorting);
        if !challengers.is_empty() {
            duel(frames, group, challengers, &mut sorting, &mut orphans);
        }
        let (mut freed, unclean) = self.evict_victims(group, &mut sorting);
        if unclean > 0 {
            looked_at += cut_substitutes(frames, group, unclean, insist, &mut sorting);
            freed += self.evict_victims(group, &mut sorting).0;
        }

        let mut lists = group.lists.lock();
        for frame in sorting.stay {
            lists.put_back(frames, frame, &mut orphans);
        }
        drop(lists);
        group.uncharge(orphans.count);
        Pass { freed: freed + orphans.count as usize, looked_at }
    }

    /// Evicts the victims; those that are pinned, or that their file doesn't have, stay. Says how many went, and how many
    /// stay for the latter reason.
    fn evict_victims(&self, group: &GroupState, sorting: &mut Sorting) -> (usize, usize) {
        let mut unclean_victims = 0;
        let mut evicted = ArrayVec::<_, VICTIMS_MAX>::new();
        for frame in std::mem::take(&mut sorting.victims) {
            match self.evict(group, frame) {
                Ok(frame) => evicted.push(frame),
                Err(Refused { frame, unclean }) => {
                    let level = Rank::of(&self.frames, frame.id()).level;
                    unclean_victims += usize::from(unclean);
                    // What its file doesn't have yet goes round once more; pinned is in use.
                    let rank = if unclean { Rank::cold(level) } else { Rank::main(level) };
                    sorting.stay(&self.frames, frame, rank);
                }
            }
        }
        self.count_evictions(group, &evicted);
        (self.release(group, evicted), unclean_victims)
    }

    /// Evicts an isolated page, leaving its shadow.
    pub(crate) fn evict(&self, group: &GroupState, frame: IsolatedFrame) -> Result<OwnedFrame<'_>, Refused> {
        let level = Rank::of(&self.frames, frame.id()).level;
        self.frames.evict(frame, group.shadow(level))
    }

    /// Counts evictions for the group and the files that the pages were of.
    pub(crate) fn count_evictions(&self, group: &GroupState, evicted: &[OwnedFrame<'_>]) {
        for run in evicted.chunk_by(|a, b| self.frames.owner(a.id()) == self.frames.owner(b.id())) {
            if let Some(file) = run.first().and_then(|frame| self.files.counters(self.frames.owner(frame.id()))) {
                Counters::add(&file.evictions, run.len() as u64);
            }
        }
        Counters::add(&group.counters.evictions, evicted.len() as u64);
    }
}

/// Decides on what was cut off, but for the pages that have to fight for a place in main.
fn sort_cut(frames: &Frames, cut: Cut, insist: bool, sorting: &mut Sorting) -> Batch<BATCH_MAX> {
    for frame in cut.cold.iter().chain(&cut.surplus).chain(&cut.ageing) {
        frames.prefetch_word(frame);
    }
    for frame in cut.ageing {
        let level = Rank::of(frames, frame.id()).level;
        let level = if frames.take_referenced(frame.id()) { level.up() } else { level.down() };
        sorting.stay(frames, frame, Rank::main(level));
    }
    for frame in cut.surplus {
        let level = Rank::of(frames, frame.id()).level;
        if frames.take_referenced(frame.id()) && !insist {
            sorting.stay(frames, frame, Rank::main(level.up()));
        } else {
            sorting.victims.push(frame);
        }
    }
    let mut main_room = cut.main_room;
    let mut challengers = Batch::new();
    for frame in cut.cold {
        let level = Rank::of(frames, frame.id()).level;
        let level = if frames.take_referenced(frame.id()) { level.up() } else { level };
        if level.index() == 0 || insist {
            sorting.victims.push(frame);
        } else if main_room > 0 {
            main_room -= 1;
            sorting.stay(frames, frame, Rank::main(level));
        } else {
            Rank::main(level).give(frames, &frame);
            challengers.push(frame);
        }
    }
    challengers
}

/// Has main give up pages in the place of so many that can't go. Says how many were looked at.
fn cut_substitutes(frames: &Frames, group: &GroupState, wanted: usize, insist: bool, sorting: &mut Sorting) -> usize {
    let mut substitutes = Batch::<BATCH_MAX>::new();
    group.lists.lock().cut_main(frames, wanted, &mut substitutes);
    let looked_at = substitutes.len();
    for substitute in substitutes {
        let level = Rank::of(frames, substitute.id()).level;
        if frames.take_referenced(substitute.id()) && !insist {
            sorting.stay(frames, substitute, Rank::main(level.up()));
        } else {
            sorting.victims.push(substitute);
        }
    }
    looked_at
}

/// Each challenger meets pages from the cold end of main, until one is unused: the lower level of the two is evicted.
fn duel(
    frames: &Frames,
    group: &GroupState,
    challengers: Batch<BATCH_MAX>,
    sorting: &mut Sorting,
    orphans: &mut Orphans,
) {
    let mut opponents = Batch::<{ TRIES * BATCH_MAX }>::new();
    group.lists.lock().cut_main(frames, TRIES * challengers.len(), &mut opponents);
    for opponent in &opponents {
        frames.prefetch_word(opponent);
    }
    let mut opponents = opponents.into_iter();
    let mut lost = 0;
    for challenger in challengers {
        let level = Rank::of(frames, challenger.id()).level;
        let mut unused = opponents.by_ref().take(TRIES).filter_map(|opponent| {
            let rank = Rank::of(frames, opponent.id());
            if frames.take_referenced(opponent.id()) {
                sorting.stay(frames, opponent, Rank::main(rank.level.up()));
                return None;
            }
            Some((opponent, rank))
        });
        match unused.next() {
            Some((opponent, rank)) if rank.level < level => {
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
    group.ageing_due.fetch_add(lost, Ordering::Relaxed);
    let mut lists = group.lists.lock();
    for opponent in opponents.rev() {
        lists.return_main(frames, opponent, orphans);
    }
}
