//! A bounded queue in an array (D. Vyukov, "Bounded MPMC queue", 2010).
//!
//! Values have positions 0, 1, 2 …; the value of position p is in cell `p % cells`. Each cell has a
//! number. For position p, it is
//!
//! - p, if the value may be put in;
//! - p + 1, if the value may be taken out;
//! - p + cells, once the value has been taken out.

use sync::atomic::{AtomicU64, Ordering, spin_hint};

use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "ring",
    about: "a ring of 64 cells or more, half of them full; each operation takes a value out and puts it in again",
    hidden: false,
    measure: |job| measure(job, new),
};

/// The number of a full cell is the position of its value, plus this.
const FULL: u64 = 1;

#[repr(align(64))]
struct Cell {
    number: AtomicU64,
    value: AtomicU64,
}

/// The position that the next task uses.
#[repr(align(64))]
struct End(AtomicU64);

struct Ring {
    head: End,
    tail: End,
    cells: Box<[Cell]>,
}

/// A ring for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    let cells = (2 * tasks as u64).max(64);
    let cell = |at| Cell { number: AtomicU64::new(at), value: AtomicU64::new(0) };
    let end = || End(AtomicU64::new(0));
    let ring = Ring { head: end(), tail: end(), cells: (0..cells).map(cell).collect() };
    (0..cells / 2).for_each(|_| ring.push(0));
    // Once around: tasks find no cell that is used for the first time.
    (0..cells).for_each(|_| ring.push(ring.pop()));
    ring
}

impl Ring {
    fn cell(&self, at: u64) -> &Cell {
        &self.cells[(at % self.cells.len() as u64) as usize]
    }

    /// Claims the next position at one end. Waits until the previous user of its cell is done.
    fn claim(&self, end: &End, full: u64) -> u64 {
        // Relaxed, here and below: the cells' numbers order everything.
        let mut at = end.0.load(Ordering::Relaxed);
        loop {
            // Acquire pairs with the Releases in `push` and `pop`.
            let number = self.cell(at).number.load(Ordering::Acquire);
            if number == at + full {
                match end.0.compare_exchange_weak(at, at + 1, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return at,
                    Err(now) => at = now,
                }
            } else {
                if number < at + full {
                    spin_hint();
                }
                at = end.0.load(Ordering::Relaxed);
            }
        }
    }

    fn push(&self, value: u64) {
        let at = self.claim(&self.tail, 0);
        // Relaxed: the number publishes it.
        self.cell(at).value.store(value, Ordering::Relaxed);
        // Release pairs with the Acquire of the task that takes the value out.
        self.cell(at).number.store(at + FULL, Ordering::Release);
    }

    fn pop(&self) -> u64 {
        let at = self.claim(&self.head, FULL);
        // Relaxed: the cell is this task's alone.
        let value = self.cell(at).value.load(Ordering::Relaxed);
        // Release pairs with the Acquire load in `claim` of the task that next puts a value into
        // this cell: the value is taken out before it is overwritten.
        self.cell(at).number.store(at + self.cells.len() as u64, Ordering::Release);
        value
    }
}

impl Shared for Ring {
    fn operate(&self, _: usize, _: u64) {
        self.push(self.pop() + 1);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!((0..self.cells.len() / 2).map(|_| self.pop()).sum::<u64>(), uses);
        // Relaxed: all tasks have ended.
        assert_eq!(self.head.0.load(Ordering::Relaxed), self.tail.0.load(Ordering::Relaxed));
    }
}
