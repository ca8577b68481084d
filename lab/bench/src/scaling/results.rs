//! What the runs of an experiment gave, and the ratios that tables show.

use super::experiment::{Experiment, Measure, Scheme};
use super::row::Row;
use super::workload::Workload;
use crate::summary::Summary;

/// Where it was run.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The name in records: a preset, the name in a machine file, or a description of this machine.
    pub(crate) name: String,
    /// CPUs it has.
    pub(crate) cpus: usize,
}

/// All runs of one experiment on one machine.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    /// Of which.
    pub(crate) experiment: &'static Experiment,
    /// Where.
    pub(crate) host: Host,
    /// In the order of the tables.
    pub(crate) workloads: Vec<&'static Workload>,
    /// In the order of the tables; the first is the reference.
    pub(crate) schemes: Vec<&'static Scheme>,
    /// Ascending.
    pub(crate) cpus: Vec<usize>,
    /// How it was done, for a line above the table.
    pub(crate) how: String,
    /// A row for each workload, number of CPUs and scheme.
    pub(crate) rows: Vec<Row>,
    /// Which schemes have none, and why.
    pub(crate) missing: Vec<String>,
    /// How many real runs were dropped, because the CPUs weren't as far from each other as the user
    /// wanted.
    pub(crate) dropped: Option<u32>,
}

impl Results {
    /// The rows of a workload.
    pub(crate) fn of(&self, workload: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.workload == workload)
    }

    /// One row.
    pub(crate) fn row(&self, workload: &str, scheme: &str, cpus: usize) -> Option<&Row> {
        self.of(workload).find(|row| row.scheme == scheme && row.cpus == cpus)
    }

    /// The scheme that speed-ups refer to.
    pub(crate) fn reference(&self) -> &'static str {
        self.schemes.first().map_or("", |scheme| scheme.name)
    }

    /// The fewest CPUs, which scaling refers to.
    pub(crate) fn fewest(&self) -> usize {
        self.cpus.first().copied().unwrap_or(1)
    }

    /// The most CPUs.
    pub(crate) fn most(&self) -> usize {
        self.cpus.last().copied().unwrap_or(1)
    }

    /// Throughput over that of the reference on as many CPUs.
    pub(crate) fn speed_up(&self, row: &Row) -> Option<Summary> {
        ratio(row, self.row(row.workload, self.reference(), row.cpus)?)
    }

    /// Throughput over that of the same scheme on `cpus` CPUs.
    pub(crate) fn scaling(&self, row: &Row, cpus: usize) -> Option<Summary> {
        self.over(row, row.scheme, cpus)
    }

    /// Throughput over that of `scheme` on `cpus` CPUs.
    pub(crate) fn over(&self, row: &Row, scheme: &str, cpus: usize) -> Option<Summary> {
        ratio(row, self.row(row.workload, scheme, cpus)?)
    }

    /// The figure that a claim is about.
    pub(crate) fn measure(&self, row: &Row, measure: Measure) -> Option<f64> {
        let summary = match measure {
            Measure::Scaling => self.scaling(row, 1),
            Measure::Efficiency => row.efficiency(),
            Measure::SharedWrites => row.shared_writes(),
            Measure::ListsLost => row.lists(|lists| lists.lost),
            Measure::Over(scheme) => ratio(row, self.row(row.workload, scheme, row.cpus)?),
        };
        summary.map(|summary| summary.median)
    }
}

/// Ratios are taken within a repetition.
fn ratio(row: &Row, to: &Row) -> Option<Summary> {
    let pairs = row.samples.iter().filter_map(|(repeat, sample)| Some((sample, to.samples.get(repeat)?)));
    let ratios: Vec<f64> = pairs.map(|(row, to)| row.operations_per_s / to.operations_per_s).collect();
    (!ratios.is_empty() && ratios.iter().all(|ratio| ratio.is_finite())).then(|| Summary::of(ratios))
}
