//! What was measured, as text and as records.

use std::fmt::Write;

use anyhow::Result;
use manycore::Costs;
use serde::Serialize;

use super::{Bench, Measured};
use crate::peers::number;

/// One cost.
#[derive(Serialize)]
struct Record {
    cost: &'static str,
    unit: &'static str,
    /// The median, or the default of what wasn't measured.
    value: f64,
    /// Quartiles; null for what wasn't measured.
    low: Option<f64>,
    high: Option<f64>,
    default: f64,
}

fn records(bench: &Bench) -> Vec<Record> {
    let defaults = Costs::default();
    let record = |cost: &manycore::Cost| {
        let found: Option<&Measured> = bench.measured.iter().find(|measured| measured.cost == cost.name);
        let default = defaults.get(cost.name).unwrap_or(0.0);
        Record {
            cost: cost.name,
            unit: cost.unit,
            value: found.map_or(default, |measured| measured.value),
            low: found.map(|measured| measured.low),
            high: found.map(|measured| measured.high),
            default,
        }
    };
    Costs::ALL.iter().map(record).collect()
}

/// An array of records.
pub(crate) fn json(bench: &Bench) -> Result<String> {
    bench.notes.iter().for_each(|note| eprintln!("bench: {note}"));
    Ok(serde_json::to_string_pretty(&records(bench))? + "\n")
}

/// A table.
pub(crate) fn text(bench: &Bench, quick: bool) -> String {
    let shape = bench.shape;
    let mut text = format!(
        "calibrate: {}\n{} sockets of {} cores with {} threads each\n\n",
        crate::machine::Machine::here().description,
        shape.sockets,
        shape.cores_per_socket,
        shape.threads_per_core,
    );
    if quick {
        text.push_str("--quick: shows that everything works; the figures mean nothing.\n\n");
    }
    let _ = writeln!(text, "{:<18} {:>12} {:>25} {:>12}  unit", "cost", "median", "quartiles", "default");
    for Record { cost, unit, value, low, high, default } in records(bench) {
        let (median, spread) = match low.zip(high) {
            Some((low, high)) => (number(value), format!("{} to {}", number(low), number(high))),
            None => ("not measured".to_owned(), String::new()),
        };
        let _ = writeln!(text, "{cost:<18} {median:>12} {spread:>25} {:>12}  {unit}", number(default));
    }
    text.push('\n');
    bench.notes.iter().for_each(|note| _ = writeln!(text, "note: {note}"));
    text
}
