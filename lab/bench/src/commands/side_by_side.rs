//! Makes the tables of the page of results in parallel. Each table is made by a process of its own,
//! because runs on virtual CPUs need fixed addresses, and a process has only one set of them.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::results_page::Page;
use crate::output::progress;

/// Makes each table by `bench virtual results --only TABLE` and these `arguments`. Makes `at_once`
/// tables at a time, and begins with those that have the most runs.
///
/// # Errors
/// The first failure. Tables that have been begun are still finished.
pub(crate) fn make(mut pages: Vec<Page>, at_once: usize, output: &Path, arguments: &[String]) -> Result<()> {
    pages.sort_by_key(|page| Reverse(page.runs()));
    let (all, start) = (pages.len(), Instant::now());
    let bar = progress("results", all);
    bar.enable_steady_tick(Duration::from_secs(1));
    let waiting = Mutex::new(VecDeque::from(pages));
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let forget = || waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let work = || -> Result<()> {
        while let Some(page) = take() {
            let (name, begun) = (page.name(), Instant::now());
            bar.set_message(name.clone());
            make_one(&name, output, arguments).inspect_err(|_| forget())?;
            bar.inc(1);
            let ([took, so_far], made) = ([begun, start].map(whole_seconds), bar.position());
            bar.suspend(|| eprintln!("bench: {name} took {took}; {made} of {all} after {so_far}"));
        }
        Ok(())
    };
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.min(all)).map(|_| scope.spawn(work)).collect();
        // The scope waits for those that are left after an error.
        let mut ended = workers.into_iter().map(|worker| worker.join());
        ended.try_for_each(|worker| worker.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    bar.finish_and_clear();
    done
}

fn whole_seconds(since: Instant) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(since.elapsed().as_secs()))
}

fn make_one(name: &str, output: &Path, arguments: &[String]) -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["virtual", "results", "--only", name, "--output"]).arg(output).args(arguments).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot begin the process that makes {name}"))?;
    if !output.status.success() {
        bail!("{name} can't be made: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
