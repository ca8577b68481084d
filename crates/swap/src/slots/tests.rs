//! Tests of the allocator against a simple model, and of its guarantees.

use super::*;
use crate::slot_word::BATCH_MAX;
use std::collections::HashMap;
use sync::random::Random;

impl Slots {
    fn check(&self) {
        let hands = &self.hands;
        self.clusters.check(|cluster| hands.iter().any(|hand| hand.cluster() == cluster));
    }
}

fn take(slots: &Slots, want: usize) -> SlotBatch {
    let mut batch = SlotBatch::new();
    while batch.len() < want && slots.allocate(want - batch.len(), &mut batch) > 0 {}
    batch
}

#[test]
fn a_batch_in_an_unused_area_is_one_run() {
    for placement in [Placement::PerCpu, Placement::Sequential] {
        let slots = Slots::new(3, 4096, placement).unwrap();
        // So few that no CPU gets to the end of a cluster, after which a batch may have two runs.
        for _ in 0..15 {
            let batch = take(&slots, 32);
            assert!(batch.windows(2).all(|pair| pair[1].number() == pair[0].number() + 1), "{batch:?}");
            assert!(batch.iter().all(|slot| slot.area() == 3 && slot.generation() == 0 && slot.number() > 0));
        }
        assert_eq!(slots.used(), 480);
    }
}

#[test]
fn a_device_that_seeks_is_written_in_order() {
    let slots = Slots::new(0, 2048, Placement::Sequential).unwrap();
    let numbers: Vec<u32> = std::iter::from_fn(|| Some(take(&slots, 7)).filter(|batch| !batch.is_empty()))
        .flatten()
        .map(|slot| slot.number())
        .collect();
    assert_eq!(numbers, (1..2048).collect::<Vec<_>>());
}

#[test]
fn a_stale_number_is_refused_by_all() {
    let slots = Slots::new(0, 100, Placement::PerCpu).unwrap();
    let slot = take(&slots, 1)[0];
    let owner = Owner::new(1).unwrap();
    slots.set_swapped(slot, owner, Note::new(1, 2)).unwrap();
    slots.free(slot).unwrap();
    let stale = Err(StaleSlot(slot));
    assert_eq!(slots.lookup(slot), Err(StaleSlot(slot)), "in a batch");
    slots.drain();
    for used in [false, true] {
        assert_eq!(slots.lookup(slot), Err(StaleSlot(slot)));
        assert_eq!(
            [slots.free(slot), slots.set_cached(slot, 1), slots.set_swapped(slot, owner, Note::default())],
            [stale; 3]
        );
        assert_eq!(slots.note(slot), Err(StaleSlot(slot)));
        // These allocations take the slot, so it is in use again in the second round.
        assert_eq!((take(&slots, 64).len(), take(&slots, 64).len()), if used { (0, 0) } else { (64, 35) });
    }
    let elsewhere = SlotId::new(1, slot.number(), 1);
    assert_eq!(slots.lookup(elsewhere), Err(StaleSlot(elsewhere)), "another area's");
    assert_eq!(slots.lookup(SlotId::new(0, 5000, 0)).is_err(), slots.state(5000).is_none());
}

#[test]
fn areas_of_impossible_sizes_are_refused() {
    for slots in [0, 1, (1 << 31) + 1, u64::MAX] {
        assert!(Slots::new(0, slots, Placement::PerCpu).is_none(), "{slots}");
    }
    assert_eq!(take(&Slots::new(0, 2, Placement::PerCpu).unwrap(), 5).len(), 1);
}

/// Takes random steps, and checks the counts after each. The test's one thread has one CPU number,
/// so it can't act as several CPUs; the tests in `tests/` use several threads for that.
fn random_steps(seed: u64) -> (u64, u64) {
    let mut random = Random::seeded(seed);
    let size_max = if random.one_in(3) { 6000 } else { 700 };
    let size = 2 + random.below(size_max);
    let placement = if random.one_in(4) { Placement::Sequential } else { Placement::PerCpu };
    let slots = Slots::new(0, size, placement).unwrap();
    let mut held: Vec<SlotId> = Vec::new();
    let mut uses: HashMap<u32, u32> = HashMap::new();
    let (mut full, mut scattered) = (0, 0);
    for _ in 0..60 {
        match random.below(8) {
            0..4 => {
                let want = 1 + random.below(BATCH_MAX as u64) as usize;
                let batch = take(&slots, want);
                scattered += u64::from(batch.windows(2).any(|pair| pair[1].number() != pair[0].number() + 1));
                assert!(batch.len() == want || held.len() + batch.len() == size as usize - 1, "{batch:?} of {size}");
                full += u64::from(batch.len() < want);
                for slot in batch {
                    assert!((1..size).contains(&u64::from(slot.number())));
                    let uses = uses.entry(slot.number()).or_default();
                    assert_eq!(slot.generation(), *uses, "slot {} is given twice, or skipped a use", slot.number());
                    *uses += 1;
                    held.push(slot);
                }
            }
            4..7 => {
                let stretch = random.one_in(2);
                for _ in 0..random.below(held.len() as u64 / 2 + 20) {
                    if held.is_empty() {
                        break;
                    }
                    let at = if stretch { held.len() - 1 } else { random.below(held.len() as u64) as usize };
                    slots.free(held.swap_remove(at)).unwrap();
                }
            }
            _ => slots.drain(),
        }
        slots.check();
        assert!(held.iter().all(|&slot| slots.lookup(slot) == Ok(SlotState::Taken)));
    }
    slots.drain();
    assert_eq!((slots.used(), slots.held().count()), (held.len() as u64, held.len()));
    held.into_iter().for_each(|slot| slots.free(slot).unwrap());
    slots.drain();
    slots.check();
    assert_eq!((slots.used(), slots.held().count()), (0, 0));
    (full, scattered)
}

#[test]
fn random_steps_lose_no_slot_and_give_none_twice() {
    let seeds = sync::random::seeds(300);
    let (mut full, mut scattered) = (0, 0);
    for seed in seeds.clone() {
        let seen = std::panic::catch_unwind(|| random_steps(seed)).unwrap_or_else(|panic| {
            eprintln!("repeat with: PAGEFOLD_SEED={seed} cargo test -p pagefold-swap random_steps");
            std::panic::resume_unwind(panic)
        });
        (full, scattered) = (full + seen.0, scattered + seen.1);
    }
    if seeds.end - seeds.start >= 100 {
        assert!(full > 0 && scattered > 0, "full {full} times, scattered {scattered} times");
    }
}

#[test]
fn a_reserve_is_filled_from_as_many_clusters_as_it_takes() {
    // The last cluster has two slots, and is where some CPUs begin.
    for clusters in [1, 2, 3, 7] {
        let make = move || {
            let slots = Slots::new(0, (clusters * SLOTS + 2) as u64, Placement::PerCpu).unwrap().with_reserve();
            assert_eq!((slots.reserve.len(), slots.used()), (slots.reserve.size(), 0));
        };
        let threads: Vec<_> = (0..8).map(|_| sync::thread::spawn("reserve", make).unwrap()).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn no_more_slots_are_used_than_there_are() {
    let slots = Slots::new(0, 600, Placement::PerCpu).unwrap().with_reserve();
    let all = std::iter::from_fn(|| Some(take(&slots, 64)).filter(|batch| !batch.is_empty())).flatten().count() as u64;
    assert_eq!((all, slots.used()), (slots.slots(), all));
    let reserved = slots.allocate_reserved().unwrap();
    assert_eq!(slots.used(), all);
    slots.free(reserved).unwrap();
    assert_eq!(slots.used(), all);
}

#[test]
fn pages_keep_their_slots_while_half_are_free_whatever_their_cluster_has() {
    let slots = Slots::new(0, (8 * SLOTS) as u64, Placement::PerCpu).unwrap();
    let all: Vec<SlotId> =
        std::iter::from_fn(|| Some(take(&slots, 64)).filter(|batch| !batch.is_empty())).flatten().collect();
    assert!(!slots.may_keep(all[0]));
    // Cluster 0 stays full; the others lose two slots of three.
    let (stay, go): (Vec<SlotId>, Vec<SlotId>) =
        all.into_iter().partition(|slot| (slot.number() as usize) < SLOTS || slot.number().is_multiple_of(3));
    go.into_iter().for_each(|slot| slots.free(slot).unwrap());
    slots.drain();
    assert!(stay.iter().all(|&slot| slots.may_keep(slot)));
    // About four fifths are in use.
    (0..32).for_each(|_| assert_eq!(take(&slots, 64).len(), 64));
    assert!(!stay.iter().any(|&slot| slots.may_keep(slot)));
}

/// Regression: a thread made `SEARCHES_MAX` searches without success. During the last one, a slot
/// was freed in a part of the area that this search had already passed. The thread then stored in
/// `full_at` the value that `changes` had after the search; it should have been the value from
/// before the search. So allocations failed, although this slot was free, until another slot was
/// freed.
#[test]
fn what_is_freed_during_the_last_search_isnt_covered() {
    let changes = std::cell::Cell::new(10);
    let mut searches = 0;
    let one_is_freed = || {
        searches += 1;
        changes.set(changes.get() + 1);
        0
    };
    assert_eq!(until_quiet(|| changes.get(), one_is_freed), (0, changes.get() - 1));
    assert_eq!(searches, SEARCHES_MAX);
    assert_eq!(until_quiet(|| 5, || 0), (0, 5), "nothing was freed: one search");
    assert_eq!(until_quiet(|| 5, || 3), (3, 5));
}
