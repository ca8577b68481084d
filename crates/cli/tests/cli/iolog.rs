//! Replays logs of fio: some are checked in, and one is written by the installed fio in a test.
//!
//! `data/fio-3.log` is what fio 3.33 wrote for unaligned reads and writes of two files, with syncs.
//! fio 3.33 writes only version 3. So `data/fio-2.log` was made from another version 3 log of the
//! same job: without the timestamps, and with a wait and a trim added. fio replays it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::place::{Done, Place, not_here};

/// Returns what a checked-in log holds, as `(op, file, offset, length)`. Uses a parser of its own,
/// which is as simple as possible.
fn actions(log: &str, fields_before: usize) -> Vec<(String, String, u64, u64)> {
    let lines = log.lines().skip(1).map(|line| line.split(' ').skip(fields_before).collect::<Vec<_>>());
    let actions = lines.filter(|fields| fields.len() == 4).map(|fields| {
        (fields[1].to_owned(), fields[0].to_owned(), fields[2].parse().unwrap(), fields[3].parse().unwrap())
    });
    actions.collect()
}

fn count(actions: &[(String, String, u64, u64)], wanted: &[&str]) -> u64 {
    actions.iter().filter(|action| wanted.contains(&action.0.as_str())).count() as u64
}

#[test]
fn logs_that_fio_wrote_are_replayed_and_checked() {
    let place = Place::new();
    for (name, fields_before) in [("fio-2.log", 0), ("fio-3.log", 1)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let actions = actions(&std::fs::read_to_string(&path).unwrap(), fields_before);
        let path = path.to_str().unwrap();
        let report = place.run("replay --memory 1MiB --json --trace", &[path]).json();
        let total = &report["runs"][0]["total"];
        assert_eq!(total["reads"], count(&actions, &["read"]), "{name}");
        assert_eq!(total["writes"], count(&actions, &["write"]), "{name}");
        assert_eq!(report["runs"][0]["write_back"]["syncs"], count(&actions, &["sync", "datasync"]), "{name}");
        assert_eq!(report["workload"]["verified"], true);
        assert!(report["runs"][0]["write_back"]["compared_bytes"].as_u64() > Some(0), "{report}");
        let files = &report["workload"]["trace_files"];
        assert_eq!((&files[0]["name"], &files[1]["name"]), (&"one.dat".into(), &"two.dat".into()));
        assert_eq!(files[0]["offset"], 0);
        let end = |file: &str| {
            let ends = actions.iter().filter(|action| action.1 == file && action.0 != "trim");
            ends.map(|action| action.2 + action.3).max().unwrap()
        };
        assert_eq!(files[1]["offset"], end("one.dat").next_multiple_of(4096));
        for (kind, action) in [("trims", "trim"), ("waits", "wait")] {
            assert_eq!(report["workload"]["skipped"][kind], count(&actions, &[action]), "{name}");
        }
        let done = place.run("replay --memory 1MiB --map two.dat=64KiB --trace", &[path]);
        assert!(done.out.contains("\nfiles     two.dat from 64 KiB\n"), "{done:?}");
        assert_eq!(done.out.matches("on files not in --map of the trace").count(), 1, "{done:?}");
    }
}

/// What fio says, or none if there is no fio here.
fn fio(place: &Place, arguments: &[&str]) -> Option<Output> {
    match Command::new("fio").args(arguments).current_dir(place.path(".")).output() {
        Ok(output) => Some(output),
        Err(error) => {
            not_here(&format!("fio, which can't be started: {error}"));
            None
        }
    }
}

/// Regression: file names may be any bytes, but a log with one name in Latin-1 was refused. It must
/// be replayed.
#[test]
fn names_need_not_be_text() {
    let place = Place::new();
    let log = place.file("latin.log", b"fio version 2 iolog\ncaf\xe9 add\nb add\ncaf\xe9 read 0 4096\nb read 0 4096\n");
    let report = place.run("replay --memory 1MiB --json --trace", &[&log]).json();
    assert_eq!(report["runs"][0]["total"]["ops"], 2, "{report}");
    assert_eq!(report["workload"]["trace_files"][0]["name"], "caf\\xe9", "{report}");
    let mut command = place.command("replay --memory 1MiB --json --map", &[]);
    command.arg(OsStr::from_bytes(b"caf\xe9=1MiB")).args(["--trace", &log]);
    let report = Done::of(command.spawn().unwrap()).json();
    assert_eq!(report["workload"]["trace_files"][0]["offset"], 1 << 20, "{report}");
    assert_eq!(report["runs"][0]["total"]["ops"], 1, "{report}");
}

#[test]
fn the_installed_fio_and_pagefold_agree() {
    let place = Place::new();
    let job = "--name=job --filename=a.dat:b.dat --size=1m --rw=randrw --bsrange=512-16k --bs_unaligned \
               --ioengine=psync \
               --fsync=20 --number_ios=300 --write_iolog=job.log --output-format=json";
    let arguments: Vec<_> = job.split_whitespace().collect();
    let Some(output) = fio(&place, &arguments) else { return };
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let job = &said["jobs"][0];
    let bytes = |report: &Value| {
        let total = &report["runs"][0]["total"];
        (total["bytes_read"].as_u64(), total["bytes_written"].as_u64())
    };
    // Once in a temporary file, and once in a file of the user's that is as long as both files.
    std::fs::write(place.path("both.dat"), vec![7; 1 << 20]).unwrap();
    for file in ["", "both.dat --allow-writes"] {
        let line = format!("replay {file} --memory 512KiB --threads 1 --verify --json --trace job.log");
        let report = place.run(&line, &[]).json();
        assert_eq!(bytes(&report), (job["read"]["io_bytes"].as_u64(), job["write"]["io_bytes"].as_u64()), "{report}");
        assert!(report["runs"][0]["write_back"]["compared_bytes"].as_u64() > Some(0), "{report}");
    }
}
