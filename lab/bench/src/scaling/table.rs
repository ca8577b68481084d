//! Results as tables: the same cells as text and on the page.

use std::fmt::Write;

use super::experiment::{Figure, Published};
use super::labels::{cpus_label, number};
use super::results::Results;
use super::row::Row;
use super::sample::Traffic;
use super::verdict;
use super::workload::Workload;

/// A table of cells.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Heads of the columns.
    pub(crate) head: Vec<String>,
    /// Rows; each has as many cells.
    pub(crate) rows: Vec<Vec<String>>,
    /// Where a group of rows ends, other than at the last.
    pub(crate) breaks: Vec<usize>,
}

/// A column: its head, and its cell of a row.
type Column<'a> = (String, Box<dyn Fn(&Row) -> String + 'a>);

/// The table of one workload.
pub(crate) fn of(results: &Results, workload: &Workload) -> Table {
    let published = verdict::published(results, workload.name);
    let mut columns: Vec<Column<'_>> = vec![
        ("CPUs".to_owned(), Box::new(|row| row.cpus.to_string())),
        ("scheme".to_owned(), Box::new(|row| row.scheme.to_owned())),
        ("M/s".to_owned(), Box::new(|row| number(row.throughput().median / 1e6))),
        ("± %".to_owned(), Box::new(|row| format!("{:.1}", row.deviation()))),
        (
            format!("× {}", results.reference()),
            Box::new(|row| results.speed_up(row).map_or_else(String::new, |ratio| number(ratio.median))),
        ),
        (
            format!("× {}", cpus_label(results.fewest())),
            Box::new(|row| {
                results.scaling(row, results.fewest()).map_or_else(String::new, |ratio| number(ratio.median))
            }),
        ),
    ];
    if results.rows.iter().any(|row| row.report().is_some()) {
        let three = |summary: Option<crate::summary::Summary>| {
            summary.map_or_else(String::new, |summary| format!("{:.3}", summary.median))
        };
        columns.push(("efficiency".to_owned(), Box::new(move |row| three(row.efficiency()))));
        columns.push(("shared writes".to_owned(), Box::new(move |row| three(row.shared_writes()))));
        columns.push(("transfers".to_owned(), Box::new(move |row| three(row.transfers()))));
        let whole = |row: &Row| row.p999_ns().map_or_else(String::new, |summary| format!("{:.0}", summary.median));
        columns.push(("p99.9 ns".to_owned(), Box::new(whole)));
        columns.push((
            "memory %".to_owned(),
            Box::new(|row| row.memory().map_or_else(String::new, |summary| format!("{:.1}", summary.median))),
        ));
        if results.experiment.lists {
            columns.push(("lists: % lost".to_owned(), Box::new(move |row| three(row.lists(|lists| lists.lost)))));
            columns.push(("accesses".to_owned(), Box::new(move |row| three(row.lists(|lists| lists.accesses)))));
            columns
                .push(("shared writes".to_owned(), Box::new(move |row| three(row.lists(|lists| lists.shared_writes)))));
        }
    } else {
        columns.push((
            "CPU ns".to_owned(),
            Box::new(|row| number(row.summary(|sample| sample.cpu_ns_per_operation).median)),
        ));
    }
    if results.rows.iter().any(|row| row.traffic(|_| Some(0.0)).is_some()) {
        let mut add = |head: &str, figure: fn(&Traffic) -> Option<f64>| {
            let cell = move |row: &Row| row.traffic(figure).map_or_else(String::new, |summary| number(summary.median));
            columns.push((head.to_owned(), Box::new(cell)));
        };
        add("faults", |traffic| Some(traffic.faults));
        add("B in", |traffic| Some(traffic.bytes_in));
        add("B out", |traffic| Some(traffic.bytes_out));
        add("CPU ns a fault", |traffic| traffic.cpu_ns_per_fault);
    }
    for published in published {
        let head = format!("published [{}]", published.unit);
        columns.push((head, Box::new(move |row| published_cell(published, row))));
    }
    let rows: Vec<&Row> = results.of(workload.name).collect();
    Table {
        head: columns.iter().map(|(head, _)| head.clone()).collect(),
        rows: rows.iter().map(|row| columns.iter().map(|(_, cell)| cell(row)).collect()).collect(),
        breaks: (1..rows.len()).filter(|&at| rows[at].cpus != rows[at - 1].cpus).collect(),
    }
}

fn published_cell(published: &Published, row: &Row) -> String {
    let figure = |figure: &&Figure| figure.scheme == row.scheme && figure.cpus == row.cpus;
    published.figures.iter().find(figure).map_or_else(String::new, |figure| {
        let deviation = figure
            .deviation
            .map_or_else(String::new, |deviation| format!(" ± {:.1} %", 100.0 * deviation / figure.value));
        format!("{}{deviation} (× {})", number(figure.value), number(published.gain(figure)))
    })
}

impl Table {
    /// Formats columns as wide as they need to be, with names to the left and figures to the right.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]).chain([&self.head[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for (at, row) in [&self.head].into_iter().chain(&self.rows).enumerate() {
            if at > 0 && self.breaks.contains(&(at - 1)) {
                text.push('\n');
            }
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match self.is_text(column) {
                    true => write!(line, "  {cell:<width$}"),
                    false => write!(line, "  {cell:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// Whether a column holds words rather than figures.
    pub(crate) fn is_text(&self, column: usize) -> bool {
        let figure =
            |cell: &String| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
        !self.rows.iter().all(|row| figure(&row[column]))
    }
}

/// Everything about `results` that is text.
pub(crate) fn render(results: &Results) -> String {
    let experiment = results.experiment;
    let mut text = format!("{}: {}\n{}\n", experiment.name, experiment.question, about_run(results));
    for workload in &results.workloads {
        let _ = write!(text, "\n{}: {}\n{}", workload.name, workload.about, of(results, workload).text());
        for published in verdict::published(results, workload.name) {
            let _ = writeln!(text, "published: {}; {}", published.about, published.source);
        }
    }
    for why in &results.missing {
        let _ = writeln!(text, "\nnot measured: {why}");
    }
    let verdicts = verdict::of(results);
    if !verdicts.is_empty() {
        text.push('\n');
    }
    for verdict in verdicts {
        let _ = writeln!(text, "{verdict}");
    }
    text
}

/// Machine, operation and effort in a line or two.
pub(crate) fn about_run(results: &Results) -> String {
    let (host, experiment) = (&results.host, results.experiment);
    format!("{}, {}; {}; an operation is {}", host.name, cpus_label(host.cpus), results.how, experiment.operation)
}
