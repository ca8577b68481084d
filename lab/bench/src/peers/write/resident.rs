//! The cost of a write to a page that is in memory and was written to before: a page of a file, of
//! the same file mapped into a space, and of anonymous memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pagefold::{Error, Protection};

use crate::output::progress;
use crate::peers::contents::{PAGE, offset_of};
use crate::peers::measure::thread_cpu;
use crate::peers::report::Report;
use crate::peers::scratch::Scratch;
use crate::peers::write::Settings;
use crate::peers::write::stores::Store;
use crate::peers::write::stores::pagefold::PagefoldStore;
use crate::random::Random;
use crate::summary::Summary;

/// `1 / SHARE` of the budget is written to, which is too little for writers to be throttled.
const SHARE: u32 = 8;
/// Writes between two looks at the clock.
const CHUNK: u32 = 256;

/// Writes bytes at a place.
type Write<'a> = &'a dyn Fn(&[u8], u64) -> Result<(), Error>;

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write-resident", "cpu_per_write", about(settings));
    report.rounds = Some(settings.rounds);
    let pages = settings.budget_pages / SHARE;
    let scratch = Scratch::filled(directory, pages)?;
    let store = PagefoldStore::new(&scratch, settings.budget_pages)?;
    let space = store.group.space()?;
    let memory = space.map(offset_of(pages), Protection::ReadWrite)?.start;
    let mapped = space.map_file(&store.file, 0, offset_of(pages), Protection::ReadWrite)?.start;
    let ways: [(&str, Write<'_>); 3] = [
        ("a file", &|bytes, at| store.file.write_at(bytes, at)),
        ("a mapped file", &|bytes, at| space.write_at(bytes, mapped + at)),
        ("anonymous memory", &|bytes, at| space.write_at(bytes, memory + at)),
    ];
    for _ in 0..2 {
        for page in 0..pages {
            store.write(page, &[page as u8; PAGE])?;
            space.write_at(&[page as u8; PAGE], memory + offset_of(page)).context("cannot fill memory")?;
        }
    }
    let bar = progress("resident", settings.rounds as usize);
    let mut rounds: [Vec<[f64; 2]>; 3] = Default::default();
    for _ in 0..settings.rounds {
        for ((_, write), rounds) in ways.iter().zip(&mut rounds) {
            let time = settings.reading;
            rounds.push([cpu_ns::<8>(write, pages, time)?, cpu_ns::<PAGE>(write, pages, time)?]);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    for ((way, _), rounds) in ways.iter().zip(&rounds) {
        for (column, label) in ["8 B", "4 KiB"].into_iter().enumerate() {
            let value = Summary::of(rounds.iter().map(|round| round[column]));
            report.add("pagefold", &format!("{way}, {label}, uniform"), "cpu_per_write", "ns", value);
        }
    }
    report.legend = "cpu_per_write: CPU time of the thread that writes.".to_owned();
    Ok(report)
}

/// Writes `N` bytes to random pages among the first `pages`, for `time`. Returns the CPU time of a
/// write.
fn cpu_ns<const N: usize>(write: Write<'_>, pages: u32, time: Duration) -> Result<f64> {
    let (mut random, bytes) = (Random::new(5), [7; N]);
    let (start, cpu) = (Instant::now(), thread_cpu());
    let mut writes = 0_u64;
    while writes == 0 || start.elapsed() < time {
        for _ in 0..CHUNK {
            write(&bytes, offset_of(random.below(pages)))?;
        }
        writes += u64::from(CHUNK);
    }
    Ok(thread_cpu().saturating_sub(cpu).as_nanos() as f64 / writes as f64)
}

fn about(settings: &Settings) -> String {
    format!(
        "One thread overwrites the start of random ones of {} resident pages that were written before, for {} s. {} \
         rounds in turn. \
         Median (min-max).",
        settings.budget_pages / SHARE,
        settings.reading.as_secs_f64(),
        settings.rounds
    )
}
