//! A ticket lock: tasks are served in the order in which they come.

use sync::atomic::{AtomicU32, AtomicU64, Ordering, spin_hint};

use super::{Pair, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "ticket",
    about: "a ticket lock; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, Ticket::default),
};

#[derive(Default)]
#[repr(align(64))]
struct Next(AtomicU32);

#[derive(Default)]
#[repr(align(64))]
struct Serving(AtomicU32);

#[derive(Default)]
#[repr(align(64))]
struct Words([AtomicU64; 2]);

#[derive(Default)]
struct Ticket {
    next: Next,
    serving: Serving,
    words: Words,
}

impl Pair for Ticket {
    fn operate(&self, _: u64) {
        // Relaxed: a ticket orders nothing.
        let ticket = self.next.0.fetch_add(1, Ordering::Relaxed);
        // Acquire pairs with the Release below.
        while self.serving.0.load(Ordering::Acquire) != ticket {
            spin_hint();
        }
        for word in &self.words.0 {
            // Relaxed: under the lock.
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        // Release pairs with the Acquire of the next holder.
        self.serving.0.store(ticket.wrapping_add(1), Ordering::Release);
    }
}
