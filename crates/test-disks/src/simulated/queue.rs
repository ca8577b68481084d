//! The queue of requests that were submitted to the simulated disk and haven't completed.
//!
//! A request is answered by the thread that takes it from the queue: either a thread that helps, or
//! the queue's own thread, which is started with the first request. Threads take the oldest request
//! or, after a call of `reorder`, a random one.
//!
//! - D1. `over` is incremented under the lock, after a request has completed. A helper reads
//!   `over`, calls `done()`, and then sleeps only if `over` is unchanged. So the helper doesn't
//!   sleep if a completion has made `done()` true since the call.
//! - D2. Each request owns its file, which owns a handle of the disk. So a disk isn't dropped while
//!   requests are queued. The queue's thread owns the queue, but no handle of the disk; the thread
//!   ends when the disk is dropped.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use io::{BackingFile, Helping, IoError, Queue, Request};
use sync::device::Transfer;
use sync::lock::{Condvar, Mutex};
use sync::random::Random;
use sync::time::{Duration, Instant};
use sync::{Arc, thread};

/// A file on the disk.
pub(crate) trait DiskFile: BackingFile + 'static {
    /// Makes a request's next attempt without waiting: the caller has waited for the disk already.
    fn attempt_at_once(&self, request: &Request) -> Result<usize, IoError>;
}

/// A request and its file.
pub(crate) struct Submitted<F> {
    pub(crate) file: F,
    pub(crate) request: Request,
    pub(crate) transfer: Transfer,
}

struct State<F> {
    line: VecDeque<Submitted<F>>,
    /// Requests that were taken from the queue and haven't completed.
    taken: usize,
    over: u64,
    /// The largest length of the line so far.
    longest: usize,
    order: Option<Random>,
    by_hand: bool,
    has_thread: bool,
    closed: bool,
}

pub(crate) struct SimulatedQueue<F> {
    state: Mutex<State<F>>,
    /// Signaled when `state` changes in a way that threads may wait for.
    changed: Condvar,
}

impl<F: DiskFile> SimulatedQueue<F> {
    /// Creates an empty queue.
    pub(crate) fn new() -> Self {
        let state = State {
            line: VecDeque::new(),
            taken: 0,
            over: 0,
            longest: 0,
            order: None,
            by_hand: false,
            has_thread: false,
            closed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::default() }
    }

    /// Makes threads take requests in random order from now on. The seed determines the order.
    pub(crate) fn reorder(&self, seed: u64) {
        self.state.lock().order = Some(Random::seeded(seed));
    }

    /// Makes requests wait for threads that help, and for [`answer_next`](Self::answer_next), from
    /// now on.
    pub(crate) fn by_hand(&self) {
        self.state.lock().by_hand = true;
    }

    /// See [`SimulatedDisk::longest_queue`](super::SimulatedDisk::longest_queue).
    pub(crate) fn longest(&self) -> usize {
        self.state.lock().longest
    }

    /// Queues requests, and makes sure that there is a thread to answer them.
    pub(crate) fn submit(self: &Arc<Self>, requests: impl Iterator<Item = Submitted<F>>) {
        let mut state = self.state.lock();
        state.line.extend(requests);
        state.longest = state.longest.max(state.line.len());
        let start = !state.by_hand && !state.has_thread;
        state.has_thread |= start;
        drop(state);
        self.changed.notify_all();
        if start {
            let queue = Arc::clone(self);
            if thread::spawn("pagefold-disk", move || queue.work()).is_err() {
                self.state.lock().has_thread = false;
                while self.answer_next() {}
            }
        }
    }

    /// Answers requests until `done()` returns true, until the requests of `queue` have completed,
    /// until no requests are left, or until the time limit of `how` has passed. With `waits_only`,
    /// answers none, and waits for other threads to answer them.
    pub(crate) fn help(&self, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        let time = how.at_most.map(|most| (most, Instant::now()));
        loop {
            let over = self.state.lock().over;
            if done() || queue.is_over() {
                return;
            }
            if !how.waits_only && self.answer_next() {
                continue;
            }
            let mut state = self.state.lock();
            if state.taken == 0 && state.line.is_empty() {
                return;
            }
            if state.over != over || !how.waits_only && !state.line.is_empty() {
                continue;
            }
            match time.map(|(most, start)| most.saturating_sub(start.elapsed())) {
                None => self.changed.wait(&mut state),
                Some(Duration::ZERO) => return,
                Some(rest) => {
                    self.changed.wait_for(&mut state, rest);
                }
            }
        }
    }

    /// Answers one request. Returns false if there is none.
    pub(crate) fn answer_next(&self) -> bool {
        let mut state = self.state.lock();
        let State { line, order, .. } = &mut *state;
        let at = order.as_mut().map_or(0, |random| random.below(line.len() as u64) as usize);
        let Some(submitted) = line.remove(at) else { return false };
        state.taken += 1;
        drop(state);
        let _over = Over(self);
        let Submitted { file, request, transfer } = submitted;
        transfer.wait();
        let answer = file.attempt_at_once(&request);
        if let Some(rest) = request.complete(&|| file.len(), answer) {
            rest.run(&file);
        }
        true
    }

    /// The main loop of the queue's thread.
    fn work(&self) {
        loop {
            let mut state = self.state.lock();
            while !state.closed && (state.line.is_empty() || state.by_hand) {
                self.changed.wait(&mut state);
            }
            if state.closed {
                return;
            }
            drop(state);
            if catch_unwind(AssertUnwindSafe(|| self.answer_next())).is_err() {
                tracing::error!("the completion of a read or write panicked");
            }
        }
    }

    /// Makes the thread end.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Counts a request as completed when dropped, also during unwinding.
struct Over<'a, F>(&'a SimulatedQueue<F>);

impl<F> Drop for Over<'_, F> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.taken -= 1;
        state.over += 1;
        drop(state);
        self.0.changed.notify_all();
    }
}
