//! `cargo xtask release`: checks to run before a release. They aren't part of the gate, because
//! they need a network or uncommon tools, or compare with an earlier release. Publishes nothing.
//!
//! Each step is one command. If a step's tool isn't installed, the step is *missing*, which fails
//! the run unless the user allows it. [`plan`] decides what is run; it depends only on a
//! [`Situation`].

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::limited;
use crate::workspace::{cargo, root};

/// The longest that a step may take, with what it builds and downloads.
const LIMIT: Duration = Duration::from_mins(60);
/// The lowest Rust version that the workspace supports, as its manifest has it.
const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");
/// The exit code of bad usage; clap uses the same one.
const EXIT_USAGE: u8 = 2;

/// `release`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// Only this step; may be repeated [default: all]
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
    /// Compare the public items with those of this revision [default: the newest tag]
    #[arg(long, value_name = "REV")]
    since: Option<String>,
    /// Use no network; the same as `CARGO_NET_OFFLINE=true`
    #[arg(long)]
    offline: bool,
    /// A step whose tool isn't here is no failure
    #[arg(long)]
    allow_missing: bool,
    /// Write the table to a file, too, as an array of flat records
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is looked at, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// The published crates can be packaged, and build from their packages
    Package,
    /// No public item changed in a way that the version numbers don't allow (cargo-semver-checks)
    Semver,
    /// Licences, advisories, sources and duplicates of dependencies, by deny.toml (cargo-deny)
    Deny,
    /// The workspace builds with the lowest Rust version that it supports
    RustVersion,
    /// The README's first command builds what it needs, and works
    FirstCommand,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Semver => "semver",
            Self::Deny => "deny",
            Self::RustVersion => "rust-version",
            Self::FirstCommand => "first-command",
        }
    }
}

/// What the plan of a step depends on.
#[derive(Debug, Default)]
struct Situation {
    offline: bool,
    /// The revision to compare with: the one that the user named, or the newest tag.
    since: Option<String>,
    /// Packages of the workspace that aren't published.
    private: BTreeSet<String>,
    /// Those of cargo-semver-checks and cargo-deny that are here.
    tools: Vec<&'static str>,
    /// The installed toolchains. `None` without rustup.
    toolchains: Option<Vec<String>>,
}

/// What is to be done for a step.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Run this program with these arguments.
    Run(Vec<String>),
    /// Do nothing: a tool isn't here, and this command installs it.
    Missing(String),
    /// Do nothing, for this reason.
    Impossible(String),
}

fn plan(step: Step, situation: &Situation) -> Plan {
    let offline = situation.offline.then_some("--offline");
    let run = |words: &[&str]| Plan::Run(words.iter().copied().chain(offline).map(str::to_owned).collect());
    let lacks = |tool: &str| !situation.tools.contains(&tool);
    let install = |tool: &str| Plan::Missing(format!("cargo install {tool}"));
    match step {
        Step::Package => {
            let excluded = situation.private.iter().flat_map(|name| ["--exclude", name]);
            run(&["cargo", "package", "--workspace"].into_iter().chain(excluded).collect::<Vec<_>>())
        }
        Step::Semver if lacks(SEMVER) => install(SEMVER),
        // The tool has no such flag: the cargo that it calls is told by a variable.
        Step::Semver => match &situation.since {
            Some(rev) => Plan::Run(["cargo", "semver-checks", "--baseline-rev", rev].map(str::to_owned).into()),
            None => Plan::Impossible("there is no tag to compare with: give --since REV".to_owned()),
        },
        Step::Deny if lacks(DENY) => install(DENY),
        // The flag is one of `deny`, not of `check`.
        Step::Deny => {
            let words = ["cargo", "deny"].into_iter().chain(offline).chain(["check"]);
            Plan::Run(words.map(str::to_owned).collect())
        }
        Step::RustVersion => match &situation.toolchains {
            None => Plan::Missing("the script of https://rustup.rs".to_owned()),
            Some(installed) => match toolchain(RUST_VERSION, installed) {
                Some(name) => run(&["rustup", "run", name, "cargo", "check", "--workspace", "--all-targets"]),
                None => Plan::Missing(format!("rustup toolchain install {RUST_VERSION}")),
            },
        },
        // A flag after the command's name would be one of `replay`.
        Step::FirstCommand => {
            let words = ["cargo", "run", "--release"].into_iter().chain(offline).chain(["--", "replay"]);
            Plan::Run(words.map(str::to_owned).collect())
        }
    }
}

const SEMVER: &str = "cargo-semver-checks";
const DENY: &str = "cargo-deny";

/// The toolchain of a version, such as `1.95.0-x86_64-unknown-linux-gnu` for `1.95`.
fn toolchain<'a>(version: &str, installed: &'a [String]) -> Option<&'a str> {
    let is_it =
        |name: &&String| name.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']));
    installed.iter().find(is_it).map(String::as_str)
}

/// Names of the packages that aren't published, from what `cargo metadata` prints.
fn private(metadata: &Value) -> BTreeSet<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let private = packages.filter(|package| package["publish"].as_array().is_some_and(Vec::is_empty));
    private.filter_map(|package| Some(package["name"].as_str()?.to_owned())).collect()
}

/// What became of a step.
#[derive(Debug)]
struct Outcome {
    step: Step,
    verdict: Verdict,
    time: Duration,
}

#[derive(Debug)]
enum Verdict {
    /// With the command.
    Passed(String),
    /// With the command, or with the reason that there is none.
    Failed(String),
    /// With what installs the tool.
    Missing(String),
}

impl Outcome {
    fn is_failure(&self, allow_missing: bool) -> bool {
        match self.verdict {
            Verdict::Passed(_) => false,
            Verdict::Failed(_) => true,
            Verdict::Missing(_) => !allow_missing,
        }
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let line = |Outcome { step, verdict, time }: &Outcome| {
        let said = match verdict {
            Verdict::Passed(command) => format!("ok: {command}"),
            Verdict::Failed(what) => format!("FAILED: {what}"),
            Verdict::Missing(install) => format!("not here: install with `{install}`"),
        };
        format!("{:14}{:>6.0}  {said}\n", step.name(), time.as_secs_f64())
    };
    let head = format!("\n{:14}{:>6}  {}\n", "step", "s", "verdict");
    head + &outcomes.iter().map(line).collect::<String>()
}

/// The table as records.
fn records(outcomes: &[Outcome]) -> Value {
    let record = |Outcome { step, verdict, time }: &Outcome| {
        let (name, detail) = match verdict {
            Verdict::Passed(command) => ("ok", command),
            Verdict::Failed(what) => ("failed", what),
            Verdict::Missing(install) => ("not here", install),
        };
        json!({ "step": step.name(), "verdict": name, "detail": detail, "seconds": time.as_secs_f64() })
    };
    outcomes.iter().map(record).collect()
}

/// `release`.
pub(crate) fn run(args: &ReleaseArgs) -> ExitCode {
    let situation = match look(args) {
        Ok(situation) => situation,
        Err((message, code)) => {
            eprintln!("{message}");
            return code;
        }
    };
    let is_wanted = |step: &Step| args.only.is_empty() || args.only.contains(step);
    let steps = Step::value_variants().iter().copied().filter(is_wanted);
    let outcomes: Vec<Outcome> = steps.map(|step| carry_out(step, &situation)).collect();
    print!("{}", table(&outcomes));
    if let Some(path) = &args.json
        && let Err(error) = fs::write(path, format!("{:#}\n", records(&outcomes)))
    {
        eprintln!("can't write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    let failed = outcomes.iter().any(|outcome| outcome.is_failure(args.allow_missing));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn carry_out(step: Step, situation: &Situation) -> Outcome {
    let start = Instant::now();
    let verdict = match plan(step, situation) {
        Plan::Missing(install) => Verdict::Missing(install),
        Plan::Impossible(reason) => Verdict::Failed(reason),
        Plan::Run(words) => {
            let typed = words.join(" ");
            println!("== {}: {typed}", step.name());
            match limited::passed_on(command(&words, situation.offline), LIMIT, io::stdout()) {
                Ok((Some(status), _)) if status.success() => Verdict::Passed(typed),
                Ok((Some(_), _)) => Verdict::Failed(typed),
                Ok((None, _)) => Verdict::Failed(format!("{typed} (took longer than {} s)", LIMIT.as_secs())),
                Err(error) => Verdict::Failed(format!("can't run {typed}: {error}")),
            }
        }
    };
    Outcome { step, verdict, time: start.elapsed() }
}

/// The command, in the root of the workspace.
fn command(words: &[String], offline: bool) -> Command {
    let mut command = if words[0] == "cargo" { cargo() } else { Command::new(&words[0]) };
    command.args(&words[1..]).current_dir(root());
    if offline {
        command.env("CARGO_NET_OFFLINE", "true");
    }
    command
}

/// Finds out what the plans depend on. On failure, returns a message and the exit code.
fn look(args: &ReleaseArgs) -> Result<Situation, (String, ExitCode)> {
    if let Some(rev) = &args.since {
        let commit = format!("{rev}^{{commit}}");
        if printed("git", &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]).is_none() {
            return Err((format!("--since: git knows no commit `{rev}`"), ExitCode::from(EXIT_USAGE)));
        }
    }
    let metadata = printed("cargo", &["metadata", "--no-deps", "--format-version", "1"]);
    let metadata = metadata.and_then(|text| serde_json::from_str(&text).ok());
    let metadata = metadata.ok_or_else(|| ("`cargo metadata` failed".to_owned(), ExitCode::FAILURE))?;
    let list = printed("rustup", &["toolchain", "list"]);
    // A line may go on after the name: `(active, default)`.
    let first_words = |text: String| text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    Ok(Situation {
        offline: args.offline || env::var("CARGO_NET_OFFLINE").is_ok_and(|value| value == "true"),
        since: args.since.clone().or_else(|| printed("git", &["describe", "--tags", "--abbrev=0"])),
        private: private(&metadata),
        tools: [SEMVER, DENY].into_iter().filter(|tool| is_in(tool, &folders())).collect(),
        toolchains: list.map(first_words),
    })
}

/// Returns what a command prints, without the white space around it. `None` if it fails.
fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let words: Vec<String> = [program].iter().chain(arguments).map(|&word| word.to_owned()).collect();
    let output = command(&words, false).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The folders where cargo looks for its external commands.
fn folders() -> Vec<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let path = env::var_os("PATH").unwrap_or_default();
    home.map(|home| home.join("bin")).into_iter().chain(env::split_paths(&path)).collect()
}

fn is_in(tool: &str, folders: &[PathBuf]) -> bool {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    folders.iter().any(|folder| is_program(&folder.join(tool)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(plan: Plan) -> String {
        match plan {
            Plan::Run(words) => words.join(" "),
            other => panic!("{other:?}"),
        }
    }

    fn complete() -> Situation {
        Situation {
            offline: false,
            since: Some("v0.1.0".to_owned()),
            private: ["xtask", "bench"].map(str::to_owned).into(),
            tools: vec![SEMVER, DENY],
            toolchains: Some(vec!["stable-x86_64".to_owned(), format!("{RUST_VERSION}.0-x86_64")]),
        }
    }

    #[test]
    fn each_step_is_one_command() {
        let all =
            |situation: &Situation| Step::value_variants().iter().map(|&step| words(plan(step, situation))).collect();
        let on: Vec<String> = all(&complete());
        let check = format!("rustup run {RUST_VERSION}.0-x86_64 cargo check --workspace --all-targets");
        let package = "cargo package --workspace --exclude bench --exclude xtask";
        let semver = "cargo semver-checks --baseline-rev v0.1.0";
        let first = "cargo run --release -- replay";
        assert_eq!(on, [package, semver, "cargo deny check", &check, first]);
        let off: Vec<String> = all(&Situation { offline: true, ..complete() });
        let (package, check) = (format!("{package} --offline"), format!("{check} --offline"));
        let first = "cargo run --release --offline -- replay";
        assert_eq!(off, [&package, semver, "cargo deny --offline check", &check, first]);
    }

    #[test]
    fn a_tool_that_is_missing_is_told_with_what_installs_it() {
        let without = Situation { tools: Vec::new(), toolchains: Some(vec!["stable-x86_64".to_owned()]), ..complete() };
        let missing = |step| plan(step, &without);
        assert_eq!(missing(Step::Semver), Plan::Missing("cargo install cargo-semver-checks".to_owned()));
        assert_eq!(missing(Step::Deny), Plan::Missing("cargo install cargo-deny".to_owned()));
        assert_eq!(missing(Step::RustVersion), Plan::Missing(format!("rustup toolchain install {RUST_VERSION}")));
        let no_rustup = Situation { toolchains: None, ..complete() };
        assert!(matches!(plan(Step::RustVersion, &no_rustup), Plan::Missing(_)));
    }

    #[test]
    fn without_a_tag_the_user_has_to_name_a_revision() {
        let without = Situation { since: None, ..complete() };
        let Plan::Impossible(reason) = plan(Step::Semver, &without) else { panic!("there is nothing to compare with") };
        assert!(reason.contains("--since REV"), "{reason}");
    }

    #[test]
    fn a_toolchain_is_found_by_its_version() {
        let installed = ["stable-a", "1.9-a", "1.950.0-a", "1.95.1-a"].map(str::to_owned);
        assert_eq!(toolchain("1.95", &installed), Some("1.95.1-a"));
        assert_eq!(toolchain("1.9", &installed), Some("1.9-a"));
        assert_eq!(toolchain("1.94", &installed), None);
    }

    #[test]
    fn packages_that_are_not_published_are_left_out() {
        let packages = json!([
            { "name": "a", "publish": null }, { "name": "b", "publish": [] }, { "name": "c", "publish": ["own"] }
        ]);
        assert_eq!(private(&json!({ "packages": packages })), ["b".to_owned()].into());
    }

    #[test]
    fn a_missing_tool_fails_unless_that_is_allowed() {
        let outcome = |verdict| Outcome { step: Step::Deny, verdict, time: Duration::from_secs(3) };
        let [passed, failed, missing] = [
            outcome(Verdict::Passed("a".to_owned())),
            outcome(Verdict::Failed("b".to_owned())),
            outcome(Verdict::Missing("c".to_owned())),
        ];
        assert_eq!([&passed, &failed, &missing].map(|outcome| outcome.is_failure(false)), [false, true, true]);
        assert_eq!([&passed, &failed, &missing].map(|outcome| outcome.is_failure(true)), [false, true, false]);
        let all = [passed, failed, missing];
        let text = table(&all);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[0], "deny               3  ok: a");
        assert_eq!(lines[1], "deny               3  FAILED: b");
        assert_eq!(lines[2], "deny               3  not here: install with `c`");
        assert_eq!(records(&all)[2], json!({ "step": "deny", "verdict": "not here", "detail": "c", "seconds": 3.0 }));
    }

    #[test]
    fn a_tool_is_a_file_that_can_be_executed() {
        let directory = tempfile::tempdir().unwrap();
        let folders = [directory.path().join("none"), directory.path().to_owned()];
        let tool = directory.path().join(DENY);
        assert!(!is_in(DENY, &folders));
        fs::write(&tool, "#!/bin/sh\n").unwrap();
        assert!(!is_in(DENY, &folders));
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_in(DENY, &folders) && !is_in(SEMVER, &folders));
    }

    /// `deny.toml` refuses a second version of each crate of ours, by name.
    #[test]
    fn deny_toml_names_our_crates() {
        let text = fs::read_to_string(root().join("deny.toml")).unwrap();
        let crates = fs::read_dir(root().join("crates")).unwrap();
        let mut count = 0;
        for folder in crates {
            let manifest = fs::read_to_string(folder.unwrap().path().join("Cargo.toml")).unwrap();
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
            let entry = format!("{{ crate = {name}, deny-multiple-versions = true }}");
            assert!(text.contains(&entry), "deny.toml lacks: {entry}");
            count += 1;
        }
        assert!(count >= 9, "{count} crates");
    }
}
