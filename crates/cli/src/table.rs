//! Formats reports as text.

use std::time::Duration;

use crate::columns::Table;
use crate::report::{Latency, Report, Row, RunReport, SwapAreaReport, SwapReport, Workload, WriteBack};
use crate::room;
use crate::trace_files::TraceFile;
use crate::trace_text::shown;
use crate::units;

/// Longer names are cut.
const NAME_CHARS_MAX: usize = 24;

/// The maximum number of a trace's files that are named.
const FILES_MAX: usize = 3;

/// Describes the workload in a few lines.
pub(crate) fn workload(workload: &Workload) -> String {
    let size = units::bytes(workload.size_bytes);
    let file = match workload.file_kind {
        "user" => format!("{size} of {}", workload.file),
        kind => format!("{size}, {kind}"),
    };
    let accesses = match (&workload.trace, workload.reads_percent.unwrap_or(100)) {
        (Some(trace), _) => format!("trace {trace}"),
        (None, reads) => {
            let what = match reads {
                100 => "reads".to_owned(),
                0 => "writes".to_owned(),
                reads => format!("reads ({reads} %) and writes"),
            };
            format!("{} {what} of {}", workload.patterns.join(", "), units::bytes(workload.op_bytes.unwrap_or(0)))
        }
    };
    let syncs = match workload.sync_every_s {
        Some(every) => {
            format!(", a sync every {}", units::seconds(Duration::try_from_secs_f64(every).unwrap_or_default()))
        }
        None => String::new(),
    };
    let depth = if workload.depth > 1 { format!(", {} at a time", workload.depth) } else { String::new() };
    let advised = match workload.advised {
        "normal" => String::new(),
        advised => format!(", advised {advised}"),
    };
    let check = if workload.verified { "every byte checked" } else { "not checked" };
    format!(
        "file      {file}; pages of {}, backend {}\n\
         accesses  {accesses}{syncs}; {}{depth}{advised}, seed {}, {check}\n{}{}",
        units::bytes(workload.page_bytes),
        workload.backend,
        units::plural(workload.threads as u64, "thread"),
        workload.seed,
        trace_files(&workload.trace_files),
        workload.skipped.to_text().map_or_else(String::new, |text| format!("left out  {text} of the trace\n")),
    )
}

/// Lists where the files of a trace begin. Returns nothing if the trace has only one file, at 0.
fn trace_files(files: &[TraceFile]) -> String {
    if files.len() < 2 && files.iter().all(|file| file.offset == 0) {
        return String::new();
    }
    let offset = |file: &TraceFile| if file.offset == 0 { "0".to_owned() } else { units::bytes(file.offset) };
    let mut named: Vec<_> = files
        .iter()
        .take(FILES_MAX)
        .map(|file| format!("{} from {}", short(&shown(&file.name)), offset(file)))
        .collect();
    if files.len() > FILES_MAX {
        named.push(format!("and {} more", files.len() - FILES_MAX));
    }
    format!("files     {}\n", named.join(", "))
}

/// Formats a run: its groups, and notes about them.
pub(crate) fn run(run: &RunReport, workload: &Workload) -> String {
    // A run that writes has a separate table for its writes, so this table is for reads.
    let (name, rate) = if workload.writes { ("reads", "reads/s") } else { ("group", "ops/s") };
    let mut table = Table::new(&[
        name, rate, "hits", "p50", "p99", "p99.9", "max", "in", "evicted", "refaults", "peak", "limit", "CPU/op",
    ]);
    let mixed = run.groups.iter().any(|row| row.pattern != run.groups[0].pattern);
    let rate = |row: &Row| if workload.writes { row.reads_per_s } else { row.ops_per_s };
    for row in &run.groups {
        let mut cells = cells(row, rate(row));
        if let Some(pattern) = row.pattern.as_ref().filter(|_| mixed) {
            cells[0] += &format!(" ({pattern})");
        }
        table.add(cells);
    }
    if run.groups.len() > 1 {
        table.add(cells(&run.total, rate(&run.total)));
    }
    format!(
        "\n{}: {} operations in {}\n{}{}{}{}",
        heading(run),
        units::count(run.total.ops as f64),
        units::seconds(Duration::try_from_secs_f64(run.seconds).unwrap_or_default()),
        table.to_text(),
        if workload.writes { writes(run) } else { String::new() },
        run.swap.as_ref().map(swap).unwrap_or_default(),
        footnotes(run, workload),
    )
}

/// Names a run, as in `memory 1 MiB`.
fn heading(run: &RunReport) -> String {
    let shown = room::shown(run.memory_bytes, run.pages);
    if run.pages.is_some() { format!("room for {shown}") } else { format!("memory {shown}") }
}

/// Describes swapping.
fn swap(swap: &SwapReport) -> String {
    let compressed = swap.compressed.as_ref().map(|area| {
        format!(
            "compressed: {} to {}, in {} of {}; {} pages refused\n",
            units::bytes(area.original_bytes),
            units::bytes(area.compressed_bytes),
            units::bytes(area.memory_bytes),
            units::bytes(area.limit_bytes),
            units::count((area.incompressible_pages + area.no_room_pages) as f64),
        )
    });
    let area = |area: &SwapAreaReport| {
        format!("swap area {}: {} ({})\n", shown(area.name.as_bytes()), area.placement, area.placement_reason)
    };
    format!(
        "swap: {} pages out ({} same-filled), {} in, {} of {} in use{}\n{}{}",
        units::count(swap.pages_out as f64),
        units::count(swap.same_filled as f64),
        units::count(swap.pages_in as f64),
        units::bytes(swap.used_bytes),
        units::bytes(swap.bytes),
        if swap.encrypted { ", encrypted" } else { "" },
        swap.areas.iter().map(area).collect::<String>(),
        compressed.unwrap_or_default(),
    )
}

/// Formats the table of writes.
fn writes(run: &RunReport) -> String {
    let mut table = Table::new(&["writes", "writes/s", "p50", "p99", "p99.9", "max", "written", "out", "unclean"]);
    let total = (run.groups.len() > 1).then_some(&run.total);
    for row in run.groups.iter().chain(total) {
        let [p50, p99, p99_9, max] = latencies(row.write_latency.as_ref());
        table.add(vec![
            short(&row.name),
            units::count(row.writes_per_s),
            p50,
            p99,
            p99_9,
            max,
            units::bytes(row.bytes_written),
            units::bytes(row.bytes_out),
            units::bytes(row.unclean_bytes),
        ]);
    }
    format!("\n{}", table.to_text())
}

fn latencies(latency: Option<&Latency>) -> [String; 4] {
    let Some(latency) = latency else { return [(); 4].map(|()| "-".to_owned()) };
    [latency.p50_ns, latency.p99_ns, latency.p99_9_ns, latency.max_ns].map(units::nanoseconds)
}

fn cells(row: &Row, per_s: f64) -> Vec<String> {
    let [p50, p99, p99_9, max] = latencies(row.latency.as_ref());
    vec![
        short(&row.name),
        units::count(per_s),
        units::percent(row.hit_rate),
        p50,
        p99,
        p99_9,
        max,
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
    if let Some(back) = &run.write_back {
        notes.extend(write_back(back, workload));
    }
    notes.extend(past_end(total, workload));
    if let Some(busy) = run.simulated_disk_busy_s {
        notes.push(format!("The simulated disk was busy for {busy:.2} s of its own time."));
    }
    notes.into_iter().map(|note| note + "\n").collect()
}

/// Returns notes about write-back.
fn write_back(back: &WriteBack, workload: &Workload) -> Vec<String> {
    let per_page = back.requests_per_page.map_or_else(String::new, |requests| format!(", {requests:.3} for each page"));
    let syncs = match &back.sync_latency {
        Some(latency) => format!(
            "; {} took {} (p50) to {} (max)",
            units::plural(back.syncs, "sync"),
            units::nanoseconds(latency.p50_ns),
            units::nanoseconds(latency.max_ns)
        ),
        None => String::new(),
    };
    let end = Duration::try_from_secs_f64(back.end_seconds).unwrap_or_default();
    let mut notes = vec![format!(
        "Write-back: {} in {}{per_page}{syncs}; the sync at the end wrote {} in {}.",
        units::bytes(back.bytes_out),
        units::plural(back.requests, "request"),
        units::bytes(back.end_bytes.saturating_sub(back.unwritten_bytes)),
        units::nanoseconds(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)),
    )];
    if back.errors > 0 {
        notes.push(format!("Write-back failed {}.", units::plural(back.errors, "time")));
    }
    if back.unwritten_bytes > 0 {
        notes.push(format!(
            "Not written: {} of what was written aren't in the file.",
            units::bytes(back.unwritten_bytes)
        ));
    }
    if workload.verified {
        notes.push(match back.compared_bytes {
            Some(bytes) => format!("Compared after closing: {} that the file holds now.", units::bytes(bytes)),
            None if back.comparison_failed => {
                "Compared after closing: the file doesn't hold what it should.".to_owned()
            }
            None => "The file wasn't compared after closing, since the run ended early.".to_owned(),
        });
    }
    notes
}

/// Returns a note about operations that reach beyond the file.
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

/// Lists all runs, one line each; empty for a single run.
pub(crate) fn curve(report: &Report) -> String {
    if report.runs.len() < 2 {
        return String::new();
    }
    let what = if report.runs[0].pages.is_some() { "room" } else { "memory" };
    let mut table = Table::new(&[what, "hits", "ops/s", "p50", "p99", "in", "evicted", "refaults", "peak"]);
    for run in &report.runs {
        let mut row = cells(&run.total, run.total.ops_per_s);
        let mut take = |column: usize| std::mem::take(&mut row[column]);
        let cells = [take(2), take(1), take(3), take(4), take(7), take(8), take(9), take(10)];
        table.add(std::iter::once(room::shown(run.memory_bytes, run.pages)).chain(cells).collect());
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
    use crate::trace_files::Skipped;

    fn workload_sample() -> Workload {
        Workload {
            file: "f".to_owned(),
            file_kind: "temporary",
            size_bytes: 1 << 30,
            trace: None,
            patterns: vec!["zipf:0.99".to_owned()],
            op_bytes: Some(4096),
            reads_percent: Some(100),
            sync_every_s: None,
            depth: 1,
            writes: false,
            seed: 1,
            threads: 1,
            page_bytes: 4096,
            backend: "posix".to_owned(),
            advised: "normal",
            verified: true,
            trace_files: vec![],
            skipped: Skipped::default(),
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
        let asked = workload_sample();
        assert!(!run(&figures, &asked).contains("Past end"));
        (figures.total.past_end, figures.total.cut) = (1, 2);
        let text = run(&figures, &asked);
        assert!(text.contains("Past end: 1 operation began") && text.contains("; 2 reached past it"), "{text}");
        (figures.total.past_end, figures.total.cut) = (0, 1);
        let text = run(&figures, &asked);
        assert!(text.contains("Past end: 1 operation reached past") && !text.contains(" 0 operations"), "{text}");
    }

    #[test]
    fn a_trace_says_which_files_lie_where_and_what_is_left_out() {
        let file = |name: &str, offset| TraceFile { name: name.into(), offset, bytes: 1 };
        let mut asked = Workload { trace: Some("t.log".to_owned()), ..workload_sample() };
        assert_eq!(workload(&asked).lines().count(), 2);
        asked.skipped.trims = 2;
        asked.trace_files = vec![file("a", 0), file("b", 1 << 20)];
        let text = workload(&asked);
        assert!(text.contains("\nfiles     a from 0, b from 1 MiB\nleft out  2 trims of the trace\n"), "{text}");
        asked.trace_files.extend([file("c", 2 << 20), file("d", 3 << 20)]);
        assert!(workload(&asked).contains("a from 0, b from 1 MiB, c from 2 MiB, and 1 more"), "{}", workload(&asked));
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
