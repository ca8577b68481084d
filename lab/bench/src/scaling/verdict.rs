//! Sentences that say which figures agree with the published result and which don't.

use std::fmt;

use super::experiment::{Bound, Claim, Figure, Measure, Published};
use super::labels::{cpus_label, number};
use super::results::Results;

/// Two gains are close if the larger one is at most this many times the smaller one.
const CLOSE: f64 = 1.25;

/// The dead band: a factor between `1 / NO_GAIN` and `NO_GAIN` is neither a gain nor a loss.
const NO_GAIN: f64 = 1.03;

/// How a figure compares with what was to be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A claim holds; or a gain has the published direction, and is close to the published one.
    Agrees,
    /// A gain has another direction or another size, but not the opposite direction.
    Differs,
    /// A claim doesn't hold; or a gain has the opposite direction.
    Contradicts,
}

/// How the direction of a gain compares with that of the published gain. Its size doesn't matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Both are gains, or both are losses, or both are in the dead band.
    Same,
    /// One is a gain, and the other one a loss.
    Opposite,
    /// Ours is in the dead band, and the published one isn't.
    NoneHere,
    /// The published one is in the dead band, and ours isn't.
    NonePublished,
}

impl Direction {
    fn of(ours: f64, theirs: f64) -> Self {
        match [ours, theirs].map(sign) {
            [0, 0] => Self::Same,
            [0, _] => Self::NoneHere,
            [_, 0] => Self::NonePublished,
            [ours, theirs] if ours == theirs => Self::Same,
            _ => Self::Opposite,
        }
    }

    /// In a table.
    #[cfg(pagefold_manycore)]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Opposite => "**opposite**",
            Self::NoneHere => "none here",
            Self::NonePublished => "none published",
        }
    }
}

/// Returns 1 for a gain, −1 for a loss, and 0 in the dead band.
fn sign(gain: f64) -> i32 {
    i32::from(gain > NO_GAIN) - i32::from(gain < 1.0 / NO_GAIN)
}

/// An outcome, and the figures it rests on.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// How it compares.
    pub(crate) outcome: Outcome,
    /// The figures.
    pub(crate) sentence: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.outcome {
            Outcome::Agrees => "agrees",
            Outcome::Differs => "differs",
            Outcome::Contradicts => "DOESN'T AGREE",
        };
        write!(formatter, "{word}: {}", self.sentence)
    }
}

/// The published figures that the runs of a workload can be compared with.
pub(crate) fn published<'a>(results: &'a Results, workload: &'a str) -> impl Iterator<Item = &'static Published> + 'a {
    let all = results.experiment.published.iter();
    all.filter(move |published| published.machine == results.host.name && published.workload == workload)
}

/// All verdicts on `results`: first on published figures, then on the project's own promises.
pub(crate) fn of(results: &Results) -> Vec<Verdict> {
    let published = results.workloads.iter().flat_map(|workload| published(results, workload.name));
    let figures = published
        .flat_map(|published| published.figures.iter().filter_map(move |figure| compare(results, published, figure)));
    figures.chain(results.experiment.claims.iter().filter_map(|claim| judge(results, claim))).collect()
}

/// A published gain beside ours.
pub(crate) struct Comparison {
    /// What it is a gain over.
    pub(crate) base: &'static Figure,
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

impl Comparison {
    /// Compares a published figure with runs. `throughput` returns the median throughput of a
    /// scheme on so many CPUs, if the runs cover it.
    pub(crate) fn of(
        published: &'static Published,
        figure: &Figure,
        throughput: impl Fn(&str, usize) -> Option<f64>,
    ) -> Option<Self> {
        let base = published.base(figure)?;
        let ours = throughput(figure.scheme, figure.cpus)? / throughput(base.scheme, base.cpus)?;
        Some(Self { base, ours, theirs: published.gain(figure) })
    }

    pub(crate) fn direction(&self) -> Direction {
        Direction::of(self.ours, self.theirs)
    }

    /// Returns whether both gains are about equal, whatever their directions.
    pub(crate) fn is_close(&self) -> bool {
        self.ours.max(self.theirs) / self.ours.min(self.theirs) <= CLOSE
    }

    fn outcome(&self) -> Outcome {
        match self.direction() {
            Direction::Opposite => Outcome::Contradicts,
            Direction::Same if self.is_close() => Outcome::Agrees,
            _ => Outcome::Differs,
        }
    }
}

fn compare(results: &Results, published: &'static Published, figure: &Figure) -> Option<Verdict> {
    let throughput = |scheme: &str, cpus| Some(results.row(published.workload, scheme, cpus)?.throughput().median);
    let comparison = Comparison::of(published, figure, throughput)?;
    let base = comparison.base;
    let of = if base.scheme == figure.scheme { cpus_label(base.cpus) } else { base.scheme.to_owned() };
    let sentence = format!(
        "{}, {} on {}: {} × the throughput of {of}, published {} × ({} and {} {})",
        published.workload,
        figure.scheme,
        cpus_label(figure.cpus),
        number(comparison.ours),
        number(comparison.theirs),
        number(base.value),
        number(figure.value),
        published.unit,
    );
    Some(Verdict { outcome: comparison.outcome(), sentence })
}

/// A claim, if the runs cover it.
pub(crate) fn judge(results: &Results, claim: &Claim) -> Option<Verdict> {
    if claim.machine != results.host.name {
        return None;
    }
    let row = results.row(claim.workload, claim.scheme, claim.cpus)?;
    let value = results.measure(row, claim.measure)?;
    let figure = match claim.measure {
        Measure::Scaling => format!("{} × the throughput of 1 CPU", number(value)),
        Measure::Efficiency => format!("contention efficiency {value:.4}"),
        Measure::SharedWrites => format!("{value:.4} shared writes for each operation"),
        Measure::ListsLost => format!("{value:.2} % of CPU time lost at lists"),
        Measure::Over(scheme) => format!("{} × the throughput of {scheme}", number(value)),
    };
    let bound = match claim.bound {
        Bound::AtLeast(least) => format!("at least {least}"),
        Bound::AtMost(most) => format!("at most {most}"),
    };
    let outcome = if claim.bound.holds(value) { Outcome::Agrees } else { Outcome::Contradicts };
    let place = format!("{}, {} on {}", claim.workload, claim.scheme, cpus_label(claim.cpus));
    let gate = if claim.gate { " (a gate)" } else { "" };
    Some(Verdict { outcome, sentence: format!("{place}: {figure}, to be {bound}{gate}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gains_direction_is_judged_apart_from_its_size() {
        static BASE: Figure = Figure { scheme: "older", cpus: 1, value: 1.0, deviation: None };
        for (ours, theirs, direction, is_close, outcome) in [
            (1.20, 1.10, Direction::Same, true, Outcome::Agrees),
            (0.98, 1.02, Direction::Same, true, Outcome::Agrees),
            (0.50, 0.60, Direction::Same, true, Outcome::Agrees),
            (3.88, 6.30, Direction::Same, false, Outcome::Differs),
            (1.01, 1.16, Direction::NoneHere, true, Outcome::Differs),
            (1.02, 1.62, Direction::NoneHere, false, Outcome::Differs),
            (1.06, 1.00, Direction::NonePublished, true, Outcome::Differs),
            (0.93, 0.99, Direction::NonePublished, true, Outcome::Differs),
            (0.95, 1.13, Direction::Opposite, true, Outcome::Contradicts),
            (1.29, 0.42, Direction::Opposite, false, Outcome::Contradicts),
        ] {
            let comparison = Comparison { base: &BASE, ours, theirs };
            let found = (comparison.direction(), comparison.is_close(), comparison.outcome());
            assert_eq!(found, (direction, is_close, outcome), "{ours} beside {theirs}");
        }
    }
}
