//! A backend that fails on purpose, at calls that the test chooses.
//!
//! Every call to the backend and its files has a number, and a [`Schedule`] determines which
//! numbers fail. A sweep runs the test with call 1 failing, then with call 2 failing, and so on.
//! The sweep ends with the first run that doesn't reach the call that should fail:
//! [`FaultyBackend::calls`] is then below the number of that call.
//!
//! A read that fails or is cut short does the worst that the contract of [`BackingFile::read`]
//! allows: it fills the buffer with garbage, except for the bytes that it delivers. So a caller
//! that forgets to zero or refill the buffer exposes the garbage to its reader.
//!
//! A failed write has written some of its sectors, from the front; the number of the call
//! determines how many, from none to all. Other calls do nothing when they fail.

pub(crate) mod faults;
pub(crate) mod schedule;

mod request;

use std::path::Path;

use io::{Access, Backend, BackingFile, Fingerprint, Helping, Identity, IoError, Queue, Request};
use sync::{Arc, SharedBytes};

use faults::{Call, Faults, spoil, written_by_failure};
use request::prepare;
use schedule::{Fault, FaultKind, Schedule};

/// A backend whose calls fail as scheduled. Clones share their schedule and counts, so a test keeps
/// one clone and passes another on.
#[derive(Clone)]
pub struct FaultyBackend {
    inner: Arc<dyn Backend>,
    faults: Arc<Faults>,
}

impl FaultyBackend {
    /// Creates a backend that adds faults to `inner`.
    #[must_use]
    pub fn new(inner: impl Backend, schedule: Schedule) -> Self {
        let faults = Arc::new(Faults::default());
        faults.set_schedule(schedule);
        Self { inner: Arc::new(inner), faults }
    }

    /// Replaces the schedule. Its call 1 is the next call. The counts of faults continue.
    pub fn set_schedule(&self, schedule: Schedule) {
        self.faults.set_schedule(schedule);
    }

    /// Returns the number of calls since the schedule was set, including failed ones. If it is
    /// below N, call N was never made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.faults.calls()
    }

    /// Returns the number of calls of one kind since the beginning.
    #[must_use]
    pub fn calls_of(&self, call: Call) -> u64 {
        self.faults.calls_of(call)
    }

    /// Returns the number of requests that were submitted and aren't over. Calls that the caller
    /// performs itself, such as [`BackingFile::read`], aren't counted.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.faults.under_way()
    }

    /// Returns the number of faults of one kind that have fired since the beginning.
    #[must_use]
    pub fn fired(&self, kind: FaultKind) -> u64 {
        self.faults.fired(kind)
    }

    /// Returns the number of faults that have fired since the beginning.
    #[must_use]
    pub fn fired_total(&self) -> u64 {
        FaultKind::ALL.into_iter().map(|kind| self.fired(kind)).sum()
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
                    // Its result doesn't matter: the write has failed.
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
        self.faults.begin(requests.len());
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

#[cfg(all(test, not(pagefold_loom)))]
mod tests;

#[cfg(all(test, not(pagefold_loom)))]
mod write_tests;
