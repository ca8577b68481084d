//! Decides which calls of a faulty backend fail, and what a failure leaves behind.

use io::IoError;
use sync::SharedBytes;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::random::mix;

use super::schedule::{Fault, FaultKind, Schedule};

/// Failed reads fill the buffer with this.
const RUBBISH: [u8; 64] = [0xdb; 64];

/// Failed writes write in this unit, as disks do.
const SECTOR: usize = 512;

/// A kind of call, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Backend::open`](io::Backend::open).
    Open,
    /// [`BackingFile::len`](io::BackingFile::len).
    Len,
    /// [`BackingFile::read`](io::BackingFile::read).
    Read,
    /// [`BackingFile::write`](io::BackingFile::write).
    Write,
    /// [`BackingFile::sync`](io::BackingFile::sync).
    Sync,
    /// [`BackingFile::set_len`](io::BackingFile::set_len).
    SetLen,
}

impl Call {
    const COUNT: usize = 6;

    /// Returns whether the call can be short.
    fn transfers(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The schedule and the counters. `calls` and `fired` are accessed `Relaxed`: a thread that reads
/// them has waited for the calls to return.
#[derive(Default)]
pub(crate) struct Faults {
    plan: Mutex<Plan>,
    calls: [AtomicU64; Call::COUNT],
    fired: [AtomicU64; FaultKind::ALL.len()],
    /// Requests that were submitted and aren't over.
    under_way: AtomicU64,
}

#[derive(Default)]
struct Plan {
    schedule: Schedule,
    /// The number of calls since the schedule was set.
    calls: u64,
    /// The error number with which the next call of each kind fails.
    pending: [Option<i32>; Call::COUNT],
}

impl Faults {
    /// Replaces the schedule. Its call 1 is the next call.
    pub(crate) fn set_schedule(&self, schedule: Schedule) {
        *self.plan.lock() = Plan { schedule, ..Plan::default() };
    }

    /// Returns the number of calls since the schedule was set.
    pub(crate) fn calls(&self) -> u64 {
        self.plan.lock().calls
    }

    /// Returns the number of calls of one kind since the beginning.
    pub(crate) fn calls_of(&self, call: Call) -> u64 {
        self.calls[call as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of faults of one kind that have fired since the beginning.
    pub(crate) fn fired(&self, kind: FaultKind) -> u64 {
        self.fired[kind.index()].load(Ordering::Relaxed)
    }

    /// Notes that `requests` requests are submitted.
    pub(crate) fn begin(&self, requests: usize) {
        self.under_way.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// Notes that a request is over, after its completion was called. Release, so that a thread
    /// that finds no request under way also sees the effects of the completions.
    pub(crate) fn is_over(&self) {
        self.under_way.fetch_sub(1, Ordering::Release);
    }

    /// Returns the number of requests that aren't over. Acquire pairs with `is_over`.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Acquire)
    }

    /// Counts a call. Returns its number and its fault.
    pub(crate) fn next(&self, call: Call) -> (u64, Option<Fault>) {
        self.calls[call as usize].fetch_add(1, Ordering::Relaxed);
        let mut plan = self.plan.lock();
        plan.calls += 1;
        let mut fault = plan.schedule.fault(plan.calls);
        let pending = &mut plan.pending[call as usize];
        if let Some(errno) = pending.take() {
            fault = Some(Fault::Errno(errno));
        } else if let Some(Fault::ShortThenErrno(_, errno)) = fault {
            *pending = Some(errno).filter(|_| call.transfers());
        }
        (plan.calls, fault)
    }

    pub(crate) fn count(&self, kind: FaultKind) {
        self.fired[kind.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the error of `fault`, and counts it. `Ok` if the fault is a short read or write.
    pub(crate) fn error(&self, fault: Fault) -> Result<(), IoError> {
        let (kind, error) = match fault {
            Fault::Interrupted => (FaultKind::Interrupted, IoError::INTERRUPTED),
            Fault::Again => (FaultKind::Again, IoError::AGAIN),
            Fault::Errno(errno) => match IoError::Os(errno) {
                IoError::INTERRUPTED => (FaultKind::Interrupted, IoError::INTERRUPTED),
                IoError::AGAIN => (FaultKind::Again, IoError::AGAIN),
                error => (FaultKind::Errno, error),
            },
            Fault::Short(_) | Fault::ShortThenErrno(..) => return Ok(()),
        };
        self.count(kind);
        Err(error)
    }

    /// Counts a call that can't be short, and returns its error: see [`next`](Self::next).
    pub(crate) fn check(&self, call: Call) -> Result<(), IoError> {
        self.next(call).1.map_or(Ok(()), |fault| self.error(fault))
    }
}

/// Returns how many bytes a failed write of `len` bytes has written.
pub(crate) fn written_by_failure(call: u64, len: usize) -> usize {
    let sectors = len.div_ceil(SECTOR) as u64;
    usize::try_from(mix(call) % (sectors + 1)).unwrap_or(0).saturating_mul(SECTOR).min(len)
}

/// Overwrites the bytes from position `from` on with garbage.
pub(crate) fn spoil(into: &[SharedBytes<'_>], from: usize) {
    let mut start = 0;
    for slice in into {
        for at in (from.saturating_sub(start)..slice.len()).step_by(RUBBISH.len()) {
            slice.copy_from(at, &RUBBISH[..RUBBISH.len().min(slice.len() - at)]);
        }
        start += slice.len();
    }
}
