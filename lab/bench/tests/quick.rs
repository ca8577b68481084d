//! Runs each experiment with `--quick`. Checks that the program works, that its figures have the
//! documented form, and that mistakes of the user and failures have different exit codes.
#![cfg(not(pagefold_manycore))]

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// How long a test waits for an event before it fails. This is more than ten times as long as the
/// events take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the program until it ends. If it takes longer than `PATIENCE`, kills it with all processes
/// that it started.
fn bench(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_bench"));
    // It makes its files where it is.
    program.args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR")).process_group(0);
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = program.spawn().expect("the program starts");
    let group = Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    let output = told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = kill_process_group(group, Signal::KILL);
        let said = told.recv_timeout(Duration::from_secs(60)).map(Result::unwrap);
        panic!("waited in vain for this: `bench {}` ends. It said: {said:?}", arguments.join(" "));
    });
    output.expect("the program's output")
}

/// The records of an experiment, each checked for its shape.
fn records(arguments: &[&str]) -> Vec<Value> {
    let output = bench(&[arguments, &["--quick", "--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("an array of records");
    let records = json.as_array().expect("an array").clone();
    for record in &records {
        assert_eq!(record.as_object().expect("an object").len(), 10);
        for text in ["experiment", "subject", "workload", "machine", "metric", "unit"] {
            assert!(record[text].is_string(), "{text} of {record}");
        }
        let [value, min, max] = ["value", "min", "max"].map(|field| record[field].as_f64().expect("a number"));
        assert!(min <= value && value <= max, "{record}");
        assert!(record["cpus"].as_u64() >= Some(1));
    }
    records
}

/// The only value of a metric of a subject.
fn value(records: &[Value], subject: &str, metric: &str) -> f64 {
    let mut matching = records.iter().filter(|record| record["subject"] == subject && record["metric"] == metric);
    let found = matching.next().unwrap_or_else(|| panic!("no {metric} of {subject}"));
    found["value"].as_f64().expect("a number")
}

#[test]
fn hits_are_compared_with_both_arrays() {
    let records = records(&["peers", "hit", "--threads", "1", "--subjects", "quick_cache,pagefold,pagefold-page"]);
    assert!(records.iter().all(|record| record["experiment"] == "hit"));
    for subject in ["quick_cache", "pagefold"] {
        for read in ["first 8 B", "8 B", "8 B chained"] {
            let workload = format!("{read}, zipf 0.99, 1 thread");
            assert!(records.iter().any(|record| record["subject"] == subject && record["workload"] == workload));
        }
    }
    let pinned = "page(n), 4 KiB, uniform, 1 thread";
    assert!(records.iter().any(|record| record["subject"] == "pagefold" && record["workload"] == pinned));
    for metric in ["cpu_per_op", "wall_per_op", "cpu_ratio_ordinary", "wall_ratio_huge"] {
        assert!(value(&records, "quick_cache", metric) > 0.0);
    }
    assert_eq!(value(&records, "array", "cpu_ratio_ordinary"), 1.0);
    assert_eq!(value(&records, "array-huge", "cpu_ratio_huge"), 1.0);
}

#[test]
fn misses_are_compared_with_pread() {
    let records = records(&["peers", "miss", "--threads", "1"]);
    assert_eq!(value(&records, "pread", "cpu_ratio_pread"), 1.0);
    for subject in ["vmcache", "quick_cache", "foyer-s3fifo", "moka", "mutex-lru", "pagefold"] {
        let ratio = value(&records, subject, "miss_ratio");
        assert!((60.0..80.0).contains(&ratio), "{subject} missed {ratio} %");
    }
}

#[test]
fn no_policy_beats_the_optimum() {
    let records = records(&["peers", "miss-rate"]);
    let best = value(&records, "static-optimum", "miss_ratio");
    for subject in ["perfect-lfu", "vmcache", "quick_cache", "foyer-s3fifo", "moka", "mutex-lru", "pagefold"] {
        let ratio = value(&records, subject, "miss_ratio");
        assert!(ratio > best - 1.0 && ratio < 40.0, "{subject} missed {ratio} %, the optimum is {best} %");
    }
}

#[test]
fn a_scan_hurts_an_lru_map_more_than_s3_fifo() {
    let records = records(&["peers", "scan", "--subjects", "mutex-lru,foyer-s3fifo"]);
    let hits = |subject| value(&records, subject, "hot_hit_ratio");
    assert!(hits("mutex-lru") < hits("foyer-s3fifo"));
    assert!(value(&records, "mutex-lru", "scan_miss_ratio") > 99.0);
}

#[test]
fn writing_is_compared_with_the_kernel_and_the_disk() {
    let records = records(&["peers", "write", "--rounds", "1"]);
    for subject in ["mmap", "pwrite", "mutex-lru", "pagefold"] {
        assert!(value(&records, subject, "writes_per_second") > 0.0);
        assert!(value(&records, subject, "write_worst") >= value(&records, subject, "write_p50"));
    }
    // Every page by itself, or with neighbours.
    let requests = value(&records, "pagefold", "requests_per_page");
    assert!(requests > 0.0 && requests <= 1.0, "{requests}");
    for metric in ["rate_ratio_pwrite", "p99_ratio_mmap", "ratio_disk", "worst_ratio_disk"] {
        assert!(value(&records, "pagefold", metric) > 0.0, "{metric}");
    }
    assert!(value(&records, "beside write-back", "cpu_rate_ratio_quiet") > 0.0);
    if !std::path::Path::new("/dev/shm").is_dir() {
        return println!("not here: /dev/shm");
    }
    let in_memory = bench(&["peers", "write", "--quick", "--dir", "/dev/shm"]);
    assert_eq!(in_memory.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&in_memory.stderr).contains("--dir takes a directory on a disk"));
}

#[test]
fn reading_from_a_disk_is_compared_with_fio() {
    let records = records(&["peers", "disk", "--rounds", "1"]);
    let of = |workload: &str| -> Vec<_> {
        records.iter().filter(|record| record["workload"] == workload).cloned().collect()
    };
    let fio = Command::new("fio").arg("--version").output().is_ok();
    if !fio {
        println!("not here: fio");
    }
    let has_io_uring = records.iter().any(|record| record["subject"] == "uring-lru");
    if !has_io_uring {
        println!("not here: io_uring");
    }
    for workload in ["random 4 KiB, 64 at once", "sequential, 64 KiB at a time", "random 4 KiB, 70 % read, 16 at once"]
    {
        let records = of(workload);
        let subjects = ["mmap", "pread", "pread-direct", "pagefold"].into_iter();
        for subject in subjects.chain(has_io_uring.then_some("uring-lru")) {
            assert!(value(&records, subject, "reads_per_second") > 0.0);
            assert!(value(&records, subject, "read_p99") >= value(&records, subject, "read_p50"));
            if fio {
                assert!(value(&records, subject, "cpu_ratio_fio") > 0.0);
            }
        }
        let unused = value(&records, "pagefold", "unused");
        assert!((0.0..100.0).contains(&unused), "{unused}");
    }
    assert!(value(&of("ten open files, idle"), "pagefold", "cpu") >= 0.0);
    let wrong = bench(&["peers", "disk", "--quick", "--workloads", "backwards"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("random-64"));
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_ten_idle_files_use_little_cpu() {
    let records = records(&["peers", "disk", "--rounds", "1", "--workloads", "idle"]);
    assert!(value(&records, "pagefold", "cpu") < 100.0);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn atomics_of_a_hit_are_counted() {
    let records =
        records(&["peers", "hit", "--count", "--subjects", "array,vmcache,vmcache-shared,mutex-lru,pagefold"]);
    let atomics = |subject| value(&records, subject, "atomic_rmw");
    assert_eq!(atomics("array"), 0.0);
    assert_eq!(atomics("vmcache"), 0.0);
    assert_eq!(atomics("vmcache-shared"), 2.0);
    assert_eq!(atomics("pagefold"), 0.0);
    assert_eq!(atomics("mutex-lru"), 2.0);
    assert!(value(&records, "array", "instructions") > 5.0);
}

/// No count in an `Arc` either, which virtual CPUs wouldn't see.
#[test]
#[cfg(target_arch = "x86_64")]
fn two_cpus_that_hit_the_same_page_write_no_line_atomically() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("not here: two CPUs");
        return;
    }
    let records = records(&["real", "shared-lines", "--operations", "hit,space-hit"]);
    for operation in ["hit", "space-hit"] {
        let of = |metric: &str| {
            let is_its = |record: &&Value| record["workload"] == operation && record["metric"] == metric;
            records.iter().find(is_its).and_then(|record| record["value"].as_f64()).expect("a figure")
        };
        assert_eq!((of("atomic_rmw"), of("shared_rmw")), (0.0, 0.0), "{operation}");
        assert!(of("instructions") > 5.0, "{operation}");
    }
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_memory_in_swap_is_measured_and_zeros_need_no_device() {
    // For so long that all of the region is touched several times.
    let of = |workload| {
        records(&["real", "swap", "--cpus", "1", "--rounds", "1", "--time", "100ms", "--workloads", workload])
    };
    let (uniform, zeros) = (of("uniform"), of("zeros"));
    assert!(value(&uniform, "pagefold", "bytes_in") > 1000.0);
    for records in [uniform, zeros.clone()] {
        assert!(value(&records, "pagefold", "faults") > 0.1);
        assert!(value(&records, "pagefold", "cpu_per_fault") > 0.0);
    }
    assert_eq!((value(&zeros, "pagefold", "bytes_in"), value(&zeros, "pagefold", "bytes_out")), (0.0, 0.0));
}

#[test]
fn locks_and_structures_are_measured_on_real_cpus() {
    let records = records(&["real", "locks", "--cpus", "1,2", "--rounds", "1", "--transfer", "50"]);
    let of = |metric: &str| records.iter().filter(|record| record["metric"] == metric).count();
    // 15 schemes on two workloads with one and two CPUs.
    assert_eq!((of("throughput"), of("scaling")), (60, 60));
    // With --quick no run is dropped, however far the CPUs are from each other.
    assert_eq!(value(&records, "all", "dropped"), 0.0);
}

#[test]
fn an_experiment_without_a_device_refuses_one() {
    let wrong = bench(&["real", "lookup", "--quick", "--device", "disk"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no device"));
}

#[test]
fn text_and_a_plot_name_the_subjects() {
    let directory = tempfile::tempdir().expect("a directory");
    let plot = directory.path().join("plot.svg");
    let path = plot.to_str().expect("a path in UTF-8");
    let output = bench(&["peers", "scan", "--quick", "--rounds", "1", "--subjects", "mutex-lru,moka", "--plot", path]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("--quick: shows that everything works; the figures mean nothing.\n"), "{text}");
    assert!(text.contains("mutex-lru"));
    assert!(std::fs::read_to_string(&plot).expect("a plot").contains("mutex-lru"));
}

#[test]
fn mistakes_are_told_apart_from_failures() {
    let misplaced = bench(&["peers", "miss", "--subjects", "dashmap"]);
    assert_eq!(misplaced.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&misplaced.stderr).contains("dashmap has no place in miss"));
    assert_eq!(bench(&["peers", "hit", "--subjects", "nobody"]).status.code(), Some(2));
    let unwritable = bench(&["peers", "scan", "--plot", "/nowhere/at/all.svg"]);
    assert_eq!(unwritable.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unwritable.stderr).contains("cannot write the plot to /nowhere/at/all.svg: No"));
    let failed = bench(&["peers", "hit", "--quick", "--file", "/nowhere/at/all"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("cannot create /nowhere/at/all"));
}

/// Runs each command in the documentation with `--help`. This fails if it has an unknown name or
/// option.
#[test]
fn documented_commands_are_known() {
    let pages = concat!(
        include_str!("../../../README.md"),
        include_str!("../../../BENCHMARKS.md"),
        include_str!("../../../CONTRIBUTING.md")
    );
    let line = |line: &'static str| {
        let peers = line.strip_prefix("cargo run --release -p bench -- ").map(|rest| ("", rest));
        let (name, rest) = peers.or_else(|| Some(("real ", line.strip_prefix("cargo bench-real ")?)))?;
        Some(name.to_owned() + rest.split('#').next().unwrap_or_default())
    };
    let lines: Vec<String> = pages.lines().filter_map(line).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    for line in lines {
        let arguments: Vec<&str> = line.split_whitespace().chain(["--help"]).collect();
        let output = bench(&arguments);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
