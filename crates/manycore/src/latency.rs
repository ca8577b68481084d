//! A histogram of how long operations took. The buckets are wider for longer times.

use crate::report::Latency;
use crate::ticks::{Ticks, to_ns};

/// The log2 of the number of buckets between a power of two and the next.
const PARTS_BITS: u32 = 4;

/// The times of all operations of a run.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// One count for each bucket, up to the bucket of the longest time so far.
    counts: Vec<u64>,
    count: u64,
    max: Ticks,
}

impl Latencies {
    pub(crate) fn add(&mut self, ticks: Ticks) {
        let bucket = bucket_of(ticks);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(ticks);
    }

    /// Returns nothing if no operation was timed.
    pub(crate) fn summary(&self) -> Option<Latency> {
        let quantile = |share: f64| {
            let wanted = (self.count as f64 * share).ceil() as u64;
            let mut sum = 0;
            let bucket = self.counts.iter().position(|count| {
                sum += count;
                sum >= wanted
            });
            to_ns(bucket.map_or(self.max, |bucket| end_of(bucket).min(self.max)))
        };
        (self.count > 0).then(|| Latency {
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: to_ns(self.max),
        })
    }
}

/// Times below 2^`PARTS_BITS` have a bucket each. From there on, each power of two is divided into
/// 2^`PARTS_BITS` equal buckets.
fn bucket_of(ticks: Ticks) -> usize {
    let power = (Ticks::BITS - ticks.leading_zeros()).saturating_sub(PARTS_BITS + 1);
    ((power as usize) << PARTS_BITS) + (ticks >> power) as usize
}

/// Returns the longest time in a bucket.
fn end_of(bucket: usize) -> Ticks {
    let power = (bucket >> PARTS_BITS).saturating_sub(1);
    let first = bucket - (power << PARTS_BITS);
    ((first as Ticks + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_and_are_narrow() {
        let mut before = 0;
        for ticks in (0..100_000).chain((17..60).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let bucket = bucket_of(ticks);
            assert!(bucket == before || bucket == before + 1 || ticks > 100_000, "{ticks}: {bucket} after {before}");
            assert!((ticks..=ticks + ticks / 15).contains(&end_of(bucket)), "{ticks}: {}", end_of(bucket));
            before = bucket;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.summary(), None);
        (1..=10_000).for_each(|n| latencies.add(n * 1000));
        let summary = latencies.summary().unwrap();
        for (value, exact) in [(summary.p50_ns, 5000.0), (summary.p99_ns, 9900.0), (summary.p999_ns, 9990.0)] {
            assert!((exact..exact * 1.07).contains(&value), "{value}, {exact}");
        }
        assert_eq!(summary.max_ns, 10_000.0);
    }
}
