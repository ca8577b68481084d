//! Checks the commands in blocks of shell commands (` ```sh `), in pages and at the heads of
//! examples. Pages of the log are skipped, because they show commands of their time.
//!
//! This check parses the commands of `cargo xtask`, and looks for the examples that `cargo run`
//! names. Other checks try the remaining commands: the test `documented` of the crate `cli` runs
//! those of `pagefold`, and the tests of the crate `bench` look up the names and options of the
//! others. Those tests read the pages in [`TRIED`].

use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::{Source, Violation};
use crate::Cli;

/// The pages whose commands tests of `cli` and `bench` try.
const TRIED: [&str; 3] = ["README.md", "BENCHMARKS.md", "CONTRIBUTING.md"];
/// How such commands begin.
const BY_TESTS: [&str; 6] =
    ["cargo run --release -- ", "cargo run --release -p bench -- ", "cargo bench-", "head ", "printf ", ".ci/run"];
const LOG: &str = "docs/log";

/// Violations of pages, and of the sources of examples.
pub(super) fn check(pages: &[(PathBuf, String)], sources: &[Source]) -> Vec<Violation> {
    let of_pages = pages.iter().filter(|(path, _)| !path.starts_with(LOG)).map(|(path, text)| (path, text, ""));
    let of_sources = sources.iter().map(|source| (&source.path, &source.text, "//!"));
    let mut violations = Vec::new();
    for (path, text, prefix) in of_pages.chain(of_sources) {
        for (line, command) in commands(text, prefix) {
            let is_tried = TRIED.iter().any(|page| path == Path::new(page));
            if let Err(why) = is_known(command, is_tried, sources) {
                violations.push(Violation { path: path.clone(), line, what: format!("`{command}`: {why}") });
            }
        }
    }
    violations
}

/// The commands in the blocks of a text, without comments, with the numbers of their lines. Only
/// lines that begin with `prefix` count.
fn commands<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let mut is_shell = false;
    let lines =
        (1..).zip(text.lines()).filter_map(move |(number, line)| Some((number, line.strip_prefix(prefix)?.trim())));
    let commands = lines.filter(move |(_, line)| {
        if line.starts_with("```") {
            is_shell = *line == "```sh";
            return false;
        }
        is_shell
    });
    let bare = commands.map(|(number, line)| (number, line.split(" #").next().unwrap_or_default().trim()));
    bare.filter(|(_, command)| !command.is_empty())
}

/// Whether a check, this one or a test, knows the command. `is_tried`: tests try the page's
/// commands.
fn is_known(command: &str, is_tried: bool, sources: &[Source]) -> Result<(), String> {
    if let Some(arguments) = command.strip_prefix("cargo xtask ") {
        return match Cli::try_parse_from(["cargo xtask"].into_iter().chain(arguments.split_whitespace())) {
            Err(error) if error.kind() != ErrorKind::DisplayHelp => Err(error.kind().to_string()),
            _ => Ok(()),
        };
    }
    if let Some((_, example)) = command.split_once(" --example ") {
        let file = format!("examples/{}.rs", example.trim());
        let is_there = sources.iter().any(|source| source.path.ends_with(&file));
        return if is_there { Ok(()) } else { Err(format!("there is no {file}")) };
    }
    let is_tried = is_tried && BY_TESTS.iter().any(|begin| command.starts_with(begin));
    if is_tried { Ok(()) } else { Err("no check tries this command".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn found(path: &str, command: &str) -> usize {
        let page = (PathBuf::from(path), format!("Text.\n```sh\n{command}   # a comment\n```\ncargo of prose\n"));
        check(&[page], &[source("crates/pagefold/examples/swap.rs", "")]).len()
    }

    #[test]
    fn commands_that_no_check_knows_are_found() {
        assert_eq!(found("README.md", "cargo xtask prove loom kill --hours 2"), 0);
        assert_eq!(found("docs/a.md", "cargo xtask test --help"), 0);
        assert_eq!(found("README.md", "cargo xtask prov"), 1);
        assert_eq!(found("README.md", "cargo xtask tidy --quick"), 1);
        assert_eq!(found("docs/a.md", "cargo run --release -p pagefold --example swap"), 0);
        assert_eq!(found("docs/a.md", "cargo run --release -p pagefold --example swop"), 1);
        assert_eq!(found("README.md", "cargo run --release -- replay"), 0);
        assert_eq!(found("docs/a.md", "cargo run --release -- replay"), 1, "no test reads the page");
        assert_eq!(found("README.md", "rm -rf /"), 1);
        assert_eq!(found("docs/log/a.md", "rm -rf /"), 0, "of its time");
        let head = source("crates/a/examples/swap.rs", "//! ```sh\n//! cargo run --example none\n//! ```\n");
        assert_eq!(check(&[], &[head]).len(), 1);
    }
}
