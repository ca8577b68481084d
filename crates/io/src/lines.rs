//! The work queues of a thread pool: one queue (*line*) per file, served round robin.
//!
//! With one queue for all files, requests to a fast file would wait behind hundreds of requests to
//! a slow file. So each file has a queue of its own. The pool takes turns (round robin) among the
//! devices that have queued work, and, for each device, among its files.
//!
//! The pool limits the number of its threads that work for one device at a time (`threads_max`). So
//! a device that doesn't answer ties up that many threads and no more.
//!
//! | a piece of work is | owned by | becomes |
//! |---|---|---|
//! | in line | its file's line | under way: taken by a thread of the pool, or by a helper of its batch |
//! | under way | the thread that has taken it, without any lock | over |
//!
//! - T1. One lock protects all queues. It isn't held while a thread reads or writes.
//! - T2. Work counts as `unfinished` for its file from the moment it is queued until it has
//!   completed. Each completion increments `over`. A helper reads `over`, then checks `done()`, and
//!   sleeps only if `over` hasn't changed since the read. So if a completion makes `done()` true
//!   between the check and the sleep, the helper notices. A thread that sleeps on a ring isn't
//!   woken. It checks the [`Tally`] before it sleeps (L7 of `reaping`).
//! - T3. A thread of the pool sleeps only if there is no work that it may begin, that is, if each
//!   device with queued work already has `threads_max` threads. When work is queued, a thread is
//!   woken or started for each piece of work, within the limit of the file's device. A thread that
//!   has completed a piece of work looks for the next piece, possibly of another device. So
//!   whenever there is work that may begin, a thread is awake to begin it:
//!
//! ```text
//! thread A: done with work of device D ── lock: D has a thread to spare, and E new work ── takes E's, not D's
//! submitter:              lock: E's work in line, wakes thread B
//! thread B:                                                        lock: takes D's
//! ```

use std::collections::{BTreeMap, VecDeque};

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::time::{Duration, Instant};

use crate::{BackingFile, Batch, Helping, Identity, Request};

/// Work for a thread of the pool.
pub(crate) enum Work {
    Request(Submitted),
    Call(Box<dyn FnOnce() + Send>),
}

/// A request and its file.
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
    /// Pieces of work that are queued or under way.
    unfinished: usize,
}

#[derive(Default)]
struct Device {
    /// The device's files that have queued work, each once.
    turns: VecDeque<Identity>,
    /// The number of the pool's threads that work for the device.
    threads: usize,
}

#[derive(Default)]
struct State {
    /// The queues of files with unfinished work.
    lines: BTreeMap<Identity, Line>,
    /// The devices that have queued work or a thread.
    devices: BTreeMap<u64, Device>,
    /// The devices that have queued work, each once.
    turns: VecDeque<u64>,
    helpers: u32,
    /// Sleeping threads that haven't been called, that is, woken for work.
    idle: usize,
    /// Calls that no thread has responded to yet.
    called: usize,
    threads: usize,
    closed: bool,
}

/// A helper that looks for its own work checks this many entries at each end of the queue.
const SEARCHED_MAX: usize = 64;

impl State {
    /// Puts work at the end of its file's queue. Returns the number of threads of the pool that may
    /// begin with it.
    fn put(&mut self, file: Identity, work: impl ExactSizeIterator<Item = Work>, threads_max: usize) -> usize {
        let count = work.len();
        if count == 0 {
            return 0; // Without work, nothing would remove the entries.
        }
        let line = self.lines.entry(file).or_default();
        let waited = !line.work.is_empty();
        line.unfinished += count;
        line.work.extend(work);
        let device = self.devices.entry(file.device).or_default();
        if !waited {
            if device.turns.is_empty() {
                self.turns.push_back(file.device);
            }
            // Transition: work, submitted → in line.
            device.turns.push_back(file);
        }
        count.min(threads_max.saturating_sub(device.threads))
    }

    /// Returns the next work for a thread of the pool, from the device and the file whose turn it
    /// is.
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

    /// Removes a piece of a helper's own work from the file's queue, and returns it. If the helper
    /// has a batch, this is work of the batch: the function searches up to `SEARCHED_MAX` entries
    /// at the front of the queue, and then as many at its end. Without a batch, this is the file's
    /// oldest work.
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

    /// Removes the file from the turns, since a helper has taken its last queued work.
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

    /// Records that work of the file has completed, by a thread of the pool if `by_thread`.
    fn end(&mut self, file: Identity, by_thread: bool) {
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

/// Counts the pieces of work that were ever queued, and those of them that have completed. A thread
/// that has read [`over`](Self::over) can tell later whether any work was unfinished at the time of
/// the read, or has been queued since.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    entered: AtomicU64,
    over: AtomicU64,
}

impl Tally {
    /// Counts work that is about to be queued.
    pub(crate) fn enter(&self, count: usize) {
        // Relaxed: `are_all_over` says how a thread learns of it.
        self.entered.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts a piece of work that has completed.
    pub(crate) fn end(&self) {
        // Release pairs with the Acquire in `over`: what the work did is visible.
        self.over.fetch_add(1, Ordering::Release);
    }

    /// Returns how many pieces of work have completed.
    pub(crate) fn over(&self) -> u64 {
        self.over.load(Ordering::Acquire)
    }

    /// Returns whether all work that was queued until now had completed when `over` was read. Takes
    /// into account all work whose queueing is visible to the calling thread.
    #[cfg(any(all(test, pagefold_loom), all(feature = "uring", not(any(pagefold_loom, pagefold_manycore)))))]
    pub(crate) fn are_all_over(&self, over: u64) -> bool {
        // Relaxed: the pieces counted by `over` are visible through its Acquire. So if another
        // visible piece was queued, this count is higher.
        self.entered.load(Ordering::Relaxed) == over
    }
}

/// All queues of a pool.
pub(crate) struct Lines {
    state: Mutex<State>,
    /// Changes under the lock.
    pub(crate) tally: Tally,
    /// Signaled when a thread may begin with work, or when the pool is closed.
    work: Condvar,
    /// Signaled when work has completed and there are helpers.
    over: Condvar,
    /// The most threads that work for one device at a time.
    pub(crate) threads_max: usize,
}

impl Lines {
    pub(crate) fn new(threads_max: usize) -> Self {
        let (work, over) = (Condvar::default(), Condvar::default());
        Self { state: Mutex::default(), tally: Tally::default(), work, over, threads_max }
    }

    /// Queues work of one file, and wakes threads for it. Returns the number of threads that the
    /// caller should start.
    pub(crate) fn enter(&self, file: Identity, work: impl ExactSizeIterator<Item = Work>) -> usize {
        let mut state = self.state.lock();
        self.tally.enter(work.len());
        let wanted = state.put(file, work, self.threads_max);
        let woken = state.idle.min(wanted);
        state.idle -= woken;
        state.called += woken;
        // Each device that has work may use `threads_max` threads.
        let more = (self.threads_max * state.devices.len().max(1)).saturating_sub(state.threads);
        drop(state);
        for _ in 0..woken {
            self.work.notify_one();
        }
        more.min(wanted - woken)
    }

    /// Adds a thread that is about to be started to the number of threads. If `started` is false,
    /// subtracts a thread that couldn't be started. Returns the new number.
    pub(crate) fn count_thread(&self, started: bool) -> usize {
        let mut state = self.state.lock();
        state.threads = if started { state.threads + 1 } else { state.threads - 1 };
        state.threads
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.state.lock().threads > 0
    }

    /// Performs queued work in this thread: the work of the batch, or of the file if there is no
    /// batch. Returns when `done()` is true, when all of that work has completed, or when the time
    /// limit of `how` has passed.
    pub(crate) fn help(&self, file: Identity, batch: Option<&Batch>, how: Helping, done: &dyn Fn() -> bool) {
        let time = how.at_most.map(|most| (most, Instant::now()));
        loop {
            let over = self.tally.over();
            if done() || batch.is_some_and(|batch| batch.unfinished() == 0) {
                return;
            }
            let mut state = self.state.lock();
            if self.tally.over() != over {
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

    /// Performs one piece of any queued work, because no thread could be started. Returns whether
    /// there was any.
    pub(crate) fn perform_any(&self) -> bool {
        let next = self.state.lock().take(usize::MAX);
        let some = next.is_some();
        if let Some((file, work)) = next {
            self.perform(file, work, true);
        }
        some
    }

    /// Waits for work and returns it. Returns `None` if the thread must end: there is no work that
    /// it may begin, and the pool is closed or has more threads than one device can use.
    pub(crate) fn next(&self) -> Option<(Identity, Work)> {
        let mut state = self.state.lock();
        loop {
            let next = state.take(self.threads_max);
            if next.is_some() {
                return next;
            }
            // If a device already has all its threads, its work is left to them.
            if state.closed || state.threads > self.threads_max {
                // Sometimes: a thread of the pool ends.
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            while state.called == 0 && !state.closed {
                self.work.wait(&mut state); // A wait may end without a call.
            }
            state.called = state.called.saturating_sub(1);
        }
    }

    /// Performs work that was taken from a queue.
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

/// Counts work as completed when dropped, also during unwinding.
struct Over<'a> {
    lines: &'a Lines,
    file: Identity,
    by_thread: bool,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut state = self.lines.state.lock();
        state.end(self.file, self.by_thread);
        self.lines.tally.end();
        let helpers = state.helpers;
        drop(state);
        if helpers > 0 {
            self.lines.over.notify_all();
        }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    /// Regression: an empty submission left entries for its file and its device, and nothing
    /// removed them. The device then also raised the pool's limit on threads.
    #[test]
    fn no_work_leaves_no_entries() {
        let lines = Lines::new(1);
        assert_eq!(lines.enter(Identity { device: 1, inode: 2 }, std::iter::empty()), 0);
        let state = lines.state.lock();
        assert_eq!((state.lines.len(), state.devices.len()), (0, 0));
    }
}
