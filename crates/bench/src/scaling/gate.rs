//! What must not get worse: the claims of all experiments that are marked so.

use anyhow::{Result, bail};

use super::args::Common;
use super::experiment::{Claim, Experiment, Measure};
use super::results::Results;
use super::verdict::{self, Outcome};
use super::virtual_run::Run;
use crate::experiments::{self, OURS};
use crate::output::say;
use crate::usage::Usage;

/// Checks each claim of what we ship, on another scheme if `scheme` is one.
///
/// # Errors
/// A claim that doesn't hold.
pub(crate) fn run(scheme: &str) -> Result<()> {
    let mut failed = 0;
    let mut checked = 0;
    for experiment in experiments::ALL {
        let mut runs = Runs { experiment, done: Vec::new() };
        for claim in experiment.claims.iter().filter(|claim| claim.gate) {
            if !experiment.schemes.iter().any(|known| known.name == scheme) {
                continue;
            }
            let claim =
                Claim { scheme: if claim.scheme == OURS { named(experiment, scheme) } else { claim.scheme }, ..*claim };
            checked += 1;
            failed += usize::from(!runs.check(&claim)?);
        }
    }
    if checked == 0 {
        return Err(Usage::error(format!("no experiment with a gate has a scheme {scheme:?}: try {OURS} or planted")));
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

/// What has been run of an experiment: claims on the same tasks share a run.
struct Runs {
    experiment: &'static Experiment,
    done: Vec<(Tasks, Results)>,
}

/// Of which tasks a claim speaks.
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

    fn run(&self, experiment: &'static Experiment) -> Result<Results> {
        let schemes = self.schemes.iter().map(|&scheme| scheme.to_owned()).collect();
        let (cpus, workloads) = (self.cpus.clone(), vec![self.workload.to_owned()]);
        let common = Common { cpus, schemes, workloads, ..Common::default() };
        Run::new(experiment, &common, self.machine, Some(1))?.results()
    }
}

impl Runs {
    fn of(&mut self, claim: &Claim) -> Result<&Results> {
        let tasks = Tasks::of(claim);
        let at = match self.done.iter().position(|(done, _)| *done == tasks) {
            Some(at) => at,
            None => {
                let results = tasks.run(self.experiment)?;
                self.done.push((tasks, results));
                self.done.len() - 1
            }
        };
        Ok(&self.done[at].1)
    }

    /// Says whether the claim holds, and if it doesn't, where the time goes.
    fn check(&mut self, claim: &Claim) -> Result<bool> {
        let results = self.of(claim)?;
        let Some(verdict) = verdict::judge(results, claim) else {
            bail!("nothing was measured for the claim on {}", claim.scheme);
        };
        say(&format!("{verdict}\n"))?;
        let holds = verdict.outcome == Outcome::Agrees;
        let row = results.row(claim.workload, claim.scheme, claim.cpus);
        let hottest = row.and_then(|row| row.report()).and_then(manycore::Report::hottest_line);
        if !holds && let Some(line) = hottest {
            say(&format!("  {:.1} % of all CPU time is lost at {}\n", line.shares.lost(), line.line))?;
        }
        Ok(holds)
    }
}
