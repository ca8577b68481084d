//! `cargo xtask prove`: lanes of checks that look for broken promises. Each lane can be run alone.
//!
//! A lane has up to three parts. The result of the gate's checks depends only on the commit: they
//! have fixed seeds and cases, and use counts or virtual time. The result of checks by hand also
//! depends on the machine, the clock or chance. Checks of the third kind can be continued over more
//! seeds, power cuts or kills; the gate makes a fixed number of them.
//!
//! With `--gate`, as in `.ci/run`, only the gate's checks are run. Without it, those by hand are
//! run as well. `--hours N` then continues in rounds, each with fresh seeds, power cuts and kills,
//! until the counts of a night are reached. `--from SEED` makes the fresh seeds begin at `SEED`, to
//! skip those that an earlier run has tried.

pub(crate) mod kernels;
pub(crate) mod lanes;
pub(crate) mod planted;
pub(crate) mod reach;

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use crate::check::{self, Check, Outcome};

/// `prove`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProveArgs {
    /// Only these lanes [default: all]
    #[arg(value_name = "LANE", value_parser = PossibleValuesParser::new(lanes::ALL.map(|lane| lane.name)))]
    lanes: Vec<String>,
    /// Only what `.ci/run` makes of each lane: checks whose verdict follows from the commit alone
    #[arg(long, conflicts_with = "hours")]
    gate: bool,
    /// Work towards the counts of a night, in rounds, and begin no round after so many hours. The
    /// first round makes each check once, and takes about an hour if it is of all lanes
    #[arg(long, value_name = "N", value_parser = parse_hours, allow_negative_numbers = true)]
    hours: Option<f64>,
    /// Begin the fresh seeds of `--hours` at this one, in each lane [default: after the gate's]
    #[arg(long, value_name = "SEED", requires = "hours", value_parser = parse_seed, allow_negative_numbers = true)]
    from: Option<u64>,
    /// Write the table to a file, too, as an array of flat records
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn parse_hours(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(hours) if hours > 0.0 && hours <= 1000.0 => Ok(hours),
        _ => Err("a number of hours is above 0, and 1000 at most".to_owned()),
    }
}

/// The largest seed to begin with. Tests shift their seeds to the left by up to 20 bits.
const FROM_MAX: u64 = 1 << 32;

fn parse_seed(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seed) if seed <= FROM_MAX => Ok(seed),
        _ => Err(format!("a seed to begin with is a whole number, and {FROM_MAX} at most")),
    }
}

/// A way to look for broken promises.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// What it does, in a sentence.
    pub(crate) about: &'static str,
    /// Checks whose verdict follows from the commit alone.
    gate: fn() -> Vec<Check>,
    /// Checks that depend on the machine, the clock or chance as well.
    by_hand: fn() -> Vec<Check>,
    /// Checks that can go on.
    more: Option<More>,
}

/// Checks over a range of seeds, cuts or kills.
#[derive(Clone, Copy)]
pub(crate) struct More {
    /// What is counted.
    unit: &'static str,
    /// How many the gate makes: the first ones, the same each time.
    gate: u64,
    night: u64,
    /// How many each round makes with `--hours`.
    step: u64,
    /// They are made only if `--hours` is at least this, because they may take that long.
    hours_min: f64,
    checks: fn(Range<u64>) -> Vec<Check>,
}

/// How far a lane got.
struct Progress {
    lane: &'static Lane,
    done: u64,
    /// The first of the fresh seeds that weren't tried.
    next: u64,
    passed: usize,
    failed: Vec<Outcome>,
    /// How many faults its checks say that they injected, and in how many runs.
    injected: (u64, u64),
    time: Duration,
}

/// `prove`.
pub(crate) fn run(args: &ProveArgs) -> ExitCode {
    let is_wanted = |lane: &&Lane| args.lanes.is_empty() || args.lanes.iter().any(|name| name == lane.name);
    let from = args.from.unwrap_or(0);
    let mut progress: Vec<Progress> =
        lanes::ALL.iter().filter(is_wanted).map(|lane| Progress::new(lane, from)).collect();
    let mut lacking = BTreeSet::new();
    let deadline = args.hours.map(|hours| Instant::now() + Duration::from_secs_f64(hours * 3600.0));
    if args.hours.is_some() {
        println!("fresh seeds: from {from} on in each lane, without those of the gate");
        lacking.extend(progress.iter().filter_map(|lane| lanes::lacking(lane.lane)));
    }
    let mut checks: Vec<Check> = progress.iter_mut().flat_map(Progress::gate_checks).collect();
    if !args.gate {
        checks.extend(progress.iter().flat_map(Progress::checks_by_hand));
    }
    note(&mut progress, &mut lacking, check::run(checks));
    if let (Some(deadline), Some(hours)) = (deadline, args.hours) {
        while Instant::now() < deadline && progress.iter().all(|lane| lane.failed.is_empty()) {
            let checks: Vec<Check> = progress.iter_mut().flat_map(|lane| lane.next_checks(hours)).collect();
            if checks.is_empty() {
                break;
            }
            note(&mut progress, &mut lacking, check::run(checks));
        }
    }
    print!("{}", table(&progress));
    lacking.iter().for_each(|feature| println!("{feature}"));
    if args.hours.is_some() {
        let next = progress.iter().map(|lane| lane.next).max().unwrap_or(0);
        println!("fresh seeds: from {from} on; for seeds that this run didn't try: --from {next}");
    }
    if let Some(path) = &args.json
        && let Err(error) = fs::write(path, format!("{:#}\n", records(&progress)))
    {
        eprintln!("can't write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    let failed: Vec<&Outcome> = progress.iter().flat_map(|lane| &lane.failed).collect();
    for outcome in &failed {
        eprintln!("{}", outcome.failure());
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the checks that the gate makes of all lanes.
pub(crate) fn gate_checks() -> Vec<Check> {
    lanes::ALL.iter().flat_map(|lane| Progress::new(lane, 0).gate_checks()).collect()
}

impl Progress {
    /// Creates the state in which no check has been made yet. Fresh seeds begin at `from`, or after
    /// the gate's seeds if these reach further than `from`.
    fn new(lane: &'static Lane, from: u64) -> Self {
        let next = lane.more.map_or(0, |more| more.gate.max(from));
        Self { lane, done: 0, next, passed: 0, failed: Vec::new(), injected: (0, 0), time: Duration::ZERO }
    }

    fn gate_checks(&mut self) -> Vec<Check> {
        let mut checks = (self.lane.gate)();
        if let Some(more) = self.lane.more.filter(|more| more.gate > 0) {
            self.done = more.gate;
            checks.extend((more.checks)(0..more.gate));
        }
        checks.into_iter().map(|check| check.of_lane(self.lane.name)).collect()
    }

    fn checks_by_hand(&self) -> Vec<Check> {
        (self.lane.by_hand)().into_iter().map(|check| check.of_lane(self.lane.name)).collect()
    }

    fn next_checks(&mut self, hours: f64) -> Vec<Check> {
        let is_due = |more: &More| self.done < more.night && hours >= more.hours_min;
        let Some(more) = self.lane.more.filter(is_due) else { return Vec::new() };
        let count = more.step.min(more.night - self.done);
        let range = self.next..self.next + count;
        self.done += count;
        self.next = range.end;
        (more.checks)(range).into_iter().map(|check| check.of_lane(self.lane.name)).collect()
    }
}

/// Adds the outcomes to those of their lanes, and what the machine lacks to `lacking`.
fn note(progress: &mut [Progress], lacking: &mut BTreeSet<String>, outcomes: Vec<Outcome>) {
    lacking.extend(check::not_here(&outcomes).into_iter().map(str::to_owned));
    for outcome in outcomes {
        let Some(lane) = progress.iter_mut().find(|lane| outcome.lane == Some(lane.lane.name)) else { continue };
        lane.time += outcome.time;
        let (faults, runs) = outcome.injected();
        lane.injected = (lane.injected.0 + faults, lane.injected.1 + runs);
        match outcome.passed {
            true => lane.passed += 1,
            false => lane.failed.push(outcome),
        }
    }
}

fn table(progress: &[Progress]) -> String {
    let far = |Progress { lane, done, injected: (faults, runs), .. }: &Progress| match lane.more {
        Some(more) => format!("{done} of {} {}", more.night, more.unit),
        None if *faults > 0 => format!("all, {faults} faults in {runs} runs"),
        None => "all".to_owned(),
    };
    let width = progress.iter().map(|lane| far(lane).len() + 2).max().unwrap_or(0).max(17);
    let mut text =
        format!("\n{:12}{:>8}{:>8}{:>8}  {:width$}{}\n", "lane", "passed", "failed", "s", "done of a night", "what");
    for row @ Progress { lane, passed, failed, time, .. } in progress {
        text += &format!(
            "{:12}{passed:>8}{:>8}{:>8.0}  {:width$}{}\n",
            lane.name,
            failed.len(),
            time.as_secs_f64(),
            far(row),
            lane.about
        );
    }
    text
}

/// The table as records.
fn records(progress: &[Progress]) -> Value {
    let record = |Progress { lane, done, next, passed, failed, injected, time }: &Progress| {
        let (unit, night) = lane.more.map_or((None, None), |more| (Some(more.unit), Some(more.night)));
        let repeat: Vec<&str> = failed.iter().map(|outcome| &*outcome.command).collect();
        json!({
            "lane": lane.name, "passed": passed, "failed": failed.len(), "seconds": time.as_secs_f64(),
            "done": done, "night": night, "unit": unit, "next_seed": lane.more.map(|_| next),
            "faults": injected.0, "runs_with_faults": injected.1, "repeat": repeat,
        })
    };
    progress.iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser as _;

    use super::*;
    use crate::workspace::root;
    use crate::{Cli, Task};

    /// The arguments of `prove`, or what clap says about them.
    fn parsed(arguments: &str) -> Result<ProveArgs, String> {
        match Cli::try_parse_from(["xtask", "prove"].into_iter().chain(arguments.split_whitespace())) {
            Ok(Cli { command: Task::Prove(args) }) => Ok(args),
            Ok(_) => Err("another command".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn bad_arguments_are_refused_for_what_they_are() {
        for hours in ["-1", "0", "-0.5", "nan", "inf", "1e9", "two", "1000.1"] {
            for arguments in [format!("--hours {hours}"), format!("--hours={hours}")] {
                let said = parsed(&arguments).unwrap_err();
                assert!(said.contains("a number of hours is above 0, and 1000 at most"), "{arguments}: {said}");
            }
        }
        for seed in ["-1", "1.5", "4294967297", "18446744073709551616", "a"] {
            let said = parsed(&format!("--hours 1 --from {seed}")).unwrap_err();
            assert!(said.contains("a seed to begin with is a whole number"), "{seed}: {said}");
        }
        assert!(parsed("--from 1").unwrap_err().contains("--hours <N>"), "there are no fresh seeds");
        assert!(parsed("--gate --hours 1").unwrap_err().contains("--gate"));
        let said = parsed("moedl").unwrap_err();
        assert!(lanes::ALL.iter().all(|lane| said.contains(lane.name)), "{said}");
        let args = parsed("model kill --hours 0.5 --from 4294967296").unwrap();
        assert_eq!((args.hours, args.from, args.lanes.len()), (Some(0.5), Some(FROM_MAX), 2));
    }

    /// The seeds that rounds of a run try, according to the commands that repeat their checks.
    fn fresh(lane: &str, from: u64, rounds: usize) -> Vec<String> {
        let lane = lanes::ALL.iter().find(|it| it.name == lane).unwrap();
        let mut progress = Progress::new(lane, from);
        progress.gate_checks();
        let rounds = (0..rounds).flat_map(|_| progress.next_checks(1.0)).map(|check| check.typed());
        let seeds = rounds.map(|typed| {
            let seeds = typed.strip_prefix("PAGEFOLD_SEEDS='").and_then(|rest| rest.split_once("' cargo "));
            seeds.unwrap_or_else(|| panic!("{typed}")).0.to_owned()
        });
        seeds.collect()
    }

    #[test]
    fn two_runs_in_parts_try_different_seeds() {
        assert_eq!(fresh("power", 0, 2), ["1000..11000", "11000..21000"]);
        assert_eq!(fresh("power", 21_000, 2), ["21000..31000", "31000..41000"]);
        assert_eq!(fresh("power", 500, 1), ["1000..11000"], "the gate has those before");
        // With a check beside it that takes a part of the seeds.
        assert_eq!(fresh("model", 80_000, 2), ["80000..100000", "10000..12500", "100000..120000", "12500..15000"]);
        assert_eq!(fresh("kill", 1_000_000, 100).last().unwrap(), "1004750..1004980", "as many as a night has");
    }

    fn contains(folder: &Path, text: &str) -> bool {
        fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
            let path = entry.path();
            match path.is_dir() {
                true => contains(&path, text),
                false => fs::read_to_string(&path).is_ok_and(|file| file.contains(text)),
            }
        })
    }

    /// What the table in `docs/promises.md` names in code font: tests (`file::name`), models
    /// (`loom_…`), planted bugs, lanes.
    fn promised() -> Vec<String> {
        let text = fs::read_to_string(root().join("docs/promises.md")).unwrap_or_default();
        let rows = text.lines().filter(|line| line.starts_with("| **"));
        rows.flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
    }

    #[test]
    fn what_promises_name_exists() {
        let (crates, lab) = (root().join("crates"), root().join("lab"));
        let is_model = |name: &str| {
            let mut folders = fs::read_dir(&crates).into_iter().flatten().flatten();
            folders.any(|folder| folder.path().join(format!("tests/{name}.rs")).exists())
        };
        let promised = promised();
        for name in &promised {
            let exists = match name.split_once("::") {
                Some((_, test)) => [&crates, &lab].iter().any(|folder| contains(folder, &format!("fn {test}()"))),
                None if name.starts_with("loom_") => is_model(name),
                None if name.contains('-') => root().join(format!("planted/{name}.patch")).exists(),
                None => {
                    lanes::ALL.iter().any(|lane| lane.name == name)
                        || crates.join(name).exists()
                        || name.chars().any(char::is_uppercase)
                        || ["sync", "io_timeout"].contains(&&**name)
                }
            };
            assert!(exists, "`{name}` doesn't exist");
        }
        assert!(promised.len() > 60, "{} names", promised.len());
    }

    /// The other direction: no planted bug is without a promise that it breaks.
    #[test]
    fn every_planted_bug_stands_beside_a_promise() {
        let promised = promised();
        let patches = fs::read_dir(root().join("planted")).unwrap();
        for path in patches.map(|entry| entry.unwrap().path()) {
            let name = path.file_stem().unwrap().to_string_lossy();
            assert!(promised.iter().any(|it| *it == name), "docs/promises.md doesn't name the planted bug `{name}`");
        }
    }
}
