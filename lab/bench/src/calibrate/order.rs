//! Pairs of costs whose order is the same on every machine. If the measured costs have another
//! order, the probe has measured something else.

use super::Bench;

/// The first of two is at most the second.
const ORDERS: &[(&str, &str)] = &[
    ("line_hit", "socket_hit"),
    ("socket_hit", "first_touch"),
    ("core_cache_rate", "first_cache_rate"),
    ("socket_cache_rate", "core_cache_rate"),
    ("memory_read_rate", "socket_cache_rate"),
];
/// Two costs that are nearly equal may be measured in the wrong order, because of noise. This is
/// accepted up to this factor.
const NOISE: f64 = 1.1;

/// Returns which two of the costs measured so far have an impossible order. Only looks at pairs in
/// which at least one cost has a number of at least `first`.
pub(super) fn impossible(bench: &Bench, first: usize) -> Option<String> {
    let find = |cost: &str| bench.measured.iter().enumerate().find(|(_, measured)| measured.cost == cost);
    ORDERS.iter().find_map(|&(small, large)| {
        let ((at, small), (behind, large)) = find(small).zip(find(large))?;
        let wrong = at.max(behind) >= first && small.value > NOISE * large.value;
        wrong.then(|| format!("{} at {:.1} and {} at {:.1}", small.cost, small.value, large.cost, large.value))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Measured, timing::Rounds};
    use super::*;
    use manycore::Shape;

    #[test]
    fn a_first_cache_slower_than_the_next_is_noticed() {
        let measured = [("first_cache_rate", 23.9), ("core_cache_rate", 42.2)];
        let measured = measured.map(|(cost, value)| Measured { cost, value, low: value, high: value });
        let shape = Shape::new(1, 1, 1).unwrap();
        let mut bench = Bench { rounds: Rounds::new(true), shape, measured: measured.to_vec(), notes: Vec::new() };
        assert!(impossible(&bench, 0).unwrap().contains("first_cache_rate"));
        assert_eq!(impossible(&bench, 2), None, "of an earlier probe");
        bench.measured[0].value = 40.0;
        assert_eq!(impossible(&bench, 0), None, "as good as equal");
    }
}
