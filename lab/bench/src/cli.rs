//! The commands, and which of the two builds has them.

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::commands;

/// Returns all commands of both builds. A command that needs the other build says so.
fn command() -> Command {
    let bench = Command::new("bench")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Pagefold beside its peers on real CPUs, and beside older designs on virtual ones")
        .subcommand_required(true)
        .arg_required_else_help(true);
    peers::commands(bench).subcommand(commands::virtual_command()).subcommand(commands::real_command())
}

/// Executes the command line of this process. If an alias of cargo has started this build, help and
/// errors call the program by the alias.
pub(crate) fn run_this() -> Result<()> {
    let arguments = || std::env::args_os().skip(1);
    let kind = arguments().next();
    match kind.as_ref().and_then(|kind| kind.to_str()) {
        Some("virtual") => {
            let command = commands::virtual_command().bin_name("cargo bench-virtual");
            commands::run_virtual(&command.get_matches_from(arguments()))
        }
        Some("real") => {
            let command = commands::real_command().bin_name("cargo bench-real");
            commands::run_real(&command.get_matches_from(arguments()))
        }
        _ => {
            let command = command();
            // A unit test of this would compile every experiment once more.
            command.clone().debug_assert();
            run(&command.get_matches())
        }
    }
}

fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("virtual", matches)) => commands::run_virtual(matches),
        Some(("real", matches)) => commands::run_real(matches),
        Some((name, matches)) => peers::run(name, matches),
        None => Ok(()),
    }
}

#[cfg(not(pagefold_manycore))]
mod peers {
    use anyhow::Result;
    use clap::{ArgMatches, Args, Command, FromArgMatches};

    use crate::experiments::swap::kernel::{self, ProcessArgs};
    use crate::peers::cli::{CountChild, Peers};
    use crate::peers::confined::KeeperArgs;
    use crate::peers::{COUNT_CHILD, cli, confined, count_child, disk, write};
    use crate::shared_lines::{self, TracedArgs};

    pub(super) fn commands(bench: Command) -> Command {
        let child = CountChild::augment_args(Command::new(COUNT_CHILD).hide(true));
        let round = write::RoundArgs::augment_args(Command::new(write::ROUND_COMMAND).hide(true));
        let reading = disk::RoundArgs::augment_args(Command::new(disk::ROUND_COMMAND).hide(true));
        let keeper = KeeperArgs::augment_args(Command::new(confined::KEEPER_COMMAND).hide(true));
        let swapping = ProcessArgs::augment_args(Command::new(kernel::COMMAND).hide(true));
        let traced = TracedArgs::augment_args(Command::new(shared_lines::TRACED_COMMAND).hide(true));
        bench.subcommand(cli::command()).subcommands([child, round, reading, keeper, swapping, traced])
    }

    pub(super) fn run(name: &str, matches: &ArgMatches) -> Result<()> {
        match name {
            COUNT_CHILD => count_child(&CountChild::from_arg_matches(matches)?),
            write::ROUND_COMMAND => write::round(&write::RoundArgs::from_arg_matches(matches)?),
            disk::ROUND_COMMAND => disk::round(&disk::RoundArgs::from_arg_matches(matches)?),
            confined::KEEPER_COMMAND => confined::keep(KeeperArgs::from_arg_matches(matches)?),
            shared_lines::TRACED_COMMAND => shared_lines::traced(&TracedArgs::from_arg_matches(matches)?),
            kernel::COMMAND => kernel::run(&ProcessArgs::from_arg_matches(matches)?),
            _ => crate::peers::run(&Peers::from_arg_matches(matches)?),
        }
    }
}

/// The peers' own locks and threads know nothing of virtual CPUs.
#[cfg(pagefold_manycore)]
mod peers {
    use anyhow::Result;
    use clap::{Arg, ArgMatches, Command};

    use crate::usage::Usage;

    pub(super) fn commands(bench: Command) -> Command {
        let rest = Arg::new("rest").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
        bench.subcommand(Command::new("peers").hide(true).disable_help_flag(true).arg(rest))
    }

    pub(super) fn run(_: &str, _: &ArgMatches) -> Result<()> {
        Err(Usage::error("this build runs on virtual CPUs, the peers don't: `cargo run --release -p bench -- peers …`"))
    }
}
