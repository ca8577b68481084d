//! `cargo xtask prove`: lanes of checks that look for broken promises. Each lane can be run alone.
//!
//! A lane has up to three parts. The result of the gate's checks depends only on the commit: they
//! have fixed seeds and cases, and use counts or virtual time. The result of checks by hand also
//! depends on the machine, the clock or chance. Checks of the third kind can be continued over more
//! seeds, power cuts or kills; the gate makes a fixed number of them.
//!
//! With `--gate`, as in `.ci/run`, only the gate's checks are run. Without it, those by hand are
//! run as well. `--hours N` then continues with more seeds, cuts and kills, up to the numbers of a
//! night.

pub(crate) mod kernels;
pub(crate) mod lanes;
pub(crate) mod planted;
pub(crate) mod reach;

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
    /// Work towards the counts of a night, and stop after so many hours
    #[arg(long, value_name = "N", value_parser = parse_hours)]
    hours: Option<f64>,
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
    /// How many each step makes with `--hours`.
    step: u64,
    /// The step is begun only if `--hours` is at least this, because the step may take that long.
    hours_min: f64,
    checks: fn(Range<u64>) -> Vec<Check>,
}

/// How far a lane got.
struct Progress {
    lane: &'static Lane,
    done: u64,
    passed: usize,
    failed: Vec<Outcome>,
    time: Duration,
}

/// `prove`.
pub(crate) fn run(args: &ProveArgs) -> ExitCode {
    let is_wanted = |lane: &&Lane| args.lanes.is_empty() || args.lanes.iter().any(|name| name == lane.name);
    let mut progress: Vec<Progress> = lanes::ALL.iter().filter(is_wanted).map(Progress::new).collect();
    let deadline = args.hours.map(|hours| Instant::now() + Duration::from_secs_f64(hours * 3600.0));
    let mut checks: Vec<Check> = progress.iter_mut().flat_map(Progress::gate_checks).collect();
    if !args.gate {
        checks.extend(progress.iter().flat_map(Progress::checks_by_hand));
    }
    note(&mut progress, check::run(checks));
    if let (Some(deadline), Some(hours)) = (deadline, args.hours) {
        while Instant::now() < deadline && progress.iter().all(|lane| lane.failed.is_empty()) {
            let checks: Vec<Check> = progress.iter_mut().flat_map(|lane| lane.next_checks(hours)).collect();
            if checks.is_empty() {
                break;
            }
            note(&mut progress, check::run(checks));
        }
    }
    print!("{}", table(&progress));
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
    lanes::ALL.iter().flat_map(|lane| Progress::new(lane).gate_checks()).collect()
}

impl Progress {
    fn new(lane: &'static Lane) -> Self {
        Self { lane, done: 0, passed: 0, failed: Vec::new(), time: Duration::ZERO }
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
        let range = self.done..(self.done + more.step).min(more.night);
        self.done = range.end;
        (more.checks)(range).into_iter().map(|check| check.of_lane(self.lane.name)).collect()
    }
}

fn note(progress: &mut [Progress], outcomes: Vec<Outcome>) {
    for outcome in outcomes {
        let Some(lane) = progress.iter_mut().find(|lane| outcome.lane == Some(lane.lane.name)) else { continue };
        lane.time += outcome.time;
        match outcome.passed {
            true => lane.passed += 1,
            false => lane.failed.push(outcome),
        }
    }
}

fn table(progress: &[Progress]) -> String {
    let far = |Progress { lane, done, .. }: &Progress| {
        lane.more.map_or_else(|| "all".to_owned(), |more| format!("{done} of {} {}", more.night, more.unit))
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
    let record = |Progress { lane, done, passed, failed, time }: &Progress| {
        let (unit, night) = lane.more.map_or((None, None), |more| (Some(more.unit), Some(more.night)));
        let repeat: Vec<&str> = failed.iter().map(|outcome| &*outcome.command).collect();
        json!({
            "lane": lane.name, "passed": passed, "failed": failed.len(), "seconds": time.as_secs_f64(),
            "done": done, "night": night, "unit": unit, "repeat": repeat,
        })
    };
    progress.iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use crate::workspace::root;

    fn contains(folder: &Path, text: &str) -> bool {
        fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
            let path = entry.path();
            match path.is_dir() {
                true => contains(&path, text),
                false => fs::read_to_string(&path).is_ok_and(|file| file.contains(text)),
            }
        })
    }

    /// What `docs/promises.md` names in code font: tests (`file::name`), models (`loom_…`), planted
    /// bugs, lanes.
    #[test]
    fn what_promises_name_exists() {
        let text = fs::read_to_string(root().join("docs/promises.md")).unwrap_or_default();
        let tests = root().join("crates");
        let mut count = 0;
        for name in
            text.lines().filter(|line| line.starts_with("| **")).flat_map(|line| line.split('`').skip(1).step_by(2))
        {
            let exists = match name.split_once("::") {
                Some((_, test)) => contains(&tests, &format!("fn {test}()")),
                None if name.starts_with("loom_") => root().join(format!("crates/frames/tests/{name}.rs")).exists(),
                None if name.contains('-') => root().join(format!("planted/{name}.patch")).exists(),
                None => {
                    super::lanes::ALL.iter().any(|lane| lane.name == name)
                        || tests.join(name).exists()
                        || name.chars().any(char::is_uppercase)
                        || ["sync", "io_timeout"].contains(&name)
                }
            };
            assert!(exists, "`{name}` doesn't exist");
            count += 1;
        }
        assert!(count > 60, "{count} names");
    }
}
