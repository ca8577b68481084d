//! Reports as text.

use std::fmt::Write;

use crate::report::{Report, Row, RunReport, Workload};
use crate::units;

/// Longer names are cut.
const NAME_CHARS_MAX: usize = 24;

/// Columns of text, the first one aligned to the left, the others to the right.
#[derive(Debug)]
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&text| text.to_owned()).collect()] }
    }

    fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string doesn't fail.
                let _ = if column == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// What is going to be done, in two lines.
pub(crate) fn workload(workload: &Workload) -> String {
    let size = units::bytes(workload.size_bytes);
    let file = match workload.file_kind {
        "user" => format!("{size} of {}", workload.file),
        kind => format!("{size}, {kind}"),
    };
    let accesses = match (&workload.trace, workload.read_bytes) {
        (Some(trace), _) => format!("trace {trace}"),
        (None, bytes) => format!("{} reads of {}", workload.patterns.join(", "), units::bytes(bytes.unwrap_or(0))),
    };
    let check = if workload.verified { "every byte checked" } else { "not checked" };
    format!(
        "file      {file}; pages of {}, backend {}\naccesses  {accesses}; {}, seed {}, {check}\n",
        units::bytes(workload.page_bytes),
        workload.backend,
        units::plural(workload.threads as u64, "thread"),
        workload.seed,
    )
}

/// A run: its groups, and what needs to be said about them.
pub(crate) fn run(run: &RunReport, workload: &Workload) -> String {
    let mut table = Table::new(&[
        "group", "ops/s", "hits", "p50", "p99", "p99.9", "max", "in", "evicted", "refaults", "peak", "limit", "CPU/op",
    ]);
    let mixed = run.groups.iter().any(|row| row.pattern != run.groups[0].pattern);
    for row in &run.groups {
        let mut cells = cells(row);
        if let Some(pattern) = row.pattern.as_ref().filter(|_| mixed) {
            cells[0] += &format!(" ({pattern})");
        }
        table.add(cells);
    }
    if run.groups.len() > 1 {
        table.add(cells(&run.total));
    }
    format!(
        "\nmemory {}: {} operations in {}\n{}{}",
        units::bytes(run.memory_bytes),
        units::count(run.total.ops as f64),
        units::seconds(std::time::Duration::try_from_secs_f64(run.seconds).unwrap_or_default()),
        table.to_text(),
        footnotes(run, workload),
    )
}

fn cells(row: &Row) -> Vec<String> {
    let latency = |get: fn(&crate::report::Latency) -> u64| {
        row.latency.as_ref().map_or_else(|| "-".to_owned(), |latency| units::nanoseconds(get(latency)))
    };
    vec![
        short(&row.name),
        units::count(row.ops_per_s),
        units::percent(row.hit_rate),
        latency(|l| l.p50_ns),
        latency(|l| l.p99_ns),
        latency(|l| l.p99_9_ns),
        latency(|l| l.max_ns),
        units::bytes(row.bytes_in),
        units::count(row.evictions as f64),
        units::count(row.refaults as f64),
        units::bytes(row.peak_bytes),
        units::bytes(row.max_bytes),
        row.cpu_ns_per_op.map_or_else(|| "-".to_owned(), |ns| units::nanoseconds(ns.round() as u64)),
    ]
}

fn footnotes(run: &RunReport, workload: &Workload) -> String {
    let total = &run.total;
    let mut notes = Vec::new();
    if let Some(rss) = run.peak_rss_bytes {
        let trace = match workload.trace_memory_bytes {
            0 => String::new(),
            bytes => format!(", and the trace with {}", units::bytes(bytes)),
        };
        let metadata = units::bytes(run.metadata_bytes);
        notes.push(format!(
            "Resident memory of the process: {} at most. What is above the budget is the program itself, the threads' \
             stacks and counters{trace}; {metadata} of the budget are page maps and other metadata.",
            units::bytes(rss)
        ));
    }
    if workload.verified {
        notes.push(format!("Checked: all {} that were read.", units::bytes(total.bytes_read)));
    }
    notes.extend(past_end(total, workload));
    if workload.writes_skipped > 0 {
        let were = if workload.writes_skipped == 1 { "was" } else { "were" };
        let writes = units::plural(workload.writes_skipped, "write");
        notes.push(format!("Skipped: {writes} of the trace {were} left out."));
    }
    if let Some(busy) = run.simulated_disk_busy_s {
        notes.push(format!("The simulated disk was busy for {busy:.2} s of its own time."));
    }
    notes.into_iter().map(|note| note + "\n").collect()
}

/// What there is to say about operations that reach beyond the file.
fn past_end(total: &Row, workload: &Workload) -> Option<String> {
    let size = units::bytes(workload.size_bytes);
    let began = format!(
        "{} began past the end of the file ({size}) and had nothing to read",
        units::plural(total.past_end, "operation")
    );
    match (total.past_end, total.cut) {
        (0, 0) => None,
        (0, cut) => Some(format!(
            "Past end: {} reached past the end of the file ({size}) and read less.",
            units::plural(cut, "operation")
        )),
        (_, 0) => Some(format!("Past end: {began}.")),
        (_, cut) => Some(format!("Past end: {began}; {cut} reached past it and read less.")),
    }
}

/// All runs, one line each; nothing for a single one.
pub(crate) fn curve(report: &Report) -> String {
    if report.runs.len() < 2 {
        return String::new();
    }
    let mut table = Table::new(&["memory", "hits", "ops/s", "p50", "p99", "in", "evicted", "refaults", "peak"]);
    for run in &report.runs {
        let mut row = cells(&run.total);
        let mut take = |column: usize| std::mem::take(&mut row[column]);
        let cells = [take(2), take(1), take(3), take(4), take(7), take(8), take(9), take(10)];
        table.add(std::iter::once(units::bytes(run.memory_bytes)).chain(cells).collect());
    }
    format!("\nall runs\n{}", table.to_text())
}

fn short(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_CHARS_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    fn workload_sample() -> Workload {
        Workload {
            file: "f".to_owned(),
            file_kind: "temporary",
            size_bytes: 1 << 30,
            trace: None,
            patterns: vec!["zipf:0.99".to_owned()],
            read_bytes: Some(4096),
            seed: 1,
            threads: 1,
            page_bytes: 4096,
            backend: "posix".to_owned(),
            verified: true,
            writes_skipped: 0,
            trace_memory_bytes: 0,
        }
    }

    #[test]
    fn columns_are_aligned() {
        let text = run(&sample(1 << 20), &workload_sample());
        let lines: Vec<&str> = text.lines().skip(2).take(4).collect();
        assert!(lines[0].starts_with("group") && lines[0].ends_with("CPU/op"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{text}");
        assert!(lines[1].starts_with("a ") && lines[3].starts_with("total "), "{text}");
        assert!(lines[1].contains("90.0 %") && lines[3].contains("60.0 %"), "{text}");
        assert!(lines[0].chars().count() <= 130, "{text}");
    }

    #[test]
    fn footnotes_appear_when_there_is_something_to_say() {
        let mut figures = sample(1 << 20);
        let mut asked = workload_sample();
        assert!(!run(&figures, &asked).contains("Past end"));
        (figures.total.past_end, figures.total.cut, asked.writes_skipped) = (1, 2, 3);
        let text = run(&figures, &asked);
        assert!(text.contains("Past end: 1 operation began") && text.contains("; 2 reached past it"), "{text}");
        assert!(text.contains("Skipped: 3 writes of the trace were left out"), "{text}");
        (figures.total.past_end, figures.total.cut, asked.writes_skipped) = (0, 1, 1);
        let text = run(&figures, &asked);
        assert!(text.contains("Past end: 1 operation reached past") && !text.contains(" 0 operations"), "{text}");
        assert!(text.contains("1 write of the trace was left out"), "{text}");
    }

    #[test]
    fn a_curve_needs_two_runs() {
        let runs = vec![sample(1 << 20), sample(2 << 20)];
        let mut report = Report { version: "0", workload: workload_sample(), runs, interrupted: false, error: None };
        assert!(curve(&report).contains("2 MiB   60.0 %"), "{}", curve(&report));
        report.runs.pop();
        assert_eq!(curve(&report), "");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(short(&"ä".repeat(30)).chars().count(), NAME_CHARS_MAX);
        assert_eq!(short("a"), "a");
    }
}
