//! A swap area as in Linux 5.7, on a device that doesn't seek and has no free cluster left; and the
//! same with Huang Ying's change. The two differ only in where they search for the next free slot.

use sync::atomic::{AtomicU8, AtomicU64, Ordering, spin_hint};
use sync::lock::Mutex;
use sync::random::mix;

use super::area::{SLOTS, Slots, half_of_them};
use super::region;
use super::swap_cache::{CacheInfo, Holder, TRUNK, Trunk};
use crate::experiments::older::queued_spinlock::{Places, QueuedSpinlock};

const TRUNKS: usize = SLOTS / TRUNK;
/// Slots with a lock in common, of which eight share a cache line.
const CLUSTER: usize = 256;
/// Slots that a CPU collects before it frees them.
const FREE_BATCH: usize = 64;

/// With `OWN`, each CPU has a position of its own, from which it searches for slots. When the
/// position reaches the end of a trunk, it jumps to a random trunk. Without `OWN`, all CPUs share
/// one position. With `IN_STEP`, CPUs' own positions begin at the same place, and jump from each
/// trunk to the same one.
pub(super) struct Trunked<const OWN: bool, const IN_STEP: bool> {
    lock: QueuedSpinlock,
    in_use: Line<AtomicU64>,
    positions: Box<[Line<AtomicU64>]>,
    map: Box<[AtomicU8]>,
    clusters: Box<[AtomicU64]>,
    trunks: Box<[Trunk]>,
    freed: Box<[Line<Mutex<Vec<usize>>>]>,
    info: CacheInfo,
    places: Places,
}

#[repr(align(64))]
struct Line<T>(T);

/// In a cluster's word.
const LOCKED: u64 = 1 << 63;

impl<const OWN: bool, const IN_STEP: bool> Trunked<OWN, IN_STEP> {
    /// Allocates the first free slot from the position on. Searches the map without the lock, and
    /// takes the slot under the lock, if it is still free.
    fn allocate(&self, task: usize) -> usize {
        let _region = region("get_swap_page");
        let position = &self.positions[if OWN { task } else { 0 }].0;
        // Relaxed, all of it: under the lock, or looked at again under it.
        let mut slot = position.load(Ordering::Relaxed) as usize % SLOTS;
        loop {
            while self.map[slot].load(Ordering::Relaxed) != 0 {
                slot = (slot + 1) % SLOTS;
            }
            let taken = self.lock.with(&self.places, task, || {
                let free = self.map[slot].load(Ordering::Relaxed) == 0;
                if free {
                    self.set(slot, 1);
                    self.in_use.0.store(self.in_use.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    position.store(self.after(slot, task), Ordering::Relaxed);
                }
                free
            });
            if taken {
                return slot;
            }
        }
    }

    /// The position after a slot was taken.
    fn after(&self, slot: usize, task: usize) -> u64 {
        let next = (slot + 1) % SLOTS;
        let jumps = OWN && next.is_multiple_of(TRUNK);
        let task = if IN_STEP { 0 } else { task };
        if jumps { mix((task * SLOTS + slot) as u64) % TRUNKS as u64 * TRUNK as u64 } else { next as u64 }
    }

    /// Changes the map under the cluster's lock.
    fn set(&self, slot: usize, used: u8) {
        let cluster = &self.clusters[slot / CLUSTER];
        // Acquire pairs with the Release below.
        while cluster.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
            spin_hint();
        }
        self.map[slot].store(used, Ordering::Relaxed);
        let count = cluster.load(Ordering::Relaxed) & !LOCKED;
        cluster.store(if used == 1 { count + 1 } else { count - 1 }, Ordering::Release);
    }

    fn holder(&self, task: usize) -> Holder<'_> {
        Holder { places: &self.places, task }
    }
}

impl<const OWN: bool, const IN_STEP: bool> Slots for Trunked<OWN, IN_STEP> {
    fn new(tasks: usize) -> Self {
        let start = |task: usize| if OWN && !IN_STEP { mix(task as u64) % SLOTS as u64 } else { 1 };
        let trunks: Box<[Trunk]> = (0..TRUNKS).map(|_| Trunk::new()).collect();
        trunks.iter().for_each(Trunk::name);
        Self {
            lock: QueuedSpinlock::default(),
            in_use: Line(AtomicU64::new(0)),
            positions: (0..tasks).map(|task| Line(AtomicU64::new(start(task)))).collect(),
            map: half_of_them().iter().map(|&used| AtomicU8::new(used.into())).collect(),
            clusters: (0..SLOTS / CLUSTER).map(|_| AtomicU64::new(CLUSTER as u64)).collect(),
            trunks,
            freed: (0..tasks).map(|_| Line(Mutex::new(Vec::new()))).collect(),
            info: CacheInfo::default(),
            places: Places::new(tasks),
        }
    }

    fn take(&self, task: usize) -> usize {
        let slot = self.allocate(task);
        self.trunks[slot / TRUNK].add(slot % TRUNK, &self.holder(task), &self.info);
        slot
    }

    fn written(&self, task: usize, slot: usize) {
        self.trunks[slot / TRUNK].remove(slot % TRUNK, &self.holder(task), &self.info);
    }

    fn is_cached(&self, slot: usize) -> bool {
        self.trunks[slot / TRUNK].look_up(slot % TRUNK, &self.info)
    }

    fn free(&self, task: usize, slot: usize) {
        let _region = region("free_swap_slot");
        let mut freed = self.freed[task].0.lock();
        freed.push(slot);
        if freed.len() < FREE_BATCH {
            return;
        }
        self.lock.with(&self.places, task, || {
            for slot in freed.drain(..) {
                self.set(slot, 0);
                self.in_use.0.store(self.in_use.0.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
            }
        });
    }
}
