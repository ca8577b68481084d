//! One thread of a run: it reads, writes, syncs, measures and checks.

use std::ops::Range;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sync::Arc;
use sync::time::Instant;

use crate::accesses::{Access, Accesses};
use crate::checker::{Checker, Wrong};
use crate::shared::{Ended, Shared};
use crate::stamp::{MixedCells, Stamps};
use crate::subject::Subject;
use crate::tally::Tally;
use crate::trace_request::Op;
use crate::write_log::{Write, WriteLog};

/// Longer reads and writes are split into pieces of this size. Otherwise a trace could make a
/// thread's buffer larger than the budget.
pub(crate) const PIECE_BYTES_MAX: u64 = 1 << 20;

/// Why an operation failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Pagefold returned an error.
    Pagefold(pagefold::Error),
    /// The read returned fewer bytes than it had to, according to the file's length just before.
    Short { got: u64, wanted: u64 },
    /// The bytes are wrong.
    Wrong(Wrong),
}

/// The operation that ended the run.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) access: Access,
    pub(crate) fault: Fault,
}

/// The results of one thread.
#[derive(Debug)]
pub(crate) struct WorkerResult {
    /// Indexed by the group's number; `None` for groups that the thread never worked for.
    pub(crate) tallies: Vec<Option<Box<Tally>>>,
    pub(crate) log: WriteLog,
    /// Operations that were begun.
    pub(crate) ops: u64,
    pub(crate) failed: Option<Failed>,
}

/// The part of the file that a run uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The file's length at the beginning, or the length that the user wants used.
    pub(crate) size: u64,
    /// Writes may go past `size`, and reads follow.
    pub(crate) grows: bool,
}

/// The state of a thread's writes.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) stamps: Stamps,
    pub(crate) mixed: Arc<MixedCells>,
    /// The last version used.
    pub(crate) version: u64,
}

/// A thread's state before it runs.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) accesses: Accesses,
    /// Indexed by the group's number.
    pub(crate) files: Arc<Vec<Subject>>,
    pub(crate) extent: Extent,
    /// `None` if nothing is to be compared.
    pub(crate) checker: Option<Checker>,
    pub(crate) writer: Writer,
    pub(crate) log: WriteLog,
    pub(crate) ops_max: Option<u64>,
    /// The maximum number of operations in flight.
    pub(crate) depth: usize,
    /// The operation after the batch, which couldn't be part of it.
    pub(crate) pending: Option<Access>,
    pub(crate) start: Instant,
    pub(crate) time_max: Option<Duration>,
    pub(crate) shared: Arc<Shared>,
}

impl Worker {
    /// Works until the accesses or the time end, or the user stops the run.
    pub(crate) fn run(mut self) -> WorkerResult {
        let shared = Arc::clone(&self.shared);
        let _ended = Ended(Arc::clone(&shared));
        let mut tallies = vec![None; self.files.len()];
        let mut failed = None;
        let cpu_before = thread_cpu();
        let mut buffer = Vec::new();
        let mut ops = 0;
        while !shared.stopping() && self.ops_max.is_none_or(|max| ops < max) {
            let Some(access) = self.pending.take().or_else(|| self.accesses.next()) else { break };
            let batch = self.gather(access, self.ops_max.map_or(u64::MAX, |max| max - ops));
            ops += batch.len() as u64;
            let now = match self.serve_batch(batch, &mut buffer, &mut tallies) {
                Ok(now) => now,
                Err(why) => {
                    shared.stop();
                    failed = Some(why);
                    break;
                }
            };
            shared.progress(self.number).ops(ops);
            if self.time_max.is_some_and(|max| now >= max) {
                break;
            }
        }
        share_cpu(thread_cpu().saturating_sub(cpu_before), &mut tallies);
        WorkerResult { tallies, log: self.log, ops, failed }
    }

    /// Executes one operation. Returns when it ended, in time since the start.
    pub(crate) fn serve(&mut self, access: Access, buffer: &mut Vec<u8>, tally: &mut Tally) -> Result<Duration, Fault> {
        if access.op == Op::Sync {
            return self.sync(access, tally);
        }
        let wanted = access.len.min(self.end_for(access).saturating_sub(access.offset));
        if access.len > 0 && wanted == 0 {
            tally.past_end += 1;
            return Ok(self.start.elapsed());
        }
        let (mut ended, mut latency) = (None, Duration::ZERO);
        let mut done = 0;
        // If the run is stopped, the rest of a long operation is left out.
        while done < wanted && (done == 0 || !self.shared.stopping()) {
            let piece = (wanted - done).min(PIECE_BYTES_MAX) as usize;
            if buffer.len() < piece {
                buffer.resize(piece, 0);
            }
            let (bytes, at) = (&mut buffer[..piece], Access { offset: access.offset + done, ..access });
            let (got, time) = match access.op {
                Op::Write => (piece, self.write(at, bytes)?),
                _ => self.read(at, bytes)?,
            };
            if got < piece {
                return Err(Fault::Short { got: done + got as u64, wanted });
            }
            ended = Some(time.end);
            latency += time.end.saturating_sub(time.start);
            done += piece as u64;
        }
        if access.op == Op::Write {
            tally.writes.record(done, latency);
            self.shared.progress(self.number).wrote(1, latency);
        } else {
            tally.reads.record(done, latency);
        }
        tally.cut += u64::from(wanted < access.len);
        // An operation without bytes has read no clock.
        Ok(ended.unwrap_or_else(|| self.start.elapsed()))
    }

    /// Returns the offset at which an operation's range is cut off: the end of the file, or
    /// `u64::MAX` for a write that may make the file longer.
    pub(crate) fn end_for(&self, access: Access) -> u64 {
        match (self.extent.grows, access.op) {
            (false, _) => self.extent.size,
            (true, Op::Write) => u64::MAX,
            (true, _) => self.files[access.group].len().max(self.extent.size),
        }
    }

    /// Reads into `bytes`, and checks the data. Returns the number of bytes, and the times at which
    /// the read began and ended.
    fn read(&mut self, access: Access, bytes: &mut [u8]) -> Result<(usize, Range<Duration>), Fault> {
        let before = self.start.elapsed();
        let got = self.files[access.group].read_at(bytes, access.offset).map_err(Fault::Pagefold)?;
        let time = before..self.start.elapsed();
        if let Some(checker) = &mut self.checker {
            checker.check(access.offset, &bytes[..got], &self.log).map_err(Fault::Wrong)?;
        }
        Ok((got, time))
    }

    /// Fills `bytes` with a stamp, and writes them. Returns the times at which the write began and
    /// ended.
    fn write(&mut self, access: Access, bytes: &mut [u8]) -> Result<Range<Duration>, Fault> {
        let stamp = self.stamp(access, bytes);
        let end = access.offset.saturating_add(bytes.len() as u64);
        let before = self.start.elapsed();
        self.files[access.group].write_at(bytes, access.offset).map_err(Fault::Pagefold)?;
        let done = self.start.elapsed();
        self.written(access.offset..end, Write { stamp, done_ns: ns(done) });
        Ok(before..done)
    }

    /// Syncs the range, or the whole file if the access has no length.
    fn sync(&self, access: Access, tally: &mut Tally) -> Result<Duration, Fault> {
        let file = &self.files[access.group];
        let before = self.start.elapsed();
        match access.len {
            0 => file.sync(),
            len => file.sync_range(access.offset..access.offset.saturating_add(len)),
        }
        .map_err(Fault::Pagefold)?;
        let now = self.start.elapsed();
        tally.syncs.record(0, now.saturating_sub(before));
        Ok(now)
    }
}

pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Divides a thread's time among its groups by their operations.
fn share_cpu(cpu: Duration, tallies: &mut [Option<Box<Tally>>]) {
    let ops: u64 = tallies.iter().flatten().map(|tally| tally.ops()).sum();
    for tally in tallies.iter_mut().flatten() {
        tally.cpu = cpu.mul_f64(tally.ops() as f64 / ops.max(1) as f64);
    }
}
