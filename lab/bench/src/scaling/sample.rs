//! The results of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a run gave.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Sample {
    /// Operations of all tasks in a second.
    pub(crate) operations_per_s: f64,
    /// CPU time of an operation, waiting without sleep included.
    pub(crate) cpu_ns_per_operation: f64,
    /// What a line took between two real CPUs before and after, in nanoseconds.
    pub(crate) line_ns: Option<[f64; 2]>,
    /// What went to a device and came from it, if that was counted.
    pub(crate) traffic: Option<Traffic>,
    /// What only a virtual machine knows.
    #[serde(skip)]
    pub(crate) inside: Option<Inside>,
}

/// What a run has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Pages that weren't in memory when they were wanted.
    pub(crate) faults: u64,
    /// Bytes read from the device.
    pub(crate) bytes_in: u64,
    /// Bytes written to it.
    pub(crate) bytes_out: u64,
}

/// What went to a device and came from it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Traffic {
    /// Faults for each operation.
    pub(crate) faults: f64,
    /// Bytes read for each operation.
    pub(crate) bytes_in: f64,
    /// Bytes written for each operation.
    pub(crate) bytes_out: f64,
    /// CPU time of all threads for each fault; nothing without faults.
    pub(crate) cpu_ns_per_fault: Option<f64>,
}

impl Traffic {
    /// Of a run of so many operations.
    pub(crate) fn between(before: Counts, after: Counts, operations: u64, cpu_ns: f64) -> Self {
        let each = |before: u64, after: u64| (after - before) as f64 / operations.max(1) as f64;
        let faults = after.faults - before.faults;
        Self {
            faults: each(before.faults, after.faults),
            bytes_in: each(before.bytes_in, after.bytes_in),
            bytes_out: each(before.bytes_out, after.bytes_out),
            cpu_ns_per_fault: (faults > 0).then(|| cpu_ns / faults as f64),
        }
    }
}

/// Why something can't be measured here. The tables show the reason, and the other measurements go
/// on.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(crate) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// What work in user mode is called in reports.
pub(crate) const USER_WORK: &str = "user";

/// What a virtual machine knows about a run.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// Throughput, divided by that of the same run without contention, if that run was made.
    pub(crate) efficiency: Option<f64>,
    /// Everything else.
    pub(crate) report: manycore::Report,
}

impl Inside {
    /// Returns the time of work in user mode, in percent of all CPU time.
    pub(crate) fn user(&self) -> f64 {
        self.report.works.iter().filter(|work| work.name == USER_WORK).map(|work| work.share).sum()
    }
}
