//! Reports as text.

use std::fmt::Write;

use crate::peers::metric::words;
use crate::peers::report::Report;
use crate::record::Record;

/// Formats a report for a terminal or a log: the headline metric of all workloads, then a block for
/// each of them.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("{}: {}\n", report.experiment, report.about);
    if let Some(first) = report.records.first() {
        let _ = writeln!(text, "{}", first.machine);
    }
    let workloads = distinct(report.records.iter().map(workload_of));
    if workloads.len() > 1 {
        text += &overview(report, &workloads);
        text += &legend(report);
    }
    for workload in &workloads {
        let records: Vec<&Record> = report.records.iter().filter(|record| workload_of(record) == *workload).collect();
        let columns = distinct(records.iter().map(|record| record.metric.as_str()));
        let header: Vec<String> = columns.iter().map(|metric| heading(&records, metric)).collect();
        let cell = |row: &str, column: usize| {
            let matches = |record: &&&Record| label_of(record) == row && record.metric == columns[column];
            records.iter().find(matches).map_or_else(String::new, |record| with_spread(record))
        };
        let _ = writeln!(text, "\n{workload}");
        text += &grid(&header, &distinct(records.iter().map(|record| label_of(record))), cell);
    }
    if workloads.len() == 1 {
        text += &legend(report);
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn legend(report: &Report) -> String {
    if report.legend.is_empty() { String::new() } else { format!("{}\n", report.legend) }
}

fn overview(report: &Report, workloads: &[&str]) -> String {
    let records: Vec<&Record> = report.records.iter().filter(|record| record.metric == report.headline).collect();
    let cell = |row: &str, column: usize| {
        let matches = |record: &&&Record| label_of(record) == row && workload_of(record) == workloads[column];
        records.iter().find(matches).map_or_else(String::new, |record| number(record.value))
    };
    let rows = distinct(records.iter().map(|record| label_of(record)));
    let header: Vec<String> = workloads.iter().map(|&workload| workload.to_owned()).collect();
    let words = words(report.headline);
    format!("\n{} ({}; {})\n{}", words.name, report.headline, words.better, grid(&header, &rows, cell))
}

/// The row of a record. Each way of using a subject has a row of its own.
pub(crate) fn label_of(record: &Record) -> String {
    match record.workload.strip_prefix(PAGE_WAY) {
        Some(_) => format!("{} page(n)", record.subject),
        None => record.subject.clone(),
    }
}

/// The block of a record.
pub(crate) fn workload_of(record: &Record) -> &str {
    record.workload.strip_prefix(PAGE_WAY).unwrap_or(&record.workload)
}

const PAGE_WAY: &str = "page(n), ";

/// Distinct values in order of first appearance.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// Three significant digits or so.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A value and, if there were several, the range they came from.
pub(crate) fn with_spread(record: &Record) -> String {
    if record.min == record.max {
        return number(record.value);
    }
    format!("{} ({}-{})", number(record.value), number(record.min), number(record.max))
}

fn heading(records: &[&Record], metric: &str) -> String {
    let unit = records.iter().find(|record| record.metric == metric).map_or("", |record| record.unit.as_str());
    if unit == "count" { metric.to_owned() } else { format!("{metric} [{unit}]") }
}

/// Formats columns as wide as they need to be. A heading such as `8 B, uniform` has one line for
/// each of its parts.
fn grid(header: &[String], rows: &[String], cell: impl Fn(&str, usize) -> String) -> String {
    let parts: Vec<Vec<&str>> = header.iter().map(|heading| heading.split(", ").collect()).collect();
    let height = parts.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines: Vec<Vec<String>> = Vec::new();
    for number in 0..height {
        let part = |parts: &Vec<&str>| parts.get(number).copied().unwrap_or_default().to_owned();
        lines.push([String::new()].into_iter().chain(parts.iter().map(part)).collect());
    }
    for row in rows {
        lines.push([row.clone()].into_iter().chain((0..header.len()).map(|column| cell(row, column))).collect());
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=header.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = format!("  {:<width$}", line[0], width = widths[0]);
        for (entry, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(row, "  {entry:>width$}");
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    #[test]
    fn a_report_becomes_blocks_and_an_overview() {
        let mut report = Report::new("hit", "ratio", "About.".to_owned());
        for (subject, workload, value) in [("array", "8 B", 1.0), ("moka", "8 B", 50.0), ("moka", "8 B, zipf", 55.0)] {
            report.add(subject, workload, "ratio", "x", Summary::exact(value));
        }
        report.add("pagefold", "page(n), 8 B", "ratio", "x", Summary { median: 1.5, min: 1.25, max: 2.0 });
        report.legend = "8 B: few.".to_owned();
        report.notes.push("mind the gap".to_owned());
        let text = render(&report);
        assert!(text.starts_with("hit: About.\n"), "{text}");
        assert!(text.contains("pagefold page(n)  1.50 (1.25-2.00)\n"), "{text}");
        assert!(text.contains("moka              50.0  55.0\n"), "{text}");
        assert!(text.contains("55.0\n  pagefold page(n)  1.50\n8 B: few.\n\n8 B\n"), "{text}");
        assert!(text.contains("zipf\n  array"), "{text}");
        assert!(text.ends_with("note: mind the gap\n"), "{text}");
    }
}
