//! `pagefold replay` from the outside: what it reports, what it writes, how it stops.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::place::{Done, Place, not_here, wait_for, wait_for_operations};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn sum(rows: &Value, field: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
}

#[test]
fn a_temporary_file_is_read_checked_and_removed() {
    let place = Place::new();
    let done = place.run("replay --size 16MiB --memory 2MiB --ops 20k --json", &[]);
    let report = done.json();
    let run = &report["runs"][0];
    assert_eq!(report["workload"]["verified"], true);
    assert_eq!(report["workload"]["file_kind"], "temporary");
    assert_eq!(run["groups"].as_array().unwrap().len(), 4);
    assert_eq!(run["total"]["ops"], 20_000);
    assert_eq!(run["total"]["bytes_read"], 20_000 * 4096);
    assert_eq!(sum(&run["groups"], "ops"), 20_000);
    assert_eq!(sum(&run["groups"], "misses"), run["total"]["misses"].as_u64().unwrap());
    let lookups = |run: &Value| -> u64 {
        ["hits", "misses", "waits"].map(|field| run["total"][field].as_u64().unwrap()).iter().sum()
    };
    // There is one lookup for each read of a page. A read that waits for a load, and then finds
    // that its page has been evicted again, may count two.
    assert!(lookups(run) >= 20_000, "{run}");
    let by_one = place.run("replay --size 16MiB --memory 2MiB --ops 20k --threads 1 --json", &[]).json();
    assert_eq!(lookups(&by_one["runs"][0]), 20_000, "one thread doesn't wait");
    assert!(run["total"]["peak_bytes"].as_u64().unwrap() <= 2 << 20, "{run}");
    for group in run["groups"].as_array().unwrap() {
        assert_eq!(group["max_bytes"], 512 << 10);
        assert!(group["peak_bytes"].as_u64().unwrap() <= 512 << 10, "{group}");
        let latency = &group["latency"];
        assert!(latency["p50_ns"].as_u64() <= latency["p99_ns"].as_u64(), "{latency}");
    }
    assert!(place.temporary_files().is_empty());
}

#[test]
fn the_table_says_the_same() {
    let place = Place::new();
    let done = place.run("replay --size 4MiB --memory 1MiB --ops 1k --groups a=512KiB,b=256KiB", &[]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    for text in
        ["group", "ops/s", "hits", "p99.9", "refaults", "CPU/op", "\na ", "\nb ", "\ntotal", "256 KiB", "Checked"]
    {
        assert!(done.out.contains(text), "{text} in {}", done.out);
    }
}

#[test]
fn a_users_file_is_compared_with_what_the_kernel_reads() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let path = place.file("data.bin", &bytes);
    for pattern in ["zipf:1.1", "uniform", "seq", "scan+zipf"] {
        let more = ["--generate", pattern, "--read-size", "10000", path.as_str()];
        let report = place.run("replay --memory 512KiB --ops 500 --verify --json --groups 2", &more).json();
        assert_eq!(report["workload"]["size_bytes"], 1_000_000);
        assert_eq!(report["runs"][0]["total"]["ops"], 500, "{pattern}");
    }
    assert_eq!(std::fs::read(path).unwrap(), bytes);
}

#[test]
fn every_backend_brings_the_right_bytes() {
    let place = Place::new();
    for backend in place.backends(&["auto", "uring", "threads", "threads:2", "posix", "buffered", "simulated"]) {
        let line = "replay --size 4MiB --memory 1MiB --ops 2k --generate uniform --json --backend";
        let report = place.run(line, &[backend]).json();
        assert_eq!(report["workload"]["verified"], true);
        assert!(report["runs"][0]["total"]["misses"].as_u64().unwrap() > 500, "{report}");
        assert_eq!(report["runs"][0]["simulated_disk_busy_s"].is_null(), backend != "simulated");
    }
    // Not every file system takes direct reads; those that don't have to say so.
    let done = place.run("replay --size 4MiB --memory 1MiB --ops 2k --backend direct", &[]);
    assert!(done.code == Some(0) || done.err.contains("Invalid argument"), "{done:?}");
}

#[test]
fn every_page_size_brings_the_right_bytes() {
    let place = Place::new();
    for page_size in ["4KiB", "16KiB", "64KiB"] {
        let line =
            "replay --size 5000001 --memory 4MiB --ops 2k --generate uniform --read-size 9999 --json --page-size";
        let report = place.run(line, &[page_size]).json();
        assert_eq!(report["runs"][0]["total"]["ops"], 2000, "{page_size}");
    }
}

#[test]
fn a_trace_decides_groups_and_threads() {
    let place = Place::new();
    let trace = place.file("t.csv", "op,offset,length,group,thread\nr,0,4096,a,1\nr,8k,100,b,2\nr,1000,9000,b,1\n");
    let report = place.run("replay --memory 1MiB --json --trace", &[&trace]).json();
    let groups = &report["runs"][0]["groups"];
    assert_eq!((&groups[0]["name"], &groups[0]["ops"]), (&"a".into(), &1.into()));
    assert_eq!((&groups[1]["name"], &groups[1]["ops"]), (&"b".into(), &2.into()));
    assert_eq!(groups[1]["bytes_read"], 9100);
    assert_eq!(report["workload"]["threads"], 2);
    assert_eq!(report["workload"]["size_bytes"], 12_288, "as long as the trace needs, in whole pages");
    let named = place.run("replay --memory 1MiB --groups b=256KiB,a=512KiB --json --trace", &[&trace]).json();
    let groups = &named["runs"][0]["groups"];
    assert_eq!(
        (&groups[0]["name"], &groups[0]["max_bytes"], &groups[0]["ops"]),
        (&"b".into(), &262_144.into(), &2.into())
    );
}

#[test]
fn block_lists_come_from_standard_input_too() {
    let place = Place::new();
    let mut child = place
        .command("replay --memory 1MiB --json --trace - --block-size 512 --ops 3", &[])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"# blocks of 512 bytes\n0 8 0 0\n8 1 0 1\n100 16 0 2\n0 1 0 3\n").unwrap();
    let report = Done::of(child).json();
    assert_eq!(report["runs"][0]["total"]["ops"], 3);
    assert_eq!(report["runs"][0]["total"]["bytes_read"], (8 + 1 + 16) * 512);
}

#[test]
fn what_lies_past_the_end_is_counted_and_not_read() {
    let place = Place::new();
    let data = place.file("data.bin", vec![1; 10_000]);
    let trace = place.file("t.csv", "r,0,4096\nr,9000,4096\nr,10000,1\nr,1TiB,4096\nw,0,1\n");
    let done = place.run("replay --memory 1MiB --verify --skip-writes --trace", &[&trace, &data]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("Past end: 2 operations began past the end"), "{}", done.out);
    assert!(done.out.contains("1 reached past it") && done.out.contains("left out  1 write of"), "{}", done.out);
}

#[test]
fn a_trace_that_lies_past_the_end_is_warned_of() {
    let place = Place::new();
    let data = place.file("data.bin", vec![1; 10_000]);
    let trace = place.file("t.csv", "r,10000,1\nr,1TiB,4096\n");
    let done = place.run("replay --memory 1MiB --trace", &[&trace, &data]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.starts_with("warning: nothing can be read: all 2 operations of the trace"), "{done:?}");
}

#[test]
fn a_trace_is_dealt_to_threads() {
    let place = Place::new();
    let trace = place.file("t.lis", "0 1\n1 1\n2 1\n3 1\n4 1\n");
    let report = place.run("replay --memory 1MiB --threads 3 --json --trace", &[&trace]).json();
    assert_eq!((&report["workload"]["threads"], &report["runs"][0]["total"]["ops"]), (&3.into(), &5.into()));
}

/// Regression: a trace that named 1,500 processes was refused, and so was `--threads` for any trace
/// that named threads. The trace's threads must be distributed over the threads of the run.
#[test]
fn the_threads_of_a_trace_are_dealt_to_those_that_there_are() {
    let place = Place::new();
    let lines: String = (0..1500).map(|at| format!("read,{},4096,,pid{at}\n", at * 4096)).collect();
    let trace = place.file("pids.csv", lines);
    for (line, threads) in [("", 128), ("--threads 3", 3)] {
        let report = place.run(&format!("replay --memory 32MiB {line} --json --trace"), &[&trace]).json();
        let found = (&report["workload"]["threads"], &report["runs"][0]["total"]["ops"]);
        assert_eq!(found, (&threads.into(), &1500.into()));
    }
}

/// Regression: a trace in the form of the MSR traces was replayed with its writes as reads.
#[test]
fn writes_are_found_under_another_name_of_the_column() {
    let place = Place::new();
    let head = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
    let trace = place.file("msr.csv", head.to_owned() + "1,hm,1,Write,0,4096,9\n2,hm,1,Write,8192,4096,9\n");
    let report = place.run("replay --memory 1MiB --json --trace", &[&trace]).json();
    let total = &report["runs"][0]["total"];
    assert_eq!((&total["bytes_written"], &total["bytes_read"]), (&8192.into(), &0.into()), "{report}");
}

/// Waits until the command listens for signals.
fn wait_for_signals_thread(child: &Child) {
    wait_for("the thread that listens for signals", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
        let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.find(|name| name.trim() == "signals")
    });
}

/// While the command waits for a trace, which may never come, nothing would be lost. So the first
/// signal must end the process.
#[test]
fn a_signal_ends_what_waits_for_a_trace() {
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.path("pipe")).status();
    if !made.is_ok_and(|status| status.success()) {
        return not_here("mkfifo");
    }
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let child = place.command("replay --trace pipe", &[]).spawn().unwrap();
        wait_for_signals_thread(&child);
        signal(&child, sent);
        assert_eq!(Done::of(child).code, Some(code));
    }
}

/// When the run is over, the command waits, because the pipe for its metrics has no reader. A
/// signal must end the process.
#[test]
fn a_signal_ends_what_waits_for_a_reader() {
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.path("pipe")).status();
    if !made.is_ok_and(|status| status.success()) {
        return not_here("mkfifo");
    }
    let line = "replay --size 1MiB --memory 512KiB --groups 1 --ops 10 --prometheus pipe";
    let mut child = place.command(line, &[]).spawn().unwrap();
    let mut table = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(table.any(|line| line.starts_with("Resident memory")), "the table of the run, after which it waits");
    signal(&child, Signal::TERM);
    assert_eq!(Done::of(child).code, Some(143));
    // With a reader it is written.
    let reader = std::thread::spawn({
        let pipe = place.path("pipe");
        move || std::fs::read_to_string(pipe).unwrap()
    });
    assert_eq!(place.run(line, &[]).code, Some(0));
    assert!(reader.join().unwrap().contains("pagefold_budget_bytes"));
}

/// Regression: under valgrind, every use of the library ended in an access violation, because the
/// library read the CPU's features from a place that valgrind doesn't provide.
#[test]
#[ignore = "for cargo xtask prove strangers: another program's verdict"]
fn it_runs_under_valgrind() {
    let place = Place::new();
    let mut command = Command::new("valgrind");
    command.args(["--tool=none", "--quiet", env!("CARGO_BIN_EXE_pagefold"), "replay", "--groups", "1", "--ops", "100"]);
    let run = command.args(["--size", "1MiB", "--memory", "512KiB"]).env("TMPDIR", place.path("tmp")).output();
    match run {
        Ok(output) => assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => not_here(&format!("valgrind, which can't be started: {error}")),
    }
}

#[test]
#[ignore = "for cargo xtask prove strangers: another program's verdict"]
fn it_runs_under_gdb() {
    let place = Place::new();
    let mut command = Command::new("gdb");
    command.args(["-batch", "-return-child-result", "-ex", "run", "--args", env!("CARGO_BIN_EXE_pagefold")]);
    command.args(["replay", "--groups", "1", "--ops", "100", "--size", "1MiB", "--memory", "512KiB"]);
    match command.env("TMPDIR", place.path("tmp")).output() {
        Ok(output) => assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => not_here(&format!("gdb, which can't be started: {error}")),
    }
}

/// The process was killed by SIGXFSZ.
#[test]
fn a_file_beyond_the_limit_of_the_process_is_an_error() {
    let place = Place::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 2048; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_pagefold")]);
    command.args(["replay", "--size", "16MiB", "--memory", "4MiB"]).env("TMPDIR", place.path("tmp"));
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("can't write the temporary file") && err.contains("File too large"), "{err}");
}

/// It was called `/proc/self/fd/5`.
#[test]
fn a_temporary_file_has_its_name_in_messages() {
    let place = Place::new();
    let trace = place.file("t.csv", "w,1048576,4096\n");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 2048; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_pagefold")]);
    command
        .args(["replay", "--size", "1MiB", "--memory", "512KiB", "--trace", &trace])
        .env("TMPDIR", place.path("tmp"));
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("/tmp/pagefold-") && err.contains("File too large") && !err.contains("/proc/"), "{err}");
}

/// Regression: the library's warnings were lost. The test uses a note that every machine gets.
#[test]
fn what_the_library_notices_is_said() {
    let place = Place::new();
    let run = |level: &str| {
        let line = "replay --size 1MiB --memory 512KiB --ops 10 --backend posix --anonymous --swap memory:2MiB";
        let mut command = place.command(line, &[]);
        Done::of(command.env("PAGEFOLD_LOG", level).spawn().unwrap())
    };
    assert!(!run("warn").err.contains("note:"));
    assert!(!run("").err.contains("note:"));
    let told = run("info");
    assert!(told.err.contains("note: swap area added area=\"memory\""), "{told:?}");
    assert!(told.err.contains(" placement=per-cpu reason=in memory"), "{told:?}");
    let wrong = run("loud");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("PAGEFOLD_LOG=loud is none of off, error, warn"), "{wrong:?}");
}

#[test]
fn a_budget_beyond_the_machine_is_warned_of() {
    let place = Place::new();
    let done = place.run("replay --size 1MiB --memory 16TiB --groups 1 --ops 10 --backend simulated", &[]);
    assert!(done.err.starts_with("warning: a budget of 16 TiB can't be filled: this "), "{done:?}");
}

#[test]
fn traces_start_over_when_asked_to() {
    let place = Place::new();
    let trace = place.file("t.lis", "0 1\n1 1\n");
    let report = place.run("replay --memory 1MiB --loop --ops 101 --json --trace", &[&trace]).json();
    assert_eq!(report["runs"][0]["total"]["ops"], 101);
}

#[test]
fn a_list_of_budgets_gives_a_curve() {
    let place = Place::new();
    let line = "replay --size 8MiB --memory 1MiB,2MiB,4MiB --ops 5k --groups 1 --plot curve.svg --prometheus metrics";
    let done = place.run(line, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("all runs"), "{}", done.out);
    assert!(std::fs::read_to_string(place.path("curve.svg")).unwrap().contains("4 MiB"));
    let metrics = std::fs::read_to_string(place.path("metrics")).unwrap();
    assert!(metrics.contains("pagefold_budget_bytes 4194304"), "{metrics}");
    let report = place.run("replay --size 8MiB --memory 1MiB,4MiB --ops 5k --groups 1 --json", &[]).json();
    let rates: Vec<f64> = (0..2).map(|run| report["runs"][run]["total"]["hit_rate"].as_f64().unwrap()).collect();
    assert!(rates[0] < rates[1], "{rates:?}");
}

#[test]
fn latencies_are_drawn_and_listed() {
    let place = Place::new();
    let line = "replay --size 8MiB --memory 1MiB,2MiB --ops 5k --groups 2 --reads 60 --plot-latency l.svg --json";
    let report = place.run(line, &[]).json();
    let picture = std::fs::read_to_string(place.path("l.svg")).unwrap();
    for text in ["zipf:0.99, 2 MiB: reads", "zipf:0.99, 2 MiB: writes", "g1", "g2", "total", "99.9"] {
        assert!(picture.contains(text), "{text} in {picture}");
    }
    for row in report["runs"][1]["groups"].as_array().unwrap() {
        for latency in [&row["latency"], &row["write_latency"]] {
            let points = latency["percentiles"].as_array().unwrap();
            assert_eq!(points.last().unwrap()["ns"], latency["max_ns"]);
            assert!(points.is_sorted_by_key(|point| point["ns"].as_u64()), "{points:?}");
        }
    }
}

#[test]
fn time_ends_a_run() {
    let place = Place::new();
    let report = place.run("replay --size 1MiB --memory 1MiB --time 200ms --json", &[]).json();
    let seconds = report["runs"][0]["seconds"].as_f64().unwrap();
    assert!(seconds >= 0.2, "{seconds}");
}

/// Waits until the command has a temporary file of `len` bytes, and returns the file's path.
pub(crate) fn wait_for_temporary_file(place: &Place, child: &Child, len: u64) -> PathBuf {
    let there = |path: &PathBuf| path.metadata().is_ok_and(|metadata| metadata.len() >= len);
    wait_for("a temporary file of the command", || place.temporary_file_of(child).filter(there))
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn ctrl_c_prints_what_was_done_and_cleans_up() {
    let place = Place::new();
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let child = place.command("replay --size 4MiB --memory 1MiB,2MiB --time 1h", &[]).spawn().unwrap();
        wait_for_temporary_file(&place, &child, 4 << 20);
        wait_for_operations(&child);
        signal(&child, sent);
        let done = Done::of(child);
        assert_eq!(done.code, Some(code), "{done:?}");
        assert!(done.out.contains("\ntotal "), "{done:?}");
        assert!(done.err.contains("interrupted"), "{done:?}");
        assert!(place.temporary_files().is_empty());
    }
}

/// Regression: an operation on no bytes got the start of the run as its end time. So a run that had
/// only such operations never reached its time limit.
#[test]
fn operations_without_bytes_take_time() {
    let place = Place::new();
    let trace = place.file("t.csv", "r,0,0\nw,0,0\n");
    let line = "replay --memory 1MiB --loop --json --trace";
    let done = place.run(&format!("{line} {trace} --time 50ms"), &[]);
    assert!(done.json()["runs"][0]["total"]["ops"].as_u64().unwrap() > 0, "{done:?}");
    let done = place.run(&format!("{line} {trace} --time 1h --ops 1000"), &[]);
    assert_eq!(done.json()["runs"][0]["total"]["ops"], 1000, "{done:?}");
}

/// Regression: after Ctrl-C, a long operation was still completed, which could take hours. It must
/// stop after the current piece.
#[test]
fn ctrl_c_ends_a_long_operation() {
    let place = Place::new();
    let data = place.file("data.bin", "");
    std::fs::OpenOptions::new().write(true).open(&data).unwrap().set_len(1 << 40).unwrap();
    let trace = place.file("t.csv", "r,0,4096\nr,0,1099511627776\n");
    let child = place.command("replay --memory 1MiB --json --trace", &[&trace, &data]).spawn().unwrap();
    wait_for_operations(&child);
    signal(&child, Signal::INT);
    let done = Done::of(child);
    assert_eq!(done.code, Some(130), "{done:?}");
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert!(report["runs"][0]["total"]["bytes_read"].as_u64().unwrap() < 1 << 40, "{report}");
}

/// Regression: a signal that came between two runs, or in a run that ended before the next check
/// for signals, was forgotten. These runs are shorter than the time between two checks.
#[test]
fn ctrl_c_ends_many_short_runs() {
    let place = Place::new();
    let budgets = (0..500).map(|more| (1 << 20 | more << 12).to_string()).collect::<Vec<_>>().join(",");
    let line = "replay --size 1MiB --time 90ms --threads 1 --json --memory";
    let child = place.command(line, &[&budgets]).spawn().unwrap();
    wait_for_temporary_file(&place, &child, 1 << 20);
    signal(&child, Signal::INT);
    let done = Done::of(child);
    assert_eq!(done.code, Some(130), "{done:?}");
    let runs = if done.out.is_empty() {
        0
    } else {
        serde_json::from_str::<Value>(&done.out).unwrap()["runs"].as_array().unwrap().len()
    };
    assert!(runs < 500, "{runs} runs");
}

/// Regression: in a run that reads and syncs but doesn't write, the rate left the syncs out, and
/// the report didn't mention them.
#[test]
fn syncs_of_a_run_that_only_reads_are_counted() {
    let place = Place::new();
    let trace = place.file("t.csv", "r,0,4096\nsync\nsync\nsync\n");
    let line = "replay --memory 1MiB --trace";
    let table = place.run(line, &[&trace]);
    assert!(table.out.contains("; 3 syncs took "), "{table:?}");
    let report = place.run(&format!("{line} {trace} --json"), &[]).json();
    assert_eq!(report["runs"][0]["write_back"]["syncs"], 3, "{report}");
}

#[test]
fn ctrl_c_while_the_file_is_made_cleans_up() {
    let place = Place::new();
    if !place.has_room(8 << 30) {
        return;
    }
    let child = place.command("replay --size 8GiB", &[]).spawn().unwrap();
    wait_for_temporary_file(&place, &child, 1);
    signal(&child, Signal::INT);
    let done = Done::of(child);
    assert_eq!((done.code, done.out.as_str()), (Some(130), ""), "{done:?}");
    assert!(place.temporary_files().is_empty());
}

#[test]
fn kill_leaves_nothing_behind() {
    let place = Place::new();
    let sizes = if place.has_room(8 << 30) { &["4MiB", "8GiB"][..] } else { &["4MiB"] };
    for size in sizes {
        let mut child = place.command("replay --time 1h --size", &[size]).spawn().unwrap();
        wait_for_temporary_file(&place, &child, 4 << 20);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(place.temporary_files().is_empty(), "{size}");
    }
}

#[test]
fn help_has_examples_and_completions_exist_for_each_shell() {
    let place = Place::new();
    let help = place.run("replay --help", &[]);
    assert_eq!(help.code, Some(0));
    assert!(help.out.contains("Examples:") && help.out.contains("Exit code:"), "{}", help.out);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = place.run("completions", &[shell]);
        assert_eq!(done.code, Some(0));
        assert!(done.out.contains("replay") && done.out.contains("memory"), "{shell}");
    }
    assert_eq!(place.run("completions", &["cmd"]).code, Some(2));
    assert!(help.out.contains("143 SIGTERM") && help.out.contains("MB"), "{}", help.out);
    for line in ["--version", "replay --version"] {
        assert_eq!(place.run(line, &[]).code, Some(0), "{line}");
    }
    assert_eq!(place.run("", &[]).code, Some(2));
}
