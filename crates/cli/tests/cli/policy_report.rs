//! `pagefold replay --policy-report`: known policies beside a run.

use serde_json::Value;

use crate::place::Place;

const NAMES: [&str; 7] = ["LRU", "ARC", "S3-FIFO", "W-TinyLFU", "LIRS", "OPT", "pagefold"];

/// The misses of each policy, if ten pages are read in a circle with room for eight. LIRS keeps
/// seven of the pages, so the other three miss in each round.
const SHORT: [u64; 6] = [1000, 1000, 393, 307, 10 + 99 * 3, 230];

/// Reads these pages.
fn blocks(pages: impl Iterator<Item = u64>) -> String {
    pages.map(|page| format!("{page} 1\n")).collect()
}

/// The report of the first run.
fn policies(report: &Value) -> &Value {
    &report["runs"][0]["policies"]
}

/// The misses of the policies, without Pagefold's.
fn misses(policies: &Value) -> Vec<u64> {
    let rows = policies["rows"].as_array().unwrap();
    rows.iter().map(|row| row["misses"].as_u64().unwrap()).take(6).collect()
}

/// All lookups of pages.
fn lookups(report: &Value) -> u64 {
    ["hits", "misses", "waits"].map(|field| report["runs"][0]["total"][field].as_u64().unwrap()).iter().sum()
}

#[test]
fn the_counts_are_those_of_the_policies() {
    let place = Place::new();
    // Ten pages in a circle, a hundred times; then one of them again and again.
    let trace = place.file("t.lis", blocks((0..1000).map(|at| at % 10).chain([3; 20])));
    let line = "replay --policy-report --advise random --json --pages 8,10 --trace";
    let report = place.run(line, &[&trace]).json();
    let short = policies(&report);
    assert_eq!((&short["accesses"], &short["pages"], &short["room_pages"]), (&1020.into(), &10.into(), &8.into()));
    assert_eq!((&short["exact_order"], &short["read_ahead"]), (&true.into(), &0.into()));
    assert_eq!(misses(short), SHORT);
    let rows = short["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    let total = &report["runs"][0]["total"];
    assert_eq!(rows[6]["misses"], total["misses"], "{report}");
    let best = *SHORT[..5].iter().min().unwrap() as f64;
    for row in rows {
        let misses = row["misses"].as_u64().unwrap() as f64;
        for (field, ratio) in [("miss_rate", misses / 1020.0), ("over_best", misses / best)] {
            assert!((row[field].as_f64().unwrap() - ratio).abs() < 1e-9, "{field}: {row}");
        }
    }
    let fits = &report["runs"][1]["policies"];
    assert_eq!(misses(fits), [10; 6]);
    assert_eq!((&fits["rows"][6]["misses"], &fits["rows"][6]["over_best"]), (&10.into(), &1.0.into()));
}

#[test]
fn each_page_that_an_operation_touches_is_an_access() {
    let place = Place::new();
    let text = "r,0,4096\nr,4095,2\nr,100,20000\nr,0,0\nr,1MiB,1\nw,0,1\n";
    let (trace, data) = (place.file("t.csv", text), place.file("data.bin", vec![1; 20_000]));
    let line = "replay --memory 1MiB --policy-report --skip-writes --json --trace";
    let report = place.run(line, &[&trace, &data]).json();
    let found = policies(&report);
    assert_eq!((&found["accesses"], &found["pages"]), (&(1 + 2 + 5).into(), &5.into()));
    assert_eq!((misses(found), &found["room_pages"]), (vec![5; 6], &256.into()));
    assert_eq!(lookups(&report), 8);
    // The file grows from two pages to nine, and what was read past its end before is left out.
    let trace = place.file("w.csv", "r,8192,1\nw,32768,4096\nr,8192,1\nw,4000,200\nsync\n");
    let data = place.file("short.bin", vec![1; 8192]);
    let line = "replay --memory 1MiB,2MiB --policy-report --allow-writes --json --trace";
    let report = place.run(line, &[&trace, &data]).json();
    let accesses = [0, 1].map(|run| report["runs"][run]["policies"]["accesses"].as_u64().unwrap());
    assert_eq!(accesses, [4, 5], "in the second run the file is longer from the start: {report}");
}

#[test]
fn the_operations_are_those_of_the_run() {
    let place = Place::new();
    let line = "replay --size 16MiB --memory 4MiB --threads 1 --advise random --policy-report --json";
    for more in [
        "--ops 3k",
        "--time 100ms",
        "--ops 3k --reads 50",
        "--ops 3k --reads 0 --groups 1",
        "--ops 3k --size 5000001 --page-size 16KiB --generate seq",
    ] {
        let line = if more.contains("--size") { line.replace("--size 16MiB ", "") } else { line.to_owned() };
        let report = place.run(&format!("{line} {more}"), &[]).json();
        assert_eq!(policies(&report)["accesses"], lookups(&report), "{more}: {report}");
        assert_eq!(policies(&report)["exact_order"], true);
    }
    // A read of many pages may look a page up twice, if the pages don't all get memory at once. So
    // the lookups can't be compared here.
    let report = place.run(&format!("{line} --ops 300 --read-size 100KiB"), &[]).json();
    assert_eq!(policies(&report)["accesses"], 300 * 25);
    let trace = place.file("t.lis", blocks(0..5));
    let report = place.run("replay --memory 1MiB --loop --ops 101 --policy-report --json --trace", &[&trace]).json();
    assert_eq!(policies(&report)["accesses"], 101);
    let report = place.run("replay --memory 1MiB --json --trace", &[&trace]).json();
    assert_eq!(policies(&report), &Value::Null);
}

#[test]
fn the_table_says_what_is_approximate() {
    let place = Place::new();
    let trace = place.file("t.lis", blocks((0..500).map(|at| at % 100)));
    let run = |more: &str| {
        let done = place.run(&format!("replay --policy-report --trace {trace} {more}"), &[]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        assert!(NAMES.iter().all(|name| done.out.contains(&format!("\n{name} "))), "{done:?}");
        assert!(done.out.contains("\n500 accesses of 100 pages, room for "), "{done:?}");
        done.out
    };
    let (approximate, shared) = ("The order of the accesses is approximate", "share the room among all groups");
    let (metadata, ahead) = ("of this room; --pages leaves it out", "that it read ahead");
    let exact = run("--pages 50 --advise random");
    for note in [approximate, shared, metadata, ahead] {
        assert!(!exact.contains(note), "{exact}");
    }
    assert!(exact.contains("W-TinyLFU is that of its paper"), "{exact}");
    assert!(run("--pages 150 --backend posix").contains(ahead));
    assert!(run("--memory 1MiB").contains(metadata));
    assert!(run("--pages 50 --threads 3").contains(approximate));
    assert!(run("--pages 50 --depth 4").contains(approximate));
    let groups = run("--pages 50 --threads 1 --groups 3");
    assert!(groups.contains(shared) && !groups.contains(approximate), "{groups}");
    let limits = run("--memory 1MiB --groups a=64KiB,b=128KiB --threads 2");
    assert!(limits.contains("room for 48 pages"), "the groups may not have more: {limits}");
}

#[test]
fn a_plot_has_a_curve_for_each_policy() {
    let place = Place::new();
    let line = "replay --size 4MiB --pages 100,200,400 --ops 3k --policy-report --plot curve.svg";
    assert_eq!(place.run(line, &[]).code, Some(0));
    let svg = std::fs::read_to_string(place.path("curve.svg")).unwrap();
    assert!(NAMES.iter().all(|name| svg.contains(name)), "{svg}");
    assert!(svg.contains("accesses without a load, %") && !svg.contains("g1"), "{svg}");
}

#[test]
fn memory_without_a_file_has_no_policies_beside_it() {
    let place = Place::new();
    let done = place.run("replay --anonymous --policy-report --size 1MiB", &[]);
    assert!(done.code == Some(2) && done.err.contains("cannot be used with"), "{done:?}");
}
