//! The product: `swap::Slots`.

use swap::{Note, Owner, Placement, SlotBatch, SlotId, Slots};
use sync::random::Random;

use super::swap_cache::region;
use super::{AREAS, BATCH, Share, SwapArea, measure, transfer};
use crate::experiments::OURS;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "each CPU takes slots from a cluster of 512 of its own; an array of words is looked at without a lock",
    hidden: false,
    measure: |job| measure(job, Clustered::new),
};

/// Clusters of an area for each task that uses it, as many as its own stretch and that of a CPU of
/// the other socket.
const CLUSTERS: usize = 8;

struct Clustered(Slots);

impl Clustered {
    fn new(tasks: usize) -> Self {
        let slots = tasks.div_ceil(AREAS) * CLUSTERS * 512;
        Self(Slots::new(0, slots as u64, Placement::PerCpu).expect("memory for the words"))
    }
}

impl SwapArea for Clustered {
    fn swap_out(&self, task: usize, pages: usize, unmap: &dyn Fn(), slots: &mut Vec<u64>) {
        let mut batch = SlotBatch::new();
        while batch.len() < pages.min(BATCH) {
            let _region = region("allocate");
            assert!(self.0.allocate(pages - batch.len(), &mut batch) > 0, "half of the area is free");
        }
        let _region = region("swap_out");
        for &slot in &batch {
            unmap();
            self.0.set_cached(slot, task as u32).expect("it is ours");
            transfer();
        }
        for slot in batch {
            let owner = Owner::new(task as u64).expect("a small number");
            self.0.set_swapped(slot, owner, Note::new(task as u32, 0)).expect("it is ours");
            slots.push(slot.bits());
        }
    }

    fn swap_in(&self, _: usize, slot: u64) {
        let slot = SlotId::from_bits(slot).expect("a slot's bits");
        {
            let _region = region("lookup");
            self.0.lookup(slot).expect("it is in use");
            self.0.note(slot).expect("it is in use");
        }
        transfer();
        let _region = region("free");
        self.0.free(slot).expect("it is ours");
    }

    /// Takes its share of all slots, and frees every other one.
    fn begin(&self, share: Share) -> Vec<u64> {
        let mut random = Random::seeded(share.number as u64);
        let mut kept = Vec::new();
        let mut freed = Vec::new();
        while kept.len() + freed.len() < CLUSTERS * 512 {
            let mut batch = SlotBatch::new();
            if self.0.allocate(BATCH, &mut batch) == 0 {
                break;
            }
            for slot in batch {
                if random.one_in(2) { &mut kept } else { &mut freed }.push(slot);
            }
        }
        let owner = Owner::new(share.number as u64).expect("a small number");
        kept.iter().for_each(|slot| self.0.set_swapped(*slot, owner, Note::default()).expect("it is ours"));
        freed.into_iter().for_each(|slot| self.0.free(slot).expect("it is ours"));
        kept.into_iter().map(SlotId::bits).collect()
    }
}
