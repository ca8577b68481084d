//! What the runs of an experiment gave, and the ratios that tables show.

use std::collections::BTreeMap;

use super::experiment::{Experiment, Measure, Scheme};
use super::lists::ListShare;
use super::sample::{Inside, Sample, Traffic};
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

/// All repetitions of one run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What the tasks did.
    pub(crate) workload: &'static str,
    /// Which scheme.
    pub(crate) scheme: &'static str,
    /// On how many CPUs.
    pub(crate) cpus: usize,
    /// By seed or round, from 0. Those that were dropped are missing.
    pub(crate) samples: BTreeMap<u32, Sample>,
}

impl Row {
    /// Over the repetitions.
    pub(crate) fn summary(&self, figure: impl Fn(&Sample) -> f64) -> Summary {
        Summary::of(self.samples.values().map(figure))
    }

    /// Operations in a second.
    pub(crate) fn throughput(&self) -> Summary {
        self.summary(|sample| sample.operations_per_s)
    }

    /// Standard deviation of the throughput over the repetitions, in percent of its mean.
    pub(crate) fn deviation(&self) -> f64 {
        let values: Vec<f64> = self.samples.values().map(|sample| sample.operations_per_s).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        if mean == 0.0 { 0.0 } else { 100.0 * variance.sqrt() / mean }
    }

    /// What a line took between two real CPUs, in nanoseconds.
    pub(crate) fn line_ns(&self) -> Option<Summary> {
        let looks: Vec<f64> = self.samples.values().filter_map(|sample| sample.line_ns).flatten().collect();
        (!looks.is_empty()).then(|| Summary::of(looks))
    }

    /// A figure that only a virtual machine has.
    pub(crate) fn inside(&self, figure: impl Fn(&Inside) -> Option<f64>) -> Option<Summary> {
        let values: Option<Vec<f64>> = self.samples.values().map(|sample| figure(sample.inside.as_ref()?)).collect();
        values.filter(|values| !values.is_empty()).map(Summary::of)
    }

    /// A figure of the traffic to and from a device, if all repetitions counted the traffic.
    pub(crate) fn traffic(&self, figure: impl Fn(&Traffic) -> Option<f64>) -> Option<Summary> {
        let values: Option<Vec<f64>> = self.samples.values().map(|sample| figure(sample.traffic.as_ref()?)).collect();
        values.filter(|values| !values.is_empty()).map(Summary::of)
    }

    /// Throughput over that without contention.
    pub(crate) fn efficiency(&self) -> Option<Summary> {
        self.inside(|inside| inside.efficiency)
    }

    /// Shared writes for each operation.
    pub(crate) fn shared_writes(&self) -> Option<Summary> {
        self.inside(|inside| Some(inside.report.shared_writes_per_operation))
    }

    /// Transfers for each operation.
    pub(crate) fn transfers(&self) -> Option<Summary> {
        self.inside(|inside| Some(inside.report.transfers_per_operation))
    }

    /// What 99.9 % of operations took at most, in nanoseconds.
    pub(crate) fn p999_ns(&self) -> Option<Summary> {
        self.inside(|inside| Some(inside.report.latency?.p999_ns))
    }

    /// What memory moved, as a percentage of its bandwidth.
    pub(crate) fn memory(&self) -> Option<Summary> {
        self.inside(|inside| inside.report.memory)
    }

    /// What lists and their locks take, in experiments in which there are any.
    pub(crate) fn lists(&self, figure: impl Fn(ListShare) -> f64) -> Option<Summary> {
        self.inside(|inside| Some(figure(ListShare::of(&inside.report))))
    }

    /// Where the time of the first repetition went.
    pub(crate) fn report(&self) -> Option<&manycore::Report> {
        Some(&self.samples.values().next()?.inside.as_ref()?.report)
    }
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
