//! Which runs to make.

use std::time::Duration;

use anyhow::Result;

use super::args::Common;
use super::device::Device;
use super::experiment::{Experiment, Scheme};
use super::job::Choices;
use super::workload::Workload;
use crate::usage::Usage;

/// Every scheme on every workload with each number of CPUs, so many times.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) experiment: &'static Experiment,
    pub(crate) workloads: Vec<&'static Workload>,
    pub(crate) schemes: Vec<&'static Scheme>,
    /// Ascending.
    pub(crate) cpus: Vec<usize>,
    pub(crate) choices: Choices,
    /// Of each run.
    pub(crate) time: Duration,
    /// Seeds or rounds.
    pub(crate) repeats: u32,
    /// Runs without contention are made of what we ship alone.
    pub(crate) efficiency_of_ours_only: bool,
}

impl Plan {
    /// What was asked for, or what is usual.
    ///
    /// # Errors
    /// The experiment doesn't know a name, or has no choice of bytes, memory or device.
    pub(crate) fn new(
        experiment: &'static Experiment,
        common: &Common,
        usual_cpus: Vec<usize>,
        usual_time: Duration,
        repeats: u32,
    ) -> Result<Self> {
        let mut cpus = if common.cpus.is_empty() { usual_cpus } else { common.cpus.clone() };
        cpus.sort_unstable();
        cpus.dedup();
        let mut schemes = named(&common.schemes, experiment.schemes.iter(), |scheme| scheme.name, "scheme")?;
        if common.schemes.is_empty() {
            schemes = experiment.usual_schemes().collect();
        }
        let bytes = match (common.bytes, experiment.bytes) {
            (Some(_), None) => {
                return Err(Usage::error(format!(
                    "an operation of {} copies nothing: leave --bytes out",
                    experiment.name
                )));
            }
            (asked, usual) => asked.map(|bytes| bytes as usize).or(usual).unwrap_or(0),
        };
        if common.memory_per_cpu.is_some() && !experiment.is_short_of_memory() {
            return Err(Usage::error(format!(
                "{} has room for all of its pages: leave --memory-per-cpu out",
                experiment.name
            )));
        }
        let device = match common.device {
            Some(device) if !experiment.devices.contains(&device) => {
                let known: Vec<&str> = experiment.devices.iter().map(|device| device.name()).collect();
                return Err(Usage::error(match known[..] {
                    [] => format!("{} has no device: leave --device out", experiment.name),
                    _ => format!("{} has no {} here: there are {}", experiment.name, device.name(), known.join(", ")),
                }));
            }
            asked => asked.unwrap_or(Device::Memory),
        };
        let mut workloads = common.workloads.clone();
        if let Some(groups) = common.groups {
            if !experiment.has_groups() {
                return Err(Usage::error(format!("tasks of {} are in no groups: leave --groups out", experiment.name)));
            }
            workloads = vec![groups.workload().to_owned()];
        }
        let mut workloads_named = named(&workloads, experiment.workloads.iter(), |workload| workload.name, "workload")?;
        if workloads.is_empty() {
            workloads_named = experiment.usual_workloads().collect();
        }
        Ok(Self {
            experiment,
            workloads: workloads_named,
            schemes,
            cpus,
            choices: Choices {
                bytes,
                device,
                memory_per_cpu: common.memory_per_cpu,
                quick: common.quick,
                brief: false,
            },
            time: common.time.unwrap_or(usual_time),
            repeats,
            efficiency_of_ours_only: false,
        })
    }
}

/// Returns the items with these names, in the order of `names` and without duplicates. Without
/// names, returns all.
fn named<T>(
    names: &[String],
    all: impl Iterator<Item = &'static T> + Clone,
    name_of: impl Fn(&T) -> &'static str,
    what: &str,
) -> Result<Vec<&'static T>> {
    if names.is_empty() {
        return Ok(all.collect());
    }
    let mut found: Vec<&'static T> = Vec::new();
    for name in names {
        let Some(item) = all.clone().find(|item| name_of(item) == name) else {
            let known: Vec<&str> = all.map(name_of).collect();
            return Err(Usage::error(format!("no {what} is called {name:?}: there are {}", known.join(", "))));
        };
        if !found.iter().any(|other| name_of(other) == name) {
            found.push(item);
        }
    }
    Ok(found)
}
