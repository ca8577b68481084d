//! What an experiment among the peers found.

use crate::machine::Machine;
use crate::record::{Record, Source};
use crate::summary::Summary;

/// Everything that one experiment found.
#[derive(Debug)]
pub(crate) struct Report {
    /// Name of the experiment, in every record.
    pub(crate) experiment: &'static str,
    /// What was done, in a sentence or two above the table.
    pub(crate) about: String,
    /// The metric of the overview and of the plot.
    pub(crate) headline: &'static str,
    /// Repetitions of each figure; none if it was counted or computed once.
    pub(crate) rounds: Option<u32>,
    /// What words in the table mean, right below it.
    pub(crate) legend: String,
    /// What a reader must know about the figures: for example, that a subject had misses in an
    /// experiment on hits.
    pub(crate) notes: Vec<String>,
    /// The figures.
    pub(crate) records: Vec<Record>,
    machine: Machine,
}

impl Report {
    /// An empty report of `experiment`, measured here.
    pub(crate) fn new(experiment: &'static str, headline: &'static str, about: String) -> Self {
        let (legend, notes, records) = (String::new(), Vec::new(), Vec::new());
        Self { experiment, about, headline, rounds: None, legend, notes, records, machine: Machine::here() }
    }

    /// Adds one figure.
    pub(crate) fn add(&mut self, subject: &str, workload: &str, metric: &str, unit: &str, summary: Summary) {
        let (experiment, machine) = (self.experiment, &*self.machine.description);
        let source = Source { experiment, subject, workload, machine, cpus: self.machine.cpus };
        self.records.push(source.record((metric, unit, summary)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_flat_object_with_ten_fields() {
        let mut report = Report::new("hit", "cpu_per_op", String::new());
        report.add("pagefold", "8 B", "cpu_per_op", "ns", Summary::exact(2.5));
        let json = serde_json::to_value(&report.records).unwrap();
        let object = json[0].as_object().unwrap();
        let mut names: Vec<&str> = object.keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected =
            ["cpus", "experiment", "machine", "max", "metric", "min", "subject", "unit", "value", "workload"];
        assert_eq!(names, expected);
        assert_eq!(object["value"], 2.5);
        assert!(object.values().all(|value| value.is_string() || value.is_number()));
    }
}
