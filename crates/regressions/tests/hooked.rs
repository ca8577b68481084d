//! A backend with one file whose reads and length the test defines, and a gate that holds threads
//! back.

use std::time::Instant;

use sync::Arc;
use sync::asleep::Sleeper;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::{Condvar, Mutex};

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use sync::SharedBytes;

use crate::support::{WATCHDOG, eventually};

type Read = dyn Fn(u64, SharedBytes<'_>) -> Result<usize, IoError> + Send + Sync;
type Len = dyn Fn() -> Result<u64, IoError> + Send + Sync;

/// Each path that is opened leads to the same file.
#[derive(Clone)]
pub(crate) struct Hooked {
    read: Arc<Read>,
    len: Arc<Len>,
}

impl Hooked {
    pub(crate) fn new(
        read: impl Fn(u64, SharedBytes<'_>) -> Result<usize, IoError> + Send + Sync + 'static,
        len: impl Fn() -> Result<u64, IoError> + Send + Sync + 'static,
    ) -> Self {
        Self { read: Arc::new(read), len: Arc::new(len) }
    }
}

impl Backend for Hooked {
    fn name(&self) -> &'static str {
        "hooked"
    }

    fn open(&self, _: &std::path::Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(self.clone()))
    }
}

impl BackingFile for Hooked {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 7 }
    }

    fn len(&self) -> Result<u64, IoError> {
        (self.len)()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        (self.read)(offset, into[0])
    }
}

/// Answers a read of a file in which each of the `len` bytes is `byte`.
pub(crate) fn fill(offset: u64, into: SharedBytes<'_>, len: u64, byte: u8) -> usize {
    let n = into.len().min(len.saturating_sub(offset) as usize);
    into.copy_from(0, &vec![byte; n]);
    n
}

/// Holds threads back until it is opened. When the watchdog's time is over, it lets them through
/// anyway, so that a test that fails ends.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    bell: Condvar,
    somebody_came: AtomicBool,
    gave_up: AtomicBool,
}

impl Gate {
    pub(crate) fn pass(&self) {
        self.somebody_came.store(true, Ordering::SeqCst);
        let (mut open, start) = (self.open.lock(), Instant::now());
        while !*open && start.elapsed() < WATCHDOG {
            self.bell.wait_for(&mut open, WATCHDOG);
        }
        self.gave_up.fetch_or(!*open, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.open.lock()
    }

    /// Fails if a thread waited for longer than the watchdog's time, and so passed before the gate
    /// was opened. In this case the events didn't have the order that the test needs.
    pub(crate) fn open(&self) {
        self.open_at_end();
        assert!(!self.gave_up.load(Ordering::SeqCst), "the gate is opened too late, after {WATCHDOG:?}");
    }

    fn open_at_end(&self) {
        *self.open.lock() = true;
        self.bell.notify_all();
    }

    pub(crate) fn wait_for_somebody(&self) {
        eventually("no thread comes to the gate", || self.somebody_came.load(Ordering::SeqCst));
    }
}

struct OpensAtEnd<'a>(&'a Gate);

impl Drop for OpensAtEnd<'_> {
    fn drop(&mut self) {
        self.0.open_at_end();
    }
}

/// The result of a thread that may hang, and therefore isn't joined.
pub(crate) struct Answer<T>(Arc<Shared<T>>);

struct Shared<T> {
    answer: Mutex<Option<T>>,
    thread: Sleeper,
    over: Gate,
}

impl<T: Send + 'static> Answer<T> {
    /// Starts the thread. If it panics, there is no answer.
    pub(crate) fn of(body: impl FnOnce() -> T + Send + 'static) -> Self {
        let shared = Arc::new(Shared { answer: Mutex::new(None), thread: Sleeper::default(), over: Gate::default() });
        let theirs = Arc::clone(&shared);
        std::thread::spawn(move || {
            let opens = OpensAtEnd(&theirs.over);
            let answer = theirs.thread.run(body);
            *theirs.answer.lock() = Some(answer);
            drop(opens);
        });
        Self(shared)
    }

    /// The thread, so that a test can wait until it sleeps.
    pub(crate) fn thread(&self) -> &Sleeper {
        &self.0.thread
    }

    /// Whether the thread has ended.
    pub(crate) fn has_come(&self) -> bool {
        self.0.over.is_open()
    }

    /// Waits for the result. Returns `None` if the thread panicked, or if the watchdog's time is
    /// over first.
    pub(crate) fn wait(&self) -> Option<T> {
        self.0.over.pass();
        self.0.answer.lock().take()
    }
}
