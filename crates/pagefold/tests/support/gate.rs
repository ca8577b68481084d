//! Two devices, one of which doesn't answer while its gate is closed.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use pagefold::io::{Access, Backend, BackingFile, IoError};
use test_disks::{Call, SimulatedDisk};

use crate::support::WATCHDOG;
use crate::support::around::{Around, Wrapped};

/// While the gate is closed, calls to the device behind it wait.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    closed: bool,
    waiting: usize,
    passed: u64,
}

impl Gate {
    pub fn close(&self) {
        self.0.0.lock().unwrap().closed = true;
    }

    pub fn open(&self) {
        self.0.0.lock().unwrap().closed = false;
        self.0.1.notify_all();
    }

    /// Waits until `count` calls wait at the gate.
    pub fn await_waiting(&self, count: usize) {
        let state = self.0.0.lock().unwrap();
        let waited = self.0.1.wait_timeout_while(state, WATCHDOG, |state| state.waiting < count).unwrap();
        let waiting = waited.0.waiting;
        assert!(!waited.1.timed_out(), "{waiting} calls wait at the gate, not {count}, after {WATCHDOG:?}");
    }

    /// Calls that wait at the gate.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting
    }

    /// Calls that have passed the gate.
    pub fn passed(&self) -> u64 {
        self.0.0.lock().unwrap().passed
    }
}

impl Around for Gate {
    fn before(&self, call: Call) -> Result<(), IoError> {
        if matches!(call, Call::Read | Call::Write | Call::Sync) {
            let mut state = self.0.0.lock().unwrap();
            state.waiting += 1;
            self.0.1.notify_all();
            state = self.0.1.wait_while(state, |state| state.closed).unwrap();
            state.waiting -= 1;
            state.passed += 1;
        }
        Ok(())
    }
}

/// The devices' files. A path begins with the name of the device, `gated/` or `other/`. Each device
/// has the files `f0`, `f1`, …
#[derive(Clone)]
pub struct TwoDevices {
    pub gate: Gate,
    gated: Wrapped<Gate>,
    other: SimulatedDisk,
}

impl TwoDevices {
    /// Two devices, each with `files` files of `len` bytes.
    pub fn new(files: u64, len: u64) -> Self {
        let gate = Gate::default();
        let gated = Wrapped::new(&super::disk(files, len), gate.clone());
        Self { gate, gated, other: super::disk(files, len) }
    }
}

impl Backend for TwoDevices {
    fn name(&self) -> &'static str {
        "two devices"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        match path.strip_prefix("gated") {
            Ok(rest) => self.gated.open(rest, access),
            Err(_) => self.other.open(path.strip_prefix("other").unwrap_or(path), access),
        }
    }
}

/// Opens the gate when dropped, so that a test that fails doesn't hang.
pub struct OpenAtEnd(pub Gate);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Runs `body` on a thread of its own and returns its result. Fails if `body` hangs.
pub fn in_time<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(body()));
    receiver.recv_timeout(WATCHDOG).unwrap_or_else(|error| panic!("{what}: {error}, after {WATCHDOG:?} at most"))
}
