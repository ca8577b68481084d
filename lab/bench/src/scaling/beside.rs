//! Real figures beside virtual ones: throughput of several CPUs over that of one.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::experiment::Experiment;
use super::labels::number;
use super::records::{DROPPED, LINE, SCALING, THROUGHPUT};
use super::results::Results;
use super::table::Table;
use crate::record::Record;
use crate::usage::Usage;

/// A virtual figure that is further from the real one is marked.
const CLOSE_PERCENT: f64 = 20.0;
/// If the time of a line's transfer between the real CPUs differs from that between virtual CPUs by
/// more than this, the figure isn't compared.
const FAR_PERCENT: f64 = 25.0;

/// Each scheme on each workload, real and virtual.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    real_machine: String,
    virtual_machine: String,
    /// What a line takes from one virtual CPU to the next, in nanoseconds.
    line_ns: f64,
    pairs: Vec<Pair>,
    /// The number of virtual runs that have no real run beside them.
    alone: usize,
    /// How many real runs were dropped because the transfer of a line took longer or shorter than
    /// the user wanted. Unknown if the user didn't choose a time.
    dropped: Option<u32>,
}

#[derive(Clone, Debug)]
struct Pair {
    workload: String,
    scheme: String,
    cpus: usize,
    /// The median over rounds, the least and the most.
    real: [f64; 3],
    simulated: f64,
    /// The minimum and maximum time of a line's transfer between the real CPUs. Older records lack
    /// it.
    line_ns: Option<[f64; 2]>,
    /// Time of an operation on one CPU, real and virtual.
    alone_ns: [f64; 2],
}

impl Pair {
    /// How many times the real figure the virtual one is.
    fn ratio(&self) -> f64 {
        self.simulated / self.real[0]
    }

    fn is_close(&self) -> bool {
        100.0 * (self.ratio() - 1.0).abs() <= CLOSE_PERCENT
    }

    /// Whether the real CPUs were, during the whole run, as far from each other as the virtual
    /// ones.
    fn is_alike(&self, line_ns: f64) -> bool {
        let alike = |ns: f64| ns.max(line_ns) <= (1.0 + FAR_PERCENT / 100.0) * ns.min(line_ns);
        self.line_ns.is_none_or(|[least, most]| alike(least) && alike(most))
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
    /// Pairs of runs that both have. A line takes `line_ns` from one virtual CPU to the next.
    pub(crate) fn new(results: &Results, real: &[Record], line_ns: f64) -> Self {
        let find = |workload: &str, scheme: &str, cpus: usize, metric: &str| {
            let matches = |record: &&Record| {
                record.experiment == results.experiment.name
                    && (record.workload.as_str(), record.subject.as_str()) == (workload, scheme)
                    && (record.cpus as usize, record.metric.as_str()) == (cpus, metric)
            };
            real.iter().find(matches)
        };
        let measured = cpus(real, results.experiment);
        let rows = || results.rows.iter().filter(|row| row.cpus != 1 && measured.contains(&row.cpus));
        let pairs = rows().filter_map(|row| {
            let simulated = results.scaling(row, 1)?.median;
            let alone = results.row(row.workload, row.scheme, 1)?.throughput().median;
            let real_alone = find(row.workload, row.scheme, 1, THROUGHPUT)?.value;
            let scaling = find(row.workload, row.scheme, row.cpus, SCALING)?;
            let line = find(row.workload, row.scheme, row.cpus, LINE);
            Some(Pair {
                workload: row.workload.to_owned(),
                scheme: row.scheme.to_owned(),
                cpus: row.cpus,
                real: [scaling.value, scaling.min, scaling.max],
                line_ns: line.map(|line| [line.min, line.max]),
                simulated,
                alone_ns: [1e9 / real_alone, 1e9 / alone],
            })
        });
        let pairs: Vec<Pair> = pairs.collect();
        let of = |record: &&Record| record.experiment == results.experiment.name;
        let real_machine = real.iter().find(of).map_or_else(|| "nothing".to_owned(), |record| record.machine.clone());
        let dropped = real.iter().filter(of).find(|record| record.metric == DROPPED);
        Self {
            real_machine,
            virtual_machine: results.host.name.clone(),
            line_ns,
            alone: rows().count() - pairs.len(),
            pairs,
            dropped: dropped.map(|record| record.value as u32),
        }
    }

    /// Returns a sentence: how many virtual figures are close to the real ones, which figure is the
    /// furthest off, and which runs aren't compared.
    pub(crate) fn summary(&self) -> String {
        if self.pairs.is_empty() {
            return "no run is in both: measure 1 and more CPUs on both, with the same schemes and workloads"
                .to_owned();
        }
        let (alike, others): (Vec<&Pair>, Vec<&Pair>) = self.pairs.iter().partition(|pair| pair.is_alike(self.line_ns));
        let close = alike.iter().filter(|pair| pair.is_close()).count();
        let mut text = format!("{close} of {} are within {CLOSE_PERCENT} %", alike.len());
        let schemes: BTreeSet<&str> = alike.iter().map(|pair| pair.scheme.as_str()).collect();
        if schemes.len() < alike.len() {
            let is_close = |scheme: &&&str| alike.iter().all(|pair| pair.scheme != **scheme || pair.is_close());
            let close = schemes.iter().filter(is_close).count();
            text += &format!(", and {close} of {} schemes wherever they are compared", schemes.len());
        }
        let distance = |pair: &Pair| pair.ratio().ln().abs();
        if let Some(worst) = alike.iter().max_by(|a, b| distance(a).total_cmp(&distance(b))) {
            let Pair { scheme, workload, .. } = worst;
            text += &format!("; the worst: {scheme} on {workload}, {:.2} times the real one", worst.ratio());
        }
        if !others.is_empty() {
            let (count, ns) = (others.len(), self.line_ns);
            text += &format!(
                "; {count} aren't compared, as a line took more than {FAR_PERCENT} % more or less than {ns:.0} ns"
            );
            text += &format!(" between the CPUs: `bench-real --transfer {ns:.0}` waits until it does");
        }
        if self.alone > 0 {
            text += &format!("; {} have no real figure", self.alone);
        }
        if let Some(dropped) = self.dropped {
            text += &format!("; {dropped} real runs were dropped because a line took longer, or shorter");
        }
        if self.pairs.iter().any(|pair| pair.line_ns.is_none()) {
            text += "; how far the real CPUs were from each other isn't known";
        }
        text
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
            "rounds",
            "virtual ×",
            "virtual / real",
            "beyond 20 %",
            "real ns",
            "virtual ns",
            "line ns",
        ];
        let row = |pair: &Pair| {
            let mark = match (pair.is_alike(self.line_ns), pair.is_close()) {
                (false, _) => "other CPUs",
                (true, false) => "*",
                (true, true) => "",
            };
            let [real_ns, virtual_ns] = pair.alone_ns.map(number);
            let [real, least, most] = pair.real.map(number);
            let line = pair.line_ns.map_or(String::new(), |[least, most]| range(&number(least), &number(most)));
            vec![
                pair.workload.clone(),
                pair.scheme.clone(),
                pair.cpus.to_string(),
                real,
                range(&least, &most),
                number(pair.simulated),
                format!("{:.2}", pair.ratio()),
                mark.to_owned(),
                real_ns,
                virtual_ns,
                line,
            ]
        };
        let rows: Vec<Vec<String>> = self.pairs.iter().map(row).collect();
        let breaks = (1..rows.len()).filter(|&at| rows[at][0] != rows[at - 1][0]).collect();
        Table { head: head.map(str::to_owned).to_vec(), rows, breaks }
    }
}

fn range(least: &str, most: &str) -> String {
    format!("{least} to {most}")
}

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}; ns: an operation on 1 CPU", self.title())?;
        writeln!(formatter, "{}{}", self.table().text(), self.summary())
    }
}
