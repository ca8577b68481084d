//! Runs the commands of `pagefold` that README and CONTRIBUTING show, as a reader would type them,
//! but with smaller sizes.

use std::process::Command;

use crate::place::Place;

const README: &str = include_str!("../../../../README.md");
const CONTRIBUTING: &str = include_str!("../../../../CONTRIBUTING.md");

/// The lines of a page's blocks of shell commands, without comments.
fn commands(page: &'static str) -> Vec<&'static str> {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let lines = blocks.flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Whether the line is another program's. `bench` and `xtask` have tests for theirs.
fn is_of_another_program(line: &str) -> bool {
    ["cargo run --release -p bench -- ", "cargo bench-", "cargo xtask ", ".ci/run"]
        .iter()
        .any(|program| line.starts_with(program))
}

#[test]
fn documented_commands_work() {
    let place = Place::new();
    let mut runs = 0;
    for line in [README, CONTRIBUTING].into_iter().flat_map(commands) {
        if let Some(arguments) = line.strip_prefix("cargo run --release -- ") {
            // As much as the reader sees, in less time and room.
            let is_of_a_file = arguments.contains("data.bin") || arguments.contains("--help");
            let smaller: &[&str] = if is_of_a_file { &[] } else { &["--size", "32MiB", "--ops", "2k"] };
            let done = place.run(arguments, smaller);
            assert_eq!(done.code, Some(0), "{line}: {done:?}");
            runs += 1;
        } else if line.starts_with("head ") || line.starts_with("printf ") {
            let line = line.replace("100M", "1M");
            let status = Command::new("sh").args(["-c", &line]).current_dir(place.path("")).status().unwrap();
            assert!(status.success(), "{line}");
        } else {
            assert!(is_of_another_program(line), "nothing is known of `{line}`");
        }
    }
    assert!(runs >= 5, "{runs} commands were run");
}

#[test]
fn the_first_command_compares_every_byte() {
    let place = Place::new();
    // A number of operations, instead of a time.
    let done = place.run("replay --ops 300k --size 256MiB --memory 32MiB", &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(README.contains("cargo run --release -- replay\n"), "another command is the first");
}
