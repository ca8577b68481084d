//! `hit-atomics`, `miss-atomics`: how many atomic read-modify-writes, and instructions in all, does
//! an access execute?
//!
//! On x86-64, taking a lock needs an atomic read-modify-write, so an access without any takes no
//! lock. The instructions are counted rather than estimated: each subject runs in a process of its
//! own, which the kernel stops at every instruction.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{hit, miss};
use crate::output::progress;
use crate::peers::contents::Contents;
use crate::peers::data_file::DataFile;
use crate::peers::report::Report;
use crate::peers::subject::{Operation, Subject};
use crate::peers::subjects::Kind;
use crate::popularity::{Distribution, Popularity};
use crate::stepper::{self, Count};
use crate::summary::Summary;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Reads of 8 bytes, all pages resident.
    Hits,
    /// Reads of whole pages, a quarter of them resident.
    Misses,
}

impl Counted {
    /// Of [`CountChild`](crate::peers::cli::CountChild)'s.
    pub(crate) fn of(misses: bool) -> Self {
        if misses { Self::Misses } else { Self::Hits }
    }

    fn operation(self) -> Operation {
        match self {
            Self::Hits => Operation::Read8,
            Self::Misses => Operation::Read4096,
        }
    }

    fn filled(self, kind: Kind, data: &DataFile) -> Result<Box<dyn Subject>> {
        match self {
            Self::Hits => hit::resident(kind, data),
            Self::Misses => miss::filled(kind, data, &Popularity::new(Distribution::Uniform, data.pages())),
        }
    }
}

/// How the experiment is done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) counted: Counted,
    pub(crate) kinds: Vec<Kind>,
    /// Pages of the file.
    pub(crate) pages: u32,
    /// Accesses to count.
    pub(crate) ops: usize,
    pub(crate) file: Option<PathBuf>,
}

/// The hidden command with which the program starts itself.
pub(crate) const CHILD_COMMAND: &str = "count-child";

/// Subjects whose hits are worth counting if the user names none.
pub(crate) fn usual() -> Vec<Kind> {
    Kind::all().into_iter().filter(|kind| !matches!(kind, Kind::ArrayHuge | Kind::Mmap | Kind::Pread)).collect()
}

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Report> {
    let name = if settings.counted == Counted::Hits { "hit-atomics" } else { "miss-atomics" };
    let mut report = Report::new(name, "atomic_rmw", about(settings));
    let data = DataFile::new(settings.file.as_deref(), settings.pages, Contents::Pattern)?;
    let bar = progress("atomics", settings.kinds.len());
    for &kind in &settings.kinds {
        bar.set_message(kind.name());
        let count = count(kind, settings, data.path()).with_context(|| format!("cannot count {}", kind.name()))?;
        let label = format!("{}{}, uniform, 1 thread", kind.way(), settings.counted.operation().label());
        let figures =
            [("atomic_rmw", count.atomics), ("instructions", count.instructions), ("system_calls", count.system_calls)];
        for (metric, value) in figures {
            let per_op = Summary::exact(value as f64 / settings.ops as f64);
            report.add(&kind.subject(), &label, metric, "count", per_op);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(report)
}

fn count(kind: Kind, settings: &Settings, data: &Path) -> Result<Count> {
    let program = env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args([CHILD_COMMAND, "--subject", &kind.name()]);
    command.args(["--pages", &settings.pages.to_string(), "--ops", &settings.ops.to_string()]);
    command.arg("--file").arg(data);
    if settings.counted == Counted::Misses {
        command.arg("--misses");
    }
    stepper::count(&mut command)
}

/// What the traced process does: it sets up the subject, runs the accesses once to warm up, and
/// then runs them again between two breakpoints. What happens between these is counted.
pub(crate) fn child(counted: Counted, kind: Kind, pages: u32, ops: usize, file: &Path) -> Result<()> {
    let data = DataFile::new(Some(file), pages, Contents::Pattern)?;
    let subject = counted.filled(kind, &data)?;
    let accesses = Popularity::new(Distribution::Uniform, pages).accesses(ops, 0);
    subject.run(counted.operation(), &accesses)?;
    let before = subject.misses();
    stepper::breakpoint();
    let ran = subject.run(counted.operation(), &accesses);
    stepper::breakpoint();
    ran?;
    ensure!(counted == Counted::Misses || subject.misses() == before, "not only hits were counted");
    Ok(())
}

fn about(settings: &Settings) -> String {
    let Settings { ops, pages, .. } = settings;
    let counted = match settings.counted {
        Counted::Hits => format!("{ops} hits of 8 bytes among {pages} resident pages"),
        Counted::Misses => format!("{ops} reads of whole pages of {pages}, a quarter of which are resident"),
    };
    format!(
        "Instructions executed for each of {counted}, by single-stepping the thread, outside the kernel; the loop \
         around \
         the access is included. Counts per operation."
    )
}
