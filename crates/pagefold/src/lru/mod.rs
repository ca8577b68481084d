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
//! - **young** absorbs references that come in a burst with the load, such as small reads of one
//!   page in a row: the bit is cleared when a page moves on to cold. So a scan never looks like
//!   use.
//! - **cold** is where a second use, after that burst, earns a page level 1, and where pages wait
//!   to be evicted. A page that was read ahead may get here before its first use. Its first uses
//!   may be one burst, so they earn nothing; but as long as main has room, the page goes through
//!   cold once more.
//! - **main** holds all other pages. Once it is full, only a page of a higher level displaces one.
//! - **ageing**: each duel that a challenger loses against main pays for looks at pages of main. A
//!   page that wasn't used since its last look goes down a level. A look at a used page costs eight
//!   lost duels, a look at an unused page half a duel. So a part of files that are read cyclically
//!   stays, and pages that were used long ago give way soon.
//! - **level** (0 to 2) is how often a page proved itself. The level outlives the page, in the
//!   shadow that an eviction leaves in the page word. A page enters one level higher if it comes
//!   back soon enough: before the group has evicted twice as many pages as the group holds. So the
//!   history reaches as far as the page maps do, and takes no memory of its own.
//!
//! The policy is based on access frequency, like TinyLFU (Einziger, Friedman, Manes, ACM ToS 2017),
//! with shadows in place of TinyLFU's sketch. The delay line comes from S3-FIFO (Yang et al., SOSP
//! 2023), the refault distance from Linux's `mm/workingset.c`. Sizes and bounds were chosen by
//! simulation, on other traces than those of the benchmarks too. On zipf 0.99 with a quarter of the
//! pages in memory, the simulated policy missed 12.1 %, perfect counting 12.0 %, LRU 14.5 %. (The
//! library misses a little more, because metadata and the reserve take their part of the budget.)
//!
//! **Stripes.** A group that many CPUs use has several sets of these lists, so that CPUs mostly
//! touch their own pages: a page is in the stripe of the CPU that loaded it, and stays there. A CPU
//! reclaims from its own stripe. Every eighth time it reclaims from another stripe, round robin, so
//! that pages of CPUs that are busy with other work age, too. Small groups, and machines with few
//! CPUs, have one stripe and so one order.
//!
//! **Ownership.** There is no lock. A frame is on a list, or isolated by a thread (`frames`). Only
//! the thread that has isolated a listed frame may unlink it, from the list that the frame's group
//! and rank name. That thread may change both until it puts the frame back, which it does after it
//! has published the frame's links. All operations run concurrently in `smp_list`'s shared mode,
//! cutting a batch off an end included. There is no exclusive mode, so no thread locks others out
//! of the lists. Lengths are counters beside the lists.

pub(crate) mod admission;
pub(crate) mod batch;
pub(crate) mod entry_batches;
pub(crate) mod list;
pub(crate) mod rank;
pub(crate) mod shadow;
pub(crate) mod stripe;

use frames::{FrameId, Frames, IsolatedFrame};
use sync::lock::OnceCell;

use crate::lru::batch::{Batch, Leftovers};
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
    /// figure of this CPU's stripe times the number of stripes.
    pub(crate) fn waiting(&self) -> u64 {
        (self.stripe_count() * self.stripe(self.own()).waiting()) as u64
    }

    /// Returns the number of pages that may be unused.
    pub(crate) fn maybe_unwanted(&self) -> usize {
        self.stripes().map(Stripe::maybe_unwanted).sum()
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
    pub(crate) fn enter<const N: usize>(&self, frames: &Frames, loaded: Batch<N>, leftovers: &mut Leftovers) {
        let number = self.own();
        for frame in &loaded {
            Rank::of(frames, frame.id()).in_stripe(number).give(frames, frame);
        }
        self.stripe(number).enter(frames, loaded, leftovers);
        self.grow();
    }

    /// Unlinks frames that the caller has isolated or detached.
    pub(crate) fn unlink(&self, frames: &Frames, claimed: &[FrameId]) {
        for run in claimed.chunk_by(|&a, &b| Place::of(frames, a) == Place::of(frames, b)) {
            let place = Place::of(frames, run[0]);
            self.stripe(usize::from(place.stripe)).list(place.kind).unlink(frames, run.iter().copied());
        }
    }

    /// Moves an isolated, listed frame to the cold end of cold and clears its level and referenced
    /// bit.
    pub(crate) fn cool(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        self.unlink(frames, &[frame.id()]);
        let rank = Rank::of(frames, frame.id());
        rank.coldest().give(frames, &frame);
        let _ = frames.take_referenced(frame.id());
        self.stripe(usize::from(rank.place().stripe)).put_back_coldest(frames, frame, leftovers);
    }

    /// Puts an isolated frame back at the hot end of the list that it was on.
    pub(crate) fn put_back(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        let stripe = self.stripe(usize::from(Place::of(frames, frame.id()).stripe));
        stripe.put_back(frames, Batch::<1>::from([frame]), leftovers);
    }
}
