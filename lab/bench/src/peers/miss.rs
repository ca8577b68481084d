//! `miss`: what do a miss and an eviction cost if the file is four times as large as the budget?

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::interleave::{self, Contestant, Reference, Workload};
use super::labels::{percent, threads_label};
use crate::output::progress;
use crate::peers::contents::Contents;
use crate::peers::data_file::DataFile;
use crate::peers::measure::Effort;
use crate::peers::report::Report;
use crate::peers::subject::{Operation, Subject, verify};
use crate::peers::subjects::{Kind, Plan};
use crate::popularity::{Distribution, Popularity};
use crate::summary::Summary;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    /// Pages of the file; a quarter of them is the budget.
    pub(crate) pages: u32,
    pub(crate) threads: Vec<usize>,
    pub(crate) rounds: u32,
    pub(crate) effort: Effort,
    /// Accesses in a sequence.
    pub(crate) sequence: usize,
    pub(crate) file: Option<PathBuf>,
}

const REFERENCES: [Reference; 1] = [Reference { kind: Kind::Pread, name: "pread" }];

/// Subjects that make sense here.
pub(crate) fn possible() -> Vec<Kind> {
    [Kind::Pread, Kind::BareCopies].into_iter().chain(Kind::evicting()).collect()
}

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Report> {
    let mut report = Report::new("miss", "cpu_ratio_pread", about(settings));
    report.rounds = Some(settings.rounds);
    let kinds = interleave::with_references(&settings.kinds, &REFERENCES);
    let bar = progress("miss", settings.threads.len() * settings.rounds as usize * kinds.len());
    bar.set_message("writing the file");
    let data = DataFile::new(settings.file.as_deref(), settings.pages, Contents::Pattern)?;
    let popularity = Popularity::new(Distribution::Uniform, settings.pages);
    let mut contestants = Vec::new();
    for kind in kinds {
        bar.set_message(format!("filling {}", kind.name()));
        contestants.push(Contestant { kind, subject: filled(kind, &data, &popularity)? });
    }
    for &threads in &settings.threads {
        let workload = Workload {
            label: format!("4 KiB, uniform, {}", threads_label(threads)),
            operation: Operation::Read4096,
            sequences: interleave::sequences(&popularity, threads, settings.sequence),
        };
        let results = interleave::time(&contestants, &workload, settings.rounds, settings.effort, &bar)?;
        interleave::report(&mut report, &workload, &results, &REFERENCES);
        for result in results.iter().filter(|result| result.kind != Kind::Pread) {
            let ops = result.timings.iter().map(|timing| timing.ops).sum();
            let ratio = Summary::exact(percent(result.misses, ops));
            report.add(&result.kind.subject(), &workload.label, "miss_ratio", "%", ratio);
        }
    }
    bar.finish_and_clear();
    if settings.kinds.contains(&Kind::Pagefold) {
        let note = "pagefold's budget includes its metadata, the others' count pages only";
        report.notes.push(note.to_owned());
    }
    Ok(report)
}

/// A subject with room for a quarter of `data`'s pages, after many misses: about six times as many
/// as it has room for. So it is full, and its allocations are in a steady state.
pub(super) fn filled(kind: Kind, data: &DataFile, popularity: &Popularity) -> Result<Box<dyn Subject>> {
    let plan = Plan { data, scanned: None, budget_pages: data.pages() / 4 };
    let warm_up = popularity.accesses(2 * data.pages() as usize, 99);
    let subject = kind.build(&plan).with_context(|| format!("cannot set {} up", kind.name()))?;
    subject.run(Operation::Read4096, &warm_up).with_context(|| format!("cannot fill {}", kind.name()))?;
    verify(&*subject, &kind.name(), data.contents(), &warm_up[..warm_up.len().min(1_000)])?;
    Ok(subject)
}

fn about(settings: &Settings) -> String {
    format!(
        "A file of {} pages, a budget of {}, whole pages read at random. Times per operation, CPU of all threads and \
         the \
         kernel; ratios to one pread per access, taken within each of {} rounds. Median (min-max).",
        settings.pages,
        settings.pages / 4,
        settings.rounds
    )
}
