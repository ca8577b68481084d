//! The slots of one area, and how CPUs get them without getting in each other's way.
//!
//! **CPUs keep apart.** Each has a [`Hand`] with a cluster in it, and stretches of the area that it
//! looks for the next one in. An empty cluster anywhere is preferred to a partly used one, for one
//! large write. If all clusters with free slots are in hands, which is so from the start where
//! there are fewer clusters than CPUs, a CPU joins another one, by its own number, so that they
//! spread evenly.
//!
//! **Nothing is missed.** "Full" is the answer only if no free slot was to be found at some moment
//! of the call:
//! - F1. A cluster with free slots is on a list or in a hand. A cluster that is claimed gets into
//!   the hand before it leaves the list. A *held* cluster has free slots, and leaves no hand: a
//!   hand lets go only of a cluster that isn't *held* any more. So a searcher that looks at the
//!   lists first and then at the hands finds it.
//! - F2. A thread that puts slots into a cluster increments `changes` afterwards (Release). A
//!   searcher that gives up has read `changes` (Acquire) before the search, and stores that number
//!   as `full_at`. While the two are equal, other searchers give up at once.
//! - F3. A searcher that makes its last attempt counts itself in `searching`, then empties all
//!   batches. A thread that puts a slot into a batch looks at `searching` and `full_at` afterwards,
//!   and if either says so, empties the batch as well. The batch's lock decides:
//! ```text
//!   freeing                                searching
//!                                          searching += 1
//!                                          lock batch, empty it, unlock      (finds nothing)
//!   lock batch, add, unlock
//!   searching? yes: empties the batch
//!   changes += 1
//!                                          nothing found: full_at = changes as they were, and they aren't any more
//! ```
//! If the slot is in the batch first, the searcher finds it. If the slot comes later, the lock
//! makes `searching` visible to the freeing thread, or, when the search is over, `full_at`, which
//! was stored before.
//!
//! An area keeps a few slots besides ([`Reserve`]), which are none of these: "full" leaves them
//! out.
//!
//! On a device that seeks there is one hand for all CPUs, one stretch, and no batches: pages are
//! written in the order in which they come, as far as there is room.
//!
//! Lock order: hand → batch; hand → cluster. A batch's lock isn't held while a cluster's is taken.

use arrayvec::ArrayVec;
use sync::CachePadded;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;

use crate::cluster::{Cluster, List};
use crate::clusters::{Claimed, Clusters, Effort};
use crate::hand::{Hand, Turn, Way};
use crate::reserve::Reserve;
use crate::slot_bits::SLOTS;
use crate::slot_table::{SlotTable, StaleSlot};
use crate::slot_word::{Note, Owner, SlotBatch, SlotId, SlotState};

/// Slots that a CPU collects before it frees them.
const FREE_BATCH: usize = if cfg!(pagefold_loom) { 2 } else { 64 };

/// How often a thread that finds nothing searches again while others free slots: then other threads
/// were faster each time.
const SEARCHES_MAX: u32 = 8;

/// How slots are given to CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each CPU writes to a cluster of its own.
    #[default]
    PerCpu,
    /// All write one after the other: for devices that seek.
    Sequential,
}

/// The slots of one area.
#[derive(Debug)]
pub struct Slots {
    table: SlotTable,
    clusters: Clusters,
    hands: Box<[CachePadded<Hand>]>,
    /// Which hand has each stretch.
    owners: Box<[AtomicU32]>,
    batches: Box<[CachePadded<Mutex<FreeBatch>>]>,
    search: CachePadded<Search>,
    /// See F2. Apart from `search`, which every thread that frees a slot reads.
    changes: CachePadded<AtomicU64>,
    placement: Placement,
    reserve: Reserve,
}

type FreeBatch = ArrayVec<u32, FREE_BATCH>;

/// See F2 and F3.
#[derive(Debug)]
struct Search {
    /// What `changes` was when the area was full, or 0.
    full_at: AtomicU64,
    searching: AtomicU32,
}

impl Slots {
    /// The slots of area number `area`: `slots` of them, number 0 being the header, which isn't
    /// given out. `None` if there is no memory for their words, or if there are too many of them,
    /// or too few for one page.
    #[must_use]
    pub fn new(area: u32, slots: u64, placement: Placement) -> Option<Self> {
        let table = SlotTable::new(area, slots).filter(|table| table.len() > 1)?;
        let clusters = Clusters::new(table.len())?;
        let hands = if placement == Placement::PerCpu { sync::cpu::count() } else { 1 };
        let search = Search { full_at: AtomicU64::new(0), searching: AtomicU32::new(0) };
        Some(Self {
            hands: (0..hands).map(|_| CachePadded::new(Hand::new())).collect(),
            owners: (0..hands as u32).map(AtomicU32::new).collect(),
            batches: (0..hands).map(|_| CachePadded::new(Mutex::new(ArrayVec::new()))).collect(),
            search: CachePadded::new(search),
            changes: CachePadded::new(AtomicU64::new(1)),
            table,
            clusters,
            placement,
            reserve: Reserve::default(),
        })
    }

    /// Keeps some slots for [`allocate_reserved`](Self::allocate_reserved) alone, which are none of
    /// [`slots`](Self::slots).
    #[must_use]
    pub(crate) fn with_reserve(mut self) -> Self {
        self.reserve = Reserve::missing(Reserve::size_for(self.slots()));
        let mut batch = SlotBatch::new();
        // They may be of several clusters.
        while self.allocate(self.reserve.size() - batch.len(), &mut batch) > 0 {}
        for slot in batch {
            let _ = self.free(slot); // It was allocated just now.
        }
        self
    }

    /// A slot of those that are kept for pages in whose place another one comes, which frees a slot
    /// in its turn.
    pub(crate) fn allocate_reserved(&self) -> Option<SlotId> {
        let number = self.reserve.take()? as usize;
        // No other thread has it, so it needs no lock of its cluster, where it counts as used
        // throughout.
        self.table.put(number);
        Some(self.table.take(number))
    }

    /// Allocates up to `want` slots, all in one cluster, and adds them to `into`; they are *taken*,
    /// and the caller's. Says how many: fewer if the cluster has no more, none if the area is full
    /// or `into` is.
    pub fn allocate(&self, want: usize, into: &mut SlotBatch) -> usize {
        let want = want.min(into.remaining_capacity());
        if want == 0 {
            return 0;
        }
        let mine = self.mine();
        let turn = self.hands[mine].lock();
        match self.take_from(turn.hand.cluster(), &turn, want, into) {
            0 if self.is_full() => 0,
            0 => match self.take_another(&turn, self.way(mine), want, into, Effort::Usual) {
                0 => self.search_everywhere(&turn, self.way(mine), want, into),
                taken => taken,
            },
            taken => taken,
        }
    }

    /// What is in a slot, and which use of the slot this is. Takes no lock. `None` for a number
    /// beyond the area.
    #[must_use]
    pub fn state(&self, number: u32) -> Option<(SlotState, SlotId)> {
        self.table.state(number)
    }

    /// What is in a slot, if this use of it is still going on. Takes no lock.
    ///
    /// # Errors
    /// The number is stale.
    pub fn lookup(&self, slot: SlotId) -> Result<SlotState, StaleSlot> {
        self.table.lookup(slot)
    }

    /// The slot's page is in `frame` as well. The slot is the caller's.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_cached(&self, slot: SlotId, frame: u32) -> Result<(), StaleSlot> {
        self.table.change(slot, SlotState::Cached { frame })
    }

    /// The slot's page is nowhere else, and is remembered with `note`. The slot is the caller's.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_swapped(&self, slot: SlotId, owner: Owner, note: Note) -> Result<(), StaleSlot> {
        self.table.set_swapped(slot, owner, note)
    }

    /// What was remembered of a swapped page. The slot is the caller's.
    ///
    /// # Errors
    /// The number is stale.
    pub fn note(&self, slot: SlotId) -> Result<Note, StaleSlot> {
        self.table.note(slot)
    }

    pub(crate) fn prefetch(&self, slot: SlotId) {
        self.table.prefetch(slot);
    }

    pub(crate) fn seal(&self, slot: SlotId) -> u32 {
        self.table.seal(slot)
    }

    pub(crate) fn set_seal(&self, slot: SlotId, seal: u32) {
        self.table.set_seal(slot, seal);
    }

    /// Gives the caller's slot back: to the reserve, if that lacks one. Otherwise the slot becomes
    /// free when its CPU's batch is full, or when a search needs it.
    ///
    /// # Errors
    /// The number is stale.
    pub fn free(&self, slot: SlotId) -> Result<(), StaleSlot> {
        self.table.change(slot, SlotState::Freed)?;
        // Transition: slot, held → freed.
        if self.reserve.fill(slot.number()) {
            // Sometimes: a freed slot goes to the reserve.
            return Ok(());
        }
        let batch = &self.batches[self.mine()];
        let mut waiting = batch.lock();
        waiting.push(slot.number());
        let full = waiting.is_full() || self.placement == Placement::Sequential;
        let mut due = if full { std::mem::take(&mut *waiting) } else { ArrayVec::new() };
        drop(waiting);
        // Acquire, and after the lock: F3.
        if !full && (self.search.searching.load(Ordering::Acquire) > 0 || self.is_full()) {
            due = std::mem::take(&mut *batch.lock());
        }
        self.put(due);
        Ok(())
    }

    /// Empties all batches: counts are exact after that, if no thread frees anything meanwhile.
    pub fn drain(&self) {
        for batch in &self.batches {
            let due = std::mem::take(&mut *batch.lock());
            self.put(due);
        }
    }

    /// All slots, the header included.
    pub(crate) fn table_len(&self) -> u64 {
        self.table.len() as u64
    }

    /// How they are chosen.
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// Slots that can be used: all but the header, and those that are kept.
    #[must_use]
    pub fn slots(&self) -> u64 {
        (self.table.len() - 1 - self.reserve.size()) as u64
    }

    /// Slots that aren't free, of those that can be used; those in batches count as used.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used_besides(0)
    }

    /// The same without those in batches. Exact if no thread allocates or frees any meanwhile.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.used_besides(self.batches.iter().map(|batch| batch.lock().len() as u64).sum())
    }

    /// Slots that are neither free nor among the `waiting` ones.
    fn used_besides(&self, waiting: u64) -> u64 {
        let free = self.clusters.free() + self.reserve.len() as u64 + waiting;
        // While some that are kept are out, more than that are in use.
        (self.table.len() as u64 - 1).saturating_sub(free).min(self.slots())
    }

    /// Whether about half of the slots are free, by what a few clusters have, this one's and others
    /// all over the area.
    #[must_use]
    pub fn may_keep(&self, slot: SlotId) -> bool {
        self.clusters.are_half_empty() || self.clusters.are_half_free(slot.number() as usize / SLOTS)
    }

    /// Every slot that is in use, as it was when the iterator came to it.
    pub fn held(&self) -> impl Iterator<Item = (SlotId, SlotState)> {
        self.table.held()
    }

    /// Memory that so many slots take: words, notes, seals and clusters.
    #[must_use]
    pub fn bytes(slots: u64) -> u64 {
        let clusters = slots.div_ceil(SLOTS as u64).saturating_mul(size_of::<Cluster>() as u64);
        slots.saturating_mul(SlotTable::SLOT_BYTES).saturating_add(clusters)
    }

    fn mine(&self) -> usize {
        sync::cpu::current() % self.hands.len()
    }

    fn way(&self, hand: usize) -> Way<'_> {
        Way { owners: &self.owners, hand, clusters: self.clusters.len() }
    }

    /// Takes slots of a cluster, if it is held, and has this CPU hold it too.
    fn take_from(&self, number: usize, turn: &Turn<'_>, want: usize, into: &mut SlotBatch) -> usize {
        let Some(cluster) = self.clusters.get(number) else { return 0 };
        let locked = cluster.lock();
        if locked.list() != List::Held {
            return 0;
        }
        turn.hold(number);
        self.clusters.take(&locked, number, &self.table, want, into)
    }

    /// Puts another cluster into this CPU's hand, and takes slots of it.
    fn take_another(&self, turn: &Turn<'_>, way: Way<'_>, want: usize, into: &mut SlotBatch, effort: Effort) -> usize {
        match self.clusters.claim(turn.ranges(way), effort, |cluster| turn.hold(cluster)) {
            Some(Claimed { stretch, cluster, locked }) => {
                turn.found(stretch, cluster);
                way.take_over(stretch, |hand| self.hands[hand].is_unused());
                self.clusters.take(&locked, cluster, &self.table, want, into)
            }
            None => self.join(turn, way, want, into),
        }
    }

    /// A share of a cluster that another CPU has: of the next one's, or with fewer clusters than
    /// CPUs, of the first one from this CPU's place on.
    fn join(&self, turn: &Turn<'_>, way: Way<'_>, want: usize, into: &mut SlotBatch) -> usize {
        let candidate = |step: usize| match way.clusters < way.hands() {
            true => (way.start() + step) % way.clusters,
            false => self.hands[(way.hand + 1 + step) % way.hands()].cluster(),
        };
        let candidates = (0..way.hands().min(way.clusters)).map(candidate);
        candidates.map(|cluster| self.take_from(cluster, turn, want, into)).find(|&taken| taken > 0).unwrap_or(0)
    }

    /// The last attempt.
    #[cold]
    fn search_everywhere(&self, turn: &Turn<'_>, way: Way<'_>, want: usize, into: &mut SlotBatch) -> usize {
        let search = &self.search;
        // Release, by way of the batches' locks: F3.
        search.searching.fetch_add(1, Ordering::AcqRel);
        // Acquire pairs with the Release in `put`: F2.
        let mut changes = self.changes.load(Ordering::Acquire);
        self.drain();
        let mut taken = 0;
        for _ in 0..SEARCHES_MAX {
            taken = self.take_another(turn, way, want, into, Effort::Last);
            let now = self.changes.load(Ordering::Acquire);
            if taken > 0 || now == changes {
                break;
            }
            changes = now;
        }
        if taken == 0 {
            // Sometimes: an area is searched in vain.
            // Release pairs with the Acquire in `is_full`. A number that is old by now does no
            // harm.
            search.full_at.store(changes, Ordering::Release);
        }
        search.searching.fetch_sub(1, Ordering::Release);
        taken
    }

    /// Whether the area was searched in vain, and no slot became free since.
    pub(crate) fn is_full(&self) -> bool {
        // Acquire: `changes` is read after it, and is no older.
        let full_at = self.search.full_at.load(Ordering::Acquire);
        full_at != 0 && full_at == self.changes.load(Ordering::Acquire)
    }

    /// Makes slots free, cluster by cluster.
    fn put(&self, mut due: FreeBatch) {
        if due.is_empty() {
            return;
        }
        due.sort_unstable();
        for of_one_cluster in due.chunk_by(|a, b| *a as usize / SLOTS == *b as usize / SLOTS) {
            self.clusters.put(&self.table, of_one_cluster);
        }
        // Release: F2.
        self.changes.fetch_add(1, Ordering::Release);
        // Relaxed: an old number does no harm. Clearing it only saves others a look at `changes`.
        if self.search.full_at.load(Ordering::Relaxed) != 0 {
            self.search.full_at.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, pagefold_loom))]
mod models;

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
