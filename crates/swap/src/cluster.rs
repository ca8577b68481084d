//! A cluster: 512 consecutive slots on the device, and a lock. To allocate from the cluster, a CPU
//! takes the lock. Each CPU has a *hand*, which names the cluster that the CPU allocates from
//! (`hand`). Each cluster is in one of four states, which its field `list` names. The *partial* and
//! the *empty* clusters are on lists, which are bits in
//! [`ClusterList`](crate::cluster_list::ClusterList)s:
//!
//! | state | free slots | found by |
//! |---|---|---|
//! | *full* | none | no CPU, until a slot is freed |
//! | *partial* | some | a CPU that finds no *empty* cluster |
//! | *empty* | all | a CPU that needs a cluster |
//! | *held* | some, or all | the CPU whose hand names it; other CPUs if they find no *empty* or *partial* cluster |
//!
//! - C1. Four things change only under the cluster's lock: a slot's bit, the number of free slots,
//!   `list`, and the cluster's bits in the [`ClusterList`](crate::cluster_list::ClusterList)s.
//!   Whenever the lock is free, they agree: the cluster is in the *partial* or *empty* list if and
//!   only if `list` names that list. A cluster in one of these lists has free slots; a *full*
//!   cluster has none.
//! - C2. A slot's bit is clear if and only if its word is *free*. Exception: when an exchange takes
//!   a slot from the reserve, the slot's word is *free* for a moment, and its bit stays set.
//!
//! The state *held* doesn't reserve a cluster for one CPU; it only makes other CPUs prefer other
//! clusters. Several hands may name the same cluster, and a hand may name a cluster that isn't
//! *held* any more. Only the cluster's lock prevents a slot from being allocated twice.

use sync::atomic::{AtomicU8, AtomicU32, Ordering};
use sync::lock::{Mutex, MutexGuard};

use crate::slot_bits::{SLOTS, SlotBits};

/// The list that a cluster is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum List {
    Full,
    Partial,
    Empty,
    Held,
}

impl List {
    fn from_bits(bits: u8) -> Self {
        [Self::Full, Self::Partial, Self::Empty, Self::Held][usize::from(bits) % 4]
    }
}

/// The fields that an allocating CPU writes, on two cache lines of their own.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Cluster {
    bits: SlotBits,
    lock: Mutex<()>,
    list: AtomicU8,
    free: AtomicU32,
    /// Where the next allocation searches first: after the last allocated slot, so that writes are
    /// consecutive.
    next: AtomicU32,
    /// The number of slots; fewer in an area's first and last cluster.
    slots: u32,
}

/// A cluster whose lock the caller holds. All accesses to its fields are `Relaxed`: under the lock
/// (C1).
pub(crate) struct LockedCluster<'a> {
    cluster: &'a Cluster,
    _lock: MutexGuard<'a, ()>,
}

impl Cluster {
    /// Creates a cluster without the slots for which `absent` returns true.
    pub(crate) fn new(absent: impl Fn(usize) -> bool) -> Self {
        let bits = SlotBits::default();
        let absent_slots = (0..SLOTS).filter(|&slot| absent(slot)).map(|slot| bits.set(slot, true)).count();
        let slots = (SLOTS - absent_slots) as u32;
        let list = if slots == 0 { List::Full } else { List::Empty };
        Self {
            bits,
            lock: Mutex::new(()),
            list: AtomicU8::new(list as u8),
            free: AtomicU32::new(slots),
            next: AtomicU32::new(0),
            slots,
        }
    }

    pub(crate) fn lock(&self) -> LockedCluster<'_> {
        LockedCluster { cluster: self, _lock: self.lock.lock() }
    }

    /// Returns `None` if another thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<LockedCluster<'_>> {
        self.lock.try_lock().map(|lock| LockedCluster { cluster: self, _lock: lock })
    }

    /// Returns the number of free slots: exact while no thread changes the cluster.
    pub(crate) fn free(&self) -> u32 {
        // Relaxed: a hint, unless no other thread uses the cluster.
        self.free.load(Ordering::Relaxed)
    }

    /// Returns the number of the cluster's slots.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }
}

impl LockedCluster<'_> {
    pub(crate) fn free(&self) -> u32 {
        self.cluster.free()
    }

    pub(crate) fn list(&self) -> List {
        List::from_bits(self.cluster.list.load(Ordering::Relaxed))
    }

    pub(crate) fn set_list(&self, list: List) {
        self.cluster.list.store(list as u8, Ordering::Relaxed);
    }

    /// Returns the list on which the cluster belongs if it isn't *held*.
    pub(crate) fn list_by_use(&self) -> List {
        match self.free() {
            0 => List::Full,
            free if free == self.cluster.slots => List::Empty,
            _ => List::Partial,
        }
    }

    /// Takes `want` consecutive free slots, otherwise up to `want` free slots anywhere. Returns the
    /// number of slots taken.
    pub(crate) fn take(&self, want: usize, mut taken: impl FnMut(usize)) -> usize {
        let cluster = self.cluster;
        let want = want.min(self.free() as usize);
        if want == 0 {
            return 0;
        }
        let used = cluster.bits.get();
        let next = cluster.next.load(Ordering::Relaxed) as usize;
        let mut last = 0;
        let mut take = |slot: usize| {
            cluster.bits.set(slot, true);
            taken(slot);
            last = slot;
        };
        match used.run(next, want) {
            Some(start) => (start..start + want).for_each(&mut take),
            None => used.free_from(next).take(want).for_each(&mut take),
        }
        cluster.free.store(cluster.free() - want as u32, Ordering::Relaxed);
        cluster.next.store(((last + 1) % SLOTS) as u32, Ordering::Relaxed);
        want
    }

    /// Counts the free slots in the bits.
    #[cfg(test)]
    pub(crate) fn count_free(&self) -> usize {
        self.cluster.bits.get().free_from(0).count()
    }

    /// Marks a used slot as free.
    pub(crate) fn put(&self, slot: usize) {
        self.cluster.bits.set(slot, false);
        self.cluster.free.store(self.cluster.free() + 1, Ordering::Relaxed);
    }
}
