//! What a profile looks like: `cargo run --release -p manycore --example profile [--features plot
//! -- FILE.svg]`.
//!
//! Each of 48 CPUs takes pages from a free list that a mutex protects, fills them, and puts them on
//! a second list. That list is protected by a spinlock that this example implements.

use manycore::time::Duration;
use manycore::{AtomicBool, AtomicU64, Machine, Mutex, Ordering::*, profile, spin_hint, work};

#[repr(align(64))]
#[derive(Default)]
struct Line<T>(T);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::preset("xeon-48-cores")?;
    let free = Line(Mutex::named("free_list", 0_u64));
    let (list_lock, list_len) = (Line(AtomicBool::new(false)), Line(AtomicU64::new(0)));
    let report = machine.measure(48, Duration::from_millis(2), |_| {
        let _fault = profile::region("do_fault");
        {
            let _alloc = profile::region("alloc_page");
            *free.0.lock() += 1;
        }
        work::zero(4096);
        let _add = profile::region("lru_add");
        profile::name(&list_lock, "lru_lock");
        while list_lock.0.swap(true, Acquire) {
            spin_hint();
        }
        list_len.0.fetch_add(1, Relaxed);
        list_lock.0.store(false, Release);
    })?;
    println!("{report}");
    #[cfg(feature = "plot")]
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(file, manycore::plot::profile(&report)?)?;
    }
    Ok(())
}
