//! Sentences that say which figures agree with the published result and which don't.

use std::fmt;

use super::experiment::{Bound, Claim, Figure, Measure, Published};
use super::results::Results;
use super::table::{cpus_label, number};

/// Ratios that differ by less than this factor agree.
const CLOSE: f64 = 1.25;

/// A gain that isn't larger than this is none.
const NO_GAIN: f64 = 1.03;

/// How a figure compares with what was to be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As expected.
    Agrees,
    /// The same direction, but another size.
    Differs,
    /// Not as expected.
    Contradicts,
}

impl Outcome {
    /// In a table.
    #[cfg(pagefold_manycore)]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs in size",
            Self::Contradicts => "**doesn't agree**",
        }
    }
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
            Outcome::Differs => "differs in size",
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
    pub(crate) outcome: Outcome,
}

impl Comparison {
    /// Of a published figure that the runs cover.
    pub(crate) fn of(results: &Results, published: &'static Published, figure: &Figure) -> Option<Self> {
        let base = published.base(figure)?;
        let row = results.row(published.workload, figure.scheme, figure.cpus)?;
        let ours = results.over(row, base.scheme, base.cpus)?.median;
        let theirs = published.gain(figure);
        let is_none = |gain: f64| (1.0 / NO_GAIN..=NO_GAIN).contains(&gain);
        let outcome = if (ours.max(theirs) / ours.min(theirs)) <= CLOSE {
            Outcome::Agrees
        } else if (ours > 1.0) == (theirs > 1.0) || is_none(ours) || is_none(theirs) {
            Outcome::Differs
        } else {
            Outcome::Contradicts
        };
        Some(Self { base, ours, theirs, outcome })
    }
}

fn compare(results: &Results, published: &'static Published, figure: &Figure) -> Option<Verdict> {
    let Comparison { base, ours, theirs, outcome } = Comparison::of(results, published, figure)?;
    let of = if base.scheme == figure.scheme { cpus_label(base.cpus) } else { base.scheme.to_owned() };
    let sentence = format!(
        "{}, {} on {}: {} × the throughput of {of}, published {} × ({} and {} {})",
        published.workload,
        figure.scheme,
        cpus_label(figure.cpus),
        number(ours),
        number(theirs),
        number(base.value),
        number(figure.value),
        published.unit,
    );
    Some(Verdict { outcome, sentence })
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
