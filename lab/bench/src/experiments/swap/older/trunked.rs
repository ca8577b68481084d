//! A swap area as in Linux 5.7, on a device that doesn't seek and has no free cluster left; and the
//! same with Huang Ying's change. The two differ only in where they search for the next free slot.

use std::marker::PhantomData;

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

/// Where CPUs search for the next free slot.
pub(super) trait Positions: Send + Sync {
    /// Each CPU has a position of its own. When it reaches the end of a trunk, it jumps to another.
    const OWN: bool;
    /// The CPU whose random numbers say where this CPU's position begins, and where it jumps to.
    fn dice(task: usize) -> usize;
}

/// All CPUs share one position.
pub(super) struct Shared;
/// CPUs' own positions begin at random places, and jump to random trunks.
pub(super) struct Own;
/// CPUs' own positions begin at the same place, and jump from each trunk to the same one.
pub(super) struct InStep;

impl Positions for Shared {
    const OWN: bool = false;
    fn dice(_: usize) -> usize {
        0
    }
}

impl Positions for Own {
    const OWN: bool = true;
    fn dice(task: usize) -> usize {
        task
    }
}

impl Positions for InStep {
    const OWN: bool = true;
    fn dice(_: usize) -> usize {
        0
    }
}

/// The area.
pub(super) struct Trunked<P> {
    of: PhantomData<P>,
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

impl<P: Positions> Trunked<P> {
    /// Allocates the first free slot from the position on. Searches the map without the lock, and
    /// takes the slot under the lock, if it is still free.
    fn allocate(&self, task: usize) -> usize {
        let _region = region("get_swap_page");
        let position = &self.positions[if P::OWN { task } else { 0 }].0;
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
        let jumps = P::OWN && next.is_multiple_of(TRUNK);
        if jumps { mix((P::dice(task) * SLOTS + slot) as u64) % TRUNKS as u64 * TRUNK as u64 } else { next as u64 }
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

impl<P: Positions> Slots for Trunked<P> {
    fn new(tasks: usize) -> Self {
        let start = |task: usize| if P::OWN { mix(P::dice(task) as u64) % SLOTS as u64 } else { 1 };
        let trunks: Box<[Trunk]> = (0..TRUNKS).map(|_| Trunk::new()).collect();
        trunks.iter().for_each(Trunk::name);
        Self {
            of: PhantomData,
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
