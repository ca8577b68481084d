//! The frame of all scaling experiments: it runs the same code of a scheme on virtual CPUs and on
//! real ones.
//!
//! An [`experiment`] names workloads and schemes. A scheme measures a [`job`]: it passes three
//! closures (set up, begin a task, one operation) to the [`stage`] of the build, which runs them. A
//! [`sweep`] makes all runs of a [`plan`]. Its [`results`] become a [`table`], [`records`],
//! [`curves`] and [`verdict`]s that compare them with the published figures.

pub(crate) mod args;
#[cfg(pagefold_manycore)]
pub(crate) mod beside;
#[cfg(pagefold_manycore)]
pub(crate) mod cost_scaling;
pub(crate) mod curves;
pub(crate) mod device;
pub(crate) mod experiment;
pub(crate) mod job;
pub(crate) mod labels;
pub(crate) mod lists;
#[cfg(pagefold_manycore)]
pub(crate) mod machine_choice;
pub(crate) mod parts;
pub(crate) mod plan;
#[cfg(pagefold_manycore)]
pub(crate) mod profile;
pub(crate) mod records;
pub(crate) mod results;
pub(crate) mod row;
pub(crate) mod sample;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod verdict;
pub(crate) mod workload;

#[cfg(not(pagefold_manycore))]
#[path = "real_stage.rs"]
pub(crate) mod stage;
#[cfg(pagefold_manycore)]
#[path = "virtual_stage.rs"]
pub(crate) mod stage;

#[cfg(not(pagefold_manycore))]
pub(crate) mod real_processes;
#[cfg(not(pagefold_manycore))]
pub(crate) mod real_run;
#[cfg(pagefold_manycore)]
pub(crate) mod virtual_run;
