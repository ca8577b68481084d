//! A stripe of a group's lists: the whole policy, for the pages that a few CPUs loaded. The head of
//! `lru` has the diagram.

use frames::{Frames, IsolatedFrame, OwnedFrame};
use smp_list::LocalList;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lru::batch::{BATCH_MAX, Batch, Leftovers};
use crate::lru::list::{LruList, line_up};
use crate::lru::rank::{KINDS, Kind, Place, Rank};
use crate::lru::shadow::Level;

/// What a lost duel pays for ageing, and what a look at a page of main costs, in units of half a
/// lost duel. The look costs more if the page turns out to be used. So if main's pages are in use,
/// they hardly age, although challengers of equal level keep losing duels. If main's pages aren't
/// in use, they age fast.
const LOST_PAYS: i64 = 2;
const UNUSED_COSTS: i64 = 1;
const USED_COSTS: i64 = 16;
/// The most that lost duels can pay in advance.
const PAID_MAX: i64 = LOST_PAYS * BATCH_MAX as i64;

/// If young and cold hold more than this many times their share, main has no use for their pages.
const UNWANTED: usize = 8;

/// How long lists may get in a stripe that holds `len` pages.
#[derive(Clone, Copy, Debug)]
struct Shares {
    batch: usize,
    young: usize,
    cold: usize,
    /// By how much cold may exceed its share before main accepts pages without a duel. While passes
    /// of several CPUs have pages cut off, the stripe counts as shorter, so main's share is smaller
    /// and main has to give up pages. Without slack, pages of cold would later fill these places
    /// without a duel.
    slack: usize,
}

impl Shares {
    fn of(len: usize) -> Self {
        let batch = (len / 16).clamp(1, BATCH_MAX);
        let slack = (len / 8).min(4 * BATCH_MAX);
        Self { batch, young: (len / 256).max(batch), cold: (len / 128).max(batch), slack }
    }
}

/// The pages that reclaim cuts off the lists to look at.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// From the end of cold.
    pub(crate) cold: Batch<BATCH_MAX>,
    /// From main, if main exceeds its share or cold is empty.
    pub(crate) surplus: Batch<BATCH_MAX>,
    /// From main's longest upper level, to be aged.
    pub(crate) ageing: Batch<BATCH_MAX>,
    /// The number of pages that main has room for.
    pub(crate) main_room: usize,
}

/// The lists that a few CPUs share.
#[derive(Debug)]
pub(crate) struct Stripe {
    lists: [LruList; KINDS],
    /// What lost duels have paid for ageing, minus what ageing has cost. Signed.
    ageing_paid: AtomicU64,
    /// How often a CPU of this stripe chose a stripe to reclaim from.
    turns: AtomicUsize,
}

impl Stripe {
    pub(crate) fn new(group: u32, stripe: u8) -> Self {
        let lists = Kind::all().map(|kind| LruList::new(group, Place { stripe, kind }));
        Self { lists, ageing_paid: AtomicU64::new(0), turns: AtomicUsize::new(0) }
    }

    pub(crate) fn list(&self, kind: Kind) -> &LruList {
        &self.lists[kind.index()]
    }

    fn main(&self) -> &[LruList] {
        &self.lists[Kind::Main(Level(0)).index()..]
    }

    fn main_len(&self) -> usize {
        self.main().iter().map(LruList::len).sum()
    }

    /// Returns the number of the next turn.
    pub(crate) fn next_turn(&self) -> usize {
        // Relaxed: only the policy uses the number.
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    fn ageing_paid(&self) -> i64 {
        // Relaxed, also below: an inexact number of aged pages does no harm.
        self.ageing_paid.load(Ordering::Relaxed).cast_signed()
    }

    /// Returns the most pages of main that should age now.
    pub(crate) fn ageing_due(&self) -> usize {
        (self.ageing_paid().max(0) / UNUSED_COSTS) as usize
    }

    /// Charges the cost of ageing `used` and `unused` pages of main.
    pub(crate) fn aged(&self, used: usize, unused: usize) {
        let cost = used as i64 * USED_COSTS + unused as i64 * UNUSED_COSTS;
        if cost > 0 {
            self.ageing_paid.fetch_sub(cost.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Credits `duels` that challengers lost against main.
    pub(crate) fn lost(&self, duels: usize) {
        if duels > 0 && self.ageing_paid() < PAID_MAX {
            self.ageing_paid.fetch_add((duels as i64 * LOST_PAYS).cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Returns the number of pages on the stripe's lists.
    pub(crate) fn len(&self) -> usize {
        self.lists.iter().map(LruList::len).sum()
    }

    /// Returns how many pages young and cold can hold without taking room from main.
    pub(crate) fn waiting(&self) -> usize {
        let waiting = self.list(Kind::Young).len() + self.list(Kind::Cold).len();
        let shares = Shares::of(self.len());
        let share = shares.young + shares.cold;
        if waiting > UNWANTED * share { waiting } else { share }
    }

    /// Lists loaded pages. The page that was loaded last becomes the hottest. If there are more
    /// pages than young can hold, the older ones go directly to cold: the result is the same, at
    /// half the cost.
    pub(crate) fn enter<const N: usize>(&self, frames: &Frames, loaded: Batch<N>, leftovers: &mut Leftovers) {
        let young_max = Shares::of(self.len() + loaded.len()).young;
        let ripe = loaded.len().saturating_sub(young_max);
        self.ripen_to(frames, young_max.saturating_sub(loaded.len()), leftovers);
        loaded[..ripe].iter().for_each(|frame| ripen(frames, frame));
        self.put_back(frames, loaded, leftovers);
    }

    /// Moves the oldest pages of young to cold until at most `young_max` pages are left.
    fn ripen_to(&self, frames: &Frames, young_max: usize, leftovers: &mut Leftovers) {
        let young = self.list(Kind::Young);
        let mut surplus = young.len().saturating_sub(young_max);
        while surplus > 0 {
            let mut ripe = Batch::<BATCH_MAX>::new();
            young.cut(frames, surplus, &mut ripe, leftovers);
            if ripe.is_empty() {
                return;
            }
            surplus = surplus.saturating_sub(ripe.len());
            ripe.iter().for_each(|frame| ripen(frames, frame));
            self.list(Kind::Cold).splice_head(frames, line_up(frames, &ripe));
            self.publish(frames, ripe, leftovers);
        }
    }

    /// Ends the isolation of frames that were just linked, and takes out those whose pages are
    /// gone.
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

    /// Links an isolated frame of this stripe at the cold end of cold, which its rank must name.
    pub(crate) fn put_back_coldest(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        self.list(Kind::Cold).splice_tail(frames, line_up(frames, [&frame]));
        self.publish(frames, [frame], leftovers);
    }

    /// Cuts off the pages that reclaim should look at to free up to `wanted` pages, and up to
    /// `ageing` pages to age.
    pub(crate) fn cut(&self, frames: &Frames, wanted: usize, ageing: usize, leftovers: &mut Leftovers) -> Cut {
        let mut result = Cut::default();
        let len = self.len();
        let shares = Shares::of(len);
        let wanted = wanted.min(shares.batch);
        let cold = self.list(Kind::Cold);
        self.ripen_to(frames, shares.young, leftovers);
        if cold.len() == 0 {
            self.ripen_to(frames, 0, leftovers);
        }
        cold.cut(frames, wanted, &mut result.cold, leftovers);
        // Relative to the length after this pass. Otherwise the free reserve that reclaim keeps
        // would drain cold.
        let main_max = len.saturating_sub(wanted + shares.young + shares.cold);
        result.main_room = main_max.saturating_sub(self.main_len() + shares.slack);
        let surplus = self.main_len().saturating_sub(main_max).min(wanted);
        let surplus = if result.cold.is_empty() { wanted } else { surplus };
        self.cut_main(frames, surplus, &mut result.surplus, leftovers);
        if let Some(longest) = self.main()[1..].iter().max_by_key(|list| list.len()) {
            longest.cut(frames, ageing.min(BATCH_MAX), &mut result.ageing, leftovers);
        }
        result
    }

    /// Cuts off up to `wanted` pages that may be unused: from the cold end of cold, then from the
    /// cold end of main's lowest level.
    pub(crate) fn cut_unwanted(&self, frames: &Frames, wanted: usize, leftovers: &mut Leftovers) -> Cut {
        let mut result = Cut { main_room: usize::MAX, ..Cut::default() };
        let wanted = wanted.min(BATCH_MAX);
        self.list(Kind::Cold).cut(frames, wanted, &mut result.cold, leftovers);
        self.main()[0].cut(frames, wanted - result.cold.len(), &mut result.surplus, leftovers);
        result
    }

    /// Returns the number of pages that [`cut_unwanted`](Self::cut_unwanted) would look at.
    pub(crate) fn maybe_unwanted(&self) -> usize {
        self.list(Kind::Cold).len() + self.main()[0].len()
    }

    /// Cuts up to `wanted` pages off the cold end of main, the lowest level first.
    pub(crate) fn cut_main<const N: usize>(
        &self,
        frames: &Frames,
        wanted: usize,
        into: &mut Batch<N>,
        leftovers: &mut Leftovers,
    ) {
        for list in self.main() {
            let missing = wanted.saturating_sub(into.len());
            list.cut(frames, missing, into, leftovers);
        }
    }

    /// Puts back pages that [`cut`](Self::cut) or [`cut_main`](Self::cut_main) took and reclaim
    /// didn't look at. The pages return to the cold ends of their lists, in the order in which they
    /// were cut.
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

/// Makes a young page's rank one of cold, and clears the page's referenced bit.
fn ripen(frames: &Frames, frame: &IsolatedFrame) {
    let _ = frames.take_referenced(frame.id());
    Rank::of(frames, frame.id()).cold().give(frames, frame);
}
