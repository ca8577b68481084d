//! The slots of one area, and how CPUs allocate them without contention.
//!
//! **CPUs keep apart.** Each CPU has a [`Hand`], which names the cluster that the CPU allocates
//! from. The CPU searches for its next cluster in its own *stretches* of the area first (`hand`).
//! The search prefers empty clusters to partly used ones, because an empty cluster allows one large
//! write.
//!
//! If all clusters with free slots are in hands, a CPU allocates from a cluster in another CPU's
//! hand. Each CPU starts at a different hand, so CPUs spread evenly. An area with fewer clusters
//! than CPUs is in this situation from the start.
//!
//! **No free slot is missed.** An allocation reports "full" only if there was a moment during the
//! call when no slot was free. There is one exception: after `SEARCHES_MAX` searches without
//! success, an allocation gives up even if other threads freed slots during each of them.
//! - F1. A cluster with free slots is on a list or in a hand. To claim a cluster, a CPU first puts
//!   the cluster into its hand, and then removes the cluster from its list. A claimed cluster is
//!   *held* while it has free slots, and the CPU doesn't replace a *held* cluster in its hand. So a
//!   searcher that reads the lists first and the hands second finds the cluster.
//! - F2. A thread that puts slots into a cluster increments `changes` afterwards (Release). A
//!   searcher reads `changes` (Acquire) before the search. If the search finds nothing, the
//!   searcher sets `full_at` to the value that it read. While `full_at` equals `changes`, no slot
//!   has become free since that search began, so other allocations give up without a search.
//! - F3. Freed slots wait in batches, where a search doesn't look. So before its last attempt, a
//!   searcher increments `searching`, and then empties all batches. A thread that frees a slot adds
//!   it to a batch first, and then reads `searching` and `full_at`. If a search is going on, or has
//!   failed, the freeing thread empties this batch itself. Both threads access the batch under its
//!   lock. In this example the searcher locks it first:
//! ```text
//!   freeing                                searching
//!                                          searching += 1
//!                                          lock batch, empty it, unlock      (finds nothing)
//!   lock batch, add, unlock
//!   searching? yes: empties the batch
//!   changes += 1
//!                                          nothing found: full_at = the old value of changes, which isn't the present one
//! ```
//! If the freeing thread locks the batch first, the searcher finds the slot in the batch. If the
//! searcher locks the batch first, it unlocks the batch before the freeing thread locks it, so the
//! freeing thread sees the incremented `searching`. But the search may have failed, and `searching`
//! may have been decremented, before the freeing thread reads it. Then the freeing thread learns
//! from `full_at` that the search has failed, because the searcher sets `full_at` before it
//! decrements `searching`.
//!
//! An area also keeps a few slots in a [`Reserve`]. Allocations don't count these as free: "full"
//! ignores them.
//!
//! On a disk that seeks (see `disk`), all CPUs share one hand and one stretch. Freed slots become
//! available at once, without waiting in a batch. So as long as there are consecutive free slots,
//! pages are written in the order in which they are swapped out.
//!
//! Lock order: hand → batch; hand → cluster. No thread holds a batch's lock while it takes a
//! cluster's.

use arrayvec::ArrayVec;
use sync::CachePadded;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;

use crate::cluster::{Cluster, List};
use crate::clusters::{Claimed, Clusters, Effort};
use crate::hand::{Hand, Turn, Way};
use crate::placement::Placement;
use crate::reserve::Reserve;
use crate::slot_bits::SLOTS;
use crate::slot_table::{SlotTable, StaleSlot};
use crate::slot_word::{Note, Owner, SlotBatch, SlotId, SlotState};

/// Freed slots that a CPU collects before they become available.
const FREE_BATCH: usize = if cfg!(pagefold_loom) { 2 } else { 64 };

/// The maximum number of searches in one allocation. A thread repeats a search that found nothing
/// if other threads freed slots during the search. After the last search the thread gives up,
/// although a slot may have become free where that search had already looked. `full_at` then
/// differs from `changes`, so the next allocation searches again.
const SEARCHES_MAX: u32 = 8;

/// The slots of one area.
#[derive(Debug)]
pub struct Slots {
    table: SlotTable,
    clusters: Clusters,
    hands: Box<[CachePadded<Hand>]>,
    /// The number of the hand that owns each stretch.
    owners: Box<[AtomicU32]>,
    batches: Box<[CachePadded<Mutex<FreeBatch>>]>,
    search: CachePadded<Search>,
    /// See F2. Not on the cache line of `search`: every thread that frees a slot reads `search`,
    /// and each increment of `changes` would take the line away from the CPUs of these threads.
    changes: CachePadded<AtomicU64>,
    placement: Placement,
    reserve: Reserve,
}

type FreeBatch = ArrayVec<u32, FREE_BATCH>;

/// See F2 and F3.
#[derive(Debug)]
struct Search {
    /// The value of `changes` when the area was full, or 0.
    full_at: AtomicU64,
    searching: AtomicU32,
}

/// Repeats `search` until a search takes slots, or takes none while `changes` stays the same.
/// Searches at most `SEARCHES_MAX` times. Returns the number of slots taken, and the value of
/// `changes` before the last search. That search covered every slot that had been put into a
/// cluster before `changes` reached this value.
fn until_quiet(changes: impl Fn() -> u64, mut search: impl FnMut() -> usize) -> (usize, u64) {
    let mut before = changes();
    for _ in 1..SEARCHES_MAX {
        let taken = search();
        let now = changes();
        if taken > 0 || now == before {
            return (taken, before);
        }
        before = now;
    }
    (search(), before)
}

impl Slots {
    /// Creates the slots of area number `area`: `slots` in all, of which slot 0 is the header and
    /// is never allocated. Returns `None` if there is no memory for the tables, or if `slots` is
    /// less than 2 or more than 2^31.
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

    /// Reserves some slots for [`allocate_reserved`](Self::allocate_reserved). They no longer count
    /// in [`slots`](Self::slots).
    #[must_use]
    pub(crate) fn with_reserve(mut self) -> Self {
        self.reserve = Reserve::missing(Reserve::size_for(self.slots()));
        let mut batch = SlotBatch::new();
        // The slots may be in several clusters.
        while self.allocate(self.reserve.size() - batch.len(), &mut batch) > 0 {}
        for slot in batch {
            let _ = self.free(slot); // It was allocated just now.
        }
        self
    }

    /// Allocates a reserved slot, for a page that leaves memory so that another page can come in.
    /// The page that comes in then frees its own slot, which refills the reserve.
    pub(crate) fn allocate_reserved(&self) -> Option<SlotId> {
        let number = self.reserve.take()? as usize;
        // This needs no lock of the slot's cluster: no other thread knows the slot, and the cluster
        // counts the slot as used all the time.
        self.table.put(number);
        Some(self.table.take(number))
    }

    /// Allocates up to `want` slots, all in one cluster, and adds them to `into`. The slots are
    /// *taken*, and the caller owns them. Returns the number of slots: fewer than `want` if the
    /// cluster has no more, and 0 if the area or `into` is full.
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

    /// Returns the state of a slot, and its [`SlotId`], which identifies the slot's current use.
    /// Returns `None` if the area has no slot with this number. Takes no lock.
    #[must_use]
    pub fn state(&self, number: u32) -> Option<(SlotState, SlotId)> {
        self.table.state(number)
    }

    /// Returns the state of a slot. Takes no lock.
    ///
    /// # Errors
    /// `slot` is stale: that use of the slot has ended.
    pub fn lookup(&self, slot: SlotId) -> Result<SlotState, StaleSlot> {
        self.table.lookup(slot)
    }

    /// Records that the slot's page is in `frame` as well. The caller must own the slot.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_cached(&self, slot: SlotId, frame: u32) -> Result<(), StaleSlot> {
        self.table.change(slot, SlotState::Cached { frame })
    }

    /// Records that the slot's page is nowhere else, and stores `note` for it. The caller must own
    /// the slot.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_swapped(&self, slot: SlotId, owner: Owner, note: Note) -> Result<(), StaleSlot> {
        self.table.set_swapped(slot, owner, note)
    }

    /// Returns the note of a swapped page. The caller must own the slot.
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

    /// Frees a slot, which the caller must own. If the reserve isn't full, the slot is added to it,
    /// otherwise to the CPU's batch. A batch's slots become available when the batch is full, or
    /// when an allocation has found no other slot. With [`Placement::Sequential`], they become
    /// available at once.
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

    /// Makes the slots in all batches available. If no other thread allocates or frees slots
    /// meanwhile, [`used`](Self::used) is exact afterwards.
    pub fn drain(&self) {
        for batch in &self.batches {
            let due = std::mem::take(&mut *batch.lock());
            self.put(due);
        }
    }

    /// Returns the number of all slots, including the header.
    pub(crate) fn table_len(&self) -> u64 {
        self.table.len() as u64
    }

    /// Returns how slots are distributed over CPUs.
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// Returns the number of usable slots: all except the header and the reserve.
    #[must_use]
    pub fn slots(&self) -> u64 {
        (self.table.len() - 1 - self.reserve.size()) as u64
    }

    /// Returns the number of usable slots that aren't free. Slots in batches count as used.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used_besides(0)
    }

    /// Returns the number of usable slots that are neither free nor in a batch. Exact if no thread
    /// allocates or frees slots meanwhile.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.used_besides(self.batches.iter().map(|batch| batch.lock().len() as u64).sum())
    }

    /// Returns the number of usable slots that are neither free nor among the `waiting` slots in
    /// batches.
    fn used_besides(&self, waiting: u64) -> u64 {
        let free = self.clusters.free() + self.reserve.len() as u64 + waiting;
        // While reserved slots are in use, the difference may exceed `self.slots()`.
        (self.table.len() as u64 - 1).saturating_sub(free).min(self.slots())
    }

    /// Returns whether about half of the slots or more are free. This is an estimate from the
    /// number of empty clusters, and from a few clusters spread over the area, including the
    /// cluster of `slot`.
    #[must_use]
    pub fn may_keep(&self, slot: SlotId) -> bool {
        self.clusters.are_half_empty() || self.clusters.are_half_free(slot.number() as usize / SLOTS)
    }

    /// Iterates over the slots in use, each with its state when the iterator reaches it.
    pub fn held(&self) -> impl Iterator<Item = (SlotId, SlotState)> {
        self.table.held()
    }

    /// Returns the memory that the tables for `slots` slots take: words, notes, checksums and
    /// clusters.
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

    /// Takes slots of a cluster, if the cluster is *held*, and takes the cluster into this CPU's
    /// hand too.
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

    /// Takes slots of a cluster in another CPU's hand. Tries the hands in order of number, starting
    /// after this CPU's. If there are fewer clusters than CPUs, tries the clusters instead,
    /// starting at this CPU's stretch.
    fn join(&self, turn: &Turn<'_>, way: Way<'_>, want: usize, into: &mut SlotBatch) -> usize {
        let candidate = |step: usize| match way.clusters < way.hands() {
            true => (way.start() + step) % way.clusters,
            false => self.hands[(way.hand + 1 + step) % way.hands()].cluster(),
        };
        let candidates = (0..way.hands().min(way.clusters)).map(candidate);
        candidates.map(|cluster| self.take_from(cluster, turn, want, into)).find(|&taken| taken > 0).unwrap_or(0)
    }

    /// Makes the last attempt of an allocation, which must not miss a free slot (F1 to F3).
    #[cold]
    fn search_everywhere(&self, turn: &Turn<'_>, way: Way<'_>, want: usize, into: &mut SlotBatch) -> usize {
        let search = &self.search;
        // `drain` locks each batch after this increment. So a freeing thread that locks a batch
        // after `drain` sees the increment (F3).
        search.searching.fetch_add(1, Ordering::AcqRel);
        self.drain();
        let changes = || self.changes.load(Ordering::Acquire); // Pairs with the Release in `put`: F2.
        let (taken, covered) = until_quiet(changes, || self.take_another(turn, way, want, into, Effort::Last));
        if taken == 0 {
            // Sometimes: an area is searched in vain.
            // Release pairs with the Acquire in `is_full`. By now `changes` may differ from
            // `covered`; then `is_full` returns false, which does no harm.
            search.full_at.store(covered, Ordering::Release);
        }
        search.searching.fetch_sub(1, Ordering::Release);
        taken
    }

    /// Returns whether a search of the area found no slot, and no slot has become free since then.
    pub(crate) fn is_full(&self) -> bool {
        // Acquire pairs with the Release in `search_everywhere`. So the load of `changes` below
        // returns a value at least as new as `full_at`.
        let full_at = self.search.full_at.load(Ordering::Acquire);
        full_at != 0 && full_at == self.changes.load(Ordering::Acquire)
    }

    /// Makes slots available, cluster by cluster.
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
        // Relaxed: an outdated `full_at` does no harm. Clearing it only saves other threads a read
        // of `changes`.
        if self.search.full_at.load(Ordering::Relaxed) != 0 {
            self.search.full_at.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, pagefold_loom))]
mod models;

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
