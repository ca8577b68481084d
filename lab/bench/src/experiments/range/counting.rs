//! The range lock of 2019, over any collection of ranges. The collection has all held and requested
//! ranges, under a spinlock. A task that requests a range counts the earlier ranges that conflict
//! with it, and waits until this count is 0: each task that releases its range decrements the
//! counts of the tasks that wait for it. First come, first served.

use span_lock::LockRange;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{FileLock, Use};
use crate::experiments::older::queued_spinlock::{Places, QueuedSpinlock};
use crate::experiments::older::seat::Seat;

/// Ranges by number; each task has one at most.
pub(super) trait Ranges: Sync {
    /// An empty collection for the ranges of so many tasks.
    fn new(tasks: usize) -> Self;
    /// Adds a task's range.
    fn insert(&self, task: usize, range: LockRange);
    /// Removes it.
    fn remove(&self, task: usize, range: LockRange);
    /// Calls `visit` with the task of each range that overlaps `range`.
    fn overlapping(&self, range: LockRange, visit: impl FnMut(usize));
}

/// What the lock knows of a task.
#[derive(Default)]
#[repr(align(64))]
struct Request {
    /// 1 to write.
    writes: AtomicU32,
    /// Ranges that are in the way.
    blockers: AtomicU32,
    /// When it came.
    ticket: AtomicU64,
    seat: Seat,
}

#[derive(Default)]
#[repr(align(64))]
struct Tickets(AtomicU64);

/// The lock.
pub(super) struct Counting<R> {
    spinlock: QueuedSpinlock,
    places: Places,
    ranges: R,
    requests: Box<[Request]>,
    tickets: Tickets,
}

impl<R: Ranges> FileLock for Counting<R> {
    fn new(tasks: usize) -> Self {
        Self {
            spinlock: QueuedSpinlock::default(),
            places: Places::new(tasks),
            ranges: R::new(tasks),
            requests: (0..tasks).map(|_| Request::default()).collect(),
            tickets: Tickets::default(),
        }
    }

    #[inline(always)]
    fn with(&self, task: usize, range: LockRange, what: Use, inside: impl FnOnce()) {
        let mine = &self.requests[task];
        let writes = u32::from(what == Use::Write);
        // Relaxed, here and below: under the spinlock.
        let blockers = self.spinlock.with(&self.places, task, || {
            let mut blockers = 0;
            self.ranges.overlapping(range, |other| {
                blockers += writes | self.requests[other].writes.load(Ordering::Relaxed);
            });
            let ticket = self.tickets.0.load(Ordering::Relaxed) + 1;
            self.tickets.0.store(ticket, Ordering::Relaxed);
            mine.ticket.store(ticket, Ordering::Relaxed);
            mine.writes.store(writes, Ordering::Relaxed);
            mine.blockers.store(blockers, Ordering::Relaxed);
            mine.seat.sit();
            self.ranges.insert(task, range);
            blockers
        });
        if blockers != 0 {
            mine.seat.wait();
        }
        inside();
        self.spinlock.with(&self.places, task, || {
            self.ranges.remove(task, range);
            let ticket = mine.ticket.load(Ordering::Relaxed);
            self.ranges.overlapping(range, |other| {
                let other = &self.requests[other];
                let conflicts = writes | other.writes.load(Ordering::Relaxed) != 0;
                if conflicts && other.ticket.load(Ordering::Relaxed) > ticket {
                    let left = other.blockers.load(Ordering::Relaxed) - 1;
                    other.blockers.store(left, Ordering::Relaxed);
                    if left == 0 {
                        other.seat.tell();
                    }
                }
            });
        });
    }
}
