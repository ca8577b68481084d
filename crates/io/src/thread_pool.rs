//! Requests done by threads, so that many are under way at once where the system has no better way.
//!
//! What is called is done by the caller; what is [submitted](BackingFile::submit) waits in its
//! file's line ([`Lines`]). Threads are started as they are needed, and sleep when there is nothing
//! to do. A thread that [helps](BackingFile::help_as) does requests of its own batch itself, which
//! saves waking others, and sleeps when none is in line.
//!
//! - T4. The pool is closed only when neither it nor a file of it is left. Threads empty the lines
//!   before they end, and hold them alone; so none of them has the pool, but one may have had its
//!   last handle, in what was to be done after a request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sync::lock::Mutex;
use sync::thread::{self, JoinHandle};
use sync::{Arc, ForkMark};

use crate::lines::{Lines, Submitted, Work};
use crate::queued_file::{QueuedFile, Submission};
use crate::{Access, Backend, BackingFile, Helping, Identity, IoError, Queue, Request};

/// A backend whose submitted requests are done by threads, with the calls of another one.
pub struct ThreadPool {
    inner: Box<dyn Backend>,
    pool: Arc<Pool>,
}

impl ThreadPool {
    /// Threads that keep a disk busy: more don't make it faster.
    pub const THREADS_DEFAULT: usize = 32;

    /// At most `threads` threads for each device that files of `inner` are on, and at least one.
    ///
    /// # Errors
    /// The system's, when it has no page left for a mark.
    pub fn new(inner: impl Backend, threads: usize) -> Result<Self, IoError> {
        Ok(Self { inner: Box::new(inner), pool: Arc::new(Pool::new(threads)?) })
    }
}

impl Backend for ThreadPool {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let file = Arc::from(self.inner.open(path, access)?);
        Ok(Box::new(QueuedFile { file, submission: Arc::clone(&self.pool) }))
    }

    fn waits_in_submit(&self) -> bool {
        false
    }
}

/// The threads, which end with it.
pub(crate) struct Pool {
    lines: Arc<Lines>,
    /// Some of them may have ended.
    threads: Mutex<Vec<JoinHandle<()>>>,
    fork: ForkMark,
}

impl Submission for Pool {
    type File = dyn BackingFile;

    fn submit(&self, file: &Arc<dyn BackingFile>, requests: &mut Vec<Request>) -> Queue {
        let queue = Queue::of(0, requests);
        if self.fork.is_child() {
            // The threads weren't inherited.
            requests.drain(..).for_each(|request| request.run(&**file));
        } else {
            let submitted = |request| Work::Request(Submitted { file: Arc::clone(file), request });
            self.put(file.identity(), requests.drain(..).map(submitted));
        }
        queue
    }

    fn help(&self, file: &Arc<dyn BackingFile>, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        self.help_with(file.identity(), queue, how, done);
    }
}

impl Pool {
    /// At most `threads` threads for each device.
    pub(crate) fn new(threads: usize) -> Result<Self, IoError> {
        let fork = ForkMark::new().map_err(|error| error.raw_os_error().map_or(IoError::IO, IoError::Os))?;
        Ok(Self { lines: Arc::new(Lines::new(threads.max(1))), threads: Mutex::default(), fork })
    }

    /// Has a thread there from now on.
    ///
    /// # Errors
    /// The system's.
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    pub(crate) fn start(&self) -> std::io::Result<()> {
        self.start_thread()
    }

    /// Has work of a file done, and waits for nothing, unless there is no thread at all.
    pub(crate) fn put(&self, file: Identity, work: impl ExactSizeIterator<Item = Work>) {
        let wanted = self.lines.enter(file, work);
        for _ in 0..wanted {
            if self.start_thread().is_err() {
                break;
            }
        }
        if wanted > 0 && !self.lines.has_threads() {
            while self.lines.perform_any() {}
        }
    }

    /// See [`Lines::help`].
    pub(crate) fn help_with(&self, file: Identity, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        if !self.fork.is_child() {
            self.lines.help(file, queue.batch.as_ref(), how, done);
        }
    }

    /// Waits until all that was put into lines is over, and the threads have ended. The calling
    /// thread may be one of them: it ends when it returns to its line.
    pub(crate) fn end(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if self.fork.is_child() {
            return std::mem::forget(threads);
        }
        self.lines.close();
        for thread in threads.into_iter().filter(|thread| !thread::is_current(thread)) {
            // The thread catches what its requests throw, so there is no error to report here.
            let _ = thread.join();
        }
    }

    fn start_thread(&self) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        let count = self.lines.count_thread(true);
        let lines = Arc::clone(&self.lines);
        let started = thread::spawn(&format!("pagefold-io-{}", count - 1), move || work(&lines));
        if started.is_err() {
            self.lines.count_thread(false);
        }
        threads.push(started?);
        if threads.len() >= 2 * count.max(self.lines.threads_max) {
            threads.retain(|thread| !thread::has_ended(thread));
        }
        Ok(())
    }
}

/// A thread's life.
fn work(lines: &Lines) {
    while let Some((file, work)) = lines.next() {
        if catch_unwind(AssertUnwindSafe(|| lines.perform(file, work, true))).is_err() {
            tracing::error!("what was to be done after a read or write panicked");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, not(pagefold_loom)))]
#[path = "thread_pool_tests.rs"]
mod tests;
