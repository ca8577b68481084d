//! `hit`: everything is resident; what does finding it cost?

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::interleave::{self, Contestant, Reference, Workload};
use super::labels::threads_label;
use crate::output::progress;
use crate::peers::contents::Contents;
use crate::peers::data_file::DataFile;
use crate::peers::measure::Effort;
use crate::peers::report::Report;
use crate::peers::subject::{Operation, Subject, verify};
use crate::peers::subjects::{Kind, Plan};
use crate::popularity::{Distribution, Popularity};

/// How the experiment is done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) operations: Vec<Operation>,
    /// Resident pages.
    pub(crate) pages: u32,
    pub(crate) threads: Vec<usize>,
    pub(crate) rounds: u32,
    pub(crate) effort: Effort,
    /// Accesses in a sequence.
    pub(crate) sequence: usize,
    pub(crate) file: Option<PathBuf>,
}

const REFERENCES: [Reference; 2] =
    [Reference { kind: Kind::Array, name: "ordinary" }, Reference { kind: Kind::ArrayHuge, name: "huge" }];

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Report> {
    let mut report = Report::new("hit", "cpu_ratio_ordinary", about(settings));
    report.rounds = Some(settings.rounds);
    report.legend = legend(&settings.operations);
    let kinds = interleave::with_references(&settings.kinds, &REFERENCES);
    let mixes = mixes(settings);
    let bar = progress("hit", mixes.len() * settings.rounds as usize * kinds.len());
    let data = DataFile::new(settings.file.as_deref(), settings.pages, Contents::Pattern)?;
    let mut contestants = Vec::new();
    for kind in kinds {
        bar.set_message(format!("filling {}", kind.name()));
        contestants.push(Contestant { kind, subject: resident(kind, &data)? });
    }
    for (operation, distribution, threads) in mixes {
        let popularity = Popularity::new(distribution, settings.pages);
        let workload = Workload {
            label: format!("{}, {}, {}", operation.label(), distribution.label(), threads_label(threads)),
            operation,
            sequences: interleave::sequences(&popularity, threads, settings.sequence),
        };
        let results = interleave::time(&contestants, &workload, settings.rounds, settings.effort, &bar)?;
        for result in results.iter().filter(|result| result.misses > 0) {
            let (name, label) = (result.kind.name(), &workload.label);
            report.notes.push(format!("{name} missed {} times in {label}: not only hits", result.misses));
        }
        interleave::report(&mut report, &workload, &results, &REFERENCES);
    }
    bar.finish_and_clear();
    Ok(report)
}

/// A subject that has every page of `data` in memory. Its budget is twice as large, because the
/// shards of a cache are never equally full.
pub(super) fn resident(kind: Kind, data: &DataFile) -> Result<Box<dyn Subject>> {
    let plan = Plan { data, scanned: None, budget_pages: 2 * data.pages() };
    let subject = kind.build(&plan).with_context(|| format!("cannot set {} up", kind.name()))?;
    let pages: Vec<u32> = (0..data.pages()).collect();
    for _ in 0..2 {
        subject.run(Operation::Read4096, &pages).with_context(|| format!("cannot fill {}", kind.name()))?;
    }
    let sample = Popularity::new(Distribution::Uniform, data.pages()).accesses(1_000, 0);
    verify(&*subject, &kind.name(), data.contents(), &sample)?;
    Ok(subject)
}

/// Reads of 8 bytes are measured with each distribution and each number of threads; longer reads
/// only uniformly and with the first number of threads.
fn mixes(settings: &Settings) -> Vec<(Operation, Distribution, usize)> {
    let mut mixes = Vec::new();
    for &operation in &settings.operations {
        if matches!(operation, Operation::Read100 | Operation::Read4096) {
            mixes.push((operation, Distribution::Uniform, settings.threads[0]));
            continue;
        }
        for distribution in [Distribution::Uniform, Distribution::Zipf(0.99)] {
            mixes.extend(settings.threads.iter().map(|&threads| (operation, distribution, threads)));
        }
    }
    mixes
}

/// What the names of the reads mean.
fn legend(operations: &[Operation]) -> String {
    let meaning = |operation: &Operation| match operation {
        Operation::First8 => {
            "first 8 B: the start of each page, all in few cache sets, so that each access misses the caches (the \
             published tables' way)"
        }
        Operation::Read8 => "8 B: at varying places",
        Operation::Chained8 => "chained: each access waits for the bytes of the last",
        Operation::Read100 => "100 B: at varying places",
        Operation::Read4096 => "4 KiB: the whole page",
    };
    format!("Reads: {}.", operations.iter().map(meaning).collect::<Vec<_>>().join("; "))
}

fn about(settings: &Settings) -> String {
    format!(
        "{} resident pages of 4 KiB: find the page, copy bytes out, release it. Times per operation; ratios to the \
         same \
         copy from a raw array in ordinary and in huge pages, taken within each of {} rounds. Median (min-max).",
        settings.pages, settings.rounds
    )
}
