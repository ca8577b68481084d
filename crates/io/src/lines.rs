//! What waits for the threads of a pool: a line for each file, served in turn.
//!
//! One line for all files would have a fast file wait behind hundreds of requests to a slow one. So
//! each file has a line of its own. The devices that have lines are served in turn, and the files
//! of a device in turn. So many threads of the pool are with one device at a time as the pool has
//! for each: a device that doesn't answer keeps those threads, and no others.
//!
//! | a piece of work is | with | becomes |
//! |---|---|---|
//! | in line | its file's line | under way: taken by a thread of the pool, or by a helper of its batch |
//! | under way | that thread, without any lock | over |
//!
//! - T1. All lines are under one lock, which isn't held while anything is read or written.
//! - T2. Work is counted as its file's `unfinished` from when it is in line until after it is over,
//!   and `over` is counted up then. A helper reads `over`, asks whether it is done, and sleeps only
//!   if it is still the same: so it misses no completion that would have made it done.
//! - T3. A thread sleeps only if no device has both work in line and a thread to spare. Work gets
//!   into line with as many threads woken or started for it as its device may have; and a thread
//!   that is done with a piece of work looks for the next. So work that may begin has a thread that
//!   is awake:
//!
//! ```text
//! thread A: done with work of device D ── lock: D has a thread to spare, and E new work ── takes E's, not D's
//! submitter:              lock: E's work in line, wakes thread B
//! thread B:                                                        lock: takes D's
//! ```

use std::collections::{BTreeMap, VecDeque};

use sync::Arc;
use sync::lock::{Condvar, Mutex};
use sync::time::{Duration, Instant};

use crate::{BackingFile, Batch, Helping, Identity, Request};

/// What a thread of the pool does.
pub(crate) enum Work {
    Request(Submitted),
    Call(Box<dyn FnOnce() + Send>),
}

/// A request, and the file that it is for.
pub(crate) struct Submitted {
    pub(crate) file: Arc<dyn BackingFile>,
    pub(crate) request: Request,
}

impl Work {
    fn run(self) {
        match self {
            Self::Call(call) => call(),
            Self::Request(Submitted { file, request }) => request.run(&*file),
        }
    }

    fn is_of(&self, batch: &Batch) -> bool {
        matches!(self, Self::Request(Submitted { request, .. }) if request.batch() == Some(batch))
    }
}

#[derive(Default)]
struct Line {
    work: VecDeque<Work>,
    /// In line, and under way.
    unfinished: usize,
}

#[derive(Default)]
struct Device {
    /// Files with something in line, each once.
    turns: VecDeque<Identity>,
    /// The pool's threads that do work of it.
    threads: usize,
}

#[derive(Default)]
struct State {
    /// Of files with something unfinished.
    lines: BTreeMap<Identity, Line>,
    /// Those with something in line, or a thread.
    devices: BTreeMap<u64, Device>,
    /// Devices with something in line, each once.
    turns: VecDeque<u64>,
    over: u64,
    helpers: u32,
    /// Threads that sleep, and weren't called.
    idle: usize,
    /// Calls that no thread has answered yet.
    called: usize,
    threads: usize,
    closed: bool,
}

/// Work in line that a helper looks at from either end of it, to find its own.
const SEARCHED_MAX: usize = 64;

impl State {
    /// Puts work at the end of its file's line. Says how many threads of the pool may begin with
    /// it.
    fn put(&mut self, file: Identity, work: impl ExactSizeIterator<Item = Work>, threads_max: usize) -> usize {
        let count = work.len();
        let line = self.lines.entry(file).or_default();
        let waited = !line.work.is_empty();
        line.unfinished += count;
        line.work.extend(work);
        let device = self.devices.entry(file.device).or_default();
        if !waited && count > 0 {
            if device.turns.is_empty() {
                self.turns.push_back(file.device);
            }
            // Transition: work, submitted → in line.
            device.turns.push_back(file);
        }
        count.min(threads_max.saturating_sub(device.threads))
    }

    /// The next work for a thread of the pool, of the device whose turn it is.
    fn take(&mut self, threads_max: usize) -> Option<(Identity, Work)> {
        for _ in 0..self.turns.len() {
            let number = self.turns.pop_front()?;
            let Some(device) = self.devices.get_mut(&number) else { continue };
            if device.threads >= threads_max {
                self.turns.push_back(number);
                continue;
            }
            let Some(file) = device.turns.pop_front() else { continue };
            let Some(line) = self.lines.get_mut(&file) else { continue };
            let work = line.work.pop_front();
            if !line.work.is_empty() {
                device.turns.push_back(file);
            }
            if !device.turns.is_empty() {
                self.turns.push_back(number);
            }
            let Some(work) = work else { continue };
            // Transition: work, in line → under way, by a thread of the pool.
            device.threads += 1;
            return Some((file, work));
        }
        None
    }

    /// A helper's own work: of the batch; if there is none, the oldest of the file.
    fn take_own(&mut self, file: Identity, batch: Option<&Batch>) -> Option<Work> {
        let line = &mut self.lines.get_mut(&file)?.work;
        let at = match batch {
            None => 0,
            Some(batch) => {
                let last = line.len().saturating_sub(SEARCHED_MAX);
                let front = line.iter().take(SEARCHED_MAX).position(|work| work.is_of(batch));
                front.or_else(|| line.range(last..).position(|work| work.is_of(batch)).map(|at| last + at))?
            }
        };
        let work = line.remove(at)?;
        if line.is_empty() {
            self.leave_turns(file);
        }
        Some(work)
    }

    /// The last of a file's work was taken out of turn.
    fn leave_turns(&mut self, file: Identity) {
        let Some(device) = self.devices.get_mut(&file.device) else { return };
        device.turns.retain(|&other| other != file);
        if device.turns.is_empty() {
            self.turns.retain(|&other| other != file.device);
        }
    }

    fn unfinished(&self, file: Identity) -> usize {
        self.lines.get(&file).map_or(0, |line| line.unfinished)
    }

    /// Work of the file is over; a thread of the pool did it, if `by_thread`.
    fn end(&mut self, file: Identity, by_thread: bool) {
        self.over += 1;
        if let Some(line) = self.lines.get_mut(&file) {
            line.unfinished -= 1;
            if line.unfinished == 0 {
                self.lines.remove(&file);
            }
        }
        if let Some(device) = self.devices.get_mut(&file.device) {
            device.threads -= usize::from(by_thread);
            if device.threads == 0 && device.turns.is_empty() {
                self.devices.remove(&file.device);
            }
        }
    }
}

/// All lines of a pool.
pub(crate) struct Lines {
    state: Mutex<State>,
    /// There is work that a thread may begin, or the pool is closed.
    work: Condvar,
    /// Work is over, and there are helpers.
    over: Condvar,
    /// Threads that may be with one device at a time.
    pub(crate) threads_max: usize,
}

impl Lines {
    pub(crate) fn new(threads_max: usize) -> Self {
        Self { state: Mutex::default(), work: Condvar::default(), over: Condvar::default(), threads_max }
    }

    /// Puts work of one file into its line, and wakes threads for it. Says how many are to be
    /// started.
    pub(crate) fn enter(&self, file: Identity, work: impl ExactSizeIterator<Item = Work>) -> usize {
        let mut state = self.state.lock();
        let wanted = state.put(file, work, self.threads_max);
        let woken = state.idle.min(wanted);
        state.idle -= woken;
        state.called += woken;
        // Enough for each device that has work to have its threads.
        let more = (self.threads_max * state.devices.len().max(1)).saturating_sub(state.threads);
        drop(state);
        for _ in 0..woken {
            self.work.notify_one();
        }
        more.min(wanted - woken)
    }

    /// A thread is about to be started, or wasn't; says how many there are.
    pub(crate) fn count_thread(&self, started: bool) -> usize {
        let mut state = self.state.lock();
        state.threads = if started { state.threads + 1 } else { state.threads - 1 };
        state.threads
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.state.lock().threads > 0
    }

    /// Does the batch's work, or without one the file's, until `done()`, until it is over, or until
    /// the time is.
    pub(crate) fn help(&self, file: Identity, batch: Option<&Batch>, how: Helping, done: &dyn Fn() -> bool) {
        let time = how.at_most.map(|most| (most, Instant::now()));
        loop {
            let over = self.state.lock().over;
            if done() || batch.is_some_and(|batch| batch.unfinished() == 0) {
                return;
            }
            let mut state = self.state.lock();
            if state.over != over {
                continue;
            }
            if state.unfinished(file) == 0 {
                return;
            }
            let own = if how.waits_only { None } else { state.take_own(file, batch) };
            if let Some(work) = own {
                drop(state);
                // Transition: work, in line → under way, by a helper.
                self.perform(file, work, false);
                continue;
            }
            let rest = time.map(|(most, start)| most.saturating_sub(start.elapsed()));
            if rest == Some(Duration::ZERO) {
                return;
            }
            state.helpers += 1;
            match rest {
                None => self.over.wait(&mut state),
                Some(rest) => {
                    self.over.wait_for(&mut state, rest);
                }
            }
            state.helpers -= 1;
        }
    }

    /// Does one piece of work, whatever it is, for want of a thread.
    pub(crate) fn perform_any(&self) -> bool {
        let next = self.state.lock().take(usize::MAX);
        let some = next.is_some();
        if let Some((file, work)) = next {
            self.perform(file, work, true);
        }
        some
    }

    /// Waits for work. None if the thread is to end: the pool is closed, and the lines are empty;
    /// or there are more threads than one device can have, and nothing to do.
    pub(crate) fn next(&self) -> Option<(Identity, Work)> {
        let mut state = self.state.lock();
        loop {
            let next = state.take(self.threads_max);
            if next.is_some() {
                return next;
            }
            // Work of a device that has all its threads is theirs.
            if state.closed || state.threads > self.threads_max {
                // Sometimes: a thread of the pool ends.
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            while state.called == 0 && !state.closed {
                self.work.wait(&mut state); // It may end without a call.
            }
            state.called = state.called.saturating_sub(1);
        }
    }

    /// Does work that was taken.
    pub(crate) fn perform(&self, file: Identity, work: Work, by_thread: bool) {
        let _over = Over { lines: self, file, by_thread };
        work.run();
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.idle = 0;
        drop(state);
        self.work.notify_all();
    }
}

/// Counts work as over when dropped: by unwinding too.
struct Over<'a> {
    lines: &'a Lines,
    file: Identity,
    by_thread: bool,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut state = self.lines.state.lock();
        state.end(self.file, self.by_thread);
        let helpers = state.helpers;
        drop(state);
        if helpers > 0 {
            self.lines.over.notify_all();
        }
    }
}
