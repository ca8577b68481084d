//! What must hold on virtual CPUs: the gate passes, and fails with a planted bug; the same seed
//! gives the same figures; the page of results is right.
//!
//! To be run with `RUSTFLAGS="--cfg pagefold_manycore"` in a target directory of its own, as `cargo
//! xtask test --long` does.
#![cfg(pagefold_manycore)]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the program prints when all is well.
fn printed(arguments: &[&str]) -> String {
    let output = bench(arguments);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
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
    let lines: Vec<&str> = pages.lines().filter_map(|line| line.strip_prefix("cargo bench-virtual ")).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    for line in lines {
        let arguments = line.split('#').next().unwrap_or_default().split_whitespace();
        printed(&["virtual"].into_iter().chain(arguments).chain(["--help"]).collect::<Vec<_>>());
    }
}

/// The gate's claims of an experiment hold, and there are so many.
fn gate(experiment: &str, claims: u32) {
    let passed = printed(&["virtual", "gate", "--only", experiment]);
    assert_eq!(passed.lines().last(), Some(&*format!("all {claims} claims hold")), "{passed}");
}

#[test]
fn hits_make_no_shared_write_and_wait_for_nobody() {
    gate("lookup", 4);
}

#[test]
fn files_read_twice_in_too_little_memory_hardly_contend() {
    gate("readtwice", 5);
}

#[test]
fn spaces_that_share_pages_end_side_by_side() {
    gate("exit", 1);
}

#[test]
fn disjoint_ranges_hardly_contend() {
    gate("range", 2);
}

#[test]
fn first_touches_hardly_contend() {
    gate("page-fault", 5);
}

#[test]
fn processes_that_swap_hardly_contend() {
    gate("swap", 2);
}

#[test]
fn a_quiet_tenant_keeps_its_pages_and_its_pace_beside_every_hog() {
    printed(&["virtual", "neighbours", "--check"]);
}

#[test]
fn a_shared_counter_on_the_hit_path_turns_the_gate_red_and_is_named() {
    let output = bench(&["virtual", "gate", "--scheme", "planted"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("DOESN'T AGREE: ").count(), 4, "{said}");
    // The line with the counter's `fetch_add`, and no other.
    let source = include_str!("../src/experiments/lookup/planted.rs");
    let line = 1 + source.lines().position(|line| line.contains("fetch_add")).expect("the planted counter");
    let named = format!("is lost at lab/bench/src/experiments/lookup/planted.rs:{line}:");
    assert_eq!(said.matches(&named).count(), 4, "{said}");
}

#[test]
fn the_profile_names_the_planted_line_first() {
    let said = printed(&[
        "virtual",
        "lookup",
        "--cpus",
        "88",
        "--schemes",
        "planted",
        "--workloads",
        "hot-page",
        "--seeds",
        "1",
        "--profile",
    ]);
    let by_line = said.split("by source line").nth(1).expect("a table of source lines");
    let first = by_line.lines().nth(2).expect("a first line");
    assert!(first.contains("lookup/planted.rs:"), "{said}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let arguments = ["virtual", "lookup", "--quick", "--json"];
    let (first, second) = (printed(&arguments), printed(&arguments));
    assert_eq!(first, second);
    let records: Vec<Value> = serde_json::from_str(&first).expect("an array of records");
    assert!(records.iter().all(|record| record.as_object().expect("an object").len() == 10));
    let of = |metric: &str| records.iter().filter(|record| record["metric"] == metric).count();
    // Four schemes on four workloads with 1 and 8 CPUs.
    assert_eq!((of("throughput"), of("efficiency"), of("shared_writes")), (32, 32, 32));
    assert_ne!(first, printed(&["virtual", "lookup", "--quick", "--json", "--time", "21us"]));
}

#[test]
fn the_page_of_results_has_the_published_tables_and_a_stale_one_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("made");
    let to = path.to_str().expect("UTF-8");
    let only = ["--only", "exit-shared,range-file"];
    printed(&[&["virtual", "results", "--quick", "--seeds", "1", "--output", to], &only[..]].concat());
    let read = |name: &str| std::fs::read_to_string(path.join(name)).expect("a file");
    let page = read("results.md") + &read("results/exit-shared.md") + &read("results/range-file.md");
    for part in [
        "[exit-shared](results/exit-shared.md)",
        "Not made yet: lookup-faults",
        "(results/range-file.svg)",
        "(range-file.svg)",
        "| 2 | one-lock |",
        "| 1 | interval-tree |",
        "122 kIOPS",
        "**file-overlapping**",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    let table: Value = serde_json::from_str(&read("results/exit-shared.json")).expect("a table");
    let records = table["records"].as_array().expect("an array of records");
    assert!(records.iter().any(|record| record["subject"] == "side-by-side" && record["metric"] == "throughput"));
    // The page follows from its tables.
    let summary = read("results.md");
    std::fs::write(path.join("results.md"), summary.replace("apart", "together")).expect("a file");
    let output = bench(&["virtual", "results", "--check", "--output", to]);
    assert!(text(&output.stderr).contains("results --no-runs"), "{}", text(&output.stderr));
    printed(&["virtual", "results", "--no-runs", "--output", to]);
    assert_eq!(read("results.md"), summary);
    refused(&["virtual", "results", "--no-runs", "--only", "exit-shared"], &["--only"]);
    // One table is made anew, and the other stays.
    printed(&["virtual", "results", "--quick", "--seeds", "1", "--output", to, "--only", "exit-shared"]);
    assert!(read("results.md").contains("[range-file](results/range-file.md)"));
    // The other tables aren't there.
    let output = bench(&["virtual", "results", "--check", "--output", to]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no table") && said.contains("cargo bench-virtual results"), "{said}");
    let in_earnest = read("results/exit-shared.json").replace("\"quick\": true", "\"quick\": false");
    std::fs::write(path.join("results/exit-shared.json"), in_earnest).expect("a file");
    refused(&["virtual", "results", "--quick", "--output", to], &["would replace", "--output"]);
    std::fs::write(path.join("results/exit-shared.json"), "{}").expect("a file");
    let output = bench(&["virtual", "results", "--quick", "--output", to]);
    assert!(text(&output.stderr).contains("isn't what this program writes"), "{}", text(&output.stderr));
    refused(&["virtual", "results", "--only", "none"], &["exit-shared", "page-fault-private"]);
    refused(&["virtual", "results", "--check", "--quick"], &["--quick"]);
}

#[test]
fn the_committed_page_of_results_is_of_today() {
    // This table was chosen because its figures don't depend on how the program was built. Those of
    // `exit-shared` differ by a tenth from build to build, because some code chooses by addresses.
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let said = printed(&["virtual", "results", "--check", "--only", "readtwice-two-groups-a-cpu", "--output", docs]);
    assert_eq!(said.matches(" M/s, as on the page").count(), 3, "{said}");
}

#[test]
fn runs_between_cpus_that_are_farther_from_each_other_are_not_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let real = directory.path().join("real.json");
    let record = |cpus: u32, metric: &str, [value, min, max]: [f64; 3]| {
        serde_json::json!({
            "experiment": "locks", "subject": "ticket", "workload": "busy", "machine": "a real one", "cpus": cpus,
            "metric": metric, "unit": "x", "value": value, "min": min, "max": max,
        })
    };
    let summary = |line: Option<[f64; 3]>| {
        let mut records = vec![record(1, "throughput", [1e7; 3]), record(2, "scaling", [0.001; 3])];
        records.extend(line.map(|line| record(2, "line", line)));
        std::fs::write(&real, serde_json::to_string(&records).expect("JSON")).expect("a file");
        let path = real.to_str().expect("UTF-8");
        let busy = ["--workloads", "busy", "--schemes", "ticket", "--beside", path];
        let said = printed(&[&["virtual", "locks", "--quick", "--cpus", "1,2"], &busy[..]].concat());
        said.lines().last().expect("a summary").to_owned()
    };
    // A line takes 46 ns in this preset.
    let compared = summary(Some([46.0, 38.0, 57.0]));
    assert!(
        compared.starts_with("0 of 1 are within 20 %; the worst: ticket on busy, ") && compared.ends_with("real one")
    );
    assert!(summary(Some([46.0, 46.0, 124.0])).starts_with("0 of 0 are within 20 %; 1 aren't compared"));
    assert!(summary(None).contains("isn't known"));
}

#[test]
fn what_is_beside_each_other_ends_with_schemes_the_worst_and_what_is_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("real.json");
    let path = path.to_str().expect("UTF-8");
    let tasks = ["--quick", "--cpus", "1,2", "--schemes", "counter,sharded"];
    let virtual_ones = printed(&[&["virtual", "locks", "--json"], &tasks[..]].concat());
    let mut records: Vec<Value> = serde_json::from_str(&virtual_ones).expect("records");
    // The "real" records are the same figures, except for one that is missing and one that is
    // doubled. They also say that 9 runs were dropped.
    let is = |record: &Value, subject: &str, workload: &str| {
        (record["subject"].as_str(), record["workload"].as_str()) == (Some(subject), Some(workload))
            && (record["metric"].as_str(), record["cpus"].as_u64()) == (Some("scaling"), Some(2))
    };
    records.retain(|record| !is(record, "sharded", "relaxed"));
    let doubled = records.iter_mut().find(|record| is(record, "counter", "busy")).expect("a figure");
    doubled["value"] = Value::from(2.0 * doubled["value"].as_f64().expect("a number"));
    let mut dropped = records[0].clone();
    (dropped["metric"], dropped["value"]) = (Value::from("dropped"), Value::from(9.0));
    records.push(dropped);
    std::fs::write(path, serde_json::to_string(&records).expect("JSON")).expect("a file");
    let said = printed(&[&["virtual", "locks", "--beside", path], &tasks[..]].concat());
    let summary = said.lines().last().expect("a summary");
    for part in [
        "2 of 3 are within 20 %, and 1 of 2 schemes wherever they are compared",
        "the worst: counter on busy, 0.50 times the real one",
        "1 have no real figure",
        "9 real runs were dropped",
    ] {
        assert!(summary.contains(part), "{part} is missing: {summary}");
    }
}

#[test]
fn a_plot_has_a_panel_for_each_workload_and_the_published_figures() {
    let directory = tempfile::tempdir().expect("a directory");
    let plot = directory.path().join("plot.svg");
    let path = plot.to_str().expect("UTF-8");
    printed(&["virtual", "lookup", "--quick", "--machine", "altix-64", "--plot", path]);
    let svg = std::fs::read_to_string(plot).expect("a plot");
    for part in ["own-parts", "hot-page", "faults", "spinlock", "pagefold", "published"] {
        assert!(svg.contains(part), "{part} is missing");
    }
}

#[test]
fn groups_choose_the_workload_and_lists_have_their_share_printed() {
    let shared = printed(&["virtual", "exit", "--quick", "--schemes", "one-lock,pagefold", "--cpus", "2"]);
    assert!(shared.contains("lists: % lost") && shared.contains("accesses"), "{shared}");
    let json = printed(&["virtual", "exit", "--quick", "--schemes", "one-lock", "--cpus", "4", "--json"]);
    let records: Vec<Value> = serde_json::from_str(&json).expect("records");
    let lost = records.iter().find(|record| record["metric"] == "lists_lost").expect("a share of lists");
    assert!(lost["value"].as_f64().is_some_and(|percent| percent > 1.0), "spinning isn't counted: {json}");
    for (groups, chosen, other) in [("1", "\none-group: ", "\ngroups: "), ("N", "\ngroups: ", "\none-group: ")] {
        let arguments = ["virtual", "readtwice", "--quick", "--schemes", "pagefold", "--cpus", "2", "--groups", groups];
        let text = printed(&arguments);
        assert!(text.contains(chosen) && !text.contains(other), "{text}");
    }
}

/// Ends with 2, and says something that contains each of `parts`.
fn refused(arguments: &[&str], parts: &[&str]) {
    let output = bench(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
}

#[test]
fn mistakes_are_answered_with_the_choices() {
    refused(&["virtual", "lookup", "--cpus", "257"], &["between 1 and 256"]);
    refused(&["virtual", "lookup", "--cpus", "1,0"], &["between 1 and 256"]);
    refused(&["virtual", "lookup", "--schemes", "nobody"], &["spinlock", "pagefold", "planted"]);
    refused(&["virtual", "lookup", "--workloads", "none"], &["own-parts", "hot-page"]);
    refused(&["virtual", "lookup", "--machine", "cray-1"], &["xeon-e5-2699v4", "altix-64", "file"]);
    refused(&["virtual", "lookup", "--time", "long"], &["200us"]);
    refused(&["virtual", "locks", "--bytes", "8"], &["--bytes"]);
    refused(&["virtual", "locks", "--memory-per-cpu", "1MiB"], &["--memory-per-cpu"]);
    refused(&["virtual", "swap", "--memory-per-cpu", "1TiB"], &["256 KiB", "64 MiB"]);
    refused(&["virtual", "locks", "--groups", "1"], &["no groups", "--groups"]);
    refused(&["virtual", "readtwice", "--groups", "2"], &["1, N"]);
    refused(&["virtual", "readtwice", "--groups", "1", "--workloads", "groups"], &["--workloads"]);
    refused(&["virtual", "lookup", "--json", "--profile"], &["--json"]);
    refused(&["virtual", "gate", "--scheme", "nobody"], &["planted"]);
    // Those with a gate have a test each.
    refused(&["virtual", "gate", "--only", "map-churn,locks,preemption"], &["none of map-churn"]);
    refused(&["virtual", "gate", "--only", "nothing"], &["lookup", "swap"]);
    refused(&["virtual", "nothing"], &["nothing"]);
    refused(&["real", "lookup"], &["cargo bench-real"]);
    refused(&["peers", "hit", "--quick"], &["-p bench -- peers"]);
    let directory = tempfile::tempdir().expect("a directory");
    let machine = directory.path().join("machine.json");
    let path = machine.to_str().expect("UTF-8");
    for (contents, part) in [
        ("{", "calibrate"),
        (
            r#"{"name":"m","shape":{"sockets":1,"cores_per_socket":2,"threads_per_core":1},"costs":{"line_hti":1}}"#,
            "line_hit",
        ),
        (r#"{"name":"m","shape":{"sockets":9,"cores_per_socket":99,"threads_per_core":1},"costs":{}}"#, "256"),
    ] {
        std::fs::write(&machine, contents).expect("a file");
        refused(&["virtual", "lookup", "--machine", path], &[part]);
    }
    refused(&["virtual", "lookup", "--beside", path], &["bench-real"]);
}

#[test]
fn a_machine_file_is_a_machine_and_more_tasks_than_cpus_take_turns() {
    let directory = tempfile::tempdir().expect("a directory");
    let machine = directory.path().join("machine.json");
    let contents =
        r#"{"name":"mine","shape":{"sockets":1,"cores_per_socket":2,"threads_per_core":1},"costs":{"rmw":5}}"#;
    std::fs::write(&machine, contents).expect("a file");
    let path = machine.to_str().expect("UTF-8");
    let said = printed(&["virtual", "locks", "--machine", path, "--quick", "--cpus", "2,4", "--schemes", "mutex"]);
    assert!(said.contains("mine, 2 CPUs") && said.contains("     4  mutex"), "{said}");
}
