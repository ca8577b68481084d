//! `miss-rate`: how well does each policy choose what to keep?

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::labels::percent;
use crate::output::progress;
use crate::peers::contents::Contents;
use crate::peers::data_file::DataFile;
use crate::peers::perfect_lfu::PerfectLfu;
use crate::peers::report::Report;
use crate::peers::subject::Operation;
use crate::peers::subjects::{Kind, Plan};
use crate::popularity::{Distribution, Popularity};
use crate::summary::Summary;
use crate::zipf::best_miss_ratio;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    /// Pages of the file; a quarter of them is the budget.
    pub(crate) pages: u32,
    pub(crate) rounds: u32,
    /// Accesses to warm up with, and again as many to count.
    pub(crate) ops: usize,
    pub(crate) file: Option<PathBuf>,
}

const EXPONENT: f64 = 0.99;
const WORKLOAD: &str = "zipf 0.99, a quarter fits";

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Report> {
    let mut report = Report::new("miss-rate", "miss_ratio", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("miss-rate", settings.rounds as usize * settings.kinds.len());
    let data = DataFile::new(settings.file.as_deref(), settings.pages, Contents::Zeros)?;
    let popularity = Popularity::new(Distribution::Zipf(EXPONENT), settings.pages);
    let plan = Plan { data: &data, scanned: None, budget_pages: settings.pages / 4 };
    let mut ratios = vec![Vec::new(); settings.kinds.len()];
    let mut perfect = Vec::new();
    for round in 0..settings.rounds {
        let sequence = popularity.accesses(2 * settings.ops, u64::from(round));
        let (warm_up, counted) = sequence.split_at(settings.ops);
        bar.set_message("perfect-lfu");
        let mut lfu = PerfectLfu::new(settings.pages, plan.budget_pages);
        lfu.misses(warm_up);
        perfect.push(percent(lfu.misses(counted), settings.ops as u64));
        for (kind, ratios) in settings.kinds.iter().zip(&mut ratios) {
            let name = kind.name();
            bar.set_message(name.clone());
            let subject = kind.build(&plan).with_context(|| format!("cannot set {name} up"))?;
            subject.run(Operation::Read8, warm_up).with_context(|| format!("{name} failed"))?;
            let before = subject.misses().main;
            subject.run(Operation::Read8, counted).with_context(|| format!("{name} failed"))?;
            ratios.push(percent(subject.misses().main - before, settings.ops as u64));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let best = 100.0 * best_miss_ratio(settings.pages, EXPONENT, plan.budget_pages);
    report.add("static-optimum", WORKLOAD, "miss_ratio", "%", Summary::exact(best));
    report.add("perfect-lfu", WORKLOAD, "miss_ratio", "%", Summary::of(perfect));
    for (kind, ratios) in settings.kinds.iter().zip(ratios) {
        report.add(&kind.subject(), WORKLOAD, "miss_ratio", "%", Summary::of(ratios));
    }
    Ok(report)
}

fn about(settings: &Settings) -> String {
    format!(
        "Zipf 0.99 over {} pages with a quarter of them in the budget, {} accesses to warm up and as many counted, by \
         one \
         thread, in {} rounds with different accesses. The optimum always holds the most popular pages that fit. \
         perfect-lfu, simulated, has exact counts of all accesses so far and keeps the pages with the highest ones: \
         how \
         far one gets without knowing the future.",
        settings.pages, settings.ops, settings.rounds
    )
}
