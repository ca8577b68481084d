//! `pagefold replay --anonymous`: memory that no file has.

use crate::place::Place;

#[test]
fn memory_eight_times_the_budget_goes_to_swap_and_is_checked() {
    let place = Place::new();
    for swap in ["memory:32MiB", "SWAP:32MiB", "compressed:256KiB,SWAP:32MiB"] {
        let swap = swap.replace("SWAP", place.path("swap").to_str().unwrap());
        let arguments =
            "replay --anonymous --size 16MiB --memory 2MiB --ops 20k --reads 60 --threads 3 --generate uniform --json";
        let report = place.run(arguments, &["--swap", &swap]).json();
        let run = &report["runs"][0];
        assert_eq!(
            (&report["workload"]["verified"], &report["workload"]["file_kind"]),
            (&true.into(), &"anonymous".into())
        );
        assert!(run["total"]["peak_bytes"].as_u64().unwrap() <= 2 << 20, "{run}");
        assert!(run["swap"]["pages_in"].as_u64().unwrap() > 5_000, "{run}");
        assert_eq!(run["write_back"]["compared_bytes"], 16 << 20, "all of it is compared at the end");
        assert!(!place.path("swap").exists());
    }
}

#[test]
fn swap_may_be_encrypted() {
    let place = Place::new();
    let small = "replay --anonymous --size 4MiB --memory 1MiB --ops 1k --quiet --swap-encrypted";
    let done = place.run(small, &["--swap", "memory:8MiB"]);
    assert!(done.code == Some(0) && done.out.contains(" in use, encrypted\n"), "{done:?}");
    let done = place.run(small, &["--swap", "memory:8MiB", "--json"]).json();
    assert_eq!(done["runs"][0]["swap"]["encrypted"], true, "{done}");
    assert_eq!(place.run(small, &[]).code, Some(2), "--swap-encrypted without --swap");
}

#[test]
fn how_slots_are_placed_may_be_set_and_is_told() {
    let place = Place::new();
    let small = "replay --anonymous --size 4MiB --memory 1MiB --ops 1k --quiet";
    let both = "compressed:128KiB,memory:8MiB";
    let done = place.run(small, &["--swap", both]);
    let told = "swap area compressed: per-cpu (in memory)\nswap area memory: per-cpu (in memory)\n";
    assert!(done.code == Some(0) && done.out.contains(told), "{done:?}");
    let done = place.run(small, &["--swap", both, "--swap-placement", "sequential"]);
    let told = "swap area compressed: per-cpu (in memory)\nswap area memory: sequential (as requested)\n";
    assert!(done.code == Some(0) && done.out.contains(told), "{done:?}");

    let path = place.path("swap");
    let file = format!("{}:8MiB", path.display());
    let areas = |arguments: &[&str]| {
        let report = place.run(small, &[&["--json", "--swap", &file], arguments].concat()).json();
        report["runs"][0]["swap"]["areas"].clone()
    };
    for placement in ["per-cpu", "sequential"] {
        let area = &areas(&["--swap-placement", placement])[0];
        assert_eq!(area["name"], path.to_str().unwrap());
        assert_eq!((&area["placement"], &area["placement_reason"]), (&placement.into(), &"as requested".into()));
    }
    // What the machine's disks are like is another matter.
    let reason = areas(&[])[0]["placement_reason"].as_str().unwrap().to_owned();
    assert_ne!(reason, "as requested");
    assert_ne!(reason, "in memory");

    let done = place.run(small, &["--swap", both, "--swap-placement", "random"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("'random'") && done.err.contains("[possible values: per-cpu, sequential]"), "{done:?}");
    let done = place.run(small, &["--swap-placement", "sequential"]);
    assert!(done.code == Some(2) && done.err.contains("--swap <FILE:SIZE>"), "{done:?}");
}

#[test]
fn a_table_says_what_was_swapped_and_mistakes_are_told() {
    let place = Place::new();
    let small = "replay --anonymous --size 4MiB --memory 1MiB --ops 1k --quiet";
    let done = place.run(small, &["--swap", "memory:8MiB"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.out.contains("\nswap: ") && done.out.contains("pages out"), "{}", done.out);
    let done = place.run(small, &["--swap", "compressed:128KiB,memory:8MiB"]);
    assert!(done.out.contains("\ncompressed: ") && done.out.contains("pages refused"), "{done:?}");
    for (more, code, message) in [
        (&["--swap", "nothing"][..], 2, "FILE:SIZE"),
        (&["--swap", "x:lots"], 2, "isn't a size"),
        (&["--swap", "memory:1KiB"], 1, "too small"),
        (&["--swap", "compressed:1KiB"], 1, "compressed is too small"),
        (&["--swap", "compressed:1GiB"], 1, "budget"),
        (&["--swap", "compressed:"], 2, "isn't a size"),
        (&["--swap", "/nowhere/at/all:1MiB"], 1, "can't open"),
        (&["--groups", "2"], 2, "--groups"),
        (&["--depth", "4"], 2, "--depth"),
        (&[], 1, "has reached its limit"),
    ] {
        let done = place.run(small, more);
        assert_eq!(done.code, Some(code), "{more:?}: {done:?}");
        assert!(done.err.contains(message), "{more:?}: {done:?}");
    }
    let without = place.run("replay --swap memory:1MiB --ops 1", &[]);
    assert_eq!(without.code, Some(2), "{without:?}");
}

/// Regression: a swap file may be larger than the room in its file system. When the file system was
/// full, the run ended with "group `g1` has reached its limit", which didn't mention the disk. The
/// command must warn before the run, and then name the swap area and the error of the system.
#[test]
fn a_swap_file_that_does_not_fit_is_told_of_before_and_after() {
    let place = Place::new();
    let mut script = std::process::Command::new("unshare");
    script.args(["--mount", "sh", "-c", "mount -t tmpfs -o size=32m none \"$1\" && shift && exec \"$@\"", "sh"]);
    let swap = place.path("small");
    std::fs::create_dir(&swap).unwrap();
    let arguments = "replay --anonymous --size 128MiB --memory 16MiB --time 60s --quiet --swap";
    script.arg(&swap).arg(env!("CARGO_BIN_EXE_pagefold")).args(arguments.split(' '));
    let done = script.arg(format!("{}:1GiB", swap.display())).output();
    let said = done.map(|done| String::from_utf8_lossy(&done.stderr).into_owned()).unwrap_or_default();
    if !said.contains("warning: ") {
        return println!("not here: file systems that a test may mount ({said})");
    }
    let swap = swap.display();
    assert!(said.contains(&format!("{swap} may become 1 GiB, and there is room for 32 MiB")), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains(&format!("can't write to the swap area {swap}: No space left")), "{said}");
}
