//! The one shape in which every experiment hands out its figures: flat records that any tool can load as a table.

use serde::{Deserialize, Serialize};

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
