//! A sub-command for each experiment.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Command};

use crate::experiments;
use crate::scaling::experiment::Experiment;
use crate::scaling::workload::Workload;

/// Adds a sub-command for each experiment, with the names that its options know.
pub(crate) fn with_experiments<A: Args>(command: Command) -> Command {
    let command = command.subcommand_required(true).arg_required_else_help(true);
    experiments::ALL.iter().fold(command, |command, experiment| {
        let schemes: Vec<PossibleValue> =
            experiment.schemes.iter().map(|scheme| PossibleValue::new(scheme.name).help(scheme.about)).collect();
        let workload = |workload: &Workload| PossibleValue::new(workload.name).help(workload.about);
        let workloads: Vec<PossibleValue> = experiment.workloads.iter().map(workload).collect();
        command.subcommand(
            A::augment_args(Command::new(experiment.name))
                .about(experiment.question)
                .long_about(long_about(experiment))
                .mut_arg("schemes", |arg| arg.value_parser(PossibleValuesParser::new(schemes)))
                .mut_arg("workloads", |arg| arg.value_parser(PossibleValuesParser::new(workloads)))
                .mut_arg("groups", |arg| arg.hide(!experiment.has_groups()))
                .mut_arg("device", |arg| arg.hide(!experiment.is_short_of_memory()))
                .mut_arg("memory_per_cpu", |arg| arg.hide(!experiment.is_short_of_memory())),
        )
    })
}

fn long_about(experiment: &Experiment) -> String {
    let machines = experiment.machines().join(", ");
    let mut text =
        format!("{}\n\nAn operation is {}. Machines: {machines}.", experiment.question, experiment.operation);
    for published in experiment.published {
        text += &format!("\nPublished on {}: {} ({}).", published.machine, published.about, published.source);
    }
    text
}
