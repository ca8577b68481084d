//! Makes all runs of a plan.

use anyhow::{Context, Result};

use super::job::Job;
use super::plan::Plan;
use super::results::{Host, Results, Row};
use super::stage::Stage;
use super::table::cpus_label;
use crate::output::progress;

/// Every run once, then every run again: what changes on a real machine meanwhile meets all schemes alike. `stage` is what
/// a repetition runs on.
pub(crate) fn run(plan: &Plan, host: Host, how: String, stage: impl Fn(u32) -> Stage) -> Result<Results> {
    let mut rows = Vec::new();
    for workload in &plan.workloads {
        for &cpus in &plan.cpus {
            let row = |scheme| Row { workload: workload.name, scheme, cpus, samples: Vec::new() };
            rows.extend(plan.schemes.iter().map(|scheme| row(scheme.name)));
        }
    }
    let bar = progress(plan.experiment.name, rows.len() * plan.repeats as usize);
    for repeat in 0..plan.repeats {
        let stage = stage(repeat);
        let mut next = rows.iter_mut();
        for workload in &plan.workloads {
            for &cpus in &plan.cpus {
                for (scheme, row) in plan.schemes.iter().zip(&mut next) {
                    let what = || format!("{}, {} on {}", workload.name, scheme.name, cpus_label(cpus));
                    bar.set_message(what());
                    let job = Job::new(workload, cpus, plan.bytes, &stage);
                    row.samples.push((scheme.measure)(&job).with_context(what)?);
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(Results {
        experiment: plan.experiment,
        host,
        workloads: plan.workloads.clone(),
        schemes: plan.schemes.clone(),
        cpus: plan.cpus.clone(),
        how: if plan.bytes == 0 { how } else { format!("{how}, {} bytes", plan.bytes) },
        rows,
    })
}
