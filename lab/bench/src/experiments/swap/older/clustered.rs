//! A swap area as in Linux since 6.18: each CPU takes slots from a cluster of its own, which has
//! 512 slots. A cluster's lock protects its part of the map and of the swap cache, an array that is
//! read without a lock.
//!
//! At the beginning, all clusters have free slots and are listed. A full cluster is listed again as
//! soon as one of its slots is freed. The list, with the area's lock, is what CPUs share.

use sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use sync::random::Random;

use super::area::{SLOTS, Slots, half_of_them};
use super::region;
use crate::experiments::older::queued_spinlock::{Places, QueuedSpinlock};

/// Slots of a cluster.
const CLUSTER: usize = 512;
const CLUSTERS: usize = SLOTS / CLUSTER;
const NONE: u64 = u64::MAX;

/// A slot of the map, and of the swap cache.
const FREE: u8 = 0;
const USED: u8 = 1;
const CACHED: u8 = 2;

pub(super) struct Clustered {
    lock: QueuedSpinlock,
    /// The clusters that aren't full and that no CPU has: a queue in a ring buffer, under `lock`.
    /// `first` is where the queue begins, `len` its length.
    listed: Box<[AtomicU64]>,
    first: AtomicU64,
    len: AtomicU64,
    clusters: Box<[Cluster]>,
    map: Box<[AtomicU8]>,
    /// The cluster of each CPU.
    own: Box<[Line]>,
    places: Places,
}

#[repr(align(64))]
struct Cluster {
    lock: QueuedSpinlock,
    /// Whether a CPU has it, or it is listed.
    held: AtomicBool,
}

#[repr(align(64))]
struct Line(AtomicU64);

// Relaxed throughout, because a lock protects each word. Only `is_cached` reads the map without
// one.
impl Clustered {
    /// The next cluster of the list.
    fn next_cluster(&self, task: usize) -> usize {
        let _region = region("swap_info lock");
        self.lock.with(&self.places, task, || {
            let len = self.len.load(Ordering::Relaxed);
            assert!(len > 0, "half of the area is free");
            let first = self.first.load(Ordering::Relaxed);
            self.len.store(len - 1, Ordering::Relaxed);
            self.first.store((first + 1) % CLUSTERS as u64, Ordering::Relaxed);
            self.listed[first as usize].load(Ordering::Relaxed) as usize
        })
    }

    fn list(&self, task: usize, cluster: usize) {
        let _region = region("swap_info lock");
        self.lock.with(&self.places, task, || {
            let (first, len) = (self.first.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
            self.listed[(first + len) as usize % CLUSTERS].store(cluster as u64, Ordering::Relaxed);
            self.len.store(len + 1, Ordering::Relaxed);
        });
    }

    /// A free slot of a cluster.
    fn take_of(&self, cluster: usize, task: usize) -> Option<usize> {
        let of = &self.clusters[cluster];
        of.lock.with(&self.places, task, || {
            let slots = cluster * CLUSTER..(cluster + 1) * CLUSTER;
            let slot = slots.into_iter().find(|&slot| self.map[slot].load(Ordering::Relaxed) == FREE);
            match slot {
                Some(slot) => self.map[slot].store(CACHED, Ordering::Relaxed),
                None => of.held.store(false, Ordering::Relaxed),
            }
            slot
        })
    }
}

impl Slots for Clustered {
    fn new(tasks: usize) -> Self {
        let cluster = |_| Cluster { lock: QueuedSpinlock::default(), held: AtomicBool::new(true) };
        // In random order, as in an area that has been in use for long.
        let mut order: Vec<u64> = (0..CLUSTERS as u64).collect();
        let mut random = Random::seeded(11);
        (1..CLUSTERS).rev().for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
        let clusters: Box<[Cluster]> = (0..CLUSTERS).map(cluster).collect();
        clusters.iter().for_each(|cluster| cluster.lock.name());
        Self {
            lock: QueuedSpinlock::default(),
            listed: order.into_iter().map(AtomicU64::new).collect(),
            first: AtomicU64::new(0),
            len: AtomicU64::new(CLUSTERS as u64),
            clusters,
            map: half_of_them().iter().map(|&used| AtomicU8::new(if used { USED } else { FREE })).collect(),
            own: (0..tasks).map(|_| Line(AtomicU64::new(NONE))).collect(),
            places: Places::new(tasks),
        }
    }

    fn take(&self, task: usize) -> usize {
        let _region = region("get_swap_page");
        let own = &self.own[task].0;
        loop {
            let cluster = own.load(Ordering::Relaxed);
            if cluster != NONE
                && let Some(slot) = self.take_of(cluster as usize, task)
            {
                return slot;
            }
            own.store(self.next_cluster(task) as u64, Ordering::Relaxed);
        }
    }

    fn written(&self, task: usize, slot: usize) {
        let _region = region("remove_mapping");
        let lock = &self.clusters[slot / CLUSTER].lock;
        // Release: the page's bytes are on the device.
        lock.with(&self.places, task, || self.map[slot].store(USED, Ordering::Release));
    }

    fn is_cached(&self, slot: usize) -> bool {
        // Acquire pairs with the Release above.
        self.map[slot].load(Ordering::Acquire) == CACHED
    }

    fn free(&self, task: usize, slot: usize) {
        let _region = region("free_swap_slot");
        let cluster = &self.clusters[slot / CLUSTER];
        let is_to_be_listed = cluster.lock.with(&self.places, task, || {
            self.map[slot].store(FREE, Ordering::Relaxed);
            let held = cluster.held.load(Ordering::Relaxed);
            cluster.held.store(true, Ordering::Relaxed);
            !held
        });
        if is_to_be_listed {
            self.list(task, slot / CLUSTER);
        }
    }
}
