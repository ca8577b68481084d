//! Hits on 88 virtual CPUs: none of them waits for another.
//!
//! Run with `RUSTFLAGS="--cfg pagefold_manycore"` in a target directory of its own; see `manycore`'s documentation for
//! what such a machine is. Its costs aren't calibrated to Pagefold's code yet, so the ratio is what counts, and the
//! number of shared writes, which depends on no cost.
#![cfg(pagefold_manycore)]

use manycore::{Machine, time::Duration};
use pagefold::io::{SimulatedDisk, Timing};
use pagefold::{File, Group, Pagefold};

#[global_allocator]
static ALLOCATOR: manycore::Allocator = manycore::Allocator;

const CPUS: usize = 88;
/// Each CPU's own part of the file, in pages.
const PART: u64 = 16;

fn set_up() -> (File, Group, Pagefold) {
    let disk = SimulatedDisk::new(Timing::default());
    disk.add_generated("/f", 1, CPUS as u64 * PART * 4096);
    let mm = Pagefold::builder().memory("16MiB").backend(disk).build().unwrap();
    let group = mm.group("a").build().unwrap();
    let file = group.open("/f").unwrap();
    let mut page = vec![0; 4096];
    for _ in 0..2 {
        for number in 0..CPUS as u64 * PART {
            file.read_at(&mut page, number * 4096).unwrap();
        }
    }
    (file, group, mm)
}

/// Contention efficiency and shared writes per hit of `CPUS` tasks, each of which reads the page that `choose` says.
fn lookup(choose: fn(u64) -> u64) -> (f64, f64) {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let efficiency = machine
        .efficiency(|machine| {
            machine.measure_with(CPUS, Duration::from_micros(300), set_up, move |(file, ..), task| {
                file.read_at(&mut [0; 8], choose(task as u64) * 4096).unwrap();
            })
        })
        .unwrap();
    println!("{:.1} M reads/s\n{}", efficiency.with.operations_per_s / 1e6, efficiency.with);
    (efficiency.ratio(), efficiency.with.shared_writes_per_operation)
}

/// One test, because machines that run side by side would share the process's statics.
#[test]
fn hits_scale_and_a_counter_that_they_share_would_not() {
    hits_of_own_parts_and_of_one_hot_page_scale();
    a_shared_counter_does_not();
}

fn hits_of_own_parts_and_of_one_hot_page_scale() {
    for choose in [|task| task * PART, |_| 3] as [fn(u64) -> u64; 2] {
        let (efficiency, shared_writes) = lookup(choose);
        assert!(efficiency >= 0.99, "contention efficiency {efficiency}");
        assert!(shared_writes < 0.001, "{shared_writes} shared writes a hit");
    }
}

/// A counter that all hits share, as an example of what the gate is for.
fn a_shared_counter_does_not() {
    use sync::atomic::{AtomicU64, Ordering};
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let efficiency = machine
        .efficiency(|machine| {
            let set_up = || (set_up(), AtomicU64::new(0));
            machine.measure_with(CPUS, Duration::from_micros(300), set_up, |((file, ..), count), _| {
                count.fetch_add(1, Ordering::Relaxed);
                file.read_at(&mut [0; 8], 3 * 4096).unwrap();
            })
        })
        .unwrap();
    assert!(efficiency.ratio() < 0.5, "contention efficiency {}", efficiency.ratio());
}
