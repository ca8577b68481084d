//! `pagefold replay` with writes: what gets into the file, what is said about it, and what is never
//! written.

use std::io::Write;

use rustix::process::Signal;

use crate::place::{Done, Place, wait_for_operations};
use crate::replay::{signal, wait_for_temporary_file};

const USAGE: i32 = 2;
const FAILURE: i32 = 1;

#[test]
fn writes_are_counted_and_compared() {
    let place = Place::new();
    let line = "replay --reads 50 --size 16MiB --memory 2MiB --ops 20k --sync-every 5ms --io-timeout 1h --json";
    let report = place.run(line, &[]).json();
    let (run, workload) = (&report["runs"][0], &report["workload"]);
    assert_eq!((&workload["reads_percent"], &workload["writes"]), (&50.into(), &true.into()));
    let (reads, writes) = (run["total"]["reads"].as_u64().unwrap(), run["total"]["writes"].as_u64().unwrap());
    assert_eq!(reads + writes, 20_000);
    assert!((9_000..11_000).contains(&writes), "{writes}");
    assert_eq!(run["total"]["bytes_written"], writes * 4096);
    assert_eq!(run["total"]["bytes_read"], reads * 4096);
    assert!(run["total"]["write_latency"]["p99_ns"].as_u64().unwrap() > 0, "{run}");
    let back = &run["write_back"];
    assert_eq!((&back["compared_bytes"], &back["unwritten_bytes"]), (&(16 << 20).into(), &0.into()));
    assert!(back["bytes_out"].as_u64().unwrap() > 1 << 20, "{back}");
    assert!(back["requests"].as_u64().unwrap() > 0, "{back}");
    let per_page = back["requests_per_page"].as_f64().unwrap();
    assert!(per_page > 0.0 && per_page <= 1.05, "{per_page}");
    // A run that is certainly longer than the time between two syncs.
    let line = "replay --reads 50 --size 4MiB --memory 1MiB --time 1s --sync-every 5ms --json";
    let back = &place.run(line, &[]).json()["runs"][0]["write_back"];
    assert!(back["syncs"].as_u64().unwrap() > 0, "{back}");
}

#[test]
fn tables_tell_writes_from_reads() {
    let place = Place::new();
    let line = "replay --reads 50 --size 4MiB --memory 1MiB --ops 2k --groups a=512KiB,b=256KiB --sync-every 1s";
    let done = place.run(line, &[]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    for text in [
        "reads (50 %) and writes",
        "a sync every 1.00 s",
        "reads/s",
        "writes/s",
        "unclean",
        "Write-back: ",
        "Compared after",
    ] {
        assert!(done.out.contains(text), "{text} in {}", done.out);
    }
    assert_eq!(done.out.matches("\ntotal").count(), 2, "{}", done.out);
    let only_reads = place.run("replay --size 4MiB --memory 1MiB --ops 2k", &[]);
    assert!(!only_reads.out.contains("rite"), "{}", only_reads.out);
}

#[test]
fn any_length_on_any_backend_and_page_size_is_right() {
    let place = Place::new();
    for backend in place.backends(&["uring", "threads:2", "posix", "buffered", "simulated"]) {
        for more in
            ["--read-size 999", "--read-size 10000 --page-size 16KiB", "--read-size 64KiB --generate seq", "--reads 0"]
        {
            let reads = if more.contains("--reads") { "" } else { "--reads 40" };
            let line = format!("replay {reads} --size 5000001 --memory 4MiB --ops 3k --generate uniform --json {more}");
            let line = if more.contains("seq") { line.replacen("--generate uniform ", "", 1) } else { line };
            let report = place.run(&line, &["--backend", backend]).json();
            assert_eq!(report["runs"][0]["write_back"]["compared_bytes"], 5_000_001, "{backend} {more}");
        }
    }
}

#[test]
fn each_budget_begins_with_the_same_file() {
    let place = Place::new();
    for backend in ["posix", "simulated"] {
        let line = "replay --reads 50 --size 4MiB --memory 1MiB,2MiB --ops 3k --json --backend";
        let report = place.run(line, &[backend]).json();
        for run in 0..2 {
            assert_eq!(report["runs"][run]["write_back"]["compared_bytes"], 4 << 20, "{backend}");
        }
    }
}

/// A file of 100,000 bytes, and a trace that writes within it and past its end.
fn file_and_trace(place: &Place) -> (Vec<u8>, String, String) {
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let path = place.file("data.bin", &bytes);
    let lines = "op,offset,length\nr,0,8192\nw,5,7000\nsync\nr,0,8192\nwrite,99990,20\nw,150000,16\n\
                 r,99000,60000\nfsync,0,4096\n";
    let trace = place.file("t.csv", lines);
    (bytes, path, trace)
}

#[test]
fn a_trace_writes_its_bytes_and_no_others() {
    let place = Place::new();
    let (before, path, trace) = file_and_trace(&place);
    let report = place.run("replay --memory 1MiB --allow-writes --verify --json --trace", &[&trace, &path]).json();
    let total = &report["runs"][0]["total"];
    assert_eq!((&total["reads"], &total["writes"], &total["bytes_written"]), (&3.into(), &3.into(), &7036.into()));
    assert_eq!(report["runs"][0]["write_back"]["compared_bytes"], 7036);
    assert_eq!(report["runs"][0]["write_back"]["syncs"], 2);
    let after = std::fs::read(&path).unwrap();
    assert_eq!(after.len(), 150_016);
    assert_eq!((&after[..5], &after[7005..99_990]), (&before[..5], &before[7005..99_990]));
    assert_ne!(after[5..7005], before[5..7005]);
    assert!(after[100_010..150_000].iter().all(|&byte| byte == 0), "between the old end and what was written past it");
}

#[test]
fn a_users_file_is_not_written_without_permission() {
    let place = Place::new();
    let (before, path, trace) = file_and_trace(&place);
    for more in [&["--trace", &trace][..], &["--reads", "80"], &["--reads", "0", "--verify"]] {
        let done = place.run(&format!("replay --memory 1MiB {path}"), more);
        assert_eq!((done.code, done.out.as_str()), (Some(USAGE), ""), "{done:?}");
        assert!(done.err.contains("--allow-writes permits that"), "{done:?}");
        assert_eq!(done.err.contains("(first at ") && done.err.contains("t.csv:3)"), more[0] == "--trace", "{done:?}");
    }
    let done = place.run("replay --memory 1MiB --skip-writes --trace", &[&trace, &path]);
    assert!(done.code == Some(0) && done.out.contains("left out  3 writes"), "{done:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_can_not_be_written_is_noticed_before_the_run() {
    let place = Place::new();
    // Not even root may write to a program that runs.
    let done = place.run("replay --reads 0 --time 1h --allow-writes", &[env!("CARGO_BIN_EXE_pagefold")]);
    assert_eq!((done.code, done.out.as_str()), (Some(FAILURE), ""), "{done:?}");
    assert!(done.err.starts_with("error: can't write ") && done.err.contains("busy"), "{done:?}");
}

#[test]
fn ctrl_c_writes_back() {
    let place = Place::new();
    let path = place.file("data.bin", vec![7; 8 << 20]);
    let line = "replay --reads 0 --generate uniform --memory 32MiB --groups 1 --time 1h --allow-writes --json";
    let child = place.command(line, &[&path]).spawn().unwrap();
    wait_for_operations(&child);
    signal(&child, Signal::INT);
    let done = Done::of(child);
    assert_eq!(done.code, Some(130), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let (run, back) = (&report["runs"][0], &report["runs"][0]["write_back"]);
    assert!(run["total"]["writes"].as_u64().unwrap() > 0);
    assert_eq!((&back["unwritten_bytes"], &back["compared_bytes"]), (&0.into(), &serde_json::Value::Null));
    assert_eq!(back["end_bytes"], run["total"]["unclean_bytes"]);
    let after = std::fs::read(&path).unwrap();
    assert!(after.chunks(4096).any(|page| page != [7; 4096]), "what was written is in the file");
}

#[test]
fn a_full_disk_is_an_error_that_says_what_is_lost() {
    let place = Place::new();
    let lines: String = (0..512).map(|n| format!("w,{},4096\n", n * 4096)).collect();
    let trace = place.file("t.csv", lines + "sync\n");
    let line = "replay --backend simulated:64KiB --size 64KiB --memory 8MiB --trace";
    let done = place.run(line, &[&trace]);
    assert_eq!(done.code, Some(FAILURE), "{done:?}");
    assert!(done.err.starts_with("error: ") && done.err.contains("No space left on device"), "{done:?}");
    assert!(done.out.contains("Write-back failed ") && done.out.contains("Not written: "), "{done:?}");
    let room = place.run(&line.replace("simulated:64KiB", "simulated:2MiB"), &[&trace]);
    assert_eq!(room.code, Some(0), "{room:?}");
}

#[test]
fn bytes_that_nobody_wrote_are_noticed() {
    let place = Place::new();
    // Buffered, because direct writes on ext4 may fail while another program makes buffered ones.
    let line = "replay --backend buffered --reads 80 --size 2MiB --memory 256KiB --groups 1 --generate uniform \
                --time 1h";
    let child = place.command(line, &[]).spawn().unwrap();
    let path = wait_for_temporary_file(&place, &child, 2 << 20);
    wait_for_operations(&child);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(&vec![0; 2 << 20]).unwrap();
    let done = Done::of(child);
    assert_eq!(done.code, Some(FAILURE), "{done:?}");
    assert!(done.err.contains("were read as [00, 00, ") || done.err.contains("was read as"), "{done:?}");
}
