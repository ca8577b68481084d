//! A stripe of a group's lists: the whole policy, for the pages that a few CPUs loaded. The picture
//! is in `lru`.

use frames::{Frames, IsolatedFrame, OwnedFrame};
use smp_list::LocalList;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lru::batch::{BATCH_MAX, Batch, Leftovers};
use crate::lru::list::{LruList, line_up};
use crate::lru::rank::{KINDS, Kind, Place, Rank};
use crate::lru::shadow::Level;

/// What pays for ageing, and what it costs, in halves of a lost duel: pages that are found used
/// cost more, so a main that is in use keeps still while pages that are no better come by, and one
/// that isn't ages fast.
const LOST_PAYS: i64 = 2;
const UNUSED_COSTS: i64 = 1;
const USED_COSTS: i64 = 16;
/// No more than this is paid in advance.
const PAID_MAX: i64 = LOST_PAYS * BATCH_MAX as i64;

/// Pages of young and cold that are so many times their share are there because main doesn't want
/// them.
const UNWANTED: usize = 8;

/// How long lists may get in a stripe that holds `len` pages now.
#[derive(Clone, Copy, Debug)]
struct Shares {
    batch: usize,
    young: usize,
    cold: usize,
    /// So much longer than its share cold gets before main takes pages unchallenged. What several
    /// CPUs have cut off at a time comes and goes: without slack main would be cut for it, and
    /// filled up with others.
    slack: usize,
}

impl Shares {
    fn of(len: usize) -> Self {
        let batch = (len / 16).clamp(1, BATCH_MAX);
        let slack = (len / 8).min(4 * BATCH_MAX);
        Self { batch, young: (len / 256).max(batch), cold: (len / 128).max(batch), slack }
    }
}

/// What reclaim cuts off the lists to look at.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// From the end of cold.
    pub(crate) cold: Batch<BATCH_MAX>,
    /// From main, where main is longer than its share or there is nothing else.
    pub(crate) surplus: Batch<BATCH_MAX>,
    /// From main's longest upper level: they age.
    pub(crate) ageing: Batch<BATCH_MAX>,
    /// Pages that main has room for.
    pub(crate) main_room: usize,
}

/// The lists that some CPUs share.
#[derive(Debug)]
pub(crate) struct Stripe {
    lists: [LruList; KINDS],
    /// What lost duels have paid for ageing, less what it has cost: signed.
    ageing_paid: AtomicU64,
    /// Times that a CPU chose this stripe as its own to reclaim from.
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

    /// The number of the next turn.
    pub(crate) fn next_turn(&self) -> usize {
        // Relaxed: only the policy uses the number.
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    fn ageing_paid(&self) -> i64 {
        // Relaxed, also below: it doesn't matter if a few more or less age.
        self.ageing_paid.load(Ordering::Relaxed).cast_signed()
    }

    /// How many pages of main are to age, at most.
    pub(crate) fn ageing_due(&self) -> usize {
        (self.ageing_paid().max(0) / UNUSED_COSTS) as usize
    }

    /// Pages of main have aged.
    pub(crate) fn aged(&self, used: usize, unused: usize) {
        let cost = used as i64 * USED_COSTS + unused as i64 * UNUSED_COSTS;
        if cost > 0 {
            self.ageing_paid.fetch_sub(cost.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Pages have lost duels against main.
    pub(crate) fn lost(&self, duels: usize) {
        if duels > 0 && self.ageing_paid() < PAID_MAX {
            self.ageing_paid.fetch_add((duels as i64 * LOST_PAYS).cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Pages on its lists.
    pub(crate) fn len(&self) -> usize {
        self.lists.iter().map(LruList::len).sum()
    }

    /// Pages of young and cold, but for those whose room is main's.
    pub(crate) fn waiting(&self) -> usize {
        let waiting = self.list(Kind::Young).len() + self.list(Kind::Cold).len();
        let shares = Shares::of(self.len());
        let share = shares.young + shares.cold;
        if waiting > UNWANTED * share { waiting } else { share }
    }

    /// Lists pages that were loaded, the one loaded last in front. Of many, those that the others
    /// leave no room on young go on to cold without having been there: in the end it is the same,
    /// and costs half.
    pub(crate) fn enter<const N: usize>(&self, frames: &Frames, loaded: Batch<N>, leftovers: &mut Leftovers) {
        let young_max = Shares::of(self.len() + loaded.len()).young;
        let ripe = loaded.len().saturating_sub(young_max);
        self.ripen_to(frames, young_max.saturating_sub(loaded.len()), leftovers);
        loaded[..ripe].iter().for_each(|frame| ripen(frames, frame));
        self.put_back(frames, loaded, leftovers);
    }

    /// Moves pages that are young no more on to cold: all beyond so many.
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

    /// Ends the isolation of frames that were just linked.
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

    /// Puts isolated frames of this stripe at the hot ends of the lists that their ranks say.
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

    /// Puts an isolated frame of this stripe at the cold end of cold, where its rank says it is.
    pub(crate) fn put_back_coldest(&self, frames: &Frames, frame: IsolatedFrame, leftovers: &mut Leftovers) {
        self.list(Kind::Cold).splice_tail(frames, line_up(frames, [&frame]));
        self.publish(frames, [frame], leftovers);
    }

    /// Cuts off what reclaim should look at to free up to `wanted` pages, and `ageing` pages that
    /// are to age.
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
        // Relative to what is left after this pass, or cold would be drained by the reserve that
        // reclaim keeps free.
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

    /// Cuts off up to `wanted` pages that may be unused: pages of cold, and of main's lowest level,
    /// whose pages weren't used for a long time.
    pub(crate) fn cut_unwanted(&self, frames: &Frames, wanted: usize, leftovers: &mut Leftovers) -> Cut {
        let mut result = Cut { main_room: usize::MAX, ..Cut::default() };
        let wanted = wanted.min(BATCH_MAX);
        self.list(Kind::Cold).cut(frames, wanted, &mut result.cold, leftovers);
        self.main()[0].cut(frames, wanted - result.cold.len(), &mut result.surplus, leftovers);
        result
    }

    /// Pages that [`cut_unwanted`](Self::cut_unwanted) would look at.
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

    /// Puts back, at the cold ends, pages that [`cut`](Self::cut) or [`cut_main`](Self::cut_main)
    /// took and reclaim didn't look at, in the order in which they were cut.
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

/// A page is young no more: it goes to cold, its references forgotten.
fn ripen(frames: &Frames, frame: &IsolatedFrame) {
    let _ = frames.take_referenced(frame.id());
    Rank::of(frames, frame.id()).cold().give(frames, frame);
}
