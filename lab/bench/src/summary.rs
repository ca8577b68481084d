//! Median and spread of a few samples.

/// The middle of some samples and how far they went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// The middle sample; the mean of the two middle ones if their number is even.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Summary {
    /// Of at least one sample.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        assert!(!sorted.is_empty(), "a summary needs a sample");
        sorted.sort_by(f64::total_cmp);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: f64::midpoint(lower, upper), min: sorted[0], max: sorted[sorted.len() - 1] }
    }

    /// Something counted or computed rather than sampled.
    pub(crate) fn exact(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_between_min_and_max() {
        let odd = Summary::of([3.0, 1.0, 2.0]);
        assert_eq!(odd, Summary { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Summary::of([7.0]), Summary::exact(7.0));
    }
}
