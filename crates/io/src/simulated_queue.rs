//! What was submitted to the simulated disk, and isn't over.
//!
//! The thread that takes a request from the queue answers it: a thread that helps, or the queue's
//! own, which is started with the first request. The oldest request is taken; once a seed was
//! given, any.
//!
//! - D1. `over` is counted up after a request is over, under the lock. A helper reads it, asks
//!   whether it is done, and sleeps only if it is still the same: so no completion that would have
//!   made it done is missed.
//! - D2. Each request has the disk, through its file. So a disk with something in its queue isn't
//!   dropped; the thread has the queue alone, and ends when the disk is dropped.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sync::device::Transfer;
use sync::lock::{Condvar, Mutex};
use sync::random::Random;
use sync::time::{Duration, Instant};
use sync::{Arc, thread};

use crate::{BackingFile, Helping, IoError, Queue, Request};

/// A file on the disk.
pub(crate) trait DiskFile: BackingFile + 'static {
    /// Makes a request's next attempt, in no time: the disk's has been waited for already.
    fn attempt_at_once(&self, request: &Request) -> Result<usize, IoError>;
}

/// A request, and the file that it is for.
pub(crate) struct Submitted<F> {
    pub(crate) file: F,
    pub(crate) request: Request,
    pub(crate) transfer: Transfer,
}

struct State<F> {
    line: VecDeque<Submitted<F>>,
    /// Taken from the line, and not over.
    taken: usize,
    over: u64,
    order: Option<Random>,
    by_hand: bool,
    has_thread: bool,
    closed: bool,
}

pub(crate) struct SimulatedQueue<F> {
    state: Mutex<State<F>>,
    /// Something in `state` has changed that a thread may wait for.
    changed: Condvar,
}

impl<F: DiskFile> SimulatedQueue<F> {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let state = State {
            line: VecDeque::new(),
            taken: 0,
            over: 0,
            order: None,
            by_hand: false,
            has_thread: false,
            closed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::default() }
    }

    /// From now on any request may be the next one, as the seed says.
    pub(crate) fn reorder(&self, seed: u64) {
        self.state.lock().order = Some(Random::seeded(seed));
    }

    /// From now on requests are only answered by threads that help, and by
    /// [`answer_next`](Self::answer_next).
    pub(crate) fn by_hand(&self) {
        self.state.lock().by_hand = true;
    }

    /// Puts requests into the line, and sees to it that there is a thread to answer them.
    pub(crate) fn submit(self: &Arc<Self>, requests: impl Iterator<Item = Submitted<F>>) {
        let mut state = self.state.lock();
        state.line.extend(requests);
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

    /// Answers requests until `done()`, until there are none, or until those of the batch are over.
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

    /// Answers one request. False if there is none.
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

    /// The life of the queue's thread.
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
                tracing::error!("what was to be done after a read or write panicked");
            }
        }
    }

    /// Has the thread end.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Counts a request as over when dropped: by unwinding too.
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
