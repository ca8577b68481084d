//! `scan`: does reading a large file once drive out what is in use?

use std::hint::spin_loop;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::labels::percent;
use crate::output::progress;
use crate::peers::contents::Contents;
use crate::peers::data_file::DataFile;
use crate::peers::report::Report;
use crate::peers::subject::{Operation, Subject};
use crate::peers::subjects::{Kind, Plan};
use crate::popularity::{Distribution, Popularity};
use crate::summary::Summary;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    /// The budget in pages. The hot file has half as many pages, the scanned file ten times as
    /// many.
    pub(crate) budget_pages: u32,
    pub(crate) rounds: u32,
    /// The hot file's place, if the user chose one. The scanned file is always temporary.
    pub(crate) file: Option<PathBuf>,
}

const WORKLOAD: &str = "hot: half the budget; scan: ten budgets";
const SCANNED_BUDGETS: u32 = 10;
/// Accesses that one thread may be ahead of the other.
const STRIDE: usize = 64;

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Report> {
    let mut report = Report::new("scan", "hot_hit_ratio", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("scan", settings.rounds as usize * settings.kinds.len());
    let hot_pages = settings.budget_pages / 2;
    let hot = DataFile::new(settings.file.as_deref(), hot_pages, Contents::Zeros)?;
    let scanned = DataFile::new(None, SCANNED_BUDGETS * settings.budget_pages, Contents::Zeros)?;
    let plan = Plan { data: &hot, scanned: Some(&scanned), budget_pages: settings.budget_pages };
    let popularity = Popularity::new(Distribution::Uniform, hot_pages);
    let scan: Vec<u32> = (hot_pages..hot_pages + scanned.pages()).collect();
    let mut ratios = vec![(Vec::new(), Vec::new()); settings.kinds.len()];
    for round in 0..settings.rounds {
        let warm_up = popularity.accesses(8 * hot_pages as usize, 1_000 + u64::from(round));
        let accesses = popularity.accesses(scan.len(), u64::from(round));
        for (kind, (hits, misses)) in settings.kinds.iter().zip(&mut ratios) {
            let name = kind.name();
            bar.set_message(name.clone());
            let subject = kind.build(&plan).with_context(|| format!("cannot set {name} up"))?;
            subject.run(Operation::Read8, &warm_up).with_context(|| format!("{name} failed"))?;
            let before = subject.misses();
            side_by_side(&*subject, &accesses, &scan).with_context(|| format!("{name} failed"))?;
            let after = subject.misses();
            hits.push(100.0 - percent(after.main - before.main, accesses.len() as u64));
            misses.push(percent(after.scanned - before.scanned, scan.len() as u64));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for (kind, (hits, misses)) in settings.kinds.iter().zip(ratios) {
        report.add(&kind.subject(), WORKLOAD, "hot_hit_ratio", "%", Summary::of(hits));
        report.add(&kind.subject(), WORKLOAD, "scan_miss_ratio", "%", Summary::of(misses));
    }
    Ok(report)
}

/// One thread reads 8 bytes of hot pages, another one reads scanned pages in full. Both proceed at
/// the same pace.
fn side_by_side(subject: &dyn Subject, hot: &[u32], scan: &[u32]) -> Result<()> {
    ensure!(hot.len() == scan.len(), "both threads do the same number of accesses");
    let pace = Pace::default();
    thread::scope(|scope| {
        let scanner = scope.spawn(|| pace.walk(1, scan, |part| subject.run(Operation::Read4096, part)));
        let reader = pace.walk(0, hot, |part| subject.run(Operation::Read8, part));
        let scanner = scanner.join().map_err(|_| anyhow!("the scanning thread panicked"))?;
        reader.and(scanner)
    })
}

/// Keeps two threads within a stride of each other.
#[derive(Debug, Default)]
struct Pace {
    strides: [AtomicUsize; 2],
    failed: AtomicBool,
}

impl Pace {
    /// Calls `step` with `accesses` stride by stride, as thread `own` of the two.
    fn walk(&self, own: usize, accesses: &[u32], step: impl Fn(&[u32]) -> Result<u64>) -> Result<()> {
        let alarm = Alarm(&self.failed);
        for (number, part) in accesses.chunks(STRIDE).enumerate() {
            self.wait_for(1 - own, number)?;
            step(part)?;
            // Relaxed, like all accesses in `Pace`: the number only says how far a thread is. The
            // subject orders accesses to its pages itself.
            self.strides[own].store(number + 1, Ordering::Relaxed);
        }
        std::mem::forget(alarm);
        Ok(())
    }

    fn wait_for(&self, other: usize, stride: usize) -> Result<()> {
        let mut spins = 0_u32;
        while self.strides[other].load(Ordering::Relaxed) < stride {
            if self.failed.load(Ordering::Relaxed) {
                bail!("the other thread failed");
            }
            spins += 1;
            if spins.is_multiple_of(256) { thread::yield_now() } else { spin_loop() }
        }
        Ok(())
    }
}

/// Dropping this tells the other thread that this one has failed, by an error or a panic; the other
/// thread would wait for ever otherwise. On success, the value is forgotten (`mem::forget`).
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn about(settings: &Settings) -> String {
    format!(
        "Budget {} pages. One thread reads 8 bytes of random pages of a hot file of half the budget, another one \
         scans a \
         file of {SCANNED_BUDGETS} budgets once, page by page, at the same rate. Share of hot reads that hit, {} \
         rounds.",
        settings.budget_pages, settings.rounds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_walkers_stay_in_step_and_stop_when_one_fails() {
        let pace = Pace::default();
        let accesses = vec![0; STRIDE * 10];
        thread::scope(|scope| {
            let other = scope.spawn(|| pace.walk(1, &accesses, |_| Ok(0)));
            let steps = AtomicUsize::new(0);
            let failing = pace.walk(0, &accesses, |_| {
                let step = steps.fetch_add(1, Ordering::Relaxed);
                if step == 4 { bail!("enough") } else { Ok(0) }
            });
            assert_eq!(failing.unwrap_err().to_string(), "enough");
            assert_eq!(other.join().unwrap().unwrap_err().to_string(), "the other thread failed");
        });
    }
}
