//! A swap area as Linux 5.7 had it on a device that doesn't seek, once no cluster of it is free.

use sync::atomic::{AtomicU8, AtomicU64, Ordering, spin_hint};
use sync::lock::Mutex;
use sync::random::{Random, mix};

use super::queue_lock::{Places, QueueLock};
use super::swap_cache::{CacheInfo, Holder, TRUNK, Trunk, region};
use super::{Share, SwapArea, transfer};

/// Trunks in an area: 16 GiB.
const TRUNKS: usize = 256;
const SLOTS: usize = TRUNKS * TRUNK;
/// Slots with a lock in common, of which eight share a cache line.
const CLUSTER: usize = 256;
/// Slots that a CPU collects before it frees them.
const FREE_BATCH: usize = 64;

/// Where CPUs look for slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// All from the same place on.
    Shared,
    /// Each from its own, which jumps to a random trunk when it comes to another one.
    Own,
}

pub(super) struct Trunked {
    position: Position,
    lock: QueueLock,
    in_use: Line<AtomicU64>,
    positions: Box<[Line<AtomicU64>]>,
    map: Box<[AtomicU8]>,
    /// Slots in use at the beginning.
    used: Vec<u64>,
    clusters: Box<[AtomicU64]>,
    trunks: Box<[Trunk]>,
    freed: Box<[Line<Mutex<Vec<usize>>>]>,
    info: CacheInfo,
    places: Places,
    /// See [`super::HELD_NS`].
    held_ns: u64,
}

#[repr(align(64))]
struct Line<T>(T);

/// In a cluster's word.
const LOCKED: u64 = 1 << 63;

impl Trunked {
    pub(super) fn new(position: Position, tasks: usize, held_ns: u64) -> Self {
        let mut random = Random::seeded(7);
        let used: Vec<u64> = (1..SLOTS as u64).filter(|_| random.one_in(2)).collect();
        // Slot 0 is the header.
        let mut map = vec![1];
        map.resize(SLOTS, 0);
        used.iter().for_each(|&slot| map[slot as usize] = 1);
        let start = |task: usize| match position {
            Position::Shared => 1,
            Position::Own => mix(task as u64) % SLOTS as u64,
        };
        let area = Self {
            position,
            lock: QueueLock::default(),
            in_use: Line(AtomicU64::new(0)),
            positions: (0..tasks).map(|task| Line(AtomicU64::new(start(task)))).collect(),
            map: map.into_iter().map(AtomicU8::new).collect(),
            used,
            clusters: (0..SLOTS / CLUSTER).map(|_| AtomicU64::new(CLUSTER as u64)).collect(),
            trunks: (0..TRUNKS).map(|_| Trunk::new()).collect(),
            freed: (0..tasks).map(|_| Line(Mutex::new(Vec::new()))).collect(),
            info: CacheInfo::default(),
            places: Places::new(tasks),
            held_ns,
        };
        area.trunks.iter().for_each(Trunk::name);
        area.lock.name();
        area
    }

    /// A free slot from the position on. The map is searched without the lock, and taken from with
    /// it.
    fn allocate(&self, task: usize) -> usize {
        let _region = region("get_swap_page");
        let position = &self.positions[if self.position == Position::Shared { 0 } else { task }].0;
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
        let jumps = self.position == Position::Own && next.is_multiple_of(TRUNK);
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

impl SwapArea for Trunked {
    fn swap_out(&self, task: usize, pages: usize, unmap: &dyn Fn(), slots: &mut Vec<u64>) {
        let holder = Holder { places: &self.places, task, held_ns: self.held_ns };
        for _ in 0..pages {
            unmap();
            let slot = self.allocate(task);
            let trunk = &self.trunks[slot / TRUNK];
            trunk.add(slot % TRUNK, &holder, &self.info);
            transfer();
            trunk.remove(slot % TRUNK, &holder, &self.info);
            slots.push(slot as u64);
        }
    }

    fn swap_in(&self, task: usize, slot: u64) {
        let slot = slot as usize;
        self.trunks[slot / TRUNK].look_up(slot % TRUNK, &self.info);
        transfer();
        self.free(task, slot);
    }

    fn begin(&self, share: Share) -> Vec<u64> {
        self.used.iter().copied().skip(share.number).step_by(share.of).collect()
    }
}
