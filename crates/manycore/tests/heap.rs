//! With the crate's allocator, results don't depend on the state of the host's heap.

use manycore::{AtomicU64, Machine, Mutex, Ordering::Relaxed};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: manycore::Allocator = manycore::Allocator;

/// Creates and drops many small values on the heap, and passes some of them to other threads.
fn churn() -> String {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let passed: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());
    let report = machine.run_tasks(16, |task| {
        let mut mine: Vec<Box<AtomicU64>> = Vec::new();
        for i in 0..100_u64 {
            let value = Arc::new(AtomicU64::new(i));
            value.fetch_add(1, Relaxed);
            passed.lock().push(value);
            mine.push(Box::new(AtomicU64::new(i)));
            mine.iter().for_each(|value| value.store(i + 1, Relaxed));
            let other = passed.lock().pop();
            other.inspect(|value| value.store(task as u64, Relaxed));
        }
    });
    serde_json::to_string(&report.unwrap()).unwrap()
}

#[test]
fn the_heaps_past_does_not_show() {
    let first = churn();
    let mut holes: Vec<Option<Vec<u8>>> = (1..3_000).map(|i| Some(vec![0; i * 31 % 900])).collect();
    holes.iter_mut().step_by(2).for_each(|hole| *hole = None);
    assert_eq!(first, churn());
    drop(holes);
    assert_eq!(first, churn());
}

#[test]
fn blocks_are_whole_lines_and_reused_by_their_cpu() {
    let machine = Machine::preset("altix-64").unwrap();
    machine
        .run_tasks(2, |_| {
            let (a, b) = (Box::new(AtomicU64::new(1)), Box::new(AtomicU64::new(2)));
            let address = |value: &AtomicU64| std::ptr::from_ref(value).addr();
            assert!(address(&a).is_multiple_of(64) && address(&b).is_multiple_of(64));
            let freed = address(&b);
            drop(b);
            let c = Box::new([0_u8; 40]);
            assert_eq!(c.as_ptr().addr(), freed);
            // Alignments above a line, and blocks larger than those on the lists, are left to the
            // host.
            #[repr(align(4096))]
            struct Page([u8; 4096]);
            let page = Box::new(Page([7; 4096]));
            assert!(page.0.as_ptr().addr().is_multiple_of(4096) && page.0[9] == 7);
            let mut large = vec![1_u8; 10_000];
            large.resize(100_000, 2);
            assert_eq!((large[9_999], large[99_999]), (1, 2));
        })
        .unwrap();
}
