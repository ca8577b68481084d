//! How long operations took: each one's time, kept to within 1 %.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Times of many operations of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // From 1 ns on, as far as needed.
        Self(Histogram::new(2).expect("two digits are possible"))
    }
}

impl Latencies {
    /// Runs `operation` and notes how long it took.
    #[inline(always)]
    pub(crate) fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = operation();
        self.note(start.elapsed());
        result
    }

    /// Notes how long an operation took.
    #[inline(always)]
    pub(crate) fn note(&mut self, time: Duration) {
        self.0 += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// Operations noted.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Microseconds that `percent` of the operations took at most.
    pub(crate) fn percentile_us(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e3
    }

    /// Microseconds of the longest.
    pub(crate) fn worst_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}
