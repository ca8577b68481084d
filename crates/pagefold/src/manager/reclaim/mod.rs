//! Reclaim: evicts pages to free frames. If a group is at its limit, reclaim evicts pages of that
//! group. If the whole budget is short, reclaim evicts pages of the groups that `ranking` chooses.
//!
//! A *pass* removes a batch of pages from the lists of one stripe of a group, and looks at each
//! page. (A group's lists are split into stripes so that CPUs don't contend.) The pass evicts some
//! of the pages, and puts the others back on lists, as `lru` decides. During the pass these pages
//! are *isolated*: only the thread that has isolated a page looks at it. So passes of several
//! threads over one group, or one stripe, run in parallel.
//!
//! A dirty page of a file can't be evicted before it is written back. The pass puts it back into
//! the *window*, whose pages are evicted first, and evicts a page of *main* instead (see `lru`). So
//! while pages wait for write-back, the window grows and main shrinks. If main kept all of its
//! pages, the window could be full of dirty pages, and no thread would get a frame before these
//! pages were written.
//!
//! An anonymous page goes to swap (`swap_out`), together with all other anonymous pages of its
//! pass. A page that can't be swapped out is put back in the same way as a dirty page.
//!
//! A page that was read ahead and not used yet is spared for some time (`Stripe::waiting`).
//!
//! Every loop is bounded. If a group has n pages, a call looks at little more than 2 n pages, and
//! then returns the number of pages that it freed, even if this number is 0. If all pages of a
//! group were looked at and none could be freed, `walk` remembers this. Further calls for the group
//! then return at once, until something has changed or a pause has passed.
//!
//! Before a user's call fails because it gets no page, reclaim ignores what `walk` remembers, and
//! looks once more at all pages that may be evicted for the call.

pub(crate) mod drain;
pub(crate) mod reclaimer;
pub(crate) mod reserve;
pub(crate) mod room;
pub(crate) mod unwanted;

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame, Refused, Use};
use swap::Need;

use crate::group::state::GroupState;
use crate::lru::batch::{BATCH_MAX, Batch, Leftovers};
use crate::lru::clock::{Left, Now};
use crate::lru::cost::Cost;
use crate::lru::rank::{Kind, Origin, Rank};
use crate::lru::stripe::{Cut, Look, Outcome, Reach, Stripe};
use crate::manager::Manager;
use crate::memory::ranking::For;
use crate::swapping::swap_out::SwappedOut;

/// The most frames that a pass may put back: all that it cut off.
const STAY_MAX: usize = 4 * BATCH_MAX;

/// The most frames that a pass can evict at a time. It cuts at most `BATCH_MAX` pages off the
/// window and as many off main. Each challenger adds at most one frame: that of the challenge's
/// loser.
const VICTIMS_MAX: usize = 2 * BATCH_MAX;

/// For each wanted page, this many pages of one group are looked at before the next group is asked.
const LOOKS_PER_PAGE: usize = 4;

/// The outcome of one or more passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pass {
    pub(crate) freed: usize,
    looked_at: usize,
    /// The group that needs the pages has given them itself, because no other group gave any.
    is_last_resort: bool,
}

/// For which group pages are freed.
///
/// A group's youngest pages are evicted only for the group itself. Suppose that all other pages of
/// the group are dirty and can't be written. Then the group can still load pages, because it evicts
/// its own youngest pages, one after the other. If other groups took these pages, the group could
/// load no page at all: it may not take pages of groups with smaller shares. Exception: a group
/// that has next to nothing ([`For::First`]) gets the youngest pages of others, too, before its
/// call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Own,
    Others,
}

impl Whose {
    /// Returns for which group a page of `giver` is freed if `need` is to be met.
    fn of(need: For<'_>, giver: &GroupState) -> Self {
        if need.is_of(giver) { Whose::Own } else { Whose::Others }
    }
}

/// What a pass has decided so far.
#[derive(Default)]
struct Sorting {
    victims: ArrayVec<IsolatedFrame, VICTIMS_MAX>,
    stay: ArrayVec<IsolatedFrame, STAY_MAX>,
    /// Pages that were spared because they were read ahead and not used yet.
    spared: usize,
    /// New pages that leave the window unused. Pages that were read ahead in vain don't count: they
    /// tell nothing of how long the window should be.
    unused: usize,
}

impl Sorting {
    /// Keeps the page, at the hot end of the list that `rank` names.
    fn stay(&mut self, frames: &Frames, frame: IsolatedFrame, rank: Rank) {
        rank.give(frames, &frame);
        self.stay.push(frame);
    }
}

impl Manager {
    /// Frees about `wanted` pages of a group that needs them itself. Returns the number of pages
    /// freed. Returns 0 if none of the group's pages can be evicted now, or if all of them were
    /// looked at moments ago and none could be evicted. First gives back parts of page maps that
    /// the group doesn't need any more; they count as the pages that are charged for them.
    pub(crate) fn reclaim_group(&self, group: &GroupState, wanted: usize) -> usize {
        let of_parts = self.reclaim_idle_parts(group, wanted as u64) as usize;
        of_parts + self.reclaim_from(group, wanted.saturating_sub(of_parts), Whose::Own)
    }

    fn reclaim_from(&self, group: &GroupState, wanted: usize, need: Whose) -> usize {
        let mut freed = 0;
        while freed < wanted {
            let pass = self.look_through(group, wanted - freed, need);
            freed += pass.freed;
            if pass.freed == 0 && self.memory.rests(group) {
                break;
            }
        }
        freed
    }

    /// Frees about `wanted` pages, in batches, of the groups that `ranking` names. Returns the
    /// number.
    pub(crate) fn reclaim_any(&self, need: For<'_>, wanted: usize) -> usize {
        let mut freed = 0;
        while freed < wanted {
            let batch = self.reclaim_batch(need, (wanted - freed).min(BATCH_MAX));
            freed += batch.freed;
            if batch.freed == 0 || batch.is_last_resort {
                break;
            }
        }
        freed
    }

    /// Frees about `wanted` pages for a group. Called before a user's call would fail because it
    /// gets no page. Frees pages of the group itself if `of_its_own` is set, otherwise of any group
    /// that may have to give pages to it. Looks at all of these pages, even if earlier looks freed
    /// none. First gives up charges that no page of the group uses: those of idle parts of page
    /// maps, and those in stock. Returns the number of pages freed.
    pub(crate) fn reclaim_in_earnest(&self, group: &GroupState, of_its_own: bool, wanted: usize) -> usize {
        let look_through = |group: &GroupState, wanted: usize, need: Whose| {
            group.walk.wake(group.lists.len());
            self.reclaim_from(group, wanted, need)
        };
        let of_parts = self.reclaim_all_idle_parts(group, wanted as u64) as usize;
        if of_its_own {
            return of_parts + look_through(group, wanted.saturating_sub(of_parts), Whose::Own);
        }
        if of_parts >= wanted {
            return of_parts;
        }
        // Charges in stock count in the group's share (R1), too, but no page uses them.
        self.memory.drain_charges(Some(group.id));
        let need = self.memory.page_for(group);
        let candidates = self.memory.ranking.all_candidates(&self.memory.groups, need, self.memory.budget_pages());
        let whose = |it: &GroupState| if matches!(need, For::First(_)) { Whose::Own } else { Whose::of(need, it) };
        let mut groups = candidates.iter().filter_map(|it| self.memory.groups.get(it.group));
        let freed = groups.find_map(|it| Some(look_through(&it, wanted, whose(&it))).filter(|&freed| freed > 0));
        of_parts + freed.unwrap_or(0)
    }

    /// Frees up to about `wanted` pages of the first candidate group that can give any. Looks at a
    /// bounded number of pages of one candidate after the other, until a candidate gives a page or
    /// all candidates rest (`Memory::rests`). If no other group with as large a share gave
    /// anything, the group that needs the pages gives one page itself (R6).
    fn reclaim_batch(&self, need: For<'_>, wanted: usize) -> Pass {
        let mut result = Pass::default();
        let mut candidates = self.memory.ranking.candidates(&self.memory.groups, need, self.memory.budget_pages());
        let has_others = candidates.len() > 1;
        while !candidates.is_empty() {
            let mut kept = 0;
            for turn in 0..candidates.len() {
                let Some(group) = self.memory.groups.get(candidates[turn].group) else { continue };
                let is_last_resort = has_others && need.is_of(&group);
                let wanted = if is_last_resort { 1 } else { wanted };
                let pass = self.look_through(&group, wanted, Whose::of(need, &group));
                result.looked_at += pass.looked_at;
                if pass.freed > 0 {
                    // Sometimes: a group gives pages.
                    return Pass { freed: pass.freed, is_last_resort, ..result };
                }
                if !self.memory.rests(&group) {
                    candidates.swap(kept, turn);
                    kept += 1;
                }
            }
            candidates.truncate(kept);
        }
        result
    }

    /// Looks at a bounded number of a group's pages to free up to `wanted`. Looks at none if the
    /// group rests.
    fn look_through(&self, group: &GroupState, wanted: usize, need: Whose) -> Pass {
        let mut result = Pass::default();
        let bound = LOOKS_PER_PAGE * wanted + BATCH_MAX;
        let mut at = start(group);
        while result.freed < wanted && result.looked_at < bound && !self.memory.rests(group) {
            let pass = self.pass_from(group, &mut at, wanted - result.freed, need);
            result.freed += pass.freed;
            result.looked_at += pass.looked_at;
            if pass.looked_at == 0 && pass.freed == 0 {
                break;
            }
        }
        result
    }

    /// Takes the first group that `ranking` names for `need` and that doesn't rest. Runs one pass
    /// over a stripe of this group.
    pub(crate) fn pass_for(&self, need: For<'_>, wanted: usize) -> Pass {
        let candidates = self.memory.ranking.candidates(&self.memory.groups, need, self.memory.budget_pages());
        let mut groups = candidates.iter().filter_map(|it| self.memory.groups.get(it.group));
        groups.find(|group| !self.memory.rests(group)).map_or(Pass::default(), |group| self.pass_here(&group, wanted))
    }

    /// Runs one pass over the stripe of `group` from which this CPU should reclaim.
    pub(crate) fn pass_here(&self, group: &GroupState, wanted: usize) -> Pass {
        self.pass_from(group, &mut start(group), wanted, Whose::Others)
    }

    /// Runs one pass over stripe `at`, or over the next stripe that isn't empty. If the pass frees
    /// no page, `at` becomes the stripe at which to go on.
    fn pass_from(&self, group: &GroupState, at: &mut usize, wanted: usize, need: Whose) -> Pass {
        // Tries the stripe at which the caller starts, and then each stripe of the group once.
        for _ in 0..=group.lists.stripe_count() {
            let stripe = group.lists.stripe(*at);
            let pass = self.pass(group, stripe, wanted, need);
            if pass.freed == 0 {
                *at = group.walk.go_on(*at, pass.looked_at, stripe.len(), group.lists.stripe_count());
            }
            if pass.looked_at > 0 || pass.freed > 0 {
                return pass;
            }
        }
        group.walk.found_nothing();
        Pass::default()
    }

    /// Runs one pass over a stripe's lists. The pass frees up to about `wanted` pages. If earlier
    /// passes looked at all of the group's pages and freed none, this pass evicts even pages that
    /// were used since reclaim last looked at them. Pinned pages stay.
    fn pass(&self, group: &GroupState, stripe: &Stripe, wanted: usize, need: Whose) -> Pass {
        let frames = &*self.memory.frames;
        let insist = group.walk.insists(|| group.lists.len());
        let mut leftovers = Leftovers::default();
        let mut sorting = Sorting::default();
        let now = group.time_of_pass(stripe);
        let reach = match need {
            _ if !insist => Reach::Usual,
            Whose::Own => Reach::All,
            Whose::Others => Reach::Window,
        };
        let cost = group.swapped.cost();
        stripe.set_anonymous_cost(cost);
        let batch = stripe.batch(wanted, cost == Cost::WRITTEN);
        let cut = stripe.cut(frames, batch, reach, now, &mut leftovers);
        let mut looked_at = cut.window.len() + cut.main.len();
        let away = looked_at;

        let Challengers { usual, hot } = sort_cut(frames, stripe, now, cut, insist, &mut sorting);
        stripe.left_unused(sorting.unused);
        if !usual.is_empty() {
            let Outcome { won, lost, beaten } = stripe.challenge(frames, usual, 1, now, &mut leftovers);
            sorting.stay.extend(won);
            sorting.victims.extend(lost.into_iter().chain(beaten));
        }
        if !hot.is_empty() {
            let Outcome { won, lost, beaten } = stripe.challenge(frames, hot, HOT_MARGIN, now, &mut leftovers);
            sorting.stay.extend(won);
            sorting.victims.extend(beaten);
            for frame in lost {
                stripe.gives_way();
                let rank = Rank::of(frames, frame.id());
                sorting.stay(frames, frame, rank.settled(Kind::Main));
            }
        }
        stripe.spared(sorting.spared);
        let (mut freed, unclean) = self.evict_victims(group, now, &mut sorting);
        let staying = (unclean + sorting.spared).min(BATCH_MAX);
        if staying > 0 {
            // Sometimes: pages that stay are replaced by others in a pass.
            looked_at += cut_substitutes(frames, stripe, now, staying, insist, &mut sorting, &mut leftovers);
            freed += self.evict_victims(group, now, &mut sorting).0;
        }

        stripe.returned(away);
        stripe.put_back(frames, sorting.stay, &mut leftovers);
        freed += leftovers.orphans as usize;
        self.memory.settle(group, leftovers);
        group.walk.looked(looked_at, freed, insist, || group.lists.len());
        Pass { freed, looked_at, is_last_resort: false }
    }

    /// Evicts the victims. Victims that are pinned or dirty are kept. Returns the number of pages
    /// evicted, and the number of dirty victims kept.
    fn evict_victims(&self, group: &GroupState, now: Now, sorting: &mut Sorting) -> (usize, usize) {
        let mut unclean_victims = 0;
        let victims = std::mem::take(&mut sorting.victims).into_iter();
        let (anonymous, of_files) = victims.partition::<Batch<VICTIMS_MAX>, _>(|frame| self.memory.is_anonymous(frame));
        let SwappedOut { gone: mut evicted, stay: mut refused } = if anonymous.is_empty() {
            SwappedOut::default()
        } else {
            self.swap_out(group, anonymous, Need::Usual, now)
        };
        for frame in of_files {
            match self.memory.evict(group, frame, now) {
                Ok(frame) => evicted.push(frame),
                Err(refusal) => refused.push(refusal),
            }
        }
        for Refused { frame, unclean } in refused {
            let rank = Rank::of(&self.memory.frames, frame.id());
            unclean_victims += usize::from(unclean);
            // A dirty page can't be evicted until it has been written, so it is put back in the
            // window and is looked at again in the next round. A pinned page is in use, so it gets
            // a place in main. If it stayed in the window, passes would keep finding the same few
            // pages and never reach the others.
            let rank = if unclean { rank.on(Kind::Window) } else { rank.settled(Kind::Main).used_at(now) };
            sorting.stay(&self.memory.frames, frame, rank);
        }
        self.memory.count_evictions(group, &evicted);
        (self.memory.release(group, evicted), unclean_victims)
    }
}

/// A hot page of the window wins a challenge only against a page whose expected interval is more
/// than `HOT_MARGIN` times the hot page's mean interval. The reason is that the times of the hot
/// page's uses aren't recorded, and may be long ago. Without a margin, pages that were once hot and
/// aren't used any more would displace each other during a scan.
const HOT_MARGIN: u64 = 2;

/// Returns the stripe at which reclaim should begin. This is the stripe of this CPU or, if earlier
/// passes over the group freed no page, the stripe at which these passes ended.
fn start(group: &GroupState) -> usize {
    group.walk.place().unwrap_or_else(|| group.lists.to_reclaim())
}

/// Pages of the window that get a place in main if they win it from a page there.
#[derive(Default)]
struct Challengers {
    usual: Batch<BATCH_MAX>,
    /// Pages that were used so often that they get a place in any case.
    hot: Batch<BATCH_MAX>,
}

/// Decides for each page that was cut off whether it stays or is evicted. Returns the challengers:
/// pages of the window that get a place in main only if they win it from a page there
/// ([`Stripe::challenge`]).
fn sort_cut(frames: &Frames, stripe: &Stripe, now: Now, cut: Cut, insist: bool, sorting: &mut Sorting) -> Challengers {
    let waiting = stripe.waiting(now);
    for frame in cut.window.iter().chain(&cut.main) {
        frames.prefetch_word(frame);
    }
    for frame in cut.main {
        sort_main(frames, stripe, now, frame, insist, sorting);
    }
    let mut main_room = cut.main_room;
    let mut challengers = Challengers::default();
    for frame in cut.window {
        let rank = Rank::of(frames, frame.id());
        let is_recent = || rank.age(now) < waiting;
        if !insist && frames.is_unused_ahead(frame.id()) && is_recent() {
            sorting.spared += 1;
            sorting.stay(frames, frame, rank.on(Kind::Window));
            continue;
        }
        let used = frames.take_use(frame.id());
        let is_in_vain = frames.is_unused_ahead(frame.id());
        // Whether the page came back after an eviction, and has no place in main yet. A page that
        // was read ahead counts only once it has been used.
        let is_back = rank.origin() != Origin::New && !is_in_vain;
        let rank = match used {
            Use::Certain(uses) if cut.uses_tell => rank.seen(uses, now, frame.id()),
            Use::None => rank,
            _ => rank.used_at(now),
        };
        let is_used = matches!(used, Use::Certain(_)) && (cut.uses_tell || rank.leaves() == Left::Main);
        if insist || !(is_used || is_back) {
            sorting.unused += usize::from(used == Use::None && rank.origin() == Origin::New && !is_in_vain);
            rank.give(frames, &frame);
            sorting.victims.push(frame);
        } else if main_room > 0 {
            main_room -= 1;
            sorting.stay(frames, frame, rank.settled(Kind::Main));
        } else {
            rank.give(frames, &frame);
            let is_hot = cut.uses_tell && used == Use::Certain(frames::USES_MAX);
            if is_hot { challengers.hot.push(frame) } else { challengers.usual.push(frame) }
        }
    }
    challengers
}

/// Decides whether a page from the end of main stays: if it is in use, and reclaim doesn't insist.
fn sort_main(frames: &Frames, stripe: &Stripe, now: Now, frame: IsolatedFrame, insist: bool, sorting: &mut Sorting) {
    if stripe.look(frames, &frame, now) == Look::Used && !insist {
        let rank = Rank::of(frames, frame.id());
        sorting.stay(frames, frame, rank.on(Kind::Main));
    } else {
        sorting.victims.push(frame);
    }
}

/// Picks victims from main because `wanted` pages of the window can't be evicted. Returns the
/// number of pages looked at.
fn cut_substitutes(
    frames: &Frames,
    stripe: &Stripe,
    now: Now,
    wanted: usize,
    insist: bool,
    sorting: &mut Sorting,
    leftovers: &mut Leftovers,
) -> usize {
    let mut substitutes = Batch::<BATCH_MAX>::new();
    stripe.cut_main(frames, wanted, &mut substitutes, leftovers);
    let looked_at = substitutes.len();
    for substitute in substitutes {
        sort_main(frames, stripe, now, substitute, insist, sorting);
    }
    looked_at
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use frames::{Ahead, BeginLoad, Config, Labels, PageMap};
    use sync::Arc;

    use super::*;
    use crate::lru::clock::Clock;
    use crate::lru::interval::Interval;
    use crate::{Advice, Group, Pagefold};
    use test_disks::SimulatedDisk;

    /// A regression: pages that had been read ahead in vain shrank the window.
    #[test]
    fn pages_read_ahead_in_vain_dont_count_as_unused() {
        let frames = Arc::new(Frames::new(&Config::new(1 << 20, 4096)).unwrap());
        let map = PageMap::new(Arc::clone(&frames), 10).unwrap();
        let load = |(page, ahead)| {
            let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("no other thread loads it") };
            let rank = Rank::young(Origin::New, Interval::UNKNOWN).on(Kind::Window);
            let labels = Labels { group: 7, rank: rank.bits(), ahead, ..Labels::default() };
            loading.publish(frames.allocate().unwrap(), labels, false).0
        };
        let window = (0..5).zip([Ahead::Yes, Ahead::No, Ahead::Marked, Ahead::No, Ahead::Yes]).map(load).collect();
        let (stripe, now, mut sorting) = (Stripe::new(7, 0), Clock::new(100).now(5), Sorting::default());
        let cut = Cut { window, ..Cut::default() };
        let challengers = sort_cut(&frames, &stripe, now, cut, false, &mut sorting);
        assert!(challengers.usual.is_empty() && challengers.hot.is_empty());
        assert_eq!((sorting.victims.len(), sorting.unused), (5, 2));
        let victims: Batch<VICTIMS_MAX> = sorting.victims.into_iter().collect();
        stripe.put_back(&frames, victims, &mut Leftovers::default());
    }

    /// A regression: all pages of the fullest group were pinned or dirty, so none could be evicted.
    /// Even so, whenever any group needed a batch of frames, reclaim first looked at all these
    /// pages twice. It should remember that they can't be evicted, and look at few of them.
    #[test]
    fn a_group_whose_pages_cant_go_costs_others_a_few_looks() {
        const PINNED: u64 = 2_000;
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 64 << 20);
        let mm = Pagefold::builder().memory("16MiB").backend(disk).build().unwrap();
        let (hog, quiet) = (mm.group("hog").build().unwrap(), mm.group("quiet").build().unwrap());
        let (theirs, ours) = (hog.open("file").unwrap(), quiet.open("file").unwrap());
        let _pins: Vec<_> = (0..PINNED).map(|page| theirs.page_at(page * 4096).unwrap()).collect();
        for page in PINNED..PINNED + 1_500 {
            ours.read_at(&mut [0; 8], page * 4096).unwrap();
        }
        mm.manager().memory.drain_entries();
        for batch in 0..20 {
            let pass = mm.manager().reclaim_batch(For::Group(quiet.state()), 32);
            assert!(pass.freed > 0 && pass.looked_at < 800, "batch {batch}: {pass:?}");
            assert!(pass.freed == 1 || !pass.is_last_resort, "batch {batch}: {pass:?}");
        }
    }

    /// A regression: charges in CPUs' stocks, which no page uses, counted in a group's share. So a
    /// call of the group failed, although another group had as many pages, none of them pinned.
    #[test]
    fn charges_in_stock_keep_no_group_from_the_pages_of_others() {
        const PINNED: u64 = 60;
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 1 << 20);
        let mm = Pagefold::builder().memory("1MiB").backend(disk).build().unwrap();
        let (large, other) = (mm.group("large").build().unwrap(), mm.group("other").build().unwrap());
        let (ours, theirs) = (large.open("file").unwrap(), other.open("file").unwrap());
        ours.advise(0..1, Advice::Random).unwrap();
        theirs.advise(0..1, Advice::Random).unwrap();
        let _pins: Vec<_> = (0..PINNED).map(|page| ours.page_at(page * 4096).unwrap()).collect();
        (PINNED..2 * PINNED).for_each(|page| theirs.read_exact_at(&mut [0; 8], page * 4096).unwrap());
        let manager = mm.manager();
        manager.memory.drain_entries();
        manager.memory.drain_charges(None);
        assert_eq!(large.state().try_charge(PINNED, 0), PINNED);
        assert_eq!(manager.memory.charges.put(large.state().id, PINNED, PINNED), (0, None));
        assert!(manager.reclaim_in_earnest(large.state(), false, 1) > 0);
    }

    /// A regression with a thousand groups: a few had all of their pages pinned, most had one page,
    /// and a few had many pages that could be evicted. A call of a tenant with few pages failed,
    /// because reclaim tried the groups with pinned pages again and again. Of all other groups it
    /// tried only the few that came next in its order. It should have found the groups with many
    /// pages.
    #[test]
    fn what_a_few_of_many_groups_can_give_is_found() {
        const GROUPS: u64 = 1_000;
        const RICH: u64 = 8;
        const RICH_PAGES: u64 = 100;
        const PINS: u64 = 140;
        const OURS: u64 = 40;
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 256 << 20);
        let mm = Pagefold::builder().memory("32MiB").backend(disk).build().unwrap();
        let group = |name: String| mm.group(&name).build().unwrap();
        let open = |group: &Group| {
            let file = group.open("file").unwrap();
            file.advise(0..1, Advice::Random).unwrap();
            file
        };
        // No page of the file is used by two groups.
        let mut pages = 0..;
        let mut next = || pages.next().unwrap();
        let hogs: Vec<_> = (0..20).map(|number| open(&group(format!("hog{number}")))).collect();
        let pinned: Vec<_> = (0..PINS).flat_map(|_| &hogs).map(|hog| hog.page_at(next() * 4096).unwrap()).collect();
        let is_rich = |number: u64| number / RICH == GROUPS / 2 / RICH;
        let mut others = Vec::new();
        for number in 0..GROUPS {
            let group = group(format!("g{number}"));
            let file = open(&group);
            let count = if is_rich(number) { RICH_PAGES } else { 1 };
            (0..count).for_each(|_| file.read_at(&mut [0; 8], next() * 4096).map(drop).unwrap());
            others.push(group);
        }
        let tenant = group("tenant".to_owned());
        let ours = open(&tenant);
        let _ours: Vec<_> = (0..OURS).map(|_| ours.page_at(next() * 4096).unwrap()).collect();
        mm.manager().memory.drain_entries();

        let mut freed = 0;
        while let more @ 1.. = mm.manager().reclaim_in_earnest(tenant.state(), false, 8) {
            freed += more;
        }
        assert!(
            freed as u64 >= RICH * (RICH_PAGES - OURS),
            "{freed} pages: all that the few have beyond the tenant's share"
        );
        drop(pinned);
    }
}
