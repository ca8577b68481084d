//! Rows of figures of one experiment on this machine: as text, and as records.

use anyhow::Result;

use crate::machine::Machine;
use crate::output::say;
use crate::record::{Metric, Record, Source};

/// What is printed at the end.
#[derive(Debug)]
pub(crate) struct Rows {
    experiment: &'static str,
    machine: Machine,
    text: String,
    records: Vec<Record>,
}

impl Rows {
    /// None yet. `how` says what is measured; the text begins with it.
    pub(crate) fn new(experiment: &'static str, how: &str) -> Self {
        let machine = Machine::here();
        let text = format!("{experiment}: {how} Median (min-max).\n{}\n\n", machine.description);
        Self { experiment, machine, text, records: Vec::new() }
    }

    /// One more.
    pub(crate) fn add(&mut self, workload: &str, subject: &str, metrics: &[Metric<'_>]) {
        self.text += &format!("  {workload:24}  {subject:10}");
        let (experiment, machine) = (self.experiment, &*self.machine.description);
        let source = Source { experiment, subject, workload, machine, cpus: self.machine.cpus };
        for &metric in metrics {
            let record = source.record(metric);
            let Record { metric, value, min, max, unit, .. } = &record;
            self.text += &format!("  {metric} {value:.3} ({min:.3}-{max:.3}) {unit}");
            self.records.push(record);
        }
        self.text.push('\n');
    }

    /// Prints all of them: text, or an array of records.
    pub(crate) fn print(self, json: bool) -> Result<()> {
        if json { say(&(serde_json::to_string_pretty(&self.records)? + "\n")) } else { say(&self.text) }
    }
}
