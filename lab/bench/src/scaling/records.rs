//! Results as the flat records that all of this crate's experiments print.

use super::lists::ListShare;
use super::results::Results;
use super::row::Row;
use crate::record::{Record, Source};
use crate::summary::Summary;

/// Operations in a second.
pub(crate) const THROUGHPUT: &str = "throughput";
/// Throughput over that of the fewest CPUs.
pub(crate) const SCALING: &str = "scaling";
/// The time of a line's transfer between two real CPUs, measured before and after each run.
pub(crate) const LINE: &str = "line";
/// Real runs of all schemes on all workloads that were dropped.
pub(crate) const DROPPED: &str = "dropped";

/// All figures of `results` as records. The subject is the scheme; `cpus` is the number of CPUs of
/// the tasks.
pub(crate) fn of(results: &Results) -> Vec<Record> {
    let rows = results.rows.iter().flat_map(|row| of_row(results, row));
    let all = source(results, "all", "all", results.most());
    let dropped = results.dropped.map(|runs| all.record((DROPPED, "count", Summary::exact(runs.into()))));
    rows.chain(dropped).collect()
}

fn source<'a>(results: &'a Results, subject: &'a str, workload: &'a str, cpus: usize) -> Source<'a> {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    Source { experiment: results.experiment.name, subject, workload, machine: &results.host.name, cpus }
}

fn of_row(results: &Results, row: &Row) -> Vec<Record> {
    let lists = |figure: &dyn Fn(ListShare) -> f64| {
        Some(row).filter(|_| results.experiment.lists).and_then(|row| row.lists(figure))
    };
    let figures = [
        (THROUGHPUT, "1/s", Some(row.throughput())),
        ("deviation", "%", Some(Summary::exact(row.deviation()))),
        ("cpu_per_op", "ns", Some(row.summary(|sample| sample.cpu_ns_per_operation))),
        ("speed_up", "x", results.speed_up(row)),
        (SCALING, "x", results.scaling(row, results.fewest())),
        (LINE, "ns", row.line_ns()),
        ("efficiency", "x", row.efficiency()),
        ("shared_writes", "count", row.shared_writes()),
        ("transfers", "count", row.transfers()),
        ("p99.9", "ns", row.p999_ns()),
        ("memory", "%", row.memory()),
        ("faults", "count", row.traffic(|traffic| Some(traffic.faults))),
        ("bytes_in", "B", row.traffic(|traffic| Some(traffic.bytes_in))),
        ("bytes_out", "B", row.traffic(|traffic| Some(traffic.bytes_out))),
        ("cpu_per_fault", "ns", row.traffic(|traffic| traffic.cpu_ns_per_fault)),
        ("lists_lost", "%", lists(&|lists| lists.lost)),
        ("lists_accesses", "count", lists(&|lists| lists.accesses)),
        ("lists_shared_writes", "count", lists(&|lists| lists.shared_writes)),
    ];
    let source = source(results, row.scheme, row.workload, row.cpus);
    let record = |(metric, unit, summary): (&str, &str, Option<Summary>)| Some(source.record((metric, unit, summary?)));
    figures.into_iter().filter_map(record).collect()
}
