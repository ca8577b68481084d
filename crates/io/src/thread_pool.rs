//! Reads, writes and syncs done by a fixed number of threads, so that no more of them are under way at once.
//!
//! A caller takes one of a fixed number of *seats*, puts its request there, and sleeps until the seat has the answer.
//!
//! | seat | who touches it | becomes |
//! |---|---|---|
//! | `Free` | a caller with a request | `Waiting`, and its number goes to the end of `line` |
//! | `Waiting` | the worker that takes the number from `line` | `Running` |
//! | `Running` | that worker, when the request is done | `Answered` |
//! | `Answered` | the caller | `Free` |
//!
//! - T1. A seat belongs to one caller from `Free` to `Free`. All of it is under one lock, which nobody holds while
//!   reading or writing.
//! - T2. A worker has what a request borrows, bytes or slices of them, between `Waiting` and `Answered`, and no copy of
//!   it afterwards.
//! - T3. The caller that it is borrowed from doesn't leave [`Queue::run`] before its seat is `Answered`: not by
//!   unwinding either, which aborts the process.
//! - T4. The pool is closed only when neither it nor a file of it is left, so then there are no callers.
//!
//! Threads that have nothing to do sleep. Seats hold the wake-up of their caller, so an answer wakes only that one.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use sync::lock::{Condvar, Mutex};
use sync::thread::{self, JoinHandle};
use sync::{Arc, SharedBytes};

use crate::{Access, Backend, BackingFile, Identity, IoError};

/// A backend whose reads, writes and syncs are those of another one, done by threads. Opening a file, and asking or
/// setting its length, aren't. A sync keeps a thread for as long as the disk takes.
pub struct ThreadPool {
    inner: Box<dyn Backend>,
    pool: Arc<Pool>,
}

impl ThreadPool {
    /// `threads` threads using `inner`, at least one. `queue` requests more than that may wait; who comes later
    /// waits for room.
    ///
    /// # Errors
    /// The system's, when it has no thread left to give.
    pub fn new(inner: impl Backend, threads: usize, queue: usize) -> Result<Self, IoError> {
        let threads = threads.max(1);
        let queue = Arc::new(Queue::new(threads.saturating_add(queue)));
        let mut pool = Pool { queue: Arc::clone(&queue), workers: Vec::new() };
        for number in 0..threads {
            let queue = Arc::clone(&queue);
            let worker = thread::spawn(&format!("pagefold-io-{number}"), move || queue.work());
            // Dropping the pool ends the ones that did start.
            pool.workers.push(worker.map_err(|error| error.raw_os_error().map_or(IoError::AGAIN, IoError::Os))?);
        }
        Ok(Self { inner: Box::new(inner), pool: Arc::new(pool) })
    }
}

impl Backend for ThreadPool {
    fn name(&self) -> &'static str {
        "thread pool"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let file = Arc::from(self.inner.open(path, access)?);
        Ok(Box::new(PooledFile { file, pool: Arc::clone(&self.pool) }))
    }
}

struct PooledFile {
    file: Arc<dyn BackingFile>,
    pool: Arc<Pool>,
}

impl BackingFile for PooledFile {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn read(&self, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
        self.pool.queue.run(&self.file, Task::Read { offset, into })
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.pool.queue.run(&self.file, Task::Write { offset, from, len })
    }

    fn sync(&self) -> Result<(), IoError> {
        self.pool.queue.run(&self.file, Task::Sync).map(|_| ())
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.file.set_len(len)
    }
}

/// The threads, which end with it. They hold the queue alone, so none of them ever joins itself.
struct Pool {
    queue: Arc<Queue>,
    workers: Vec<JoinHandle<()>>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.close();
        for worker in self.workers.drain(..) {
            // A worker catches what its requests throw, so there is nothing to hear of here.
            let _ = worker.join();
        }
    }
}

/// What a request came to: an answer, or a panic that belongs to the caller.
type Outcome = Result<Result<usize, IoError>, Box<dyn Any + Send>>;

/// What is to be done.
enum Task<'a> {
    Read {
        offset: u64,
        into: SharedBytes<'a>,
    },
    Write {
        offset: u64,
        from: &'a [SharedBytes<'a>],
        len: usize,
    },
    /// Comes to 0.
    Sync,
}

/// A task, and the file that it is for. What it borrows lives as long as T2 and T3 say.
struct Request {
    file: Arc<dyn BackingFile>,
    task: Task<'static>,
}

enum Seat {
    Free,
    Waiting(Request),
    Running,
    Answered(Outcome),
}

struct State {
    seats: Box<[Seat]>,
    /// Numbers of the free seats.
    free: Vec<usize>,
    /// Numbers of the waiting seats, oldest first.
    line: VecDeque<usize>,
    closed: bool,
}

struct Queue {
    state: Mutex<State>,
    /// There is something in `line`, or the pool is closed.
    work: Condvar,
    /// There is something in `free`.
    room: Condvar,
    /// For each seat: it is answered.
    answers: Box<[Condvar]>,
}

impl Queue {
    fn new(seats: usize) -> Self {
        Self {
            state: Mutex::new(State {
                seats: (0..seats).map(|_| Seat::Free).collect(),
                free: (0..seats).rev().collect(),
                line: VecDeque::with_capacity(seats),
                closed: false,
            }),
            work: Condvar::new(),
            room: Condvar::new(),
            answers: (0..seats).map(|_| Condvar::new()).collect(),
        }
    }

    /// Has a worker do the task, and waits for it.
    fn run(&self, file: &Arc<dyn BackingFile>, task: Task<'_>) -> Result<usize, IoError> {
        let stay = AbortOnUnwind;
        // SAFETY: only the lifetime changes. A worker uses what is borrowed before the seat is answered and not
        // afterwards (T2), and until then this function keeps the borrow (T3): it leaves below `take_answer`, and
        // unwinding from anywhere before ends in `stay`.
        #[allow(unsafe_code)]
        let task = unsafe { std::mem::transmute::<Task<'_>, Task<'static>>(task) };
        let seat = self.ask(Request { file: Arc::clone(file), task });
        let outcome = self.take_answer(seat);
        std::mem::forget(stay);
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Puts the request on a seat, and says on which.
    fn ask(&self, request: Request) -> usize {
        let mut state = self.state.lock();
        let seat = loop {
            match state.free.pop() {
                Some(seat) => break seat,
                None => self.room.wait(&mut state),
            }
        };
        state.seats[seat] = Seat::Waiting(request);
        state.line.push_back(seat);
        drop(state);
        self.work.notify_one();
        seat
    }

    /// Waits for the answer, and frees the seat.
    fn take_answer(&self, seat: usize) -> Outcome {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut state.seats[seat], Seat::Free) {
                Seat::Answered(outcome) => {
                    state.free.push(seat);
                    drop(state);
                    self.room.notify_one();
                    return outcome;
                }
                pending => state.seats[seat] = pending,
            }
            self.answers[seat].wait(&mut state);
        }
    }

    /// A worker's life.
    fn work(&self) {
        while let Some((seat, request)) = self.next() {
            let outcome = request.run();
            self.state.lock().seats[seat] = Seat::Answered(outcome);
            self.answers[seat].notify_one();
        }
    }

    /// Waits for a request; none when the pool is closed.
    fn next(&self) -> Option<(usize, Request)> {
        let mut state = self.state.lock();
        loop {
            if let Some(seat) = state.line.pop_front() {
                match std::mem::replace(&mut state.seats[seat], Seat::Running) {
                    Seat::Waiting(request) => return Some((seat, request)),
                    // T1: a number in `line` is that of a waiting seat.
                    other => state.seats[seat] = other,
                }
            } else if state.closed {
                return None;
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }
}

impl Request {
    /// Does it. The request is gone when this returns (T2).
    fn run(self) -> Outcome {
        let Self { file, task } = self;
        catch_unwind(AssertUnwindSafe(move || match task {
            Task::Read { offset, into } => file.read(offset, into),
            Task::Write { offset, from, len } => file.write(offset, from, len),
            Task::Sync => file.sync().map(|()| 0),
        }))
    }
}

/// Ends the process when dropped, which is to say: when unwound past.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(all(test, not(pagefold_loom)))]
#[path = "thread_pool_tests.rs"]
mod tests;
