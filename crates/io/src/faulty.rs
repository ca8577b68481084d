//! A backend that fails on purpose, at a call that can be named.
//!
//! Every call to it and to its files has a number, and a [`Schedule`] says which numbers fail. A
//! sweep lets call 1 fail, then call 2, and so on, until [`FaultyBackend::calls`] says that the
//! call it named was never made.
//!
//! A failed read is as bad as the contract of [`BackingFile::read`] allows: what lies in the buffer
//! past the bytes delivered is overwritten with [`RUBBISH`], so a caller that forgets to zero or
//! refill the buffer shows that to its reader. A failed write has written some of its sectors from
//! the front, how many being chosen by the number of the call: perhaps none, perhaps all. The other
//! calls, when they fail, have done nothing.

use std::path::Path;

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::random::mix;
use sync::{Arc, SharedBytes};

use crate::faulty_request::prepare;
use crate::{
    Access, Backend, BackingFile, Fault, FaultKind, Fingerprint, Helping, Identity, IoError, Queue, Request, Schedule,
};

/// What failed reads leave behind.
const RUBBISH: [u8; 64] = [0xdb; 64];

/// What failed writes write in units of, as disks do.
const SECTOR: usize = 512;

/// A backend some of whose calls fail. Clones share their schedule and their counts, so a test
/// keeps one and gives the other away.
#[derive(Clone)]
pub struct FaultyBackend {
    inner: Arc<dyn Backend>,
    faults: Arc<Faults>,
}

/// A kind of call, to count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Backend::open`].
    Open,
    /// [`BackingFile::len`].
    Len,
    /// [`BackingFile::read`].
    Read,
    /// [`BackingFile::write`].
    Write,
    /// [`BackingFile::sync`].
    Sync,
    /// [`BackingFile::set_len`].
    SetLen,
}

impl Call {
    const COUNT: usize = 6;

    /// Whether it can be short.
    fn transfers(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The counters are `Relaxed`: they are read when the calls are over, and a thread that waited for
/// that sees them.
#[derive(Default)]
pub(crate) struct Faults {
    plan: Mutex<Plan>,
    calls: [AtomicU64; Call::COUNT],
    fired: [AtomicU64; FaultKind::ALL.len()],
}

#[derive(Default)]
struct Plan {
    schedule: Schedule,
    /// Calls since the schedule was set.
    calls: u64,
    /// What the next call of each kind fails with.
    pending: [Option<i32>; Call::COUNT],
}

impl FaultyBackend {
    /// `inner`, with faults.
    #[must_use]
    pub fn new(inner: impl Backend, schedule: Schedule) -> Self {
        let faults = Arc::new(Faults::default());
        faults.plan.lock().schedule = schedule;
        Self { inner: Arc::new(inner), faults }
    }

    /// Goes on with another schedule, whose call 1 is the next one. Counts of faults go on.
    pub fn set_schedule(&self, schedule: Schedule) {
        *self.faults.plan.lock() = Plan { schedule, ..Plan::default() };
    }

    /// Calls seen since the schedule was set, failed ones included. Below N, call N was never made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.faults.plan.lock().calls
    }

    /// Calls of one kind seen since the beginning.
    #[must_use]
    pub fn calls_of(&self, call: Call) -> u64 {
        self.faults.calls[call as usize].load(Ordering::Relaxed)
    }

    /// Faults of one kind that have fired since the beginning.
    #[must_use]
    pub fn fired(&self, kind: FaultKind) -> u64 {
        self.faults.fired[kind.index()].load(Ordering::Relaxed)
    }

    /// Faults that have fired since the beginning.
    #[must_use]
    pub fn fired_total(&self) -> u64 {
        FaultKind::ALL.into_iter().map(|kind| self.fired(kind)).sum()
    }
}

impl Faults {
    /// Counts a call, and says its number and what is to happen to it.
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

    /// The error that `fault` is, counted; none if it is a short read or write.
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

    /// [`next`](Self::next) for a call that can't be short.
    pub(crate) fn check(&self, call: Call) -> Result<(), IoError> {
        self.next(call).1.map_or(Ok(()), |fault| self.error(fault))
    }
}

impl Backend for FaultyBackend {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        self.faults.check(Call::Open)?;
        Ok(Box::new(FaultyFile { inner: self.inner.open(path, access)?, faults: Arc::clone(&self.faults) }))
    }

    fn waits_in_submit(&self) -> bool {
        self.inner.waits_in_submit()
    }
}

struct FaultyFile {
    inner: Box<dyn BackingFile>,
    faults: Arc<Faults>,
}

impl BackingFile for FaultyFile {
    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint()
    }

    fn is_open_to_others(&self) -> bool {
        self.inner.is_open_to_others()
    }

    fn needs_stable_bytes(&self) -> bool {
        self.inner.needs_stable_bytes()
    }

    fn room(&self) -> Option<u64> {
        self.inner.room()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.faults.check(Call::Len)?;
        self.inner.len()
    }

    fn tells_len_at_once(&self) -> bool {
        self.inner.tells_len_at_once()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let (_, fault) = self.faults.next(Call::Read);
        if let Some(fault) = fault {
            self.faults.error(fault).inspect_err(|_| spoil(into, 0))?;
        }
        let n = self.inner.read(offset, into)?;
        match fault {
            Some(Fault::Short(most) | Fault::ShortThenErrno(most, _)) if most < n => {
                self.faults.count(FaultKind::Short);
                spoil(into, most);
                Ok(most)
            }
            _ => Ok(n),
        }
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let (call, fault) = self.faults.next(Call::Write);
        let most = match fault {
            Some(Fault::Short(most) | Fault::ShortThenErrno(most, _)) if most < len => {
                self.faults.count(FaultKind::Short);
                most
            }
            Some(fault) => {
                self.faults.error(fault).inspect_err(|_| {
                    // Whether it can be done doesn't matter: the write has failed.
                    let _ = self.inner.write(offset, from, written_by_failure(call, len));
                })?;
                len
            }
            None => len,
        };
        self.inner.write(offset, from, most)
    }

    fn sync(&self) -> Result<(), IoError> {
        self.faults.check(Call::Sync)?;
        self.inner.sync()
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.faults.check(Call::SetLen)?;
        self.inner.set_len(len)
    }

    fn lock(&self) -> Result<(), IoError> {
        self.inner.lock()
    }

    fn unlock(&self) {
        self.inner.unlock();
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        self.faults.check(Call::SetLen)?;
        self.inner.lengthen(len)
    }

    fn submit(&self, requests: &mut Vec<Request>) -> Queue {
        let len = || self.inner.len();
        let faulty = requests.drain(..).filter_map(|request| prepare(&self.faults, request, &len));
        self.inner.submit(&mut faulty.collect())
    }

    fn queue(&self) -> Queue {
        self.inner.queue()
    }

    fn help_as(&self, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        self.inner.help_as(queue, how, done);
    }
}

/// How much a failed write of `len` bytes has written.
pub(crate) fn written_by_failure(call: u64, len: usize) -> usize {
    let sectors = len.div_ceil(SECTOR) as u64;
    usize::try_from(mix(call) % (sectors + 1)).unwrap_or(0).saturating_mul(SECTOR).min(len)
}

/// Overwrites what follows `from`.
pub(crate) fn spoil(into: &[SharedBytes<'_>], from: usize) {
    let mut start = 0;
    for slice in into {
        for at in (from.saturating_sub(start)..slice.len()).step_by(RUBBISH.len()) {
            slice.copy_from(at, &RUBBISH[..RUBBISH.len().min(slice.len() - at)]);
        }
        start += slice.len();
    }
}

#[cfg(all(test, not(pagefold_loom)))]
#[path = "faulty_tests.rs"]
mod tests;

#[cfg(all(test, not(pagefold_loom)))]
#[path = "faulty_write_tests.rs"]
mod write_tests;
