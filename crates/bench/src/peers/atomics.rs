//! `hit-atomics`: how many atomic read-modify-writes, and instructions in all, does a hit execute?
//!
//! No lock is taken on x86-64 without an atomic read-modify-write, so none of those means no lock. They are counted,
//! not estimated: each subject runs in a process of its own whose every instruction is looked at.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::hit::resident;
use crate::output::progress;
use crate::peers::accesses::{Distribution, Popularity};
use crate::peers::contents::Contents;
use crate::peers::data_file::DataFile;
use crate::peers::report::Report;
use crate::peers::stepper::{self, Count};
use crate::peers::subject::Operation;
use crate::peers::subjects::Kind;
use crate::summary::Summary;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    /// Resident pages.
    pub(crate) pages: u32,
    /// Hits to count.
    pub(crate) ops: usize,
    pub(crate) file: Option<PathBuf>,
}

/// The hidden command with which the program starts itself.
pub(crate) const CHILD_COMMAND: &str = "count-child";

/// Subjects whose hits are worth counting if nobody says which.
pub(crate) fn usual() -> Vec<Kind> {
    Kind::all().into_iter().filter(|kind| !matches!(kind, Kind::ArrayHuge | Kind::Mmap | Kind::Pread)).collect()
}

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Report> {
    let mut report = Report::new("hit-atomics", "atomic_rmw", about(settings));
    let data = DataFile::new(settings.file.as_deref(), settings.pages, Contents::Pattern)?;
    let bar = progress("atomics", settings.kinds.len());
    for &kind in &settings.kinds {
        bar.set_message(kind.name());
        let count = count(kind, settings, data.path()).with_context(|| format!("cannot count {}", kind.name()))?;
        let label = format!("{}8 B, uniform, 1 thread", kind.way());
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
    stepper::count(&mut command)
}

/// What the traced process does: everything resident, one run to warm up, then hits between two breakpoints.
pub(crate) fn child(kind: Kind, pages: u32, ops: usize, file: &Path) -> Result<()> {
    let data = DataFile::new(Some(file), pages, Contents::Pattern)?;
    let subject = resident(kind, &data)?;
    let accesses = Popularity::new(Distribution::Uniform, pages).accesses(ops, 0);
    subject.run(Operation::Read8, &accesses)?;
    let before = subject.misses();
    stepper::breakpoint();
    let ran = subject.run(Operation::Read8, &accesses);
    stepper::breakpoint();
    ran?;
    ensure!(subject.misses() == before, "not only hits were counted");
    Ok(())
}

fn about(settings: &Settings) -> String {
    format!(
        "Instructions executed for each of {} hits of 8 bytes among {} resident pages, by single-stepping the thread; the \
         loop around the hit is included (see array). Counts per operation.",
        settings.ops, settings.pages
    )
}
