//! Chooses which page to evict: the lists of one memory group.
//!
//! A miss costs an access to a device, so memory should hold the pages that will be used again
//! soonest. Which pages these are isn't known. The policy assumes that a page keeps its *interval*,
//! the time between two uses. Time is counted in loads (`clock`). Pages whose intervals are known
//! to be short are in *main*. All others are in the *window*, where each page has some time to be
//! used again.
//!
//! There are four lists, each first in, first out. A hit moves no page. It counts a use in the
//! page's frame, up to three. Reclaim reads the count when the page reaches the end of its list.
//! ```text
//!   load ──▶ young ──┬─ new ────────────────────▶ window ──┬─ unused ──▶ evicted
//!            1/512   │                              ▲      └─ used: main has room, or a challenge
//!                    │                              │ lost
//!                    ├─ came back ──▶ a challenge ──┤
//!                    │                              │ won: the loser ──▶ beaten ──▶ evicted
//!                    │                              ▼
//!                    └─ came back, main has room ▶ main: at its end, a used page stays
//! ```
//! - **young** absorbs the uses that come in a burst with the load, such as several small reads of
//!   one page in a row. When a page leaves young, its uses are forgotten. So in a scan, which uses
//!   each page in one burst only, no use counts.
//! - **window**: reclaim adjusts its length. To do so, it compares the loads that one more place
//!   would save in the window with those that a place in main saves (`window`). In a long window, a
//!   use shows that the page is used repeatedly. So when a used page reaches the end of a long
//!   window, it challenges a page of main. In a short window (at most a fiftieth of the pages), all
//!   uses may belong to one burst. So a page is evicted at the end of a short window even if it was
//!   used there. If the page is loaded again later, it challenges a page of main.
//! - **main** gets the pages that came back, or were used in the window, as long as it has room.
//!   Once main is full, a page gets in only if it wins a *challenge*.
//! - **challenge**: the page is compared with up to two pages from the end of main. A page of main
//!   is *beaten*, and loses its place, if it meets two conditions: it wasn't used since reclaim
//!   last looked at it, and its expected interval is longer than the challenger's mean interval.
//!   The first page that meets both is beaten; if none does, the challenger loses. The expected
//!   interval of a page is its mean interval while mean ≤ age < 2 × mean; otherwise it is the
//!   page's age (`interval`). If the two pages don't cost the same to bring back, each interval is
//!   divided by its page's cost (`cost`).
//! - A **shadow** stays in the page's word when the page is evicted. It holds the page's mean
//!   interval, the time of its last use, the list that it left, and when it left that list
//!   (`shadow`). If the page comes back within a number of loads that is at most 16 times the
//!   group's size, it challenges a page of main. A page that comes back later counts as new, but
//!   keeps its mean interval. Shadows are kept in the words of the page maps, so they take no
//!   memory of their own.
//!
//! A page that was read ahead gets its place only after its first use. Until then it may wait in
//! the window for n loads, where n is a quarter of the number of the group's pages. It may wait
//! longer if pages of main are idle.
//!
//! In a loop that is larger than memory, all pages have the same interval, so no page of main is
//! ever beaten. So a part of the loop stays in main, and the window is as short as it may be. If
//! the pages of main are no longer used, their ages grow beyond twice their mean intervals. Then
//! each page that comes back beats a page of main.
//!
//! *Sources.* LIRS (Jiang, Zhang, SIGMETRICS 2002) showed that intervals tell more than recency
//! alone. CLOCK-Pro (Jiang, Chen, Zhang, USENIX ATC 2005) replaces the stack of LIRS by clocks.
//! LIRS2 (Zhong et al., SYSTOR 2021) uses more than one interval of a page. S3-FIFO (Yang et al.,
//! SOSP 2023) delays new pages in a small list, as young does. W-TinyLFU (Einziger, Friedman,
//! Manes, ACM ToS 2017) has a window before main. Sizes were chosen by simulation
//! (`docs/log/policy.md` has the tables).
//!
//! *What concurrency does to the order.* The order differs in three ways from the order of a single
//! list. Pages enter the lists in batches, one batch for each CPU (`entry_batches`). Reclaim cuts
//! pages off a stripe in batches (`Stripe::batch`). Each stripe decides on its own pages only.
//! Pages that wait in a batch can't be evicted, so a full group has less memory for its other
//! pages. If a batch may have a 128th of the group's pages instead of a 256th, loops miss up to 4 %
//! more. With one thread, the product misses at most 2 % more often than the simulated policy on
//! each of 21 traces.
//!
//! **Stripes.** A group that many CPUs use has several sets of these lists, called stripes, so that
//! CPUs mostly touch their own pages. A page is listed in the stripe of the CPU that loaded it, and
//! stays in that stripe. A CPU reclaims from its own stripe, but every eighth time from another
//! stripe, round robin. So the pages of a stripe are also reclaimed if none of its CPUs reclaims.
//! Small groups, and machines with few CPUs, have one stripe and so one order.
//!
//! **Ownership.** The lists have no lock. A thread *isolates* a frame (`frames`) before it unlinks
//! the frame; at most one thread has a frame isolated. The frame's group and rank name its list.
//! Only the thread that has isolated the frame may unlink it from that list and change its group
//! and rank. The thread ends the isolation only after it has linked the frame into the new list.
//!
//! All operations, including cutting a batch off an end, run concurrently in `smp_list`'s shared
//! mode. No operation needs exclusive access, so no thread locks others out of the lists. Lengths
//! are counters beside the lists.

pub(crate) mod admission;
pub(crate) mod batch;
pub(crate) mod clock;
pub(crate) mod cost;
pub(crate) mod entry_batches;
pub(crate) mod interval;
pub(crate) mod list;
pub(crate) mod outlook;
pub(crate) mod rank;
pub(crate) mod shadow;
pub(crate) mod stripe;
pub(crate) mod window;

use frames::{FrameId, Frames, IsolatedFrame};
use sync::lock::OnceCell;

use crate::lru::batch::{Batch, Leftovers};
use crate::lru::clock::Now;
use crate::lru::rank::{Place, Rank, STRIPES_MAX};
use crate::lru::stripe::{Forecast, Stripe};

/// CPUs per stripe.
const STRIPE_CPUS: usize = 4;
/// A group gets its stripes when it has at least this many pages for each.
const STRIPE_PAGES: usize = 64;
/// If each stripe has at least this many pages, the time of a stripe's last batch is recent enough.
/// Between two batches of a stripe, the group loads about 32 pages for each of its stripes, which
/// is at most 1/16 of the group's size.
const RECENT_PAGES: u64 = 512;
/// A CPU reclaims from another stripe once in this many turns.
const OWN_TURNS: usize = 8;

/// The lists of one group.
#[derive(Debug)]
pub(crate) struct GroupLists {
    group: u32,
    first: Stripe,
    more: OnceCell<Box<[Stripe]>>,
}

impl GroupLists {
    pub(crate) fn new(group: u32) -> Self {
        Self { group, first: Stripe::new(group, 0), more: OnceCell::new() }
    }

    /// Returns the number of pages on the lists.
    pub(crate) fn len(&self) -> usize {
        self.stripes().map(Stripe::len).sum()
    }

    /// Estimates how many pages that were read ahead can wait for their first use without taking
    /// room from main. If a page may wait for n loads ([`Stripe::waiting`]), at most n pages wait
    /// at the same time. So the estimate is n.
    pub(crate) fn waiting(&self, now: Now) -> u64 {
        self.stripe(self.own()).waiting(now)
    }

    fn stripes(&self) -> impl Iterator<Item = &Stripe> {
        std::iter::once(&self.first).chain(self.more.get().into_iter().flatten())
    }

    /// Returns whether this CPU's stripe grows: nothing was reclaimed from it lately.
    pub(crate) fn grows(&self) -> bool {
        self.stripe(self.own()).grows()
    }

    /// Returns the pattern of the group's largest stripe, and the mean of the stripes' forecasts,
    /// weighted by the stripes' pages.
    pub(crate) fn forecast(&self) -> Forecast {
        let len = self.len();
        let forecasts: Vec<_> = self.stripes().map(|stripe| (stripe.len(), stripe.forecast(len))).collect();
        let largest = forecasts.iter().max_by_key(|(len, _)| len);
        let mean = |of: fn(&Forecast) -> f64| {
            let sum: f64 = forecasts.iter().map(|(pages, forecast)| *pages as f64 * of(forecast)).sum();
            sum / len.max(1) as f64
        };
        let pattern = largest.map_or_else(Default::default, |(_, forecast)| forecast.pattern);
        Forecast { pattern, more: mean(|it| it.more), less: mean(|it| it.less) }
    }

    /// Returns the time of the last batch of this CPU's stripe, if the group has several stripes
    /// and at least [`RECENT_PAGES`] pages for each. Otherwise returns `None`, and the caller reads
    /// the clock.
    pub(crate) fn recent_time(&self) -> Option<Now> {
        self.recent_time_of(self.stripe(self.own()))
    }

    /// Does the work of [`recent_time`](Self::recent_time) for any stripe.
    pub(crate) fn recent_time_of(&self, stripe: &Stripe) -> Option<Now> {
        let stripes = self.stripe_count();
        if stripes == 1 {
            return None;
        }
        let last = stripe.last_time();
        (last.size >= RECENT_PAGES * stripes as u64).then_some(last)
    }

    /// Takes two numbers of evictions: from the window, and from main. Returns the numbers that
    /// have to be added to the group's clock now. If the group has a recent time, the stripe first
    /// collects several evictions, so this function often returns zeros.
    pub(crate) fn collect(&self, left: [u64; 2]) -> [u64; 2] {
        let stripe = self.stripe(self.own());
        if self.recent_time_of(stripe).is_some() { stripe.collect(left) } else { left }
    }

    /// Returns the number of stripes.
    pub(crate) fn stripe_count(&self) -> usize {
        1 + self.more.get().map_or(0, |more| more.len())
    }

    /// Returns the stripe with this number, or the first stripe if there is none.
    pub(crate) fn stripe(&self, number: usize) -> &Stripe {
        let more = number.checked_sub(1).and_then(|number| self.more.get()?.get(number));
        more.unwrap_or(&self.first)
    }

    /// Returns the number of the current CPU's stripe.
    fn own(&self) -> usize {
        match self.stripe_count() {
            1 => 0,
            count => sync::cpu::current() * count / sync::cpu::count(),
        }
    }

    /// Returns the number of the stripe that this thread should reclaim from.
    pub(crate) fn to_reclaim(&self) -> usize {
        let (count, own) = (self.stripe_count(), self.own());
        let turns = self.stripe(own).next_turn();
        if count > 1 && turns % OWN_TURNS == OWN_TURNS - 1 { (own + turns / OWN_TURNS) % count } else { own }
    }

    /// Creates the other stripes once the group is large enough for them.
    fn grow(&self) {
        let count = (sync::cpu::count() / STRIPE_CPUS).min(STRIPES_MAX);
        if count > 1 && self.more.get().is_none() && self.first.len() >= count * STRIPE_PAGES {
            let new = |stripe| Stripe::new(self.group, stripe as u8);
            let _ = self.more.get_or_init(|| (1..count).map(new).collect());
            self.stripes().for_each(|stripe| stripe.is_one_of(count));
        }
    }

    /// Lists loaded pages, whose ranks must be young. The page that was loaded last becomes the
    /// hottest.
    pub(crate) fn enter<const N: usize>(&self, frames: &Frames, loaded: Batch<N>, now: Now, leftovers: &mut Leftovers) {
        let number = self.own();
        for frame in &loaded {
            Rank::of(frames, frame.id()).in_stripe(number).used_at(now).give(frames, frame);
        }
        let stripe = self.stripe(number);
        stripe.note_time(now);
        stripe.enter(frames, loaded, now, leftovers);
        self.grow();
    }

    /// Unlinks frames that the caller has isolated or detached.
    pub(crate) fn unlink(&self, frames: &Frames, claimed: &[FrameId]) {
        for run in claimed.chunk_by(|&a, &b| Place::of(frames, a) == Place::of(frames, b)) {
            let place = Place::of(frames, run[0]);
            self.stripe(usize::from(place.stripe)).list(place.kind).unlink(frames, run.iter().copied());
        }
    }

    /// Moves an isolated, listed frame to the cold end of the window, without history or uses. If
    /// the page was read ahead and hasn't been used yet, it no longer waits for its first use.
    pub(crate) fn cool(&self, frames: &Frames, frame: IsolatedFrame, now: Now, leftovers: &mut Leftovers) {
        self.unlink(frames, &[frame.id()]);
        let rank = Rank::of(frames, frame.id());
        rank.coldest(now).give(frames, &frame);
        let _ = frames.take_use(frame.id());
        self.stripe(usize::from(rank.place().stripe)).put_back_coldest(frames, frame, leftovers);
    }

    /// Puts an isolated frame back at the hot end of the list that it was on.
    pub(crate) fn put_back(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        let stripe = self.stripe(usize::from(Place::of(frames, frame.id()).stripe));
        stripe.put_back(frames, Batch::<1>::from([frame]), leftovers);
    }
}
