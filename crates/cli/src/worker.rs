//! One thread of a run: reads, measures, checks.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::time::Instant;

use crate::accesses::{Access, Accesses};
use crate::content::{Content, Mismatch, first_difference};

/// A longer read is done in pieces, so that a trace can't make our buffers larger than the budget.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A longer latency is counted as this one.
const LATENCY_NS_MAX: u64 = 1_000_000_000_000;

/// Significant digits of latencies.
const LATENCY_DIGITS: u8 = 3;

/// What the threads of a run and the one that watches them share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// All are to end.
    stop: AtomicBool,
    /// Operations done by each thread.
    ops: Box<[Counter]>,
    /// Threads that haven't ended.
    running: Mutex<usize>,
    /// `running` has become 0.
    all_ended: Condvar,
}

/// A counter on a cache line pair of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl Shared {
    /// For so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            ops: (0..threads).map(|_| Counter::default()).collect(),
            running: Mutex::new(threads),
            all_ended: Condvar::default(),
        }
    }

    /// Operations done by all threads.
    pub(crate) fn ops(&self) -> u64 {
        // Relaxed: a figure for the live line, exact enough at any age.
        self.ops.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    /// Waits for the threads to end, for `time` at most. Says whether some are still running.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut running = self.running.lock();
        if *running > 0 {
            self.all_ended.wait_for(&mut running, time);
        }
        *running > 0
    }

    /// Has all threads end after their current read.
    pub(crate) fn stop(&self) {
        // Relaxed: nothing is published with it.
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What bytes are compared with.
#[derive(Debug)]
pub(crate) enum Checker {
    /// Nothing.
    Off,
    /// What we made the file of.
    Content(Content),
    /// What the kernel reads from it.
    File { file: std::fs::File, buffer: Vec<u8> },
}

/// Why a read is no success.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Pagefold says so.
    Pagefold(pagefold::Error),
    /// Fewer bytes came than the file had when we looked.
    Short { got: u64, wanted: u64 },
    /// A byte is wrong.
    Mismatch(Mismatch),
    /// The kernel couldn't read what we compare with.
    Compare(std::io::Error),
}

/// The read that ended the run.
#[derive(Debug)]
pub(crate) struct FailedRead {
    pub(crate) access: Access,
    pub(crate) fault: Fault,
}

/// What one thread did for one group.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
    /// Not done, because they begin at or past the end of the file.
    pub(crate) past_end: u64,
    /// Shortened, because they reach past the end of the file.
    pub(crate) cut: u64,
    /// Time of the thread on a CPU.
    pub(crate) cpu: Duration,
}

impl Tally {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        let latency_ns = Histogram::new_with_max(LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are valid");
        Self { latency_ns, ops: 0, bytes: 0, past_end: 0, cut: 0, cpu: Duration::ZERO }
    }

    /// Adds another thread's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.latency_ns.add(&other.latency_ns).expect("all histograms have the same bounds");
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.past_end += other.past_end;
        self.cut += other.cut;
        self.cpu += other.cpu;
    }
}

/// What one thread did.
#[derive(Debug)]
pub(crate) struct WorkerResult {
    /// By number of the group; `None` for groups that it never read for.
    pub(crate) tallies: Vec<Option<Box<Tally>>>,
    pub(crate) failed: Option<FailedRead>,
}

/// One thread before it runs.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) accesses: Accesses,
    /// By number of the group.
    pub(crate) files: Arc<Vec<pagefold::File>>,
    /// Bytes of the file that may be read.
    pub(crate) size: u64,
    pub(crate) checker: Checker,
    pub(crate) ops_max: Option<u64>,
    pub(crate) start: Instant,
    pub(crate) time_max: Option<Duration>,
    pub(crate) shared: Arc<Shared>,
}

impl Worker {
    /// Reads until the accesses, the time or the patience of the user end.
    pub(crate) fn run(mut self) -> WorkerResult {
        let _ended = Ended(Arc::clone(&self.shared));
        let mut result = WorkerResult { tallies: vec![None; self.files.len()], failed: None };
        let cpu_before = thread_cpu();
        let mut buffer = Vec::new();
        let mut ops = 0;
        // Relaxed: see `stop`.
        while !self.shared.stop.load(Ordering::Relaxed) && self.ops_max.is_none_or(|max| ops < max) {
            let Some(access) = self.accesses.next() else { break };
            let tally = result.tallies[access.group].get_or_insert_with(|| Box::new(Tally::new()));
            let now = match self.serve(access, &mut buffer, tally) {
                Ok(now) => now,
                Err(fault) => {
                    self.shared.stop();
                    result.failed = Some(FailedRead { access, fault });
                    break;
                }
            };
            ops += 1;
            // Relaxed: this thread alone writes it; see `Shared::ops`.
            self.shared.ops[self.number].0.store(ops, Ordering::Relaxed);
            if self.time_max.is_some_and(|max| now >= max) {
                break;
            }
        }
        share_cpu(thread_cpu().saturating_sub(cpu_before), &mut result.tallies);
        result
    }

    /// One operation: the part of it that lies in the file. Says when the read ended, in time since the start.
    fn serve(&mut self, access: Access, buffer: &mut Vec<u8>, tally: &mut Tally) -> Result<Duration, Fault> {
        let mut now = self.start.elapsed();
        let wanted = access.len.min(self.size.saturating_sub(access.offset));
        if access.len > 0 && wanted == 0 {
            tally.past_end += 1;
            return Ok(now);
        }
        let mut latency = Duration::ZERO;
        let mut done = 0;
        while done < wanted {
            let piece = (wanted - done).min(PIECE_BYTES_MAX) as usize;
            if buffer.len() < piece {
                buffer.resize(piece, 0);
            }
            let buffer = &mut buffer[..piece];
            let offset = access.offset + done;
            let before = self.start.elapsed();
            let got = self.files[access.group].read_at(buffer, offset).map_err(Fault::Pagefold)?;
            now = self.start.elapsed();
            latency += now.saturating_sub(before);
            if got < piece {
                return Err(Fault::Short { got: done + got as u64, wanted });
            }
            self.checker.check(offset, buffer)?;
            done += piece as u64;
        }
        tally.latency_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        tally.ops += 1;
        tally.bytes += wanted;
        tally.cut += u64::from(wanted < access.len);
        Ok(now)
    }
}

impl Checker {
    fn check(&mut self, offset: u64, read: &[u8]) -> Result<(), Fault> {
        let mismatch = match self {
            Self::Off => None,
            Self::Content(content) => content.check(offset, read),
            Self::File { file, buffer } => {
                if buffer.len() < read.len() {
                    buffer.resize(read.len(), 0);
                }
                let expected = &mut buffer[..read.len()];
                file.read_exact_at(expected, offset).map_err(Fault::Compare)?;
                first_difference(offset, expected, read)
            }
        };
        mismatch.map_or(Ok(()), |mismatch| Err(Fault::Mismatch(mismatch)))
    }
}

/// Counts the thread as ended, also if it panics.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut running = self.0.running.lock();
        *running -= 1;
        if *running == 0 {
            self.0.all_ended.notify_all();
        }
    }
}

/// Time that this thread was on a CPU.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Divides a thread's time among its groups by their operations.
fn share_cpu(cpu: Duration, tallies: &mut [Option<Box<Tally>>]) {
    let ops: u64 = tallies.iter().flatten().map(|tally| tally.ops).sum();
    for tally in tallies.iter_mut().flatten() {
        tally.cpu = cpu.mul_f64(tally.ops as f64 / ops.max(1) as f64);
    }
}
