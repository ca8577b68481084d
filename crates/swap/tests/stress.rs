//! Several threads swap pages out and in, while another thread adds and removes areas. Meant to be
//! run under ThreadSanitizer, too. The bytes of a page depend on its number and version, so a page
//! with the bytes of another page, or with old bytes, is detected.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

mod support;

use std::collections::HashMap;

use pagefold_swap::{AreaOptions, NotBack, Note, Owner, Owners, Placement, SlotId, Source, Swap};
use support::*;
use sync::atomic::{AtomicBool, Ordering};
use sync::random::Random;
use sync::{Arc, thread};
use test_disks::SimulatedDisk;

const THREADS: u64 = 4;
const STEPS: u64 = 400;

fn area(swap: &Swap, pages: u64, placement: Placement) -> u32 {
    let options = AreaOptions { placement: Some(placement), ..AreaOptions::default() };
    swap.add(&Source::Memory { bytes: pages * PAGE as u64 }, &SimulatedDisk::default(), options).unwrap()
}

/// Swaps out and in this thread's own pages. The pages of all threads exceed the areas.
fn work(swap: &Swap, thread: u64) {
    let mut random = Random::seeded(thread);
    let mut slots: HashMap<u64, (SlotId, u64)> = HashMap::new();
    for step in 0..STEPS {
        let mut numbers: Vec<u64> = (0..random.below(20))
            .map(|_| thread * 1000 + random.below(200))
            .filter(|page| !slots.contains_key(page))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        for (&number, slot) in numbers.iter().zip(out(swap, &numbers, step)) {
            if let Ok(slot) = slot {
                slots.insert(number, (slot, step));
            }
        }
        let back: Vec<u64> = slots.keys().copied().filter(|_| random.one_in(3)).collect();
        for number in back {
            let (slot, version) = slots[&number];
            check_in(swap, slot, number, version);
            if random.one_in(4) {
                swap.set_cached(slot, number as u32).unwrap();
                swap.set_swapped(slot, owner(number), Note::new(group(number), 0)).unwrap();
            } else {
                swap.free(slot).unwrap();
                slots.remove(&number);
            }
        }
    }
    slots.into_values().for_each(|(slot, _)| swap.free(slot).unwrap());
}

#[test]
fn no_page_gets_anothers_bytes_and_no_slot_is_lost() {
    for placement in [Placement::PerCpu, Placement::Sequential] {
        let swap = Arc::new(Swap::new(PAGE));
        area(&swap, 300, placement);
        area(&swap, 100, placement);
        let done = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let swap = Arc::clone(&swap);
                thread::spawn("worker", move || work(&swap, number)).unwrap()
            })
            .collect();
        let (theirs, over) = (Arc::clone(&swap), Arc::clone(&done));
        let comes_and_goes = thread::spawn("areas", move || {
            while !over.load(Ordering::Relaxed) {
                // Of lower priority, so that it is often empty, and can be removed.
                let options = AreaOptions { priority: -1, ..AreaOptions::default() };
                let source = Source::Memory { bytes: 10 * PAGE as u64 };
                let number = theirs.add(&source, &SimulatedDisk::default(), options).unwrap();
                thread::yield_now();
                if theirs.remove(number, &Unwilling).is_err() {
                    return;
                }
            }
        })
        .unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
        comes_and_goes.join().unwrap();
        swap.drain();
        assert!(swap.areas().iter().all(|area| area.used == 0), "{:?}", swap.areas());
    }
}

/// An owner that brings no page back. So the removal of an area that has pages must fail, and leave
/// the area in use.
struct Unwilling;

impl Owners for Unwilling {
    fn bring_back(&self, _: Owner, _: SlotId) -> Result<(), NotBack> {
        Err(NotBack::NoMemory)
    }

    fn move_slot(&self, _: Owner, _: SlotId, _: &mut dyn FnMut() -> Option<SlotId>) {}

    fn give_up_slot(&self, _: u32, _: SlotId) {}
}
