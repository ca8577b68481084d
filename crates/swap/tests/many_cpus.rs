//! 88 CPUs allocate, look up and free slots at the same time, in two areas that are half full. The
//! CPUs must lose little time by waiting for each other.
#![cfg(pagefold_manycore)]

use std::sync::{Mutex, PoisonError};

use manycore::time::Duration;
use manycore::{Efficiency, Machine, Window, work};
use pagefold_swap::{Note, Owner, Placement, SlotBatch, SlotId, Slots};
use sync::random::Random;

/// Keeps the host's heap out of the figures.
#[global_allocator]
static ALLOCATOR: manycore::Allocator = manycore::Allocator;

const CPUS: usize = 88;
const AREAS: usize = 2;
const PAGE: usize = 4096;
/// Slots of an area for each CPU that uses it.
const SHARE: usize = 8 * 512;
/// Pages that reclaim writes at once.
const BATCH: usize = 32;
/// The throughput must be at least `EFFICIENCY_MIN` times the throughput of a second run, in which
/// contention costs nothing. To swap one page in and one page out, a CPU may write on average at
/// most `SHARED_WRITES_MAX` times to cache lines that another CPU wrote to last.
const EFFICIENCY_MIN: f64 = 0.9;
const SHARED_WRITES_MAX: f64 = 0.1;

/// The pages that one CPU has in slots. Only this CPU uses its task, so it never waits for the
/// task's lock, which is a lock of the host.
struct Task {
    number: usize,
    swapped: Vec<SlotId>,
    in_memory: usize,
    random: Random,
}

impl Task {
    /// Allocates `SHARE` slots of an area, and then frees half of them, chosen at random.
    fn new(number: usize, area: &Slots) -> Self {
        let mut task = Self { number, swapped: Vec::new(), in_memory: 0, random: Random::seeded(number as u64) };
        let mut taken = 0;
        while taken < SHARE {
            let before = task.swapped.len();
            task.swap_out(area, BATCH.min(SHARE - taken));
            taken += task.swapped.len() - before;
        }
        for _ in 0..SHARE / 2 {
            let slot = task.any();
            area.free(slot).unwrap();
        }
        task
    }

    fn any(&mut self) -> SlotId {
        let at = self.random.below(self.swapped.len() as u64) as usize;
        self.swapped.swap_remove(at)
    }

    fn swap_out(&mut self, area: &Slots, pages: usize) {
        let mut batch = SlotBatch::new();
        while batch.len() < pages {
            assert!(area.allocate(pages - batch.len(), &mut batch) > 0, "half of the area is free");
        }
        let (owner, note) = (Owner::new(self.number as u64).unwrap(), Note::new(self.number as u32, 0));
        for slot in batch {
            area.set_cached(slot, self.number as u32).unwrap();
            work::copy(PAGE);
            area.set_swapped(slot, owner, note).unwrap();
            self.swapped.push(slot);
        }
    }

    /// Swaps a page in. After every `BATCH` pages, swaps as many pages out.
    fn fault(&mut self, area: &Slots) {
        if self.in_memory == BATCH {
            self.swap_out(area, BATCH);
            self.in_memory = 0;
        }
        let slot = self.any();
        area.lookup(slot).unwrap();
        area.note(slot).unwrap();
        work::copy(PAGE);
        area.free(slot).unwrap();
        self.in_memory += 1;
    }
}

#[test]
fn cpus_with_slots_of_their_own_hardly_wait() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap().spread();
    let run = |machine: &Machine| {
        let set_up = || {
            let area = |number| Slots::new(number, (CPUS / AREAS * SHARE) as u64, Placement::PerCpu).unwrap();
            let tasks: Vec<Mutex<Option<Task>>> = (0..CPUS).map(|_| Mutex::new(None)).collect();
            ([area(0), area(1)], tasks)
        };
        let window = Window::Time(Duration::from_millis(2));
        let operation = |(areas, tasks): &([Slots; AREAS], Vec<Mutex<Option<Task>>>), number: usize| {
            let area = &areas[number % AREAS];
            let mut task = tasks[number].lock().unwrap_or_else(PoisonError::into_inner);
            task.get_or_insert_with(|| Task::new(number, area)).fault(area);
        };
        machine.measure_with(CPUS, window, set_up, operation).unwrap()
    };
    let efficiency = Efficiency { with: run(&machine), without: run(&machine.clone().without_contention()) };
    let is_good =
        efficiency.ratio() >= EFFICIENCY_MIN && efficiency.with.shared_writes_per_operation <= SHARED_WRITES_MAX;
    assert!(is_good, "{:.3}\n{}", efficiency.ratio(), efficiency.with);
}
