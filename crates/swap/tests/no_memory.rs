//! The system has no memory for an area's tables. The test is alone in its process, because the
//! refusals apply to the whole process.
#![cfg(not(pagefold_loom))]

use pagefold_swap::{Placement, Slots};
use sync::memory::refusals;

/// Regression: the clusters of a large area were allocated in a way that ended the process if there
/// was no memory. Each table that grows with the area has to be refused instead.
#[test]
fn slots_without_memory_for_any_of_their_tables_are_refused() {
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
