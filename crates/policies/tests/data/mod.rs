//! The traces of this folder; see the README here.

pub(crate) const CS: &str = include_str!("cs.runs");
pub(crate) const LOOP: &str = include_str!("loop.runs");
pub(crate) const ZIGZAG: &str = include_str!("zigzag.runs");

/// Returns the pages that a trace accesses.
pub(crate) fn pages(runs: &str) -> Vec<u64> {
    let mut pages = Vec::new();
    for line in runs.lines() {
        let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let (first, step, count) = (numbers[0], numbers[1], numbers[2]);
        for _ in 0..numbers.get(3).copied().unwrap_or(1) {
            pages.extend((0..count).map(|at| (first + at * step) as u64));
        }
    }
    pages
}
