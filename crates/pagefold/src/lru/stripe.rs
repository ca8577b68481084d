//! A stripe of a group's lists: the whole policy, for the pages that a few CPUs loaded. The head of
//! `lru` has the diagram.

use frames::{Frames, IsolatedFrame, OwnedFrame, Use};
use smp_list::LocalList;
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::lru::admission::ANONYMOUS;
use crate::lru::batch::{BATCH_MAX, Batch, Leftovers};
use crate::lru::clock::{LastTime, Now};
use crate::lru::cost::{AnonymousCost, Cost};
use crate::lru::list::{LruList, line_up};
use crate::lru::outlook::{Outlook, Placed};
use crate::lru::rank::{KINDS, Kind, Origin, Place, Rank};
use crate::lru::window::{Window, step};
use crate::stats::pattern::AccessPattern;

/// The number of pages of main that a page may challenge. A larger number finds worse pages in
/// main, but also displaces pages that are about as good as the challenger.
pub(crate) const LOOKS: usize = 2;
/// While a stripe grows, 1/`GROWING_YOUNG` of its pages may be young in addition to [`young_max`].
const GROWING_YOUNG: usize = 128;
/// If pages are written when they leave, at least `WRITE_BATCH` leave at a time, so that requests
/// have a good size. In a small stripe, the minimum is 1/`WRITE_SHARE` of its pages.
const WRITE_BATCH: usize = 16;
const WRITE_SHARE: usize = 16;
/// In a group of several stripes, a pass frees at most the [`step`] of this many stripes.
const STRIPES_A_STEP: usize = 4;
/// See [`Stripe::waiting`].
const WAITING: usize = 4;
/// A stripe of a large group adds its evictions to the group's clock once it has collected this
/// many. Such a stripe has at least 512 pages, so the clock is late by at most 1/32 of the group's
/// size.
const UNCOUNTED_MAX: u64 = 16;

/// If less than this share of the loads brings back pages, the pattern is a scan.
const SCAN: f64 = 0.125;
/// If less than this share of the pages that come back gets a place in main, the pattern is a loop.
const HARDLY: f64 = 1.0 / 32.0;

/// See `GroupStats`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forecast {
    pub(crate) pattern: AccessPattern,
    /// The part of the recent loads that a tenth more memory would have avoided.
    pub(crate) more: f64,
    /// The loads that a tenth less memory would have added, as a part of the recent loads.
    pub(crate) less: f64,
}

/// The pages that a pass may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of main, and those of the window that exceed its target.
    Usual,
    /// Also the rest of the window, except a few pages. For a pass after a walk that freed nothing.
    /// Such a pass is needed if all pages of main are pinned and the window is within its target.
    Window,
    /// All, young pages too.
    All,
}

/// The pages that reclaim cuts off the lists to look at.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// Beaten pages, and pages from the end of the window.
    pub(crate) window: Batch<BATCH_MAX>,
    /// Pages from the end of main, if there are too few beaten pages and surplus pages of the
    /// window.
    pub(crate) main: Batch<BATCH_MAX>,
    /// The number of pages that main has room for.
    pub(crate) main_room: usize,
    /// Whether uses in the window tell that a page is used repeatedly.
    pub(crate) uses_tell: bool,
}

/// The outcome of a look at a page of main.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The page was used since the last look.
    Used,
    /// The page wasn't used. Its interval is expected to have this many loads.
    Unused(u64),
}

/// The outcome of challenges.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Challengers that get a place in main. Their ranks name main.
    pub(crate) won: Batch<BATCH_MAX>,
    /// Challengers that found no page of main to displace. Their ranks name the window.
    pub(crate) lost: Batch<BATCH_MAX>,
    /// Pages of main that lost their places, one for each challenger that won.
    pub(crate) beaten: Batch<BATCH_MAX>,
}

/// The lists that a few CPUs share.
#[derive(Debug)]
pub(crate) struct Stripe {
    lists: [LruList; KINDS],
    window: Window,
    outlook: Outlook,
    anonymous_cost: AnonymousCost,
    /// When the last batch entered or was looked at.
    time: LastTime,
    /// Evictions from the window and from main that aren't in the group's clock yet.
    uncounted: [AtomicU64; 2],
    /// Whether evictions were added to the group's clock since a pass of this stripe last read the
    /// clock.
    time_is_due: AtomicBool,
    /// Pages that reclaim has cut off the lists and not returned yet.
    away: AtomicUsize,
    /// How often a CPU of this stripe chose a stripe to reclaim from.
    turns: AtomicUsize,
    /// The number of stripes that the group has.
    of: AtomicUsize,
}

impl Stripe {
    pub(crate) fn new(group: u32, stripe: u8) -> Self {
        let lists = Kind::ALL.map(|kind| LruList::new(group, Place { stripe, kind }));
        Self {
            lists,
            window: Window::default(),
            outlook: Outlook::default(),
            anonymous_cost: AnonymousCost::default(),
            time: LastTime::default(),
            uncounted: [const { AtomicU64::new(0) }; 2],
            time_is_due: AtomicBool::new(true),
            away: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            of: AtomicUsize::new(1),
        }
    }

    /// Notes that the group now has `stripes` stripes.
    pub(crate) fn is_one_of(&self, stripes: usize) {
        self.of.store(stripes, Ordering::Relaxed);
    }

    /// Returns the number of the group's pages. Times are counted in loads of the group, so they
    /// are compared with this number, not with the stripe's own pages.
    fn pages_of_group(&self, now: Now) -> usize {
        if self.of.load(Ordering::Relaxed) == 1 { self.pages() } else { now.size as usize }
    }

    pub(crate) fn list(&self, kind: Kind) -> &LruList {
        &self.lists[kind.index()]
    }

    fn main(&self) -> &LruList {
        self.list(Kind::Main)
    }

    /// Sets what it costs to bring back an anonymous page.
    pub(crate) fn set_anonymous_cost(&self, cost: Cost) {
        self.anonymous_cost.set(cost);
    }

    /// Returns what it costs to bring back a page.
    fn cost(&self, frames: &Frames, page: &IsolatedFrame) -> Cost {
        if frames.owner(page.id()) == ANONYMOUS { self.anonymous_cost.get() } else { Cost::READ }
    }

    /// Notes the group's time for pages that come back to this stripe before the next batch.
    pub(crate) fn note_time(&self, now: Now) {
        self.time.set(now);
    }

    pub(crate) fn last_time(&self) -> Now {
        self.time.get()
    }

    /// Returns whether a pass has to read the group's clock. It has to do so once after each time
    /// that the stripe added evictions to the clock.
    pub(crate) fn needs_time(&self) -> bool {
        // Relaxed, also below: only the policy depends on the time.
        let is_due = self.time_is_due.load(Ordering::Relaxed);
        if is_due {
            self.time_is_due.store(false, Ordering::Relaxed);
        }
        is_due
    }

    /// Collects evictions from the window and from main until there are enough to add to the
    /// group's clock. Returns the numbers to add now.
    pub(crate) fn collect(&self, left: [u64; 2]) -> [u64; 2] {
        let add = |(count, pages): (&AtomicU64, u64)| count.fetch_add(pages, Ordering::Relaxed) + pages;
        if self.uncounted.iter().zip(left).map(add).sum::<u64>() < UNCOUNTED_MAX {
            return [0; 2];
        }
        self.time_is_due.store(true, Ordering::Relaxed);
        self.uncounted.each_ref().map(|count| count.swap(0, Ordering::Relaxed))
    }

    /// Returns the number of the next turn.
    pub(crate) fn next_turn(&self) -> usize {
        // Relaxed: only the policy uses the number.
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of pages on the stripe's lists.
    pub(crate) fn len(&self) -> usize {
        self.lists.iter().map(LruList::len).sum()
    }

    /// Returns the number of the stripe's pages, including those that reclaim is looking at.
    fn pages(&self) -> usize {
        // Relaxed, also below: an approximation.
        self.len() + self.away.load(Ordering::Relaxed)
    }

    /// Returns the number of pages that main has room for.
    fn main_room(&self) -> usize {
        let in_main = self.main().len() + self.away.load(Ordering::Relaxed);
        self.window.main_max(self.pages()).saturating_sub(in_main)
    }

    /// Returns for how many loads of the group a page that was read ahead may wait for its first
    /// use. This stripe has room for n such pages, where n = the window's target + the idle pages
    /// of main. The result is n × (the group's pages) / (this stripe's pages), but at least a
    /// quarter of the group's pages, and at most all of them.
    pub(crate) fn waiting(&self, now: Now) -> u64 {
        let (here, all) = (self.window.target() + self.window.idle(self.main().len()), self.pages_of_group(now));
        (here * all / self.pages().max(1)).clamp(all / WAITING, all) as u64
    }

    /// See [`Window::grows`].
    pub(crate) fn grows(&self) -> bool {
        self.window.grows(self.pages())
    }

    /// Returns the workload's pattern, and what a tenth more or less memory would change if all of
    /// the group's `all` pages were like those of this stripe.
    pub(crate) fn forecast(&self, all: usize) -> Forecast {
        let (pages, fits) = (self.pages(), self.grows());
        let back = self.outlook.back();
        let pattern = match () {
            () if fits => AccessPattern::Fits,
            () if back < SCAN => AccessPattern::Scan,
            () if self.outlook.won() < HARDLY => AccessPattern::Loop,
            () if self.window.is_recency(pages) => AccessPattern::Recency,
            () => AccessPattern::Skew,
        };
        if fits {
            return Forecast { pattern, more: 0.0, less: 0.0 };
        }
        Forecast { pattern, more: self.outlook.more(all), less: self.outlook.less(all) }
    }

    /// Lists loaded pages, which become the youngest. While the stripe grows, young pages move on
    /// to main or the window a batch at a time.
    pub(crate) fn enter<const N: usize>(&self, frames: &Frames, loaded: Batch<N>, now: Now, leftovers: &mut Leftovers) {
        let pages = self.len() + loaded.len();
        let slack = if self.grows() { (pages / GROWING_YOUNG).min(BATCH_MAX) } else { 0 };
        self.put_on(Kind::Young, frames, loaded, leftovers);
        if self.list(Kind::Young).len() > young_max(pages) + slack {
            self.ripen_to(frames, young_max(pages), now, leftovers);
        }
    }

    /// Gives the oldest young pages their places until at most `young_max` young pages are left.
    fn ripen_to(&self, frames: &Frames, young_max: usize, now: Now, leftovers: &mut Leftovers) {
        let young = self.list(Kind::Young);
        let mut surplus = young.len().saturating_sub(young_max);
        while surplus > 0 {
            let mut ripe = Batch::<BATCH_MAX>::new();
            young.cut(frames, surplus, &mut ripe, leftovers);
            if ripe.is_empty() {
                return;
            }
            surplus = surplus.saturating_sub(ripe.len());
            self.give_places(frames, ripe, now, leftovers);
        }
    }

    /// Moves pages from young to their places in main or in the window. Forgets their uses, which
    /// belong to the burst of the load.
    fn give_places(&self, frames: &Frames, ripe: Batch<BATCH_MAX>, now: Now, leftovers: &mut Leftovers) {
        let [mut to_main, mut to_window, mut challengers] = [const { Batch::<BATCH_MAX>::new_const() }; 3];
        let mut main_room = self.main_room();
        let grows = self.grows();
        let mut placed = Placed { pages: ripe.len() as u32, ..Placed::default() };
        for frame in ripe {
            let _ = frames.take_use(frame.id());
            let rank = Rank::of(frames, frame.id());
            placed.from[rank.origin() as usize] += 1;
            let is_back = rank.origin() != Origin::New;
            // The page came back, but it was read ahead and hasn't been used yet. So it goes to the
            // window.
            let is_ahead = is_back && frames.is_unused_ahead(frame.id());
            if main_room > 0 && !is_ahead && (is_back || grows) {
                main_room -= 1;
                self.window.found_room(rank.origin());
                rank.settled(Kind::Main).give(frames, &frame);
                to_main.push(frame);
            } else if is_back && !is_ahead {
                challengers.push(frame);
            } else {
                rank.on(Kind::Window).give(frames, &frame);
                to_window.push(frame);
            }
        }
        if !challengers.is_empty() {
            let Outcome { won, lost, beaten } = self.challenge(frames, challengers, 1, now, leftovers);
            placed.lost = lost.len() as u32;
            for frame in &beaten {
                Rank::of(frames, frame.id()).on(Kind::Beaten).give(frames, frame);
            }
            for (kind, pages) in [(Kind::Main, won), (Kind::Window, lost), (Kind::Beaten, beaten)] {
                self.put_on(kind, frames, pages, leftovers);
            }
        }
        self.put_on(Kind::Main, frames, to_main, leftovers);
        self.put_on(Kind::Window, frames, to_window, leftovers);
        self.outlook.placed(&placed);
    }

    /// Compares each challenger with up to [`LOOKS`] pages from the end of main. The first of these
    /// pages that meets two conditions loses its place to the challenger: it wasn't used since the
    /// last look at it, and its expected interval is more than `margin` times the challenger's mean
    /// interval. If none of them meets both, the challenger loses. If the two pages don't cost the
    /// same, each interval is divided by its page's cost (`cost`).
    pub(crate) fn challenge(
        &self,
        frames: &Frames,
        challengers: Batch<BATCH_MAX>,
        margin: u64,
        now: Now,
        leftovers: &mut Leftovers,
    ) -> Outcome {
        let mut opponents = Batch::<{ LOOKS * BATCH_MAX }>::new();
        self.main().cut(frames, LOOKS * challengers.len(), &mut opponents, leftovers);
        for opponent in &opponents {
            frames.prefetch_word(opponent);
        }
        let is_short = self.window.is_short(self.outlook.at_once(), self.pages_of_group(now));
        let mut opponents = opponents.into_iter();
        let (mut outcome, mut kept) = (Outcome::default(), Batch::<{ LOOKS * BATCH_MAX }>::new());
        for challenger in challengers {
            let rank = Rank::of(frames, challenger.id());
            let interval = rank.interval().loads().map_or(u64::MAX, |loads| loads.saturating_mul(margin));
            let cost = self.cost(frames, &challenger);
            let mut loser = None;
            for opponent in opponents.by_ref().take(LOOKS) {
                if self.is_beaten(frames, &opponent, (cost, interval), now) {
                    loser = Some(opponent);
                    break;
                }
                kept.push(opponent);
            }
            let is_won = loser.is_some();
            self.window.challenged(rank.origin(), is_won, is_short, self.pages());
            if !is_won && rank.origin() != Origin::New {
                self.outlook.lost(interval);
            }
            rank.settled(if is_won { Kind::Main } else { Kind::Window }).give(frames, &challenger);
            outcome.beaten.extend(loser);
            if is_won { outcome.won.push(challenger) } else { outcome.lost.push(challenger) }
        }
        self.put_on(Kind::Main, frames, kept, leftovers);
        self.return_cut::<{ LOOKS * BATCH_MAX }>(frames, opponents.collect(), leftovers);
        outcome
    }

    /// Returns whether a page of main loses its place to a page with that cost and mean interval.
    /// Notes the uses of the page of main.
    fn is_beaten(&self, frames: &Frames, opponent: &IsolatedFrame, (cost, interval): (Cost, u64), now: Now) -> bool {
        match self.look(frames, opponent, now) {
            Look::Used => false,
            Look::Unused(expected) => {
                self.window.looked_at_end(expected);
                self.cost(frames, opponent).is_worth_less(expected, cost, interval)
            }
        }
    }

    /// Looks at a page of main, and notes its uses.
    pub(crate) fn look(&self, frames: &Frames, page: &IsolatedFrame, now: Now) -> Look {
        let rank = Rank::of(frames, page.id());
        let used = frames.take_use(page.id());
        let age = rank.age(now);
        let is_idle = used == Use::None && rank.interval().loads().is_none_or(|mean| age >= 2 * mean);
        self.window.looked(is_idle);
        if used == Use::None {
            return Look::Unused(rank.interval().expected(age));
        }
        rank.seen(used.count(), now, page.id()).give(frames, page);
        Look::Used
    }

    /// Ends the isolation of frames that were just linked. Unlinks and frees those frames whose
    /// pages were removed meanwhile.
    fn publish(&self, frames: &Frames, linked: impl IntoIterator<Item = IsolatedFrame>, leftovers: &mut Leftovers) {
        for frame in linked {
            if let Err(orphan) = frames.put_back(frame) {
                if frames.is_unused_ahead(orphan.id()) {
                    leftovers.wasted.push(frames.owner(orphan.id()));
                }
                self.take_out(frames, orphan);
                leftovers.orphans += 1;
            }
        }
    }

    fn take_out(&self, frames: &Frames, orphan: OwnedFrame<'_>) {
        let kind = Place::of(frames, orphan.id()).kind;
        self.list(kind).unlink(frames, [orphan.id()].into_iter());
    }

    /// Links isolated frames of this stripe at the hot ends of the lists that their ranks name.
    pub(crate) fn put_back<const N: usize>(&self, frames: &Frames, stay: Batch<N>, leftovers: &mut Leftovers) {
        let mut locals: [LocalList; KINDS] = Default::default();
        for frame in &stay {
            locals[Place::of(frames, frame.id()).kind.index()].push_front(frames, frame.id().number());
        }
        for (list, local) in self.lists.iter().zip(locals) {
            list.splice_head(frames, local);
        }
        self.publish(frames, stay, leftovers);
    }

    /// Links isolated frames of this stripe at the hot end of the list of that kind. The frames'
    /// ranks must name this list.
    fn put_on<const N: usize>(&self, kind: Kind, frames: &Frames, pages: Batch<N>, leftovers: &mut Leftovers) {
        debug_assert!(pages.iter().all(|frame| Place::of(frames, frame.id()).kind == kind));
        self.list(kind).splice_head(frames, line_up(frames, &pages));
        self.publish(frames, pages, leftovers);
    }

    /// Links an isolated frame of this stripe at the cold end of the window. The frame's rank must
    /// name the window.
    pub(crate) fn put_back_coldest(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        self.list(Kind::Window).splice_tail(frames, line_up(frames, [&frame]));
        self.publish(frames, [frame], leftovers);
    }

    /// Returns how many pages a pass should free for a thread that wants `wanted` pages. For a
    /// thread that wants one page, the result is 1 (R6 of `ranking`).
    ///
    /// If `writes` is set, pages are written to a device when they leave memory, and the pages of a
    /// pass are written together. So if the thread wants more than one page, a pass frees at least
    /// `WRITE_BATCH` pages. In a small stripe, the minimum is 1/`WRITE_SHARE` of its pages.
    ///
    /// A thread frees all pages that it wants from one stripe. The more stripes a group has, the
    /// fewer pages a stripe has. A limit in proportion to the stripe's pages would split the work
    /// into many small passes, and each pass writes to cache lines that the stripe's CPUs share. So
    /// the limit is in proportion to the pages of up to `STRIPES_A_STEP` stripes.
    pub(crate) fn batch(&self, wanted: usize, writes: bool) -> usize {
        let (pages, stripes) = (self.pages(), self.of.load(Ordering::Relaxed));
        let least = if writes && wanted > 1 { WRITE_BATCH.min(pages / WRITE_SHARE).max(1) } else { 1 };
        wanted.clamp(least, step(pages * stripes.min(STRIPES_A_STEP)).max(least))
    }

    /// Cuts off the pages that reclaim should look at to free up to `wanted` pages. The caller must
    /// call [`returned`](Self::returned) with their number when it has put them back or evicted
    /// them.
    pub(crate) fn cut(&self, frames: &Frames, wanted: usize, reach: Reach, now: Now, leftovers: &mut Leftovers) -> Cut {
        let pages = self.pages();
        self.window.reclaims(pages, wanted);
        self.ripen_to(frames, if reach == Reach::All { 0 } else { young_max(pages) }, now, leftovers);
        let [window, beaten] = [Kind::Window, Kind::Beaten].map(|kind| self.list(kind));
        if window.len() + beaten.len() == 0 {
            self.ripen_to(frames, 0, now, leftovers);
        }
        let mut result = Cut { main_room: self.main_room(), uses_tell: self.window.is_long(), ..Cut::default() };
        let kept = match reach {
            Reach::Usual => self.window.target(),
            // Keeps as many pages in the window as may be young. So if the window was empty, and
            // the young pages have just moved to it, they stay there.
            Reach::Window => young_max(pages).min(self.window.target()),
            Reach::All => 0,
        };
        let outside = self.len().saturating_sub(self.main().len() + kept);
        beaten.cut(frames, wanted, &mut result.window, leftovers);
        let missing = wanted - result.window.len();
        window.cut(frames, missing.min(outside.saturating_sub(result.window.len())), &mut result.window, leftovers);
        self.cut_main(frames, wanted - result.window.len(), &mut result.main, leftovers);
        if result.window.is_empty() && result.main.is_empty() {
            window.cut(frames, wanted, &mut result.window, leftovers);
        }
        self.away.fetch_add(result.window.len() + result.main.len(), Ordering::Relaxed);
        result
    }

    /// See [`Window::gives_way`].
    pub(crate) fn gives_way(&self) {
        self.window.gives_way();
    }

    /// See [`Window::left_unused`].
    pub(crate) fn left_unused(&self, pages: usize) {
        self.window.left_unused(pages);
    }

    /// Notes how many pages a pass spared because they were read ahead and haven't been used yet.
    /// The number may be 0.
    pub(crate) fn spared(&self, pages: usize) {
        self.window.spared(pages > 0, self.len().saturating_sub(self.main().len()));
    }

    /// Notes that pages that were cut are back on the lists or evicted.
    pub(crate) fn returned(&self, pages: usize) {
        self.away.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Cuts off up to `wanted` pages that may be unwanted: beaten pages, pages of the window, then
    /// pages of main.
    pub(crate) fn cut_unwanted(&self, frames: &Frames, wanted: usize, leftovers: &mut Leftovers) -> Cut {
        let mut result = Cut { main_room: usize::MAX, uses_tell: true, ..Cut::default() };
        let wanted = wanted.min(BATCH_MAX);
        for kind in [Kind::Beaten, Kind::Window] {
            self.list(kind).cut(frames, wanted - result.window.len(), &mut result.window, leftovers);
        }
        self.cut_main(frames, wanted - result.window.len(), &mut result.main, leftovers);
        result
    }

    /// Cuts up to `wanted` pages off the cold end of main.
    pub(crate) fn cut_main(
        &self,
        frames: &Frames,
        wanted: usize,
        into: &mut Batch<BATCH_MAX>,
        leftovers: &mut Leftovers,
    ) {
        self.main().cut(frames, wanted, into, leftovers);
    }

    /// Puts pages back that were cut but not looked at. They go to the cold ends of their lists, in
    /// the order in which they were cut.
    pub(crate) fn return_cut<const N: usize>(&self, frames: &Frames, rest: Batch<N>, leftovers: &mut Leftovers) {
        let mut locals: [LocalList; KINDS] = Default::default();
        for frame in rest.iter().rev() {
            locals[Place::of(frames, frame.id()).kind.index()].push_back(frames, frame.id().number());
        }
        for (list, local) in self.lists.iter().zip(locals) {
            list.splice_tail(frames, local);
        }
        self.publish(frames, rest, leftovers);
    }
}

/// Returns how many pages may be young in a stripe of `pages` pages.
fn young_max(pages: usize) -> usize {
    (pages / 512).max(1)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use frames::{BeginLoad, Config, Labels, PageMap};
    use sync::Arc;

    use super::*;
    use crate::lru::clock::Clock;
    use crate::lru::interval::Interval;

    #[test]
    fn evictions_are_brought_to_the_clock_several_at_once() {
        let stripe = Stripe::new(0, 0);
        assert!(stripe.needs_time(), "none was noted");
        assert_eq!([stripe.collect([7, 2]), stripe.collect([0, 6])], [[0; 2]; 2]);
        assert!(!stripe.needs_time(), "nothing was brought");
        assert_eq!(stripe.collect([1, 0]), [8, 8]);
        assert_eq!([(); 2].map(|()| stripe.needs_time()), [true, false]);
        assert_eq!(stripe.collect([30, 0]), [30, 0]);
    }

    /// Regression: all pages of a group except the youngest were dirty and couldn't be written. The
    /// youngest page stayed on the list *young*, which reclaim didn't look at. So no page of the
    /// group could be evicted, and the group got no further page. With [`Reach::All`], reclaim must
    /// reach young pages, too.
    #[test]
    fn the_youngest_pages_go_for_their_own_group_alone() {
        let frames = Arc::new(Frames::new(&Config::new(1 << 20, 4096)).unwrap());
        let map = PageMap::new(Arc::clone(&frames), 10).unwrap();
        let load = |page, kind| {
            let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("nobody else loads it") };
            let rank = Rank::young(Origin::New, Interval::UNKNOWN).on(kind);
            let labels = Labels { group: 7, rank: rank.bits(), ..Labels::default() };
            Batch::<1>::from([loading.publish(frames.allocate().unwrap(), labels, false).0])
        };
        let (stripe, now, mut leftovers) = (Stripe::new(7, 0), Clock::new(100).now(4), Leftovers::default());
        stripe.put_back(&frames, load(0, Kind::Young), &mut leftovers);
        (1..4).for_each(|page| stripe.put_back(&frames, load(page, Kind::Window), &mut leftovers));
        for (reach, young_left) in [(Reach::Usual, 1), (Reach::Window, 1), (Reach::All, 0)] {
            let cut = stripe.cut(&frames, stripe.batch(4, false), reach, now, &mut leftovers);
            assert_eq!((cut.window.len(), stripe.list(Kind::Young).len()), (1, young_left));
            stripe.put_back(&frames, cut.window, &mut leftovers);
            stripe.returned(1);
        }
        assert_eq!(stripe.len(), 4);
    }

    #[test]
    fn pages_that_are_written_leave_many_at_a_time() {
        let (stripe, batches) = (Stripe::new(7, 0), [1, 5, 50]);
        let of = |pages: usize, writes, stripes| {
            stripe.away.store(pages, Ordering::Relaxed);
            stripe.is_one_of(stripes);
            batches.map(|wanted| stripe.batch(wanted, writes))
        };
        assert_eq!((of(1024, false, 1), of(1024, true, 1)), ([1, 5, 8], [1, 16, 16]));
        assert_eq!((of(64, false, 1), of(64, true, 1)), ([1, 1, 1], [1, 4, 4]));
        assert_eq!((of(1 << 20, true, 1), of(0, true, 1)), ([1, 16, 50], [1, 1, 1]));
        // With several stripes, one gives more at a time.
        assert_eq!((of(1024, false, 2), of(1024, false, 22)), ([1, 5, 16], [1, 5, 32]));
        assert_eq!((of(1024, true, 22), of(64, false, 22)), ([1, 16, 32], [1, 2, 2]));
    }
}
