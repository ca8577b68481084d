//! What must not get worse: the claims of all experiments that are marked so.

use anyhow::{Result, bail};

use super::args::Common;
use super::experiment::{Claim, Experiment, Measure};
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
        for claim in experiment.claims.iter().filter(|claim| claim.gate) {
            if !experiment.schemes.iter().any(|known| known.name == scheme) {
                continue;
            }
            let claim =
                Claim { scheme: if claim.scheme == OURS { named(experiment, scheme) } else { claim.scheme }, ..*claim };
            checked += 1;
            failed += usize::from(!check(experiment, &claim)?);
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

/// Says whether the claim holds, and if it doesn't, where the time goes.
fn check(experiment: &'static Experiment, claim: &Claim) -> Result<bool> {
    let mut cpus = vec![claim.cpus];
    let mut schemes = vec![claim.scheme.to_owned()];
    match claim.measure {
        Measure::Scaling => cpus.push(1),
        Measure::Over(other) => schemes.push(other.to_owned()),
        Measure::Efficiency | Measure::SharedWrites | Measure::ListsLost => {}
    }
    let common = Common { cpus, schemes, workloads: vec![claim.workload.to_owned()], ..Common::default() };
    let results = Run::new(experiment, &common, claim.machine, Some(1))?.results()?;
    let Some(verdict) = verdict::judge(&results, claim) else {
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
