//! The figures of a run, as they go into tables and JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use pagefold::{GroupStats, Stats};
use serde::Serialize;

use crate::worker::Tally;

/// All that a command did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: &'static str,
    pub(crate) workload: Workload,
    pub(crate) runs: Vec<RunReport>,
    /// A signal ended the last run, or kept others from starting.
    pub(crate) interrupted: bool,
    /// Why the last run ended early, or a check failed.
    pub(crate) error: Option<String>,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Workload {
    pub(crate) file: String,
    /// `user`, `temporary` or `simulated`.
    pub(crate) file_kind: &'static str,
    pub(crate) size_bytes: u64,
    pub(crate) trace: Option<String>,
    pub(crate) patterns: Vec<String>,
    /// Length of generated reads.
    pub(crate) read_bytes: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) page_bytes: u64,
    pub(crate) backend: String,
    pub(crate) verified: bool,
    pub(crate) writes_skipped: u64,
    pub(crate) trace_memory_bytes: u64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport {
    pub(crate) memory_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) groups: Vec<Row>,
    pub(crate) total: Row,
    /// Part of the budget that holds no pages: maps, counters.
    pub(crate) metadata_bytes: u64,
    /// The process, with everything in it, during the run.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// How long a simulated disk was busy, in its own time.
    pub(crate) simulated_disk_busy_s: Option<f64>,
}

/// The figures of a group, or of all.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// What was made up for the group; `null` for a trace, and for the total.
    pub(crate) pattern: Option<String>,
    pub(crate) ops: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) bytes_read: u64,
    /// Lookups of pages: a read of three pages makes three.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Lookups that waited for another thread's load of the page; no hits either.
    pub(crate) waits: u64,
    /// `null` if there were no lookups.
    pub(crate) hit_rate: Option<f64>,
    /// `null` if there were no operations.
    pub(crate) latency: Option<Latency>,
    pub(crate) bytes_in: u64,
    pub(crate) evictions: u64,
    pub(crate) refaults: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) max_bytes: u64,
    /// `null` if there were no operations.
    pub(crate) cpu_ns_per_op: Option<f64>,
    /// Operations not done because they begin at or past the end of the file.
    pub(crate) past_end: u64,
    /// Operations shortened because they reach past the end of the file.
    pub(crate) cut: u64,
}

/// How long reads took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
}

/// What belongs to a run as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) peak_rss_bytes: Option<u64>,
    pub(crate) disk: Option<Duration>,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
        (!histogram.is_empty()).then(|| Self {
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: histogram.max(),
        })
    }
}

impl Row {
    /// From what the threads counted and what the library did.
    fn new(tally: &Tally, stats: &GroupStats, wall: Duration) -> Self {
        Self {
            name: stats.name.clone(),
            pattern: None,
            ops: tally.ops,
            ops_per_s: tally.ops as f64 / wall.as_secs_f64().max(1e-9),
            bytes_read: tally.bytes,
            hits: stats.hits,
            misses: stats.misses,
            waits: stats.waits,
            hit_rate: ratio(stats.hits as f64, stats.hits.saturating_add(stats.misses).saturating_add(stats.waits)),
            latency: Latency::of(&tally.latency_ns),
            bytes_in: stats.bytes_in,
            evictions: stats.evictions,
            refaults: stats.refaults,
            peak_bytes: stats.peak_bytes,
            max_bytes: stats.max_bytes,
            cpu_ns_per_op: ratio(tally.cpu.as_nanos() as f64, tally.ops),
            past_end: tally.past_end,
            cut: tally.cut,
        }
    }
}

impl RunReport {
    /// The report of a run in a budget of `memory` bytes.
    pub(crate) fn new(memory: u64, stats: &Stats, groups: &[(GroupStats, Tally)], totals: &Totals) -> Self {
        let mut all = (GroupStats::default(), Tally::new());
        for (stats, tally) in groups {
            all.1.add(tally);
            add_events(&mut all.0, stats);
        }
        all.0.name = "total".to_owned();
        all.0.peak_bytes = stats.peak_bytes;
        all.0.max_bytes = stats.budget_bytes;
        all.1.cpu = totals.cpu;
        Self {
            memory_bytes: memory,
            seconds: totals.wall.as_secs_f64(),
            groups: groups.iter().map(|(stats, tally)| Row::new(tally, stats, totals.wall)).collect(),
            total: Row::new(&all.1, &all.0, totals.wall),
            metadata_bytes: stats.metadata_bytes,
            peak_rss_bytes: totals.peak_rss_bytes,
            simulated_disk_busy_s: totals.disk.map(|busy| busy.as_secs_f64()),
        }
    }
}

/// Adds what a group counted; memory isn't added, as peaks are reached at different moments.
fn add_events(sum: &mut GroupStats, group: &GroupStats) {
    sum.hits += group.hits;
    sum.misses += group.misses;
    sum.waits += group.waits;
    sum.bytes_in += group.bytes_in;
    sum.evictions += group.evictions;
    sum.refaults += group.refaults;
    sum.direct_reclaims += group.direct_reclaims;
    sum.errors += group.errors;
}

fn ratio(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of two groups with round figures.
    pub(crate) fn sample(memory: u64) -> RunReport {
        let group = |name: &str, hits, misses| {
            let mut stats = GroupStats::default();
            (stats.name, stats.hits, stats.misses) = (name.to_owned(), hits, misses);
            (stats.max_bytes, stats.peak_bytes) = (memory / 2, memory / 2);
            let mut tally = Tally::new();
            tally.ops = hits + misses;
            tally.bytes = tally.ops * 4096;
            tally.cpu = Duration::from_micros(tally.ops);
            tally.latency_ns.record_n(200, hits).unwrap();
            tally.latency_ns.record_n(90_000, misses).unwrap();
            (stats, tally)
        };
        let mut stats = Stats::default();
        (stats.budget_bytes, stats.peak_bytes) = (memory, memory - 4096);
        let totals = Totals {
            wall: Duration::from_secs(2),
            cpu: Duration::from_millis(3),
            peak_rss_bytes: Some(memory + 1),
            disk: None,
        };
        RunReport::new(memory, &stats, &[group("a", 900, 100), group("b", 300, 700)], &totals)
    }

    #[test]
    fn totals_are_sums_except_for_memory_and_cpu() {
        let run = sample(1 << 20);
        assert_eq!((run.total.ops, run.total.hits, run.total.misses), (2000, 1200, 800));
        assert_eq!(run.total.hit_rate, Some(0.6));
        assert_eq!(run.total.ops_per_s, 1000.0);
        assert_eq!((run.total.peak_bytes, run.total.max_bytes), ((1 << 20) - 4096, 1 << 20));
        assert_eq!(run.total.cpu_ns_per_op, Some(1500.0));
        assert_eq!(run.groups[0].cpu_ns_per_op, Some(1000.0));
    }

    #[test]
    fn percentiles_come_from_all_threads() {
        let run = sample(1 << 20);
        let latency = run.total.latency.unwrap();
        assert_eq!(latency.p50_ns, 200);
        assert!((90_000..90_100).contains(&latency.p99_ns), "{latency:?}");
        assert!(latency.p99_9_ns <= latency.max_ns);
    }

    #[test]
    fn nothing_done_is_no_division_by_zero() {
        let totals = Totals { wall: Duration::ZERO, cpu: Duration::ZERO, peak_rss_bytes: None, disk: None };
        let run = RunReport::new(1, &Stats::default(), &[(GroupStats::default(), Tally::new())], &totals);
        assert!(run.total.latency.is_none() && run.total.hit_rate.is_none() && run.total.cpu_ns_per_op.is_none());
        assert!(!serde_json::to_string(&run).unwrap().contains("NaN"));
    }
}
