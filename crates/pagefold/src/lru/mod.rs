//! Which page has to go: the lists of one memory group.
//!
//! Four kinds of list, each first in, first out. Nothing moves on a hit; a hit sets the page's
//! referenced bit, and reclaim looks at it when the page comes to the end of its list.
//! ```text
//!   load ──▶ young ──▶ cold ──┬─ never used again, level 0 ─────────────▶ evicted
//!            1/256     1/128  ├─ main has room ─────────▶ main[level]
//!                             └─ else a duel with the tail of main: the lower level is evicted
//!
//!   main[0], main[1], main[2]: referenced at the tail? up a level. Lost duels for it? The longest upper list ages.
//! ```
//! - **young** swallows references that come in one burst with the load, such as small reads of one
//!   page in a row: the bit is cleared when a page moves on to cold. A scan therefore never looks
//!   like use.
//! - **cold** is where one honest second use earns a page its level 1, and where pages wait to be
//!   evicted. A page that was read ahead may get here before its first use. Its first uses may be
//!   one burst, so they earn nothing; but as long as main has room, the page goes round cold again.
//! - **main** is everything else. Only a page of a higher level takes a place there once it is
//!   full.
//! - **ageing**: pages of main are looked at as challengers lose against it, and go down a level if
//!   they weren't used since the last time. A used one costs eight lost duels, an unused one a
//!   half: of files read round and round a part stays, and what was used long ago gives way soon.
//! - **level** (0 to 2) is how often a page proved itself. It outlives the page in the shadow that
//!   an eviction leaves in its word: a page that comes back before the group has evicted twice as
//!   many pages as it holds enters one level up. So the history is as long as the page maps, and
//!   costs nothing.
//!
//! It is a frequency policy in the manner of TinyLFU (Einziger, Friedman, Manes, ACM ToS 2017),
//! whose sketch the shadows replace, with the delay line of S3-FIFO (Yang et al., SOSP 2023) and
//! the refault distance of Linux's `mm/workingset.c`. Sizes and bounds were chosen by simulation on
//! traces that are not those of the benchmarks alone; on zipf 0.99 with a quarter of the pages in
//! memory it missed 12.1 % there, perfect counting 12.0 %, LRU 14.5 %. (The library misses a little
//! more, because metadata and the reserve take their part of the budget.)
//!
//! **Stripes.** A group that many CPUs use has all of that several times, so that CPUs mostly meet
//! their own pages: a page is in the stripe of the CPU that loaded it, and stays there. A CPU
//! reclaims from its own stripe; every eighth time from another, in turn, so that pages of CPUs
//! that do something else age, too. Small groups, and machines of a few CPUs, have one stripe, and
//! one order.
//!
//! **Ownership.** There is no lock. A frame is on a list, or isolated by a thread (`frames`). Only
//! the thread that has isolated a listed frame may unlink it, from the list that the frame's group
//! and rank name. That thread may change both until it puts the frame back, after the frame's links
//! are published. All of this runs concurrently in `smp_list`'s shared mode, batches off an end
//! included: there is no exclusive mode, so no thread keeps others from the lists. Lengths are
//! counters beside the lists.

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

/// CPUs to a stripe.
const STRIPE_CPUS: usize = 4;
/// A group gets its stripes when it has so many pages for each.
const STRIPE_PAGES: usize = 64;
/// So often a CPU reclaims from a stripe of others.
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

    /// Pages on the lists.
    pub(crate) fn len(&self) -> usize {
        self.stripes().map(Stripe::len).sum()
    }

    /// Pages that can wait for their use without taking room from main, by those of this CPU's
    /// stripe.
    pub(crate) fn waiting(&self) -> u64 {
        (self.stripe_count() * self.stripe(self.own()).waiting()) as u64
    }

    /// Pages that may be unused.
    pub(crate) fn maybe_unwanted(&self) -> usize {
        self.stripes().map(Stripe::maybe_unwanted).sum()
    }

    fn stripes(&self) -> impl Iterator<Item = &Stripe> {
        std::iter::once(&self.first).chain(self.more.get().into_iter().flatten())
    }

    /// How many stripes there are.
    pub(crate) fn stripe_count(&self) -> usize {
        1 + self.more.get().map_or(0, |more| more.len())
    }

    /// The stripe with a number, of those that there are.
    pub(crate) fn stripe(&self, number: usize) -> &Stripe {
        let more = number.checked_sub(1).and_then(|number| self.more.get()?.get(number));
        more.unwrap_or(&self.first)
    }

    /// The number of the stripe of the CPU that this thread is on.
    fn own(&self) -> usize {
        match self.stripe_count() {
            1 => 0,
            count => sync::cpu::current() * count / sync::cpu::count(),
        }
    }

    /// The number of the stripe that this thread should reclaim from.
    pub(crate) fn to_reclaim(&self) -> usize {
        let (count, own) = (self.stripe_count(), self.own());
        let turns = self.stripe(own).next_turn();
        if count > 1 && turns % OWN_TURNS == OWN_TURNS - 1 { (own + turns / OWN_TURNS) % count } else { own }
    }

    /// More stripes, if the group has become large enough for them.
    fn grow(&self) {
        let count = (sync::cpu::count() / STRIPE_CPUS).min(STRIPES_MAX);
        if count > 1 && self.more.get().is_none() && self.first.len() >= count * STRIPE_PAGES {
            let new = |stripe| Stripe::new(self.group, stripe as u8);
            let _ = self.more.get_or_init(|| (1..count).map(new).collect());
        }
    }

    /// Lists pages that were loaded, the one loaded last in front.
    pub(crate) fn enter<const N: usize>(&self, frames: &Frames, loaded: Batch<N>, leftovers: &mut Leftovers) {
        let number = self.own();
        for frame in &loaded {
            Rank::of(frames, frame.id()).in_stripe(number).give(frames, frame);
        }
        self.stripe(number).enter(frames, loaded, leftovers);
        self.grow();
    }

    /// Takes frames that the caller has isolated, or detached, off their lists.
    pub(crate) fn unlink(&self, frames: &Frames, claimed: &[FrameId]) {
        for run in claimed.chunk_by(|&a, &b| Place::of(frames, a) == Place::of(frames, b)) {
            let place = Place::of(frames, run[0]);
            self.stripe(usize::from(place.stripe)).list(place.kind).unlink(frames, run.iter().copied());
        }
    }

    /// Puts an isolated frame that is on a list to the cold end of cold, its use forgotten.
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
