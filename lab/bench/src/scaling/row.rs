//! The repetitions of one run, and the figures that follow from them.

use std::collections::BTreeMap;

use super::lists::ListShare;
use super::parts::Part;
use super::sample::{Inside, Sample, Traffic};
use crate::summary::Summary;

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

    /// What a part of the program loses, in percent of all CPU time.
    pub(crate) fn lost(&self, part: &Part) -> Option<f64> {
        self.inside(|inside| Some(part.lost(&inside.report))).map(|summary| summary.median)
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
