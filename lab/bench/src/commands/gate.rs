//! What must not get worse: all claims of experiments that belong to the gate.
//!
//! First, each claim is judged by a short run with one seed. The figures of such a run may be off
//! by some per cent, and a claim's bound may be as close to the true value. So if a claim doesn't
//! hold in the short run, it is judged again by the median of the experiment's usual runs, which
//! are longer and have several seeds.

use anyhow::{Result, bail};

use crate::experiments::{self, OURS};
use crate::output::say;
use crate::scaling::args::Common;
use crate::scaling::experiment::{Claim, Experiment, Measure};
use crate::scaling::results::Results;
use crate::scaling::verdict::{self, Outcome, Verdict};
use crate::scaling::virtual_run::Run;
use crate::usage::Usage;

/// Checks each claim about what we ship, or about `scheme` in its place: those of the experiments
/// that `only` names, or of all experiments if it is empty.
///
/// # Errors
/// A claim doesn't hold, or an experiment has a name that doesn't exist.
pub(crate) fn run(scheme: &str, only: &[String]) -> Result<()> {
    experiments::check()?;
    let wanted: Vec<_> = only.iter().map(|name| experiments::find(name)).collect::<Result<_>>()?;
    let chosen = if wanted.is_empty() { experiments::ALL } else { &wanted[..] };
    let mut failed = 0;
    let mut checked = 0;
    for &experiment in chosen {
        if !experiment.schemes.iter().any(|known| known.name == scheme) {
            continue;
        }
        let scheme_of = |claim: &Claim| if claim.scheme == OURS { named(experiment, scheme) } else { claim.scheme };
        let of_gate = experiment.claims.iter().filter(|claim| claim.gate);
        let claims: Vec<Claim> = of_gate.map(|claim| Claim { scheme: scheme_of(claim), ..*claim }).collect();
        let mut runs = Runs { experiment, claims: &claims, done: Vec::new() };
        for claim in &claims {
            checked += 1;
            failed += usize::from(!runs.check(claim)?);
        }
    }
    if checked == 0 {
        let none = if only.is_empty() { "no experiment".to_owned() } else { format!("none of {}", only.join(", ")) };
        return Err(Usage::error(format!("{none} has a gate and a scheme {scheme:?}: try {OURS} or planted")));
    }
    if failed > 0 {
        bail!("{failed} of {checked} claims don't hold");
    }
    say(&format!("all {checked} claims hold\n"))
}

/// The experiment's own copy of the name.
fn named(experiment: &Experiment, scheme: &str) -> &'static str {
    experiment.schemes.iter().find(|known| known.name == scheme).map_or(OURS, |known| known.name)
}

/// The runs of an experiment so far. Claims on the same tasks share a run.
struct Runs<'a> {
    experiment: &'static Experiment,
    /// All claims that are checked.
    claims: &'a [Claim],
    done: Vec<(Tasks, Seeds, Results)>,
}

/// With how many seeds tasks run.
#[derive(Clone, Copy, PartialEq)]
enum Seeds {
    /// In short runs.
    One,
    /// As many as an experiment has if the user doesn't choose.
    Usual,
}

/// Of which tasks claims speak.
#[derive(PartialEq)]
struct Tasks {
    machine: &'static str,
    workload: &'static str,
    schemes: Vec<&'static str>,
    cpus: Vec<usize>,
}

impl Tasks {
    fn of(claim: &Claim) -> Self {
        let mut tasks = Self {
            machine: claim.machine,
            workload: claim.workload,
            schemes: vec![claim.scheme],
            cpus: vec![claim.cpus],
        };
        match claim.measure {
            Measure::Scaling => tasks.cpus.push(1),
            Measure::Over(other) => tasks.schemes.push(other),
            Measure::Efficiency | Measure::SharedWrites | Measure::ListsLost => {}
        }
        tasks
    }

    /// The same with the schemes of all claims on these tasks.
    fn with_all_schemes(self, claims: &[Claim]) -> Self {
        let others = claims.iter().map(Self::of);
        let same = others
            .filter(|other| (other.machine, other.workload, &other.cpus) == (self.machine, self.workload, &self.cpus));
        let mut schemes: Vec<&'static str> = same.flat_map(|other| other.schemes).collect();
        schemes.sort_unstable();
        schemes.dedup();
        Self { schemes, ..self }
    }

    fn run(&self, experiment: &'static Experiment, seeds: Seeds) -> Result<Results> {
        let schemes = self.schemes.iter().map(|&scheme| scheme.to_owned()).collect();
        let (cpus, workloads) = (self.cpus.clone(), vec![self.workload.to_owned()]);
        let common = Common { cpus, schemes, workloads, ..Common::default() };
        let run = match seeds {
            Seeds::One => Run::new(experiment, &common, self.machine, Some(1))?.briefly(),
            Seeds::Usual => Run::new(experiment, &common, self.machine, None)?,
        };
        // The gate's claims on efficiency are about `OURS`, or about the scheme that the user names
        // in its place.
        if self.schemes.contains(&OURS) { run.efficiency_of_ours_only().results() } else { run.results() }
    }
}

impl Runs<'_> {
    fn of(&mut self, claim: &Claim, seeds: Seeds) -> Result<&Results> {
        let tasks = Tasks::of(claim).with_all_schemes(self.claims);
        let at = match self.done.iter().position(|(done, with, _)| *done == tasks && *with == seeds) {
            Some(at) => at,
            None => {
                let results = tasks.run(self.experiment, seeds)?;
                self.done.push((tasks, seeds, results));
                self.done.len() - 1
            }
        };
        Ok(&self.done[at].2)
    }

    fn judge(&mut self, claim: &Claim, seeds: Seeds) -> Result<Verdict> {
        match verdict::judge(self.of(claim, seeds)?, claim) {
            Some(verdict) => Ok(verdict),
            None => bail!("nothing was measured for the claim on {}", claim.scheme),
        }
    }

    /// Says whether the claim holds, and if it doesn't, where the time goes.
    fn check(&mut self, claim: &Claim) -> Result<bool> {
        let mut verdict = self.judge(claim, Seeds::One)?;
        if verdict.outcome != Outcome::Agrees {
            say("not in one short run; in more and longer ones: ")?;
            verdict = self.judge(claim, Seeds::Usual)?;
        }
        say(&format!("{verdict}\n"))?;
        if verdict.outcome == Outcome::Agrees {
            return Ok(true);
        }
        let row = self.of(claim, Seeds::Usual)?.row(claim.workload, claim.scheme, claim.cpus);
        if let Some(line) = row.and_then(|row| row.report()).and_then(manycore::Report::hottest_line) {
            say(&format!("  {:.1} % of all CPU time is lost at {}\n", line.shares.lost(), line.line))?;
        }
        Ok(false)
    }
}
