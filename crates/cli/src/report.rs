//! The figures of a run, in the form of the tables and of the JSON output.

use std::time::Duration;

use hdrhistogram::Histogram;
use pagefold::{CompressedSwapStats, FileStats, GroupStats, Stats, SwapAreaStats};
use serde::Serialize;

use crate::policy_report::PolicyReport;
use crate::room::Room;
use crate::tally::Tally;
use crate::trace_files::{Skipped, TraceFile};
use crate::write_back::WrittenBack;

/// The number of points on a latency curve in each of these ranges: 0 to 50 %, 50 to 75 %, 75 to
/// 87.5 %, and so on.
const PERCENTILES_A_HALVING: u32 = 4;

/// The results of a command.
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

/// The workload that the user asked for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Workload {
    pub(crate) file: String,
    /// `user`, `temporary` or `simulated`.
    pub(crate) file_kind: &'static str,
    pub(crate) size_bytes: u64,
    pub(crate) trace: Option<String>,
    pub(crate) patterns: Vec<String>,
    /// Length of generated reads and writes.
    pub(crate) op_bytes: Option<u64>,
    /// The percentage of generated operations that are reads.
    pub(crate) reads_percent: Option<u64>,
    pub(crate) sync_every_s: Option<f64>,
    /// The maximum number of operations of a thread in flight.
    pub(crate) depth: u16,
    /// Some operations are writes.
    pub(crate) writes: bool,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) page_bytes: u64,
    pub(crate) backend: String,
    /// `random`, `sequential` or `normal`.
    pub(crate) advised: &'static str,
    pub(crate) verified: bool,
    /// The files that the trace names; none in most formats.
    pub(crate) trace_files: Vec<TraceFile>,
    /// Parts of the trace that were left out.
    pub(crate) skipped: Skipped,
    pub(crate) trace_memory_bytes: u64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport {
    /// The budget.
    pub(crate) memory_bytes: u64,
    /// The number of pages of data that there was room for; `null` without `--pages`.
    pub(crate) pages: Option<u64>,
    /// The part of the budget that the groups share: less than all of it with `--pages`.
    pub(crate) shared_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) groups: Vec<Row>,
    pub(crate) total: Row,
    /// The part of the budget that holds no pages: maps, counters.
    pub(crate) metadata_bytes: u64,
    /// Peak resident memory of the whole process during the run.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// `null` if the run only reads.
    pub(crate) write_back: Option<WriteBack>,
    /// `null` without swap areas.
    pub(crate) swap: Option<SwapReport>,
    /// How long a simulated disk was busy, in its own time.
    pub(crate) simulated_disk_busy_s: Option<f64>,
    /// `null` without `--policy-report`, and if the run ended early.
    pub(crate) policies: Option<PolicyReport>,
}

/// Pages swapped out and in since the beginning, including while memory was filled.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SwapReport {
    pub(crate) pages_out: u64,
    /// Pages that repeated one word, and needed no slot.
    pub(crate) same_filled: u64,
    pub(crate) pages_in: u64,
    pub(crate) used_bytes: u64,
    pub(crate) bytes: u64,
    /// Swapped pages were encrypted.
    pub(crate) encrypted: bool,
    pub(crate) areas: Vec<SwapAreaReport>,
    /// `null` without an area of compressed pages.
    pub(crate) compressed: Option<CompressedSwapStats>,
}

/// A swap area, and how CPUs share its slots.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SwapAreaReport {
    /// Its path, `memory` or `compressed`.
    pub(crate) name: String,
    /// `per-cpu` or `sequential`.
    pub(crate) placement: String,
    /// Why it is that, as in `sda rotates`.
    pub(crate) placement_reason: String,
}

impl SwapAreaReport {
    fn new(area: &SwapAreaStats) -> Self {
        let (placement, placement_reason) = (area.placement.to_string(), area.placement_reason.to_string());
        Self { name: area.name.clone(), placement, placement_reason }
    }
}

impl SwapReport {
    pub(crate) fn new(stats: &Stats) -> Self {
        let sum = |count: fn(&GroupStats) -> u64| stats.groups.iter().map(count).sum();
        Self {
            pages_out: sum(|group| group.swap_outs),
            same_filled: sum(|group| group.same_filled),
            pages_in: sum(|group| group.swap_ins),
            used_bytes: stats.swap.iter().map(|area| area.used_bytes).sum(),
            bytes: stats.swap.iter().map(|area| area.bytes).sum(),
            encrypted: stats.swap.iter().any(|area| area.is_encrypted),
            areas: stats.swap.iter().map(SwapAreaReport::new).collect(),
            compressed: stats.swap.iter().find_map(|area| area.compressed.clone()),
        }
    }
}

/// The figures of a group, or the total of all groups.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The generated pattern of the group; `null` for a trace, and for the total.
    pub(crate) pattern: Option<String>,
    /// Operations of all kinds.
    pub(crate) ops: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) reads: u64,
    pub(crate) reads_per_s: f64,
    pub(crate) bytes_read: u64,
    pub(crate) writes: u64,
    pub(crate) writes_per_s: f64,
    pub(crate) bytes_written: u64,
    /// Lookups of pages: a read of three pages makes three.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Lookups that waited for another thread's load of the page; they don't count as hits.
    pub(crate) waits: u64,
    /// `null` if there were no lookups.
    pub(crate) hit_rate: Option<f64>,
    /// Latency of reads; `null` if there were none.
    pub(crate) latency: Option<Latency>,
    /// `null` if there were no writes.
    pub(crate) write_latency: Option<Latency>,
    pub(crate) bytes_in: u64,
    /// Whole pages written to the file and synced, including those of the sync at the end.
    pub(crate) bytes_out: u64,
    /// Bytes written but not yet in the file when the operations ended, before the sync at the end.
    pub(crate) unclean_bytes: u64,
    /// Pages read before they were asked for; they don't count as misses.
    pub(crate) read_ahead: u64,
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

/// Write-back to the file. Counts are of the whole run, including the sync at the end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WriteBack {
    pub(crate) bytes_out: u64,
    /// Requests that wrote these bytes.
    pub(crate) requests: u64,
    /// `null` if nothing was written.
    pub(crate) requests_per_page: Option<f64>,
    pub(crate) errors: u64,
    /// Syncs of the trace and of `--sync-every`, without the one at the end.
    pub(crate) syncs: u64,
    pub(crate) sync_latency: Option<Latency>,
    /// Bytes that the sync at the end had to write, and how long that took,
    pub(crate) end_bytes: u64,
    pub(crate) end_seconds: f64,
    /// and bytes that it couldn't write.
    pub(crate) unwritten_bytes: u64,
    /// Bytes that were read once more and compared; `null` if none were.
    pub(crate) compared_bytes: Option<u64>,
    /// The file was read once more, and something was wrong: the error has the details.
    #[serde(skip)]
    pub(crate) comparison_failed: bool,
}

/// Latencies of the operations of one kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
    /// From the fastest to the slowest, closer together towards the slow end.
    pub(crate) percentiles: Vec<Percentile>,
}

/// The latency that this percentage of the operations didn't exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Percentile {
    pub(crate) percent: f64,
    pub(crate) ns: u64,
}

/// The figures of a run as a whole.
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
            percentiles: percentiles(histogram),
        })
    }
}

/// Returns the points of a histogram's curve. Points that would coincide are merged.
fn percentiles(histogram: &Histogram<u64>) -> Vec<Percentile> {
    let point = |percent, ns| Percentile { percent, ns };
    let steps = histogram.iter_quantiles(PERCENTILES_A_HALVING);
    let steps =
        steps.map(|step| point(100.0 * step.quantile_iterated_to(), step.value_iterated_to().min(histogram.max())));
    let mut points: Vec<_> = [point(0.0, histogram.min())].into_iter().chain(steps).collect();
    points.dedup_by_key(|point| (point.percent.to_bits(), point.ns));
    points
}

impl Row {
    /// Creates a row from the counts of the threads and the statistics of the library.
    fn new(tally: &Tally, stats: &GroupStats, wall: Duration) -> Self {
        let per_s = |ops: u64| ops as f64 / wall.as_secs_f64().max(1e-9);
        Self {
            name: stats.name.clone(),
            pattern: None,
            ops: tally.ops(),
            ops_per_s: per_s(tally.ops()),
            reads: tally.reads.ops,
            reads_per_s: per_s(tally.reads.ops),
            bytes_read: tally.reads.bytes,
            writes: tally.writes.ops,
            writes_per_s: per_s(tally.writes.ops),
            bytes_written: tally.writes.bytes,
            hits: stats.hits,
            misses: stats.misses,
            waits: stats.waits,
            hit_rate: ratio(stats.hits as f64, stats.hits.saturating_add(stats.misses).saturating_add(stats.waits)),
            latency: Latency::of(&tally.reads.latency_ns),
            write_latency: Latency::of(&tally.writes.latency_ns),
            bytes_in: stats.bytes_in,
            bytes_out: stats.bytes_out,
            unclean_bytes: stats.unclean_bytes,
            read_ahead: stats.read_ahead,
            evictions: stats.evictions,
            refaults: stats.refaults,
            peak_bytes: stats.peak_bytes,
            max_bytes: stats.max_bytes,
            cpu_ns_per_op: ratio(tally.cpu.as_nanos() as f64, tally.ops()),
            past_end: tally.past_end,
            cut: tally.cut,
        }
    }
}

impl RunReport {
    /// Creates the report of a run.
    pub(crate) fn new(room: Room, stats: &Stats, groups: &[(GroupStats, Tally)], totals: &Totals) -> Self {
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
            memory_bytes: room.budget,
            pages: room.pages,
            shared_bytes: room.shared,
            seconds: totals.wall.as_secs_f64(),
            groups: groups.iter().map(|(stats, tally)| Row::new(tally, stats, totals.wall)).collect(),
            total: Row::new(&all.1, &all.0, totals.wall),
            metadata_bytes: stats.metadata_bytes,
            peak_rss_bytes: totals.peak_rss_bytes,
            write_back: None,
            swap: None,
            simulated_disk_busy_s: totals.disk.map(|busy| busy.as_secs_f64()),
            policies: None,
        }
    }
}

impl WriteBack {
    /// Creates the figures. `stats` are those after the sync at the end.
    pub(crate) fn new(end: &WrittenBack, stats: &Stats, groups: &[(GroupStats, Tally)]) -> Self {
        let mut syncs = end.periodic.clone();
        groups.iter().for_each(|(_, tally)| syncs.add(&tally.syncs));
        let sum = |count: fn(&FileStats) -> u64| stats.files.iter().map(count).sum::<u64>();
        let (bytes_out, requests) = (sum(|file| file.bytes_out), sum(|file| file.write_requests));
        Self {
            bytes_out,
            requests,
            requests_per_page: ratio(requests as f64, bytes_out.div_ceil(stats.page_bytes.max(1))),
            errors: sum(|file| file.write_errors),
            syncs: syncs.ops,
            sync_latency: Latency::of(&syncs.latency_ns),
            end_bytes: end.unclean_bytes,
            end_seconds: end.time.as_secs_f64(),
            unwritten_bytes: end.left_bytes,
            compared_bytes: None,
            comparison_failed: false,
        }
    }
}

/// Adds the counts of a group. Memory isn't added, as groups reach their peaks at different
/// moments.
fn add_events(sum: &mut GroupStats, group: &GroupStats) {
    sum.hits += group.hits;
    sum.misses += group.misses;
    sum.waits += group.waits;
    sum.bytes_in += group.bytes_in;
    sum.bytes_out += group.bytes_out;
    sum.unclean_bytes += group.unclean_bytes;
    sum.read_ahead += group.read_ahead;
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
            let reads = &mut tally.reads;
            (reads.ops, reads.bytes) = (hits + misses, (hits + misses) * 4096);
            reads.latency_ns.record_n(200, hits).unwrap();
            reads.latency_ns.record_n(90_000, misses).unwrap();
            tally.cpu = Duration::from_micros(hits + misses);
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
        RunReport::new(Room::of_bytes(memory), &stats, &[group("a", 900, 100), group("b", 300, 700)], &totals)
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
        let latency = run.total.latency.as_ref().unwrap();
        assert_eq!(latency.p50_ns, 200);
        assert!((90_000..90_100).contains(&latency.p99_ns), "{latency:?}");
        assert!(latency.p99_9_ns <= latency.max_ns);
        let points = &latency.percentiles;
        assert_eq!(points[0], Percentile { percent: 0.0, ns: 200 });
        assert_eq!(points.last(), Some(&Percentile { percent: 100.0, ns: latency.max_ns }));
        assert!(points.is_sorted_by(|a, b| a.percent < b.percent && a.ns <= b.ns), "{points:?}");
        // 60 % of the operations took 200 ns.
        let slow = points.iter().find(|point| point.ns > 200).unwrap();
        assert!((60.0..65.0).contains(&slow.percent), "{points:?}");
    }

    #[test]
    fn nothing_done_is_no_division_by_zero() {
        let totals = Totals { wall: Duration::ZERO, cpu: Duration::ZERO, peak_rss_bytes: None, disk: None };
        let run =
            RunReport::new(Room::of_bytes(1), &Stats::default(), &[(GroupStats::default(), Tally::new())], &totals);
        assert!(run.total.latency.is_none() && run.total.hit_rate.is_none() && run.total.cpu_ns_per_op.is_none());
        assert!(!serde_json::to_string(&run).unwrap().contains("NaN"));
    }
}
