//! `pagefold replay --pages`, `--advise`.

use serde_json::Value;

use crate::place::Place;

/// Reads 256 pages in order.
fn in_order() -> String {
    (0..256).map(|page| format!("{page} 1\n")).collect()
}

fn total(report: &Value, field: &str) -> u64 {
    report["runs"][0]["total"][field].as_u64().unwrap()
}

#[test]
fn so_many_pages_fit_whatever_metadata_takes() {
    // The command's threads stay on this CPU, too. If they used 9 to 16 CPUs, each CPU might keep
    // the charges of one or two of the 256 pages in its stock. A thread that moves to another CPU
    // searches only eight stocks before it evicts a page.
    let _one_cpu = sync::one_cpu::stay_on_this_cpu();
    let place = Place::new();
    let trace = place.file("t.lis", in_order().repeat(2));
    // With one thread and without readahead, each page is loaded once if all pages fit.
    let line = "replay --advise random --backend posix --json --trace";
    let fits = place.run(&format!("{line} {trace} --pages 256"), &[]).json();
    assert_eq!((total(&fits, "misses"), total(&fits, "hits"), total(&fits, "evictions")), (256, 256, 0));
    let run = &fits["runs"][0];
    assert_eq!((&run["pages"], &run["shared_bytes"]), (&256.into(), &(1 << 20).into()));
    assert!(run["memory_bytes"].as_u64() > run["shared_bytes"].as_u64(), "{run}");
    let short = place.run(&format!("{line} {trace} --pages 255"), &[]).json();
    assert!(total(&short, "misses") > 256 && total(&short, "evictions") > 0, "{short}");
    let in_bytes = place.run(&format!("{line} {trace} --memory 1MiB"), &[]).json();
    assert!(total(&in_bytes, "misses") > 256, "the metadata is in the budget: {in_bytes}");
    let run = &in_bytes["runs"][0];
    assert_eq!((&run["pages"], &run["shared_bytes"]), (&Value::Null, &run["memory_bytes"]));
}

#[test]
fn groups_share_the_pages() {
    let place = Place::new();
    let line = "replay --size 16MiB --ops 4k --page-size 16KiB --pages 40,80 --plot curve.svg";
    let report = place.run(&format!("{line} --json"), &[]).json();
    for (run, pages) in [(&report["runs"][0], 40_u64), (&report["runs"][1], 80)] {
        for group in run["groups"].as_array().unwrap() {
            assert_eq!(group["max_bytes"], pages / 4 * (16 << 10));
            assert!(group["peak_bytes"].as_u64() <= group["max_bytes"].as_u64(), "{group}");
        }
    }
    // Regression: 19 pages can't be divided equally among 4 groups. The simulated policies had 19
    // pages, but the remaining 3 were given to no group.
    let line_of_19 = "replay --size 1MiB --ops 100 --threads 1 --policy-report --pages 19 --json";
    let run = &place.run(line_of_19, &[]).json()["runs"][0];
    let pages: Vec<_> = run["groups"].as_array().unwrap().iter().map(|group| &group["max_bytes"]).collect();
    assert_eq!(pages, [5, 5, 5, 4].map(|pages| pages * 4096));
    assert_eq!(run["policies"]["room_pages"], 19);
    let table = place.run(line, &[]);
    assert!(table.out.contains("\nroom for 40 pages: ") && table.out.contains("\n80 pages "), "{table:?}");
    let svg = std::fs::read_to_string(place.path("curve.svg")).unwrap();
    assert!(svg.contains("memory for pages") && svg.contains("640 KiB"), "{svg}");
}

#[test]
fn too_few_pages_are_an_error_of_the_command_line() {
    let place = Place::new();
    let trace = place.file("t.lis", in_order());
    for (more, message) in [
        ("--pages 1", "group all has 1 page of the 1 page in --pages for 1 thread, and needs 4 pages at least"),
        ("--pages 15 --groups 4", "group g4 has 3 pages of the 15 pages in --pages"),
        ("--pages 0", "more than 0"),
        ("--pages 8,", "--pages"),
        ("--pages -1", "whole number"),
        ("--pages 8 --memory 1MiB", "cannot be used with"),
        ("--pages 8 --anonymous", "cannot be used with"),
        ("--pages 8 --groups all=1MiB", "shared by the groups in equal parts"),
        ("--pages 8 --plot curve.svg", "two budgets or more"),
        ("--pages 1000000M", "too large"),
        ("--pages 1000G --pretouch", "can't be touched"),
        ("--advise willneed", "possible values: random, sequential, normal"),
        ("--advise random --anonymous", "cannot be used with"),
    ] {
        let done = place.run(&format!("replay --quiet --trace {trace} {more}"), &[]);
        assert_eq!(done.code, Some(2), "{more}: {done:?}");
        assert!(done.err.contains(message), "{more}: {done:?}");
    }
    let done = place.run(&format!("replay --quiet --trace {trace} --pages 4"), &[]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
}

#[test]
fn advice_turns_reading_ahead_off() {
    let place = Place::new();
    let trace = place.file("t.lis", in_order());
    let run = |advice: &str| {
        let line = format!("replay --pages 300 --backend posix --json --trace {trace} {advice}");
        place.run(&line, &[]).json()
    };
    let [none, normal, random, sequential] = ["", "--advise normal", "--advise random", "--advise sequential"].map(run);
    assert_eq!((total(&random, "misses"), total(&random, "read_ahead")), (256, 0), "{random}");
    for (report, advised) in [(&none, "normal"), (&normal, "normal"), (&sequential, "sequential")] {
        assert_eq!(report["workload"]["advised"], advised);
        assert_eq!(total(report, "misses") + total(report, "read_ahead"), 256, "{report}");
        assert!(total(report, "read_ahead") > 200, "{report}");
    }
    let line = format!("replay --pages 300 --trace {trace} --advise random");
    assert!(place.run(&line, &[]).out.contains("1 thread, advised random, seed"));
}
