//! Performs requests with threads, so that many are in progress at once on systems without
//! io_uring.
//!
//! Synchronous calls are made in the caller's thread. [Submitted](BackingFile::submit) requests
//! wait in their file's queue ([`Lines`]) for a thread of the pool. These threads are started on
//! demand, and sleep when there is nothing to do.
//!
//! A thread that calls [`help`](BackingFile::help_as) takes the requests of its own batch from the
//! queue and performs them itself, which avoids waking other threads. When the queue has no request
//! of the batch any more, the helper sleeps until other threads have completed the batch's
//! remaining requests.
//!
//! - T4. The [`ThreadPool`] and each of its files hold a handle of the pool. When the last handle
//!   is dropped, the pool is closed: its threads empty the queues, and then end. The threads own
//!   only the queues, so they don't keep the pool alive. But a completion closure may own the last
//!   handle, and drop it in a thread of the pool. Then this thread must not wait for its own end.

use std::path::Path;

use sync::lock::Mutex;
use sync::tasks::survive;
use sync::thread::{self, JoinHandle};
use sync::{Arc, ForkMark};

#[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
use crate::lines::Tally;
use crate::lines::{Lines, Submitted, Work};
use crate::queued_file::{QueuedFile, Submission};
use crate::{Access, Backend, BackingFile, Helping, Identity, IoError, Queue, Request};

/// A backend whose threads perform submitted requests by calling another backend.
pub struct ThreadPool {
    inner: Box<dyn Backend>,
    pool: Arc<Pool>,
}

impl ThreadPool {
    /// The number of threads that keeps a disk busy: more threads don't make it faster.
    pub const THREADS_DEFAULT: usize = 32;

    /// Creates a pool with at most `threads` threads for each device that holds files of `inner`,
    /// and at least one.
    ///
    /// # Errors
    /// The system's, if it can't allocate the page that detects forks.
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

/// The threads. They end when this is dropped.
pub(crate) struct Pool {
    lines: Arc<Lines>,
    /// The handles of the threads, some of which may have ended.
    threads: Mutex<Vec<JoinHandle<()>>>,
    fork: ForkMark,
}

impl Submission for Pool {
    type File = dyn BackingFile;

    fn submit(&self, file: &Arc<dyn BackingFile>, requests: &mut Vec<Request>) -> Queue {
        let queue = Queue::of(0, requests);
        if self.fork.is_child() {
            // A forked child doesn't inherit the threads.
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
    /// Creates a pool with at most `threads` threads for each device, and at least one.
    pub(crate) fn new(threads: usize) -> Result<Self, IoError> {
        let fork = ForkMark::new().map_err(|error| error.raw_os_error().map_or(IoError::IO, IoError::Os))?;
        Ok(Self { lines: Arc::new(Lines::new(threads.max(1))), threads: Mutex::default(), fork })
    }

    /// Starts a thread now, so that the pool has at least one.
    ///
    /// # Errors
    /// The system's.
    #[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
    pub(crate) fn start(&self) -> std::io::Result<()> {
        self.start_thread()
    }

    /// Returns the counts of all queued and completed work.
    #[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
    pub(crate) fn tally(&self) -> &Tally {
        &self.lines.tally
    }

    /// Queues work of a file. Never waits, unless there are no threads: then the calling thread
    /// performs all queued work.
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

    /// Waits until all queued work has completed and the threads have ended. If the calling thread
    /// is one of them, this waits only for the others; the calling thread ends later, when it next
    /// looks for work.
    pub(crate) fn end(&self) {
        // A forked child doesn't inherit the threads.
        if self.fork.is_child() {
            return;
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        self.lines.close();
        for thread in threads.into_iter().filter(|thread| !thread::is_current(thread)) {
            // The thread catches the panics of its requests, so there is no error to report here.
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

/// The main loop of a thread.
fn work(lines: &Lines) {
    while let Some((file, work)) = lines.next() {
        if !survive(|| lines.perform(file, work, true)) {
            tracing::error!("a queued call, or the completion of a read or write, panicked");
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
