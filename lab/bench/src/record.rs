//! The format of every experiment's figures: flat records that any tool can load as a table.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// A metric's name, its unit, its figure.
pub(crate) type Metric<'a> = (&'a str, &'a str, Summary);

/// What figures are of: the first fields of a [`Record`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) experiment: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) workload: &'a str,
    pub(crate) machine: &'a str,
    pub(crate) cpus: u32,
}

impl Source<'_> {
    /// The record of one figure.
    pub(crate) fn record(self, (metric, unit, summary): Metric<'_>) -> Record {
        Record {
            experiment: self.experiment.to_owned(),
            subject: self.subject.to_owned(),
            workload: self.workload.to_owned(),
            machine: self.machine.to_owned(),
            cpus: self.cpus,
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value: summary.median,
            min: summary.min,
            max: summary.max,
        }
    }
}

/// One figure of one subject.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    /// `hit`, `miss`, `miss-rate`, `scan`, `hit-atomics`, ...
    pub(crate) experiment: String,
    /// The peer or the scheme; ours is `pagefold`.
    pub(crate) subject: String,
    /// What was done: `8 B, uniform, 1 thread`.
    pub(crate) workload: String,
    /// Processor, memory and kernel in a line.
    pub(crate) machine: String,
    /// CPUs of that machine; in a scaling experiment, those that were used.
    pub(crate) cpus: u32,
    /// What the value is: `cpu_per_op`, `cpu_ratio_ordinary`, ...
    pub(crate) metric: String,
    /// `ns`, `x` (a ratio), `%`, `count`.
    pub(crate) unit: String,
    /// The median over rounds.
    pub(crate) value: f64,
    /// The smallest round.
    pub(crate) min: f64,
    /// The largest round.
    pub(crate) max: f64,
}
