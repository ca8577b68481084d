//! Linux's reader/writer semaphore, as it was until 5.1 (`rwsem-xadd`): first come, first served. A
//! reader enters by one addition to the word, and leaves by one subtraction. Readers that follow
//! each other in the queue enter together.
//!
//! A reader that finds a writer or a queue subtracts again what it has added, and joins the queue.
//! So the word may briefly count readers that don't hold the lock. R1: if a subtraction leaves a
//! queue but no holder, the task that made it serves the queue, even if this task never held the
//! lock.
//!
//! Linux's writers also spin while another writer runs. In this copy, every waiting task spins for
//! a short time.

use std::collections::VecDeque;

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use super::seat::Seat;

/// What a lock is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

const WRITER: u64 = 1;
/// A task is in the queue: no other task overtakes it.
const QUEUED: u64 = 2;
/// One reader.
const READER: u64 = 4;

impl Use {
    /// What a holder adds to the word.
    fn counts(self) -> u64 {
        match self {
            Self::Read => READER,
            Self::Write => WRITER,
        }
    }
}

struct Waiter {
    task: usize,
    what: Use,
}

/// The lock, on lines of its own.
#[repr(align(128))]
pub(crate) struct RwSem {
    word: AtomicU64,
    queue: Mutex<VecDeque<Waiter>>,
    seats: Box<[Seat]>,
}

impl RwSem {
    /// For so many tasks.
    pub(crate) fn new(tasks: usize) -> Self {
        let seats = (0..tasks).map(|_| Seat::default()).collect();
        Self { word: AtomicU64::new(0), queue: Mutex::new(VecDeque::with_capacity(tasks)), seats }
    }

    /// Has `inside` run by a task that holds the lock.
    #[inline(always)]
    pub(crate) fn with<R>(&self, task: usize, what: Use, inside: impl FnOnce() -> R) -> R {
        if !self.enter(what) {
            self.wait(task, what);
        }
        let result = inside();
        self.leave(what.counts());
        result
    }

    #[inline(always)]
    fn enter(&self, what: Use) -> bool {
        // Acquire, both: pairs with the Release of the task that left.
        match what {
            Use::Write => self.word.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok(),
            Use::Read if self.word.fetch_add(READER, Ordering::Acquire) & (WRITER | QUEUED) == 0 => true,
            Use::Read => {
                self.leave(READER);
                false
            }
        }
    }

    /// Takes back what a task added to the word.
    #[inline(always)]
    fn leave(&self, counts: u64) {
        // Release pairs with the Acquire in `enter`.
        if self.word.fetch_sub(counts, Ordering::Release) - counts == QUEUED {
            self.serve(&mut self.queue.lock()); // R1.
        }
    }

    #[cold]
    fn wait(&self, task: usize, what: Use) {
        let seat = &self.seats[task];
        seat.sit();
        let mut queue = self.queue.lock();
        queue.push_back(Waiter { task, what });
        // From now on no task enters, and the last holder that leaves serves the queue.
        self.word.fetch_or(QUEUED, Ordering::Relaxed);
        self.serve(&mut queue);
        drop(queue);
        seat.wait();
    }

    /// If no task holds the lock, gives it to the first waiter if that is a writer, or to all
    /// readers at the front of the queue.
    #[cold]
    fn serve(&self, queue: &mut VecDeque<Waiter>) {
        // Acquire pairs with the Release in `leave`. Another task may hold the lock by now, or a
        // reader may be counted that doesn't hold it; this reader then serves the queue (R1).
        if self.word.load(Ordering::Acquire) != QUEUED {
            return;
        }
        let Some(first) = queue.front().map(|waiter| waiter.what) else { return };
        let most = if first == Use::Write { 1 } else { queue.len() };
        let together = queue.iter().take(most).take_while(|waiter| waiter.what == first).count();
        let left = if together == queue.len() { QUEUED } else { 0 };
        // Release: what the last holder did.
        self.word.fetch_add((first.counts() * together as u64).wrapping_sub(left), Ordering::Release);
        queue.drain(..together).for_each(|waiter| self.seats[waiter.task].tell());
    }
}

#[cfg(all(test, pagefold_manycore))]
mod tests {
    use manycore::{Costs, Machine, Shape};
    use sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_writer_is_alone_and_all_tasks_get_their_turns() {
        let machine = Machine::new(Shape::new(1, 4, 1).expect("a shape"), Costs::default()).expect("a machine");
        let run = |machine: &Machine| {
            let (lock, inside) = (RwSem::new(4), AtomicU32::new(0));
            machine.run_tasks(4, |task| {
                for turn in 0..3 {
                    let what = if (task + turn).is_multiple_of(2) { Use::Write } else { Use::Read };
                    lock.with(task, what, || {
                        let counts = if what == Use::Write { 100 } else { 1 };
                        let before = inside.fetch_add(counts, Ordering::Relaxed);
                        assert!(before == 0 || what == Use::Read && before < 100, "{what:?} beside {before}");
                        inside.fetch_sub(counts, Ordering::Relaxed);
                    });
                }
            })
        };
        machine.events_max(1_000_000).explore(0..2000, run).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
