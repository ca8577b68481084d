//! The system has no memory for an area's tables or buffers. The tests are alone in their process,
//! and run one at a time, because the refusals apply to the whole process.
#![cfg(not(pagefold_loom))]

use pagefold_swap::{AddError, AreaOptions, Memory, Placement, Slots, Source, Swap};
use sync::Arc;
use sync::lock::Mutex;
use sync::memory::refusals;
use test_disks::SimulatedDisk;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Regression: the clusters of a large area were allocated in a way that ended the process if there
/// was no memory. Each table that grows with the area has to be refused instead.
#[test]
fn slots_without_memory_for_any_of_their_tables_are_refused() {
    let _turn = ONE_AT_A_TIME.lock();
    let slots = || Slots::new(0, 1 << 20, Placement::PerCpu);
    refusals::refuse(u64::MAX..=u64::MAX);
    assert!(slots().is_some());
    // The words and notes, the checksums, the clusters, and two lists of clusters.
    assert_eq!(refusals::allow(), 5);
    for call in 1..=5 {
        refusals::refuse(call..=call);
        assert!(slots().is_none(), "call {call}");
        refusals::allow();
    }
}

#[derive(Debug)]
struct Plenty;

impl Memory for Plenty {
    fn try_charge(&self, _: u64) -> bool {
        true
    }

    fn uncharge(&self, _: u64) {}

    fn max(&self) -> u64 {
        u64::MAX
    }
}

/// Regression: each CPU's buffers for compression were allocated in a way that ended the process if
/// there was no memory. With pages of 2 MiB these buffers take 4 MiB for each CPU.
#[test]
fn a_compressed_area_without_memory_for_any_of_its_buffers_is_refused() {
    let _turn = ONE_AT_A_TIME.lock();
    let swap = Swap::new(4096);
    let add = || {
        let source = Source::Compressed { limit: 1 << 20, reserve: 0, memory: Arc::new(Plenty) };
        swap.add(&source, &SimulatedDisk::default(), AreaOptions::default())
    };
    refusals::refuse(u64::MAX..=u64::MAX);
    add().unwrap();
    let calls = refusals::allow();
    // Two buffers for each CPU, and two for recompression.
    let buffers = 2 * sync::cpu::count() as u64 + if cfg!(feature = "zstd") { 2 } else { 0 };
    assert_eq!(calls, buffers + TABLES);
    let is_added = |call: &u64| {
        refusals::refuse(*call..=*call);
        let added = add();
        refusals::allow();
        assert!(matches!(added, Ok(_) | Err(AddError::NoMemory { .. })), "call {call}: {added:?}");
        added.is_ok()
    };
    assert_eq!((1..=calls).filter(is_added).count(), 2, "memory that isn't given back does no harm");
}

/// The number of calls with which a compressed area gets memory for its tables: the tables of its
/// slots, of its chunks and their memory, the slots' places, and the page that is being
/// recompressed. Two of these calls give memory back to the system, so that sparse tables take none
/// yet.
const TABLES: u64 = 13;
