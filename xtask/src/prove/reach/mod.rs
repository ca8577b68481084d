//! `cargo xtask reach`: which parts of the code each lane runs, and which parts no lane runs.
//!
//! Three kinds of places have to be reached. The first are the public functions of the product's
//! crates, and of its disks for tests. The second are the variants of public errors: for each, at
//! least one place that makes it. The third are the places after a mark:
//!
//! ```text
//! // Transition: page word, vacant → loading.
//! // Sometimes: a reader finds the page gone.
//! ```
//! A mark stands before a statement that runs if, and only if, the event happens. Seven lanes run
//! as in the project's checks, but with few seeds, and compiled with counters
//! (`-C instrument-coverage`). A place that only the lane `tests` reaches may be covered by a
//! single unit test, so such places are counted separately. A place that no lane reaches has to be
//! listed in `xtask/unreached.txt`, with a reason. A listed place must be unreached.

mod coverage;
mod exceptions;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use clap::Args;

use crate::check::{Check, this_program};
use coverage::Coverage;
use exceptions::Exceptions;
use places::{Kind, Place};

/// Crates that aren't the product: their tests aren't run here.
pub(crate) const OTHER_CRATES: [&str; 5] = ["manycore", "pagefold-policies", "bench", "fuzz-targets", "xtask"];

/// The target directory of builds with counters.
const DIRECTORY: &str = "coverage";

/// The maximum number of turns in which all lanes run. Another turn follows while a place is
/// missing.
const TURNS_MAX: u32 = 2;

/// `reach`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReachArgs {
    /// Print the lanes of every place, not only those that no lane reaches
    #[arg(long)]
    all: bool,
    /// Use what was counted the last time, and run nothing
    #[arg(long)]
    again: bool,
}

/// The lane's check.
pub(crate) fn check() -> Check {
    this_program("reach", DIRECTORY, "reach --all")
}

/// `reach`.
pub(crate) fn run(args: &ReachArgs) -> ExitCode {
    match report(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("reach: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Places by kind and name, each with the lanes that reach one of that name.
type Reached<'a> = BTreeMap<(Kind, &'a str), BTreeSet<&'static str>>;

fn reached<'a>(places: &'a [Place], lanes: &[(&'static str, Coverage)]) -> Reached<'a> {
    let mut reached = Reached::new();
    for place in places {
        let lanes = lanes.iter().filter(|(_, coverage)| is_reached(place, coverage)).map(|(lane, _)| *lane);
        reached.entry((place.kind, &place.name)).or_default().extend(lanes);
    }
    reached
}

/// Prints the report. Returns false if an exception is missing, or isn't needed.
fn report(args: &ReachArgs) -> Result<bool, String> {
    let places = places::all()?;
    let exceptions = Exceptions::read()?;
    let is_missed = |((kind, name), lanes): &(&(Kind, &str), &BTreeSet<_>)| {
        lanes.is_empty() && exceptions.reason(*kind, name).is_none()
    };
    // How threads interleave is a matter of chance, so another turn may reach more.
    for turn in (0..TURNS_MAX).take_while(|_| !args.again) {
        coverage::count_turn(turn)?;
        let missed = reached(&places, &coverage::of_lanes()?).iter().filter(is_missed).count();
        println!("== reach: turn {turn}, {missed} places missed");
        if missed == 0 {
            break;
        }
    }
    let lanes = coverage::of_lanes()?;
    let reached = reached(&places, &lanes);
    let mut is_good = true;
    for kind in Kind::ALL {
        let of_kind = || reached.iter().filter(move |((of, _), _)| *of == kind);
        let missed: Vec<&str> = of_kind().filter(|(_, lanes)| lanes.is_empty()).map(|((_, name), _)| *name).collect();
        let count = of_kind().count();
        println!("{}: {count}, of which {} are reached", kind.plural(), count - missed.len());
        for (lane, _) in &lanes {
            println!("  {:12} {}", lane, of_kind().filter(|(_, lanes)| lanes.contains(lane)).count());
        }
        println!("  {:12} {}", "tests alone", alone(of_kind().map(|(_, lanes)| lanes), coverage::TESTS));
        if args.all {
            for ((_, name), lanes) in of_kind() {
                println!("  {name}: {}", lanes.iter().copied().collect::<Vec<_>>().join(", "));
            }
        }
        println!("  not reached:");
        for name in &missed {
            match exceptions.reason(kind, name) {
                Some(reason) => println!("    {name}: {reason}"),
                None => {
                    is_good = false;
                    println!("    {name}: NO REASON in {}", exceptions::FILE);
                }
            }
        }
        for name in exceptions.names(kind).filter(|name| !missed.contains(name)) {
            is_good = false;
            println!(
                "    {name} stands in {}, and is {}",
                exceptions::FILE,
                if reached.contains_key(&(kind, name)) { "reached" } else { "nowhere in the code" }
            );
        }
    }
    Ok(is_good)
}

/// Returns how many of the places only this lane reaches.
fn alone<'a>(places: impl Iterator<Item = &'a BTreeSet<&'static str>>, lane: &str) -> usize {
    places.filter(|lanes| lanes.len() == 1 && lanes.contains(lane)).count()
}

fn is_reached(place: &Place, coverage: &Coverage) -> bool {
    match place.end {
        Some(end) => coverage.runs_between(&place.file, place.at, end),
        // What is counted of a statement may begin a few words later.
        None => {
            coverage.runs_at(&place.file, place.at) || coverage.runs_between(&place.file, place.at, (place.at.0 + 1, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::lanes;

    #[test]
    fn what_only_one_lane_reaches_is_counted() {
        let places = [&["tests"][..], &["model", "tests"], &["model"], &[], &["tests"]];
        let places = places.map(|lanes| lanes.iter().copied().collect::<BTreeSet<_>>());
        assert_eq!(alone(places.iter(), coverage::TESTS), 2);
    }

    #[test]
    fn what_is_counted_are_lanes_of_prove() {
        for lane in coverage::names() {
            assert!(lanes::ALL.iter().any(|it| it.name == lane), "`prove` has no lane `{lane}`");
        }
    }
}
