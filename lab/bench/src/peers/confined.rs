//! One subject in a process of its own, confined to a memory cgroup of its own.
//!
//! The *subject's* process is this program again, with a hidden command. It first joins the cgroup,
//! then measures, and prints what it measured. The cgroup, and the swap device if there is one,
//! belong to a second hidden process, the *keeper*. When this program ends for any reason, the
//! keeper reads end of file from its standard input. It then kills the processes left in the
//! cgroup, and removes the cgroup and the swap device. The keeper has a process group of its own,
//! so that Ctrl-C doesn't reach it.

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::output::say;
use crate::peers::cgroup::{self, Cgroup, OomWatch};
use crate::peers::contents::offset_of;
use crate::peers::subject_args::SubjectArgs;
use crate::peers::swap_device::{SwapDevice, Wanted};

/// The keeper's hidden command.
pub(crate) const KEEPER_COMMAND: &str = "cgroup-keeper";

/// The memory that a subject may use besides `budget`: for the program, its tables and buffers, and
/// for the kernel's data about the process.
fn allowance(budget: u64) -> u64 {
    (8 << 20) + budget / 32
}

/// What a subject may use in all.
pub(crate) fn limit(budget: u64) -> u64 {
    budget + allowance(budget)
}

/// How subjects are confined, for the heading and the notes.
#[derive(Debug)]
pub(crate) enum Confinement {
    /// To a budget and an allowance, in bytes.
    Cgroup { budget: u64, allowance: u64 },
    /// Not at all, and why.
    Refused(String),
}

impl Confinement {
    /// Finds out what is permitted here.
    pub(crate) fn possible(budget_pages: u32) -> Result<Self> {
        let budget = offset_of(budget_pages);
        let allowance = allowance(budget);
        Ok(match Cell::new(budget + allowance)? {
            Ok(_) => Self::Cgroup { budget, allowance },
            Err(reason) => Self::Refused(reason),
        })
    }

    /// In a few words.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Cgroup { budget, allowance } => format!("{} MiB for each", (budget + allowance) >> 20),
            Self::Refused(_) => "unconfined".to_owned(),
        }
    }

    /// In a sentence.
    pub(crate) fn note(&self) -> String {
        match self {
            Self::Cgroup { budget, allowance } => format!(
                "each subject ran in a process and a memory cgroup of its own, of {} MiB: the budget and {} MiB for \
                 the program, \
                 its tables and buffers. What the kernel caches for it is included",
                (budget + allowance) >> 20,
                allowance >> 20
            ),
            Self::Refused(reason) => format!(
                "nothing was confined to the budget, so mmap and pwrite may have the whole file in memory: no memory \
                 cgroup \
                 could be made ({reason})"
            ),
        }
    }

    /// Runs `command` in a process of its own, confined if possible. Its arguments are `args` and,
    /// for the experiment alone, `own`. Returns what the process measured, and the maximum memory
    /// that was in use, if that is known.
    pub(crate) fn run<T: DeserializeOwned>(
        &self,
        command: &str,
        args: &SubjectArgs,
        own: &[String],
    ) -> Result<(T, Option<u64>)> {
        let cell = match self {
            Self::Cgroup { budget, allowance } => Some(Cell::new(budget + allowance)?.map_err(anyhow::Error::msg)?),
            Self::Refused(_) => None,
        };
        let mut process = this_program()?;
        process.arg(command).args(args.to_command_line()).args(own);
        if let Some(cell) = &cell {
            process.arg("--cgroup").arg(&cell.path);
        }
        let found = result_of(process).with_context(|| format!("memory: {}", self.label()))?;
        Ok((found, cell.and_then(|cell| cgroup::peak(&cell.path))))
    }
}

/// What a process of this program prints when it ends.
pub(crate) fn result_of<T: DeserializeOwned>(mut process: Command) -> Result<T> {
    process.stdout(Stdio::piped()).stdin(Stdio::null());
    let output = process.spawn().and_then(Child::wait_with_output).context("cannot start a process")?;
    if let Some(signal) = output.status.signal() {
        bail!("the process was killed by signal {signal}");
    }
    if !output.status.success() {
        bail!("the process ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("the process printed something else")
}

pub(crate) fn this_program() -> Result<Command> {
    Ok(Command::new(env::current_exe().context("cannot find this program")?))
}

/// A cgroup, and perhaps a swap device, which a keeper has made. Dropping this removes them.
pub(crate) struct Cell {
    keeper: Child,
    path: PathBuf,
}

/// What the keeper says.
#[derive(Deserialize, Serialize)]
enum Answer {
    Made(PathBuf),
    Refused(String),
}

impl Cell {
    /// One of `bytes`, or why there is none.
    fn new(bytes: u64) -> Result<Result<Self, String>> {
        Self::kept(bytes, &[])
    }

    /// A cgroup of `bytes` that swaps to a new device, or the reason why there is none.
    pub(crate) fn with_swap(bytes: u64, wanted: &Wanted) -> Result<Result<Self, String>> {
        Self::kept(bytes, &["--swap".to_owned(), wanted.to_string()])
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn kept(bytes: u64, swap: &[String]) -> Result<Result<Self, String>> {
        let mut command = this_program()?;
        command.args([KEEPER_COMMAND, &bytes.to_string()]).args(swap).process_group(0);
        let mut keeper =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a process")?;
        let mut answer = String::new();
        if let Some(output) = keeper.stdout.take() {
            BufReader::new(output).read_line(&mut answer).context("cannot read from a process")?;
        }
        let mut cell = Self { keeper, path: PathBuf::new() };
        match serde_json::from_str(&answer).context("the cgroup's keeper ended")? {
            Answer::Made(path) => cell.path = path,
            Answer::Refused(reason) => return Ok(Err(reason)),
        }
        Ok(Ok(cell))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait(); // It has been started, so it can be waited for.
    }
}

/// What the keeper is told.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct KeeperArgs {
    bytes: u64,
    #[arg(long)]
    swap: Option<Wanted>,
}

/// The keeper: makes a cgroup and perhaps a swap device, prints the path of the cgroup, and removes
/// both when its standard input ends.
pub(crate) fn keep(args: KeeperArgs) -> Result<()> {
    let made = args.swap.map(SwapDevice::make).transpose().and_then(|device| {
        let group = Cgroup::limited_to(args.bytes, device.is_some())?;
        Ok((group, device)) // Dropped in this order: first the processes that swap there.
    });
    let answer = match &made {
        Ok((group, _)) => Answer::Made(group.path().to_owned()),
        Err(error) => Answer::Refused(format!("{error:#}")),
    };
    say(&(serde_json::to_string(&answer)? + "\n"))?;
    if let Ok((group, Some(_))) = &made {
        let watch = OomWatch::of(group.path());
        thread::spawn(|| watch.run()); // It ends with this process.
    }
    io::stdin().read_to_end(&mut Vec::new()).context("cannot read from standard input")?;
    Ok(())
}

/// What a subject's process does first.
pub(crate) fn join(group: Option<&Path>) -> Result<()> {
    group.map_or(Ok(()), cgroup::join)
}
