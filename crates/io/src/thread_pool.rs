//! Requests done by threads, so that many are under way at once where the system has no better way.
//!
//! What is called is done by the caller; what is [submitted](BackingFile::submit) waits in one line for all files. Threads are
//! started as they are needed, and sleep when the line is empty. Whoever [helps](BackingFile::help) does what is in the line
//! itself, which saves waking others, and sleeps when that is empty.
//!
//! - T1. All of the line is under one lock, which nobody holds while reading or writing.
//! - T2. A request is counted as `unfinished` from when it is in the line until after it is over, and `over` is counted up then.
//!   A helper reads `over`, asks whether it is done, and sleeps only if it is still the same: so it misses no completion that would
//!   have made it done.
//! - T3. A thread sleeps only if the line is empty, and is counted as `idle` then; as many are woken as there are requests for them.
//! - T4. The pool is closed only when neither it nor a file of it is left. Threads empty the line before they end, and hold
//!   it alone; so none of them has the pool, but one may have had its last handle, in what was to be done after a request.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sync::lock::{Condvar, Mutex};
use sync::thread::{self, JoinHandle};
use sync::{Arc, ForkMark};

use crate::queued_file::{QueuedFile, Submission};
use crate::{Access, Backend, BackingFile, IoError, Queue, Request};

/// A backend whose submitted requests are done by threads, with the calls of another one.
pub struct ThreadPool {
    inner: Box<dyn Backend>,
    pool: Arc<Pool>,
}

impl ThreadPool {
    /// Threads that keep a disk busy: more don't make it faster.
    pub const THREADS_DEFAULT: usize = 32;

    /// At most `threads` threads using `inner`, and at least one.
    ///
    /// # Errors
    /// The system's, when it has no page left for a mark.
    pub fn new(inner: impl Backend, threads: usize) -> Result<Self, IoError> {
        let fork = ForkMark::new().map_err(|error| error.raw_os_error().map_or(IoError::IO, IoError::Os))?;
        let pool = Pool { line: Arc::default(), threads_max: threads.max(1), threads: Mutex::default(), fork };
        Ok(Self { inner: Box::new(inner), pool: Arc::new(pool) })
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
}

/// The threads, which end with it.
struct Pool {
    line: Arc<Line>,
    threads_max: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    fork: ForkMark,
}

impl Submission for Pool {
    type File = dyn BackingFile;

    fn submit(&self, file: &Arc<dyn BackingFile>, requests: &mut Vec<Request>) -> Queue {
        if self.fork.is_child() {
            // The threads weren't inherited.
            requests.drain(..).for_each(|request| request.run(&**file));
        } else {
            self.start(file, requests);
        }
        Queue::default()
    }

    fn help(&self, _: Queue, done: &dyn Fn() -> bool) {
        if !self.fork.is_child() {
            self.line.help(done);
        }
    }
}

impl Pool {
    fn start(&self, file: &Arc<dyn BackingFile>, requests: &mut Vec<Request>) {
        let wanted = self.line.enter(file, requests);
        for _ in 0..wanted {
            let mut threads = self.threads.lock();
            if threads.len() == self.threads_max || self.start_thread(&mut threads).is_err() {
                break;
            }
        }
        if wanted > 0 && self.threads.lock().is_empty() {
            self.line.help(&|| false);
        }
    }

    fn start_thread(&self, threads: &mut Vec<JoinHandle<()>>) -> std::io::Result<()> {
        let line = Arc::clone(&self.line);
        threads.push(thread::spawn(&format!("pagefold-io-{}", threads.len()), move || line.work())?);
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if self.fork.is_child() {
            return std::mem::forget(threads);
        }
        self.line.state.lock().closed = true;
        self.line.work.notify_all();
        for thread in threads.into_iter().filter(|thread| !thread::is_current(thread)) {
            // It catches what its requests throw, so there is nothing to hear of here.
            let _ = thread.join();
        }
    }
}

/// A request, and the file that it is for.
struct Submitted {
    file: Arc<dyn BackingFile>,
    request: Request,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    line: VecDeque<Submitted>,
    unfinished: usize,
    over: u64,
    helpers: u32,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Line {
    state: Mutex<State>,
    /// There is something in the line, or the pool is closed.
    work: Condvar,
    /// A request is over, and somebody helps.
    over: Condvar,
}

impl Line {
    /// Puts requests into the line, and wakes threads for them. Says for how many there was none.
    fn enter(&self, file: &Arc<dyn BackingFile>, requests: &mut Vec<Request>) -> usize {
        let count = requests.len();
        let mut state = self.state.lock();
        state.unfinished += count;
        state.line.extend(requests.drain(..).map(|request| Submitted { file: Arc::clone(file), request }));
        let idle = state.idle.min(count);
        drop(state);
        for _ in 0..idle {
            self.work.notify_one();
        }
        count - idle
    }

    /// Does what is in the line until `done()`, or until all that was submitted is over.
    fn help(&self, done: &dyn Fn() -> bool) {
        loop {
            let over = self.state.lock().over;
            if done() {
                return;
            }
            let mut state = self.state.lock();
            if state.over != over {
                continue;
            }
            if state.unfinished == 0 {
                return;
            }
            if let Some(submitted) = state.line.pop_front() {
                drop(state);
                self.perform(submitted);
            } else {
                state.helpers += 1;
                self.over.wait(&mut state);
                state.helpers -= 1;
            }
        }
    }

    /// A thread's life.
    fn work(&self) {
        while let Some(submitted) = self.next() {
            if catch_unwind(AssertUnwindSafe(|| self.perform(submitted))).is_err() {
                tracing::error!("what was to be done after a read or write panicked");
            }
        }
    }

    /// Waits for a request; none when the pool is closed, and the line empty.
    fn next(&self) -> Option<Submitted> {
        let mut state = self.state.lock();
        loop {
            let next = state.line.pop_front();
            if next.is_some() || state.closed {
                return next;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }

    fn perform(&self, Submitted { file, request }: Submitted) {
        let _over = Over(self);
        request.run(&*file);
    }
}

/// Counts a request as over when dropped: by unwinding too.
struct Over<'a>(&'a Line);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.unfinished -= 1;
        state.over += 1;
        let helpers = state.helpers;
        drop(state);
        if helpers > 0 {
            self.0.over.notify_all();
        }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
#[path = "thread_pool_tests.rs"]
mod tests;
