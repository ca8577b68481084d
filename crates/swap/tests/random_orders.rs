//! Several CPUs allocate and free slots, and their steps are interleaved at random. There are more
//! CPUs and clusters than loom could explore.
#![cfg(pagefold_manycore)]

use std::collections::HashSet;

use manycore::{Costs, Machine, Shape};
use pagefold_swap::{Placement, SlotBatch, SlotId, Slots};
use sync::lock::Mutex;
use sync::random::Random;

const CPUS: usize = 5;

/// Creates an area of `slots` slots, in which five CPUs allocate and free slots.
fn run(machine: &Machine, slots: u64) -> Result<(), Box<manycore::Failure>> {
    let held = Mutex::new(HashSet::new());
    let take = |slots: &Slots, want: usize| -> Vec<SlotId> {
        let mut batch = SlotBatch::new();
        slots.allocate(want, &mut batch);
        assert!(batch.iter().all(|slot| held.lock().insert(slot.number())), "{batch:?}: given twice");
        batch.to_vec()
    };
    let put = |slots: &Slots, slot: SlotId| {
        held.lock().remove(&slot.number());
        slots.free(slot).unwrap();
    };
    let run = machine.run(|| {
        let area = Slots::new(0, slots, Placement::PerCpu).unwrap();
        // Allocates all slots but a few, so that the CPUs contend for these.
        let mut mine = Vec::new();
        while mine.len() + CPUS + 1 < slots as usize {
            mine.extend(take(&area, (slots as usize - mine.len() - CPUS - 1).min(64)));
        }
        manycore::thread::scope(|scope| {
            for cpu in 0..CPUS {
                let (area, take, put) = (&area, &take, &put);
                scope.spawn(Some(cpu), move || {
                    let mut random = Random::seeded(cpu as u64);
                    for _ in 0..3 {
                        // Five slots are free, as slot 0 is the header. Each of the five threads
                        // has at most one.
                        let got = take(area, 1);
                        assert_eq!(got.len(), 1, "there was one for each");
                        got.into_iter().for_each(|slot| put(area, slot));
                        if random.one_in(3) {
                            area.drain();
                        }
                    }
                });
            }
        });
        mine.into_iter().for_each(|slot| put(&area, slot));
        area.drain();
        assert_eq!(area.used(), 0);
        let mut all = 0;
        loop {
            match take(&area, 64).len() {
                0 => break,
                taken => all += taken,
            }
        }
        assert_eq!(all as u64, slots - 1, "a slot is lost");
    });
    run.map(|_| ())
}

#[test]
fn random_orders_lose_no_slot_and_give_none_twice() {
    let machine = Machine::new(Shape::new(1, CPUS, 1).unwrap(), Costs::default()).unwrap().events_max(3_000_000);
    machine.explore(0..300, |machine| run(machine, 20)).unwrap();
    machine.explore(0..30, |machine| run(machine, 700)).unwrap();
}
