//! A plain lock for the whole file, fair: first come, first served, readers that follow each other
//! together.

use std::collections::VecDeque;

use span_lock::LockRange;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use super::seat::Seat;
use super::{FileLock, Use, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "rwlock",
    about: "a fair reader/writer lock for the whole file: a word, and a queue in order of arrival",
    hidden: false,
    measure: |job| measure::<Fair>(job),
};

const WRITER: u64 = 1;
/// A task is in the queue: no other task overtakes it.
const QUEUED: u64 = 2;
/// One reader.
const READER: u64 = 4;

struct Waiter {
    task: usize,
    what: Use,
}

/// The lock.
pub(in crate::experiments) struct Fair {
    word: AtomicU64,
    queue: Mutex<VecDeque<Waiter>>,
    seats: Box<[Seat]>,
}

impl FileLock for Fair {
    fn new(tasks: usize) -> Self {
        let seats = (0..tasks).map(|_| Seat::default()).collect();
        Self { word: AtomicU64::new(0), queue: Mutex::new(VecDeque::with_capacity(tasks)), seats }
    }

    #[inline(always)]
    fn with(&self, task: usize, _: LockRange, what: Use, inside: impl FnOnce()) {
        if !self.enter(what) {
            self.wait(task, what);
        }
        inside();
        match what {
            // Release, both: pairs with the Acquire in `enter`.
            Use::Read => {
                if self.word.fetch_sub(READER, Ordering::Release) == READER | QUEUED {
                    self.hand_over();
                }
            }
            Use::Write => {
                if self.word.compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed).is_err() {
                    self.hand_over();
                }
            }
        }
    }
}

impl Fair {
    fn enter(&self, what: Use) -> bool {
        // Relaxed: the exchange decides.
        let mut word = if what == Use::Write { 0 } else { self.word.load(Ordering::Relaxed) };
        loop {
            let to = match what {
                Use::Write if word == 0 => WRITER,
                Use::Read if word & (WRITER | QUEUED) == 0 => word + READER,
                _ => return false,
            };
            // Acquire pairs with the Release of the task that left.
            match self.word.compare_exchange_weak(word, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
    }

    #[cold]
    fn wait(&self, task: usize, what: Use) {
        let seat = &self.seats[task];
        seat.sit();
        let mut queue = self.queue.lock();
        // No task enters from now on, and the last holder to leave looks into the queue.
        let before = self.word.fetch_or(QUEUED, Ordering::Acquire);
        queue.push_back(Waiter { task, what });
        if before & !QUEUED == 0 && queue.len() == 1 {
            self.serve(&mut queue);
        }
        drop(queue);
        seat.wait();
    }

    /// The last holder gives the lock to the first waiter in the queue.
    #[cold]
    fn hand_over(&self) {
        let mut queue = self.queue.lock();
        self.serve(&mut queue);
    }

    /// Lets the first waiter in, or all readers at the front. No task holds the lock but the
    /// caller, which is leaving.
    fn serve(&self, queue: &mut VecDeque<Waiter>) {
        let mut enter = 0;
        let mut told = Vec::new();
        while let Some(waiter) = queue.front() {
            if waiter.what == Use::Write && enter != 0 {
                break;
            }
            enter += if waiter.what == Use::Write { WRITER } else { READER };
            told.push(waiter.task);
            queue.pop_front();
            if enter == WRITER {
                break;
            }
        }
        let queued = if queue.is_empty() { 0 } else { QUEUED };
        // Release: what the last holder did. No other task changes the word: it is queued, and no
        // task holds the lock.
        self.word.store(enter | queued, Ordering::Release);
        told.into_iter().for_each(|task| self.seats[task].tell());
    }
}
