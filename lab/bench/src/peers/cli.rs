//! The command line of `bench peers`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{EnumValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command as ClapCommand, Subcommand, ValueEnum};

use crate::peers::disk::Workload;
use crate::peers::subject::Operation;
use crate::peers::subjects::Kind;
use crate::peers::{disk, miss, write};

#[derive(Debug, Subcommand)]
pub(crate) enum Peers {
    /// What finding a resident page costs
    Hit(HitArgs),
    /// What a miss and an eviction cost
    Miss(MissArgs),
    /// How well policies choose what to keep, beside the best possible
    MissRate(MissRateArgs),
    /// What a scan does to a hot set
    Scan(ScanArgs),
    /// What writing reaches while the disk is written to, on a real disk
    Write(WriteArgs),
    /// What reading from a real disk reaches, beside fio
    Disk(DiskArgs),
    /// All of these, and the atomics of a hit
    All(AllArgs),
}

impl Peers {
    /// What every experiment takes.
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Hit(args) => &args.common,
            Self::Miss(args) => &args.common,
            Self::MissRate(args) => &args.common,
            Self::Scan(args) => &args.common,
            Self::Write(args) => &args.common,
            Self::Disk(args) => &args.common,
            Self::All(args) => &args.common,
        }
    }
}

/// What every experiment takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    // The help is in `subjects_of`: it differs among experiments.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) subjects: Vec<Kind>,
    /// Repetitions, interleaved where times are measured [default: 7 for hit, 5 for miss, 3 for the
    /// others]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Small and short: shows that everything works; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where figures go.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// Print an array of flat records instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the headline figures
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// How much memory and where.
#[derive(Clone, Debug, Args)]
pub(crate) struct Size {
    /// Pages of 4 KiB: resident ones for hit, of the file for miss and miss-rate, of the budget for
    /// scan [default: 131072 for hit (16384 with --count), 1048576 for miss (65536 with --count)
    /// and miss-rate, 65536 for scan]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1024..=1 << 24))]
    pub(crate) pages: Option<u32>,
    /// The data file, kept; made if it doesn't exist [default: a temporary file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

/// How long rounds are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Timed {
    /// Numbers of threads: a list, as in 1,2
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_value = "1,2", value_parser = parse_threads)]
    pub(crate) threads: Vec<usize>,
    /// Length of a round of one subject [default: 0.3 for hit, 1 for miss]
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) seconds: Option<f64>,
    /// Operations of each thread in a round, instead of a time
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ops: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct HitArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) timed: Timed,
    /// Only these reads: a list, as in first-8,8
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "READS",
        default_value = "first-8,8,chained-8,100,4096",
        conflicts_with = "count"
    )]
    pub(crate) reads: Vec<Operation>,
    /// Count instructions and atomic read-modify-writes instead (--ops hits, 1000 by default)
    #[arg(long, conflicts_with_all = ["threads", "seconds", "rounds"])]
    pub(crate) count: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MissArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) timed: Timed,
    /// Count instructions and atomic read-modify-writes instead (--ops accesses, 1000 by default)
    #[arg(long, conflicts_with_all = ["threads", "seconds", "rounds"])]
    pub(crate) count: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MissRateArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
    /// Accesses to warm up with, and again as many to count [default: 4194304]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) ops: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Pages of 4 KiB in the budget; files have four times as many, and ten times [default: 65536]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1024..=1 << 22))]
    pub(crate) pages: Option<u32>,
    /// Where files without a name are made, on a disk [default: the current directory, else that
    /// for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
    /// Length of a round of overwriting [default: 4]
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) seconds: Option<f64>,
    /// Only these parts: a list, as in overwrite,stall [default: all; without pagefold: overwrite]
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    pub(crate) parts: Vec<write::Part>,
}

#[derive(Debug, Args)]
pub(crate) struct DiskArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only these workloads: a list, as in random-64,sequential
    #[arg(long, value_delimiter = ',', value_name = "WORKLOADS")]
    pub(crate) workloads: Vec<Workload>,
    /// Pages of 4 KiB in the budget; the file has ten times as many [default: 65536]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1024..=1 << 22))]
    pub(crate) pages: Option<u32>,
    /// Where files without a name are made, on a disk [default: the current directory, else that
    /// for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
    /// Length of a round [default: 1]
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) seconds: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CountChild {
    #[arg(long)]
    pub(crate) subject: Kind,
    #[arg(long)]
    pub(crate) pages: u32,
    #[arg(long)]
    pub(crate) ops: usize,
    #[arg(long)]
    pub(crate) file: PathBuf,
    #[arg(long)]
    pub(crate) misses: bool,
}

/// The derived command, but the help of each experiment lists only the subjects that it can
/// measure.
pub(crate) fn command() -> ClapCommand {
    let all = "all; with --count: all but array-huge,mmap,pread".to_owned();
    let experiments = [
        ("hit", Kind::all(), all),
        ("miss", miss::possible(), names(&miss::possible())),
        ("miss-rate", Kind::evicting(), names(&Kind::evicting())),
        ("scan", Kind::evicting(), names(&Kind::evicting())),
        ("write", write::possible(), names(&write::possible())),
        ("disk", disk::possible(), names(&disk::possible())),
        ("all", Kind::value_variants().to_vec(), "all that have a place in each".to_owned()),
    ];
    let peers = ClapCommand::new("peers").about("Compare with raw arrays, mmap, other caches and textbook baselines");
    experiments.into_iter().fold(Peers::augment_subcommands(peers), |peers, (name, listed, default)| {
        let subjects = |arg| subjects_of(arg, name, listed, &default);
        peers.mut_subcommand(name, |experiment| experiment.mut_arg("subjects", subjects))
    })
}

fn subjects_of(arg: Arg, experiment: &str, listed: Vec<Kind>, default: &str) -> Arg {
    let references =
        if matches!(experiment, "hit" | "miss" | "all") { "; those that ratios refer to are always there" } else { "" };
    let help = format!("Only these subjects: a list, as in moka,pagefold{references} [default: {default}]");
    arg.value_parser(SomeKinds(listed)).help(help)
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")
}

/// Accepts every kind, but lists only these. If a kind exists but the experiment can't measure it,
/// the error comes later, and doesn't say that the name is unknown.
#[derive(Clone)]
struct SomeKinds(Vec<Kind>);

impl TypedValueParser for SomeKinds {
    type Value = Kind;

    fn parse_ref(&self, command: &ClapCommand, arg: Option<&Arg>, value: &OsStr) -> Result<Kind, clap::Error> {
        EnumValueParser::<Kind>::new().parse_ref(command, arg, value).map_err(|error| {
            let listed = PossibleValuesParser::new(self.0.iter().filter_map(ValueEnum::to_possible_value));
            listed.parse_ref(command, arg, value).err().unwrap_or(error)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().filter_map(ValueEnum::to_possible_value)))
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=256) => Ok(threads),
        _ => Err("a number of threads is between 1 and 256".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a round is between 0.001 and 3600 seconds long".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    fn parsed(arguments: &[&str]) -> Peers {
        let matches = command().try_get_matches_from([&["peers"], arguments].concat()).unwrap();
        Peers::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn lists_have_defaults_and_commas() {
        let Peers::Hit(args) = parsed(&["hit"]) else { panic!("a hit was asked") };
        assert_eq!((args.timed.threads, args.reads), (vec![1, 2], Operation::value_variants().to_vec()));
        assert!(args.common.subjects.is_empty());
        let Peers::Hit(args) = parsed(&["hit", "--threads", "4,8", "--reads", "8,100"]) else { panic!("a hit") };
        assert_eq!((args.timed.threads, args.reads), (vec![4, 8], vec![Operation::Read8, Operation::Read100]));
        assert!(matches!(parsed(&["hit", "--count", "--subjects", "moka,pagefold"]), Peers::Hit(args) if args.count));
    }

    #[test]
    fn help_lists_the_subjects_of_the_experiment() {
        let help = |experiment| {
            let error = command().try_get_matches_from(["peers", experiment, "--help"]).unwrap_err();
            error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(help("hit").contains("dashmap") && help("hit").contains("[default: 1,2]"), "{}", help("hit"));
        for experiment in ["miss", "miss-rate", "scan"] {
            let help = help(experiment);
            assert!(help.contains("moka") && !help.contains("dashmap") && !help.contains("array-huge"), "{help}");
            assert_eq!(help.contains("pread"), experiment == "miss", "{help}");
        }
    }
}
