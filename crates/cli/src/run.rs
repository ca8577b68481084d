//! One run: a budget, its groups, the threads, and what came of it.

use std::time::Duration;

use anyhow::{Context, anyhow};
use pagefold::io::SimulatedDisk;
use pagefold::{Group, Pagefold};
use sync::Arc;
use sync::thread::JoinHandle;
use sync::time::Instant;

use crate::backend;
use crate::choices::BackendChoice;
use crate::failure::Failure;
use crate::live::Live;
use crate::plan::{GroupPlan, Plan};
use crate::process;
use crate::report::{RunReport, Totals};
use crate::signals;
use crate::target::Target;
use crate::worker::{Checker, FailedRead, Fault, Shared, Tally, Worker, WorkerResult};

/// How often the watching thread looks at the signals and draws the live line.
const TICK: Duration = Duration::from_millis(100);

/// What all runs have in common.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) target: &'a Target,
    pub(crate) backend: BackendChoice,
    pub(crate) page_bytes: u64,
    pub(crate) pretouch: bool,
    pub(crate) verify: bool,
    pub(crate) quiet: bool,
}

/// What came of a run: figures even if it was cut short, and why it was.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) report: RunReport,
    pub(crate) metrics: String,
    pub(crate) failure: Option<Failure>,
}

impl Setup<'_> {
    /// Runs within a budget of `memory` bytes.
    ///
    /// # Errors
    /// What prevents the run from starting; what ends it early is in the outcome.
    pub(crate) fn run(&self, memory: u64) -> Result<Outcome, Failure> {
        let (builder, disk) = backend::builder(self.backend, self.target)?;
        // The budget stays as it is, so nothing needs to be set aside for more.
        let builder = builder.memory(memory).memory_max(memory).page_size(self.page_bytes).pretouch(self.pretouch);
        let pagefold = builder.build().map_err(refused)?;
        let groups = groups(&pagefold, self.plan)?;
        let files = groups.iter().map(|group| group.open(self.target.open_path())).collect::<Result<Vec<_>, _>>();
        let files = Arc::new(files.map_err(refused)?);
        let checkers = (0..self.plan.threads()).map(|_| self.checker()).collect::<Result<Vec<_>, _>>()?;

        process::reset_peak_rss();
        let live = Live::start(self.quiet, self.plan, memory);
        let shared = Arc::new(Shared::new(self.plan.threads()));
        let (cpu_before, start) = (process::cpu(), Instant::now());
        let threads = self.start(&shared, &files, checkers, start)?;
        let interrupted = watch(&shared, || live.draw(&shared, &pagefold));
        let results = join(threads);
        let (wall, cpu) = (start.elapsed(), process::cpu().saturating_sub(cpu_before));
        live.finish();

        let results = results?;
        let tallies = tallies_by_group(&results, groups.len());
        let rows: Vec<_> = groups.iter().map(Group::stats).zip(tallies).collect();
        let totals = Totals { wall, cpu, peak_rss_bytes: process::peak_rss_bytes(), disk: disk_use(disk.as_ref()) };
        let mut report = RunReport::new(memory, &pagefold.stats(), &rows, &totals);
        for (row, group) in report.groups.iter_mut().zip(&self.plan.groups) {
            row.pattern = group.pattern.map(|pattern| pattern.to_string());
        }
        let failed = results.into_iter().find_map(|result| result.failed);
        let failure = match failed {
            Some(failed) => Some(self.explain(failed).into()),
            None => self.target.check_len().err().map(Failure::from).or(interrupted),
        };
        Ok(Outcome { report, metrics: pagefold.stats().to_prometheus(), failure })
    }

    fn checker(&self) -> Result<Checker, Failure> {
        if !self.verify {
            return Ok(Checker::Off);
        }
        if let Some(content) = self.target.content() {
            return Ok(Checker::Content(content));
        }
        let path = self.target.path();
        let file = std::fs::File::open(path).with_context(|| format!("can't read {}", path.display()))?;
        Ok(Checker::File { file, buffer: Vec::new() })
    }

    fn start(
        &self,
        shared: &Arc<Shared>,
        files: &Arc<Vec<pagefold::File>>,
        checkers: Vec<Checker>,
        start: Instant,
    ) -> Result<Vec<JoinHandle<WorkerResult>>, Failure> {
        let mut threads = Vec::new();
        for (number, (plan, checker)) in self.plan.workers.iter().zip(checkers).enumerate() {
            let worker = Worker {
                number,
                accesses: plan.accesses.clone(),
                files: Arc::clone(files),
                size: self.target.size(),
                checker,
                ops_max: plan.ops_max,
                start,
                time_max: self.plan.time,
                shared: Arc::clone(shared),
            };
            match sync::thread::spawn(&format!("replay-{number}"), move || worker.run()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    shared.stop();
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                    return Err(anyhow!("can't start thread {} of {}: {error}", number + 1, self.plan.threads()).into());
                }
            }
        }
        Ok(threads)
    }

    /// Says why a read failed, in terms of the user's file.
    fn explain(&self, failed: FailedRead) -> anyhow::Error {
        // A file that became shorter is the cause of any other complaint.
        if let Err(error) = self.target.check_len() {
            return error;
        }
        let FailedRead { access, fault } = failed;
        let group = &self.plan.groups[access.group].name;
        let place = format!("group {group}, {} bytes at {}", access.len, access.offset);
        let path = self.target.path().display();
        match fault {
            Fault::Pagefold(error) => anyhow!(error).context(place),
            Fault::Compare(error) => anyhow!(error).context(format!("{place}: can't read {path} to compare with it")),
            Fault::Short { got, wanted } => anyhow!("{place}: only {got} of {wanted} bytes of {path} came"),
            Fault::Mismatch(wrong) => anyhow!(
                "{place}: byte {} was read as {:#04x}, but {path} holds {:#04x}{}",
                wrong.offset,
                wrong.found,
                wrong.expected,
                if self.target.content().is_some() { "" } else { " (or another program is writing to it)" }
            ),
        }
    }
}

/// Fails if there can be no such run in `memory` bytes, whatever it reads; costs next to nothing.
///
/// # Errors
/// Usage: sizes that are too small, or not possible.
pub(crate) fn check_sizes(plan: &Plan, memory: u64, page_bytes: u64) -> Result<(), Failure> {
    let builder = Pagefold::builder().memory(memory).memory_max(memory).page_size(page_bytes);
    let pagefold = builder.build().map_err(refused)?;
    plan.check_memory(memory, page_bytes)?;
    groups(&pagefold, plan).map(drop)
}

fn groups(pagefold: &Pagefold, plan: &Plan) -> Result<Vec<Group>, Failure> {
    let build = |group: &GroupPlan| {
        let limit = plan.limit(group, pagefold.budget());
        pagefold.group(&group.name).max(limit).build().map_err(refused)
    };
    plan.groups.iter().map(build).collect()
}

/// Sizes that can't be had are the command line's fault, the rest is the machine's.
fn refused(error: pagefold::Error) -> Failure {
    use pagefold::Error;
    match error {
        Error::BadSize(_) | Error::BadPageSize { .. } | Error::TooSmall { .. } | Error::BudgetTooLarge { .. } => {
            Failure::usage(error.to_string())
        }
        error => Failure::Failed(error.into()),
    }
}

/// Waits for the threads, ending them on a signal.
fn watch(shared: &Shared, mut draw: impl FnMut()) -> Option<Failure> {
    let mut interrupted = None;
    while shared.wait(TICK) {
        if interrupted.is_none() {
            interrupted = signals::check().err();
            if interrupted.is_some() {
                shared.stop();
            }
        }
        draw();
    }
    interrupted
}

fn join(threads: Vec<JoinHandle<WorkerResult>>) -> Result<Vec<WorkerResult>, Failure> {
    let results: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    let results = results.into_iter().collect::<Result<Vec<_>, _>>();
    results.map_err(|_| anyhow!("a thread panicked: this is a bug in pagefold").into())
}

fn tallies_by_group(results: &[WorkerResult], groups: usize) -> Vec<Tally> {
    let sum = |group: usize| {
        let mut sum = Tally::new();
        results.iter().filter_map(|result| result.tallies[group].as_ref()).for_each(|tally| sum.add(tally));
        sum
    };
    (0..groups).map(sum).collect()
}

fn disk_use(disk: Option<&SimulatedDisk>) -> Option<Duration> {
    disk.map(|disk| Duration::from_nanos(disk.stats().busy_ns))
}
