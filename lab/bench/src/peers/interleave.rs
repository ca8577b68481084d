//! Runs rounds of several subjects in turn, and computes their figures relative to some of them.
//!
//! A machine's speed changes over seconds. So the subjects aren't timed one after the other: each
//! round times all of them. A ratio is taken within a round, and the median of these ratios is
//! reported.

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use crate::peers::measure::{self, Effort, Timing, Walk};
use crate::peers::report::Report;
use crate::peers::subject::{Misses, Operation, Subject};
use crate::peers::subjects::Kind;
use crate::popularity::Popularity;
use crate::summary::Summary;

/// A subject that is ready.
pub(crate) struct Contestant {
    pub(crate) kind: Kind,
    pub(crate) subject: Box<dyn Subject>,
}

/// What all subjects are asked for.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) label: String,
    pub(crate) operation: Operation,
    /// One for each thread.
    pub(crate) sequences: Vec<Vec<u32>>,
}

/// One sequence of `len` accesses for each of `threads` threads. Each number of threads has other
/// sequences, so that a workload doesn't begin with the pages that the previous workload read last.
pub(crate) fn sequences(popularity: &Popularity, threads: usize, len: usize) -> Vec<Vec<u32>> {
    (0..threads).map(|thread| popularity.accesses(len, (1_000 * threads + thread) as u64)).collect()
}

/// A subject that others are compared with, and how the comparison is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
}

/// All rounds of one contestant.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(crate) kind: Kind,
    pub(crate) timings: Vec<Timing>,
    pub(crate) misses: u64,
}

/// Times `rounds` rounds of `workload`.
pub(crate) fn time(
    contestants: &[Contestant],
    workload: &Workload,
    rounds: u32,
    effort: Effort,
    bar: &ProgressBar,
) -> Result<Vec<Rounds>> {
    let begin = |contestant: &Contestant| Rounds { kind: contestant.kind, timings: Vec::new(), misses: 0 };
    let mut results: Vec<Rounds> = contestants.iter().map(begin).collect();
    let fresh: Vec<Walk<'_>> = workload.sequences.iter().map(|sequence| Walk::new(sequence)).collect();
    let mut walks = vec![fresh; contestants.len()];
    for _ in 0..rounds {
        for ((contestant, result), walks) in contestants.iter().zip(&mut results).zip(&mut walks) {
            let name = contestant.kind.name();
            bar.set_message(format!("{}: {name}", workload.label));
            let before = total(contestant.subject.misses());
            let timing = measure::round(&*contestant.subject, workload.operation, walks, effort)
                .with_context(|| format!("{name} failed in {}", workload.label))?;
            result.misses += total(contestant.subject.misses()) - before;
            result.timings.push(timing);
            bar.inc(1);
        }
    }
    Ok(results)
}

/// One of the times of a round.
type Clock = fn(&Timing) -> f64;

/// Adds times, and ratios to each of `references`, to the report.
pub(crate) fn report(report: &mut Report, workload: &Workload, results: &[Rounds], references: &[Reference]) {
    for result in results {
        let (subject, label) = (result.kind.subject(), format!("{}{}", result.kind.way(), workload.label));
        let mut add = |metric: &str, unit: &str, summary| report.add(&subject, &label, metric, unit, summary);
        let clocks: [(&str, Clock); 2] = [("cpu", |t| t.cpu_ns), ("wall", |t| t.wall_ns)];
        for (clock, time) in clocks {
            add(&format!("{clock}_per_op"), "ns", Summary::of(result.timings.iter().map(time)));
        }
        for (clock, time) in clocks {
            for reference in references {
                let Some(base) = results.iter().find(|other| other.kind == reference.kind) else { continue };
                let ratios = result.timings.iter().zip(&base.timings).map(|(own, base)| time(own) / time(base));
                add(&format!("{clock}_ratio_{}", reference.name), "x", Summary::of(ratios));
            }
        }
    }
}

/// Puts the references that are not among `kinds` before them.
pub(crate) fn with_references(kinds: &[Kind], references: &[Reference]) -> Vec<Kind> {
    let absent = references.iter().map(|reference| reference.kind).filter(|kind| !kinds.contains(kind));
    absent.chain(kinds.iter().copied()).collect()
}

fn total(misses: Misses) -> u64 {
    misses.main + misses.scanned
}
