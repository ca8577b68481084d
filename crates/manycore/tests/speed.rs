//! The speed of the simulation. Run by hand, with `--release -- --ignored --nocapture`.

use manycore::{AtomicU64, Machine, Ordering::Relaxed};
use std::time::Instant;

#[repr(align(64))]
struct Line(AtomicU64);

#[test]
#[ignore = "for measuring the host"]
fn events_per_second() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    for (name, lines, each) in [("own lines", 88, 120_000), ("one line", 1, 30_000)] {
        let counters: Vec<Line> = (0..lines).map(|_| Line(AtomicU64::new(0))).collect();
        let start = Instant::now();
        let report = machine.run_tasks(88, |task| {
            for _ in 0..each {
                counters[task % lines].0.fetch_add(1, Relaxed);
            }
        });
        let (report, seconds) = (report.unwrap(), start.elapsed().as_secs_f64());
        println!("{name}: {} events in {seconds:.2} s, {:.1} M/s", report.events, report.events as f64 / seconds / 1e6);
    }
}
