//! Makes all runs of a plan.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::experiment::OURS;
use super::job::Job;
use super::labels::cpus_label;
use super::plan::Plan;
use super::results::{Host, Results};
use super::row::Row;
use super::sample::Unavailable;
use super::stage::Stage;
use crate::output::progress;

/// Makes every run once, then every run again, and so on, so that changes of a real machine affect
/// all schemes alike. `stage` returns the stage for a repetition. Runs that can't be made here are
/// left out, and listed as missing.
pub(crate) fn run(plan: &Plan, host: Host, mut how: String, stage: impl Fn(u32) -> Stage) -> Result<Results> {
    let mut rows = Vec::new();
    for workload in &plan.workloads {
        for &cpus in &plan.cpus {
            let row = |scheme| Row { workload: workload.name, scheme, cpus, samples: BTreeMap::new() };
            rows.extend(plan.schemes.iter().map(|scheme| row(scheme.name)));
        }
    }
    // Why the last run of a row is missing.
    let mut reasons = vec![None; rows.len()];
    let bar = progress(plan.experiment.name, rows.len() * plan.repeats as usize);
    for repeat in 0..plan.repeats {
        let (whole, plain) = (stage(repeat), stage(repeat).throughput_only());
        let mut next = rows.iter_mut().zip(&mut reasons);
        for workload in &plan.workloads {
            for &cpus in &plan.cpus {
                for (scheme, (row, reason)) in plan.schemes.iter().zip(&mut next) {
                    let what = || format!("{}, {} on {}", workload.name, scheme.name, cpus_label(cpus));
                    bar.set_message(what());
                    let is_plain = plan.efficiency_of_ours_only && scheme.name != OURS;
                    let job = Job::new(workload, cpus, plan.choices, if is_plain { &plain } else { &whole });
                    match (scheme.measure)(&job) {
                        Err(error) if error.is::<Unavailable>() => {
                            *reason = Some(format!("{}: {error:#}", scheme.name));
                        }
                        sample => _ = row.samples.insert(repeat, sample.with_context(what)?),
                    }
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    let mut missing = Vec::new();
    for (_, reason) in rows.iter().zip(reasons).filter(|(row, _)| row.samples.is_empty()) {
        missing.extend(reason.filter(|reason| !missing.contains(reason)));
    }
    rows.retain(|row| !row.samples.is_empty());
    if plan.experiment.is_short_of_memory() {
        how += &format!(", device: {}", plan.choices.device.name());
    }
    if let Some(size) = plan.choices.memory_per_cpu {
        how += &format!(", {size} of memory for each CPU");
    }
    Ok(Results {
        experiment: plan.experiment,
        host,
        workloads: plan.workloads.clone(),
        schemes: plan.schemes.clone(),
        cpus: plan.cpus.clone(),
        how: if plan.choices.bytes == 0 { how } else { format!("{how}, {} bytes", plan.choices.bytes) },
        missing,
        dropped: None,
        rows,
    })
}
