//! Chooses which page to evict: the lists of one memory group.
//!
//! There are four kinds of list, each first in, first out. A hit moves nothing; it sets the page's
//! referenced bit. Reclaim looks at the bit when the page reaches the end of its list.
//! ```text
//!   load ──▶ young ──▶ cold ──┬─ never used again, level 0 ─────────────▶ evicted
//!            1/256     1/128  ├─ main has room ─────────▶ main[level]
//!                             └─ else a duel with the tail of main: the lower level is evicted
//!
//!   main[0], main[1], main[2]: referenced at the tail? up a level. Lost duels for it? The longest upper list ages.
//! ```
//! - **young** absorbs references that come in a burst with the load, such as several small reads
//!   of one page in a row. When a page moves on to cold, its referenced bit is cleared. So a scan,
//!   which uses each page in one burst only, never counts as use.
//! - **cold** holds pages that wait to be evicted. A page that is used again here, after that
//!   burst, goes up a level. A page that was read ahead may get here before its first use. Then its
//!   first uses don't raise its level, because they may be one burst. But as long as main has room,
//!   the page goes through cold once more.
//! - **main** holds all other pages. Once it is full, only a page of a higher level displaces one.
//! - **ageing** lowers the level of pages of main that are no longer used. Each duel that a
//!   challenger from cold loses against a page of main pays for it: reclaim then looks at more
//!   pages of main, and a page that wasn't used since its last look goes down a level. A look at a
//!   used page costs eight lost duels, a look at an unused page half a duel. So if files that are
//!   larger than memory are read cyclically, a part of them stays, and pages that were last used
//!   long ago soon make room.
//! - **level** (0 to 2) is how often a page was found used again. An eviction leaves the level in
//!   the page word, as a part of the page's *shadow*. If the page comes back before the group has
//!   evicted twice as many pages as the group holds, the page enters one level above that in its
//!   shadow, otherwise at level 0. Page maps hold the shadows anyway, so the history takes no
//!   memory of its own.
//!
//! The policy is based on access frequency, like TinyLFU (Einziger, Friedman, Manes, ACM ToS 2017),
//! with shadows in place of TinyLFU's sketch. The delay line comes from S3-FIFO (Yang et al., SOSP
//! 2023), the refault distance from Linux's `mm/workingset.c`. Sizes and bounds were chosen by
//! simulation, with the benchmarks' traces and others. On zipf 0.99 with a quarter of the pages in
//! memory, the simulated policy missed 12.1 %, perfect counting 12.0 %, LRU 14.5 %. (The library
//! misses a little more, because metadata and the reserve take their part of the budget.)
//!
//! **Stripes.** A group that many CPUs use has several sets of these lists, called stripes, so that
//! CPUs mostly touch their own pages. A page is listed in the stripe of the CPU that loaded it, and
//! stays in that stripe. A CPU reclaims from its own stripe, but every eighth time from another
//! stripe, round robin. So pages also age if the CPUs that loaded them don't reclaim. Small groups,
//! and machines with few CPUs, have one stripe and so one order.
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
pub(crate) mod entry_batches;
pub(crate) mod interval;
pub(crate) mod list;
pub(crate) mod rank;
pub(crate) mod shadow;
pub(crate) mod stripe;
pub(crate) mod window;

use frames::{FrameId, Frames, IsolatedFrame};
use sync::lock::OnceCell;

use crate::lru::batch::{Batch, Leftovers};
use crate::lru::clock::Now;
use crate::lru::rank::{Place, Rank, STRIPES_MAX};
use crate::lru::stripe::Stripe;

/// CPUs per stripe.
const STRIPE_CPUS: usize = 4;
/// A group gets its stripes when it has at least this many pages for each.
const STRIPE_PAGES: usize = 64;
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

    /// Estimates how many pages can wait for their first use without taking room from main: the
    /// number for this CPU's stripe, times the number of stripes.
    pub(crate) fn waiting(&self) -> u64 {
        (self.stripe_count() * self.stripe(self.own()).waiting()) as u64
    }

    fn stripes(&self) -> impl Iterator<Item = &Stripe> {
        std::iter::once(&self.first).chain(self.more.get().into_iter().flatten())
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
        }
    }

    /// Lists loaded pages. The page that was loaded last becomes the hottest.
    pub(crate) fn enter<const N: usize>(&self, frames: &Frames, loaded: Batch<N>, now: Now, leftovers: &mut Leftovers) {
        let number = self.own();
        for frame in &loaded {
            Rank::of(frames, frame.id()).in_stripe(number).used_at(now).give(frames, frame);
        }
        self.stripe(number).enter(frames, loaded, now, leftovers);
        self.grow();
    }

    /// Unlinks frames that the caller has isolated or detached.
    pub(crate) fn unlink(&self, frames: &Frames, claimed: &[FrameId]) {
        for run in claimed.chunk_by(|&a, &b| Place::of(frames, a) == Place::of(frames, b)) {
            let place = Place::of(frames, run[0]);
            self.stripe(usize::from(place.stripe)).list(place.kind).unlink(frames, run.iter().copied());
        }
    }

    /// Moves an isolated, listed frame to the cold end of the window, without history or uses.
    pub(crate) fn cool(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        self.unlink(frames, &[frame.id()]);
        let rank = Rank::of(frames, frame.id());
        rank.coldest().give(frames, &frame);
        let _ = frames.take_use(frame.id());
        self.stripe(usize::from(rank.place().stripe)).put_back_coldest(frames, frame, leftovers);
    }

    /// Puts an isolated frame back at the hot end of the list that it was on.
    pub(crate) fn put_back(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        let stripe = self.stripe(usize::from(Place::of(frames, frame.id()).stripe));
        stripe.put_back(frames, Batch::<1>::from([frame]), leftovers);
    }
}
