//! One run: a budget, its groups, the threads, and the outcome.

use std::time::Duration;

use anyhow::{Context, anyhow};
use pagefold::io::{IoError, Posix};
use pagefold::{Group, Pagefold};
use rustix::io::Errno;
use sync::Arc;
use sync::thread::JoinHandle;
use sync::time::Instant;
use test_disks::SimulatedDisk;

use crate::backend;
use crate::checker::{Before, Checker};
use crate::choices::{Advised, BackendChoice, SwapChoice, SwapOptions};
use crate::explain::explain;
use crate::failure::{Failure, refused};
use crate::live::{self, Live};
use crate::page_order::Done;
use crate::plan::{GroupPlan, Plan};
use crate::process;
use crate::report::{RunReport, SwapReport, Totals, WriteBack};
use crate::reread::{Expected, Source};
use crate::room::Room;
use crate::shared::Shared;
use crate::signals;
use crate::stamp::Stamps;
use crate::subject::{Memory, Subject};
use crate::syncer;
use crate::tally::Tally;
use crate::target::Target;
use crate::worker::{Extent, Worker, WorkerResult, Writer};
use crate::write_back;
use crate::write_log::WriteLog;

/// How often the watching thread checks for signals and draws the live line.
const TICK: Duration = Duration::from_millis(100);

/// The settings that all runs have in common.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) sync_every: Option<Duration>,
    /// The maximum number of operations that a thread has in flight.
    pub(crate) depth: usize,
    pub(crate) backend: BackendChoice,
    pub(crate) advised: Advised,
    pub(crate) page_bytes: u64,
    pub(crate) io_timeout: Option<Duration>,
    pub(crate) pretouch: bool,
    pub(crate) verify: bool,
    pub(crate) quiet: bool,
    pub(crate) swap: &'a [SwapChoice],
    pub(crate) swap_options: SwapOptions,
}

/// The outcome of a run: its figures, even if the run was cut short, and the reason if it was.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) report: RunReport,
    pub(crate) metrics: String,
    pub(crate) done: Done,
    pub(crate) failure: Option<Failure>,
}

/// The parts of a run in progress.
struct Running {
    files: Arc<Vec<Subject>>,
    shared: Arc<Shared>,
    writer: Writer,
    start: Instant,
}

impl Setup<'_> {
    /// Executes a run with the budget of `room`.
    ///
    /// # Errors
    /// The reason why the run can't start. If the run ends early, the outcome has the reason.
    pub(crate) fn run(&self, room: Room, target: &Target) -> Result<Outcome, Failure> {
        let memory = room.budget;
        let (builder, disk) = backend::builder(self.backend, target)?;
        // The budget doesn't change, so no records need to be reserved for a larger one.
        let builder = builder.memory(memory).memory_max(memory).page_size(self.page_bytes).pretouch(self.pretouch);
        let builder = builder.io_timeout(self.io_timeout);
        let builder = self.swap.iter().fold(builder, |builder, swap| builder.swap_area(swap.area(self.swap_options)));
        let build = || builder.build().map_err(refused);
        let pagefold = match self.pretouch {
            true => live::spin_during(self.quiet, "touching the memory", || signals::while_nothing_is_lost(build))?,
            false => build()?,
        };
        let groups = groups(&pagefold, self.plan, room, self.page_bytes)?;
        let files = groups.iter().map(|group| self.open(group, target)).collect::<Result<Vec<_>, _>>()?;
        let len = files.first().map_or(0, Subject::len);
        let memory_at_end = files.first().filter(|_| target.is_memory()).cloned();
        let writer = Writer { stamps: Stamps::new(key()), mixed: Arc::default(), version: 0 };
        let checkers = self.checkers(target, &writer)?;

        process::reset_peak_rss();
        let live = Live::start(self.quiet, self.plan, memory);
        let running = Running {
            files: Arc::new(files),
            shared: Arc::new(Shared::new(self.plan.threads())),
            writer,
            start: Instant::now(),
        };
        let cpu_before = process::cpu();
        let syncer = self.sync_every.map(|every| syncer::start(every, &running.files, &running.shared)).transpose();
        let syncer = syncer.context("can't start the thread that syncs")?;
        let threads = self.start(&running, target, checkers)?;
        let interrupted = watch(&running.shared, || {
            let stats = pagefold.stats();
            live.draw(&running.shared, &stats);
            signals::set_unwritten(write_back::unclean_bytes(&stats));
        });
        let results = join(threads);
        let (wall, cpu) = (running.start.elapsed(), process::cpu().saturating_sub(cpu_before));
        live.finish();

        let results = results?;
        // Read now, because a sync that is still under way will make some of these bytes clean.
        let unclean: Vec<_> = groups.iter().map(|group| group.stats().unclean_bytes).collect();
        let tallies = tallies_by_group(&results, groups.len());
        let synced = tallies.iter().any(|tally| tally.syncs.ops > 0);
        let written_back = match self.plan.writes || synced {
            true => Some(write_back::run(&pagefold, &running.files, syncer, self.quiet)?),
            false => None,
        };
        let stats = pagefold.stats();
        let rows: Vec<_> = groups.iter().map(Group::stats).zip(tallies).collect();
        let totals = Totals { wall, cpu, peak_rss_bytes: process::peak_rss_bytes(), disk: disk_use(disk.as_ref()) };
        let mut report = RunReport::new(room, &stats, &rows, &totals);
        report.swap = (!self.swap.is_empty()).then(|| SwapReport::new(&stats));
        for ((row, group), unclean) in report.groups.iter_mut().zip(&self.plan.groups).zip(unclean) {
            row.pattern = group.pattern.map(|pattern| pattern.to_string());
            row.unclean_bytes = unclean;
        }
        report.write_back = written_back.as_ref().map(|written| WriteBack::new(written, &stats, &rows));
        report.total.unclean_bytes = written_back.as_ref().map_or(0, |written| written.unclean_bytes);

        let done = Done { ops: results.iter().map(|result| result.ops).collect(), extent: self.extent(target), len };
        let (failed, logs): (Vec<_>, Vec<_>) = results.into_iter().map(|result| (result.failed, result.log)).unzip();
        let failed = failed.into_iter().flatten().next().map(|failed| {
            let group = &self.plan.groups[failed.access.group].name;
            explain(failed, group, target).into()
        });
        let sync_failure = written_back.and_then(|written| written.error);
        let mut failure = failed
            .or_else(|| target.check_len().err().map(Failure::from))
            .or_else(|| sync_failure.map(|error| Failure::Failed(error.into())))
            .or(interrupted)
            .or_else(|| signals::check().err()); // A signal may have come after `watch` returned.
        let stamps = running.writer.stamps;
        drop(running); // Closes the file.
        signals::set_unwritten(0);
        if self.plan.writes && self.verify && failure.is_none() {
            match self.compare(target, disk.as_ref(), memory_at_end, stamps, &logs) {
                Ok(compared) => report.write_back.iter_mut().for_each(|back| back.compared_bytes = Some(compared)),
                Err(wrong) => {
                    // A check that a signal stopped has found no error.
                    let is_wrong = matches!(wrong, Failure::Failed(_));
                    report.write_back.iter_mut().for_each(|back| back.comparison_failed = is_wrong);
                    failure = Some(wrong);
                }
            }
        }
        Ok(Outcome { report, metrics: stats.to_prometheus(), done, failure })
    }

    /// Opens the file, or creates memory for it and fills it.
    fn open(&self, group: &Group, target: &Target) -> Result<Subject, Failure> {
        let Some(content) = target.content().filter(|_| target.is_memory()) else {
            let opened = group.open_options().write(self.plan.writes).open(target.path());
            let file = opened.map_err(|error| self.not_opened(error, target))?;
            file.advise(0..u64::MAX, self.advised.advice()).map_err(refused)?;
            return Ok(Subject::File(file));
        };
        let bar = live::bytes_bar(self.quiet, target.size(), "filling memory");
        let memory = Memory::filled(group, target.size(), content, |bytes| {
            bar.set_position(bytes);
            signals::check()
        });
        bar.finish_and_clear();
        memory.map(Subject::Memory)
    }

    /// Explains why the file couldn't be opened, and what the user can do.
    fn not_opened(&self, error: pagefold::Error, target: &Target) -> Failure {
        let path = target.path();
        match error {
            pagefold::Error::OpenFailed { error: IoError::Os(errno), .. }
                if self.backend == BackendChoice::Direct && errno == Errno::INVAL.raw_os_error() =>
            {
                Failure::Failed(anyhow!(
                    "can't open {}: its file system takes no direct I/O; --backend auto does without where it has to, \
                     --temp-dir puts a temporary file elsewhere",
                    path.display()
                ))
            }
            error => refused(error),
        }
    }

    /// Creates a checker for each thread, if anything is to be compared.
    fn checkers(&self, target: &Target, writer: &Writer) -> Result<Vec<Option<Checker>>, Failure> {
        if !self.verify {
            return Ok((0..self.plan.threads()).map(|_| None).collect());
        }
        let before = match target.content() {
            Some(content) => Before::Made { content, len: target.size() },
            None => Before::Kernel(Arc::new(open_to_compare(target)?)),
        };
        let checker = |number| {
            let before = before.clone();
            Some(if self.plan.writes {
                // There are at most 1024 threads.
                Checker::with_writes(before, writer.stamps, number as u16, Arc::clone(&writer.mixed))
            } else {
                Checker::new(before)
            })
        };
        Ok((0..self.plan.threads()).map(checker).collect())
    }

    fn start(
        &self,
        running: &Running,
        target: &Target,
        checkers: Vec<Option<Checker>>,
    ) -> Result<Vec<JoinHandle<WorkerResult>>, Failure> {
        let mut threads = Vec::new();
        for (number, (plan, checker)) in self.plan.workers.iter().zip(checkers).enumerate() {
            let worker = Worker {
                number,
                accesses: plan.accesses.clone(),
                files: Arc::clone(&running.files),
                extent: self.extent(target),
                checker,
                writer: running.writer.clone(),
                log: WriteLog::default(),
                ops_max: plan.ops_max,
                depth: self.depth,
                pending: None,
                start: running.start,
                time_max: self.plan.time,
                shared: Arc::clone(&running.shared),
            };
            match sync::thread::spawn(&format!("replay-{number}"), move || worker.run()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    running.shared.stop();
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                    return Err(anyhow!("can't start thread {} of {}: {error}", number + 1, self.plan.threads()).into());
                }
            }
        }
        Ok(threads)
    }

    /// Returns the part of the target that a run uses.
    fn extent(&self, target: &Target) -> Extent {
        let grows = self.plan.writes && target.size() == target.len() && !target.is_memory();
        Extent { size: target.size(), grows }
    }

    /// Reads the file once more, and compares it with the last writes. Returns the number of bytes
    /// compared.
    fn compare(
        &self,
        target: &Target,
        disk: Option<&SimulatedDisk>,
        memory: Option<Subject>,
        stamps: Stamps,
        logs: &[WriteLog],
    ) -> Result<u64, Failure> {
        let source = match (memory, disk) {
            (Some(memory), _) => Source::Memory(memory),
            (None, Some(disk)) => Source::after_power_cut(disk, target.path(), stamps.key())?,
            (None, None) => Source::System(open_to_compare(target)?),
        };
        let before = target.content().map(|content| Before::Made { content, len: target.size() });
        let len = logs.iter().map(WriteLog::end).fold(target.len(), u64::max);
        let bar = live::bytes_bar(self.quiet, len, "comparing the file");
        let compared = Expected { before, stamps, logs, len, page_bytes: self.page_bytes }
            .compare(&source, |bytes| bar.set_position(bytes));
        bar.finish_and_clear();
        compared.map_err(|failure| match failure {
            Failure::Failed(error) => error.context(format!("{} after the run", target.path().display())).into(),
            failure => failure,
        })
    }
}

fn open_to_compare(target: &Target) -> anyhow::Result<std::fs::File> {
    std::fs::File::open(target.open_path()).with_context(|| format!("can't read {}", target.path().display()))
}

/// Returns a number that differs for each run of each process.
fn key() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}

/// Fails if the sizes make a run impossible, whatever the accesses are. The check is cheap.
///
/// # Errors
/// Usage: sizes that are too small, or impossible.
pub(crate) fn check_sizes(plan: &Plan, room: Room, page_bytes: u64) -> Result<(), Failure> {
    let builder = Pagefold::builder().memory(room.budget).memory_max(room.budget).page_size(page_bytes);
    // No file is opened.
    let builder = builder.backend(Posix::default());
    let pagefold = builder.build().map_err(refused)?;
    plan.check_memory(room, page_bytes)?;
    groups(&pagefold, plan, room, page_bytes).map(drop)
}

fn groups(pagefold: &Pagefold, plan: &Plan, room: Room, page_bytes: u64) -> Result<Vec<Group>, Failure> {
    let build = |(group, limit): (&GroupPlan, u64)| pagefold.group(&group.name).max(limit).build().map_err(refused);
    plan.groups.iter().zip(plan.limits(room.shared, page_bytes)).map(build).collect()
}

/// Waits for the threads, and stops them on a signal.
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

fn join<T>(threads: Vec<JoinHandle<T>>) -> Result<Vec<T>, Failure> {
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
