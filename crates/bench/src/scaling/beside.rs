//! Real figures beside virtual ones: throughput of several CPUs over that of one.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::experiment::Experiment;
use super::records::{SCALING, THROUGHPUT};
use super::results::Results;
use super::table::{Table, number};
use crate::record::Record;
use crate::usage::Usage;

/// A virtual figure that is further from the real one is marked.
const CLOSE_PERCENT: f64 = 20.0;

/// Each scheme on each workload, real and virtual.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    real_machine: String,
    virtual_machine: String,
    pairs: Vec<Pair>,
}

#[derive(Clone, Debug)]
struct Pair {
    workload: String,
    scheme: String,
    cpus: usize,
    real: f64,
    simulated: f64,
    /// Time of an operation on one CPU, real and virtual.
    alone_ns: [f64; 2],
}

impl Pair {
    fn difference_percent(&self) -> f64 {
        100.0 * (self.simulated / self.real - 1.0)
    }
}

/// The records of a file.
///
/// # Errors
/// It can't be read, or holds something else.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>> {
    let wrong = |error: &dyn fmt::Display| {
        let what = "give it what `cargo bench-real NAME --json` printed";
        Usage::error(format!("no records in {}: {error}; {what}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

/// The numbers of CPUs that `records` have of an experiment.
pub(crate) fn cpus(records: &[Record], experiment: &Experiment) -> Vec<usize> {
    let of = records.iter().filter(|record| record.experiment == experiment.name);
    let mut cpus: Vec<usize> = of.map(|record| record.cpus as usize).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

impl Beside {
    /// What both have.
    pub(crate) fn new(results: &Results, real: &[Record]) -> Self {
        let find = |workload: &str, scheme: &str, cpus: usize, metric: &str| {
            let matches = |record: &&Record| {
                record.experiment == results.experiment.name
                    && (record.workload.as_str(), record.subject.as_str()) == (workload, scheme)
                    && (record.cpus as usize, record.metric.as_str()) == (cpus, metric)
            };
            real.iter().find(matches).map(|record| record.value)
        };
        let pairs = results.rows.iter().filter(|row| row.cpus != 1).filter_map(|row| {
            let simulated = results.scaling(row, 1)?.median;
            let alone = results.row(row.workload, row.scheme, 1)?.throughput().median;
            let real_alone = find(row.workload, row.scheme, 1, THROUGHPUT)?;
            Some(Pair {
                workload: row.workload.to_owned(),
                scheme: row.scheme.to_owned(),
                cpus: row.cpus,
                real: find(row.workload, row.scheme, row.cpus, SCALING)?,
                simulated,
                alone_ns: [1e9 / real_alone, 1e9 / alone],
            })
        });
        let of = |record: &&Record| record.experiment == results.experiment.name;
        let real_machine = real.iter().find(of).map_or_else(|| "nothing".to_owned(), |record| record.machine.clone());
        Self { real_machine, virtual_machine: results.host.name.clone(), pairs: pairs.collect() }
    }

    /// How it ends: how many are close.
    pub(crate) fn summary(&self) -> String {
        if self.pairs.is_empty() {
            return "no run is in both: measure 1 and more CPUs on both, with the same schemes and workloads"
                .to_owned();
        }
        let close = self.pairs.iter().filter(|pair| pair.difference_percent().abs() <= CLOSE_PERCENT).count();
        format!("{close} of {} are within {CLOSE_PERCENT} %", self.pairs.len())
    }

    /// What stands above it.
    pub(crate) fn title(&self) -> String {
        format!("throughput over that of 1 CPU, real ({}) and virtual ({})", self.real_machine, self.virtual_machine)
    }

    /// As a table.
    pub(crate) fn table(&self) -> Table {
        let head = [
            "workload",
            "scheme",
            "CPUs",
            "real ×",
            "virtual ×",
            "difference %",
            "beyond 20 %",
            "real ns",
            "virtual ns",
        ];
        let row = |pair: &Pair| {
            let difference = pair.difference_percent();
            let mark = if difference.abs() > CLOSE_PERCENT { "*" } else { "" };
            let [real_ns, virtual_ns] = pair.alone_ns.map(number);
            let (cpus, difference) = (pair.cpus.to_string(), format!("{difference:+.0}"));
            let (real, simulated) = (number(pair.real), number(pair.simulated));
            let (workload, scheme) = (pair.workload.clone(), pair.scheme.clone());
            vec![workload, scheme, cpus, real, simulated, difference, mark.to_owned(), real_ns, virtual_ns]
        };
        let rows: Vec<Vec<String>> = self.pairs.iter().map(row).collect();
        let breaks = (1..rows.len()).filter(|&at| rows[at][0] != rows[at - 1][0]).collect();
        Table { head: head.map(str::to_owned).to_vec(), rows, breaks }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}; ns: an operation on 1 CPU", self.title())?;
        writeln!(formatter, "{}{}", self.table().text(), self.summary())
    }
}
