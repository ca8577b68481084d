//! A hash map in stripes, with a mutex for each stripe. The hash of a key names a slot of a stripe.
//! If the slot has another key, the next slots are tried, until one is free or has the key.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use super::{Shared, measure};
use crate::random::mix;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "hash-map",
    about: "a hash map of 64 stripes with a mutex each; each operation counts a random one of 1024 keys",
    hidden: false,
    measure: |job| measure(job, new),
};

const STRIPES: u64 = 64;
const KEYS: u64 = 1024;
/// Twice as many as a stripe has keys in the mean.
const SLOTS: usize = 32;

/// No key.
const FREE: u64 = 0;

#[derive(Default)]
struct Slot {
    key: AtomicU64,
    count: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe([Slot; SLOTS]);

struct Striped(Box<[Mutex<Stripe>]>);

/// A map for any number of tasks, with all keys.
pub(super) fn new(_: usize) -> impl Shared {
    let map = Striped((0..STRIPES).map(|_| Mutex::new(Stripe::default())).collect());
    (1..=KEYS).for_each(|key| map.count(key));
    map
}

impl Striped {
    /// Adds 1 to the count of a key, which isn't `FREE`.
    fn count(&self, key: u64) {
        let hash = mix(key);
        let stripe = self.0[(hash % STRIPES) as usize].lock();
        let first = (hash / STRIPES) as usize;
        // Relaxed, here and below: under the lock.
        let key_of = |slot: &Slot| slot.key.load(Ordering::Relaxed);
        let mut slots = (0..SLOTS).map(|step| &stripe.0[(first + step) % SLOTS]);
        let slot = slots.find(|slot| [FREE, key].contains(&key_of(slot))).expect("a stripe has room for its keys");
        if key_of(slot) == FREE {
            slot.key.store(key, Ordering::Relaxed);
        }
        slot.count.store(slot.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Shared for Striped {
    fn operate(&self, task: usize, turn: u64) {
        self.count(1 + mix((task as u64) << 32 | turn) % KEYS);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        let stripes: Vec<_> = self.0.iter().map(Mutex::lock).collect();
        let slots = || stripes.iter().flat_map(|stripe| &stripe.0);
        // Relaxed: all tasks have ended.
        assert_eq!(slots().map(|slot| slot.count.load(Ordering::Relaxed)).sum::<u64>(), uses + KEYS);
        let keys = slots().filter(|slot| slot.key.load(Ordering::Relaxed) != FREE).count();
        assert_eq!(keys as u64, KEYS);
    }
}
