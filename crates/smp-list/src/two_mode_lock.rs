//! A lock with two modes. *Shared* is not *read*: many may be in it and change things at the same
//! time, in ways that are made for that. *Exclusive* is for everything else, walks that change
//! nothing included.
//!
//! A thread that enters shared mode writes only to a slot of its CPU, so no cache line goes between
//! CPUs: a plain per-CPU reader indicator, as in the "big-reader" locks of Linux 2.4. A thread that
//! wants exclusive mode goes through the slots of all CPUs, twice. So the cost of exclusive mode is
//! bounded: it is [`slots`](TwoModeLock::slots) lines fetched two times, besides the wait for
//! threads in shared mode. The lock's owner can print it.
//!
//! Each slot is a phase-fair lock of its own (Brandenburg and Anderson, "Spin-based reader-writer
//! synchronization for multiprocessor real-time systems", Real-Time Systems 46, 2010), without the
//! part that orders writers, which one ticket lock does for all slots:
//!
//! | `entered` of a slot | |
//! |---|---|
//! | bit 0 | `EXCLUSIVE`: a thread has exclusive mode, or waits for threads that entered shared mode before |
//! | bit 1 | `PHASE`: changes from each thread in exclusive mode to the next |
//! | 2–31 | how many threads entered shared mode here, ever, modulo 2^30; `left`: how many left it |
//!
//! - T1. A thread that adds itself to `entered` and finds `EXCLUSIVE` clear is in shared mode. If
//!   it finds `EXCLUSIVE` set, it waits until bit 0 or 1 changes.
//! - T2. A thread that sets `EXCLUSIVE` learns in the same operation how many had entered, and
//!   waits until as many have left: the threads that are in shared mode, and those that waited for
//!   the last thread in exclusive mode, which go first. So neither side starves. A thread that
//!   wants shared mode waits for at most one thread in exclusive mode to come and go. A thread that
//!   wants exclusive mode waits for those that wanted it before, and for threads that came to the
//!   slots before it.
//! - T3. Bit 1 tells the next thread in exclusive mode from the one that was waited for.
//!
//! No store here has to be ordered before a load of another word: both sides change `entered`.
//!
//! **Orderings.** Setting `EXCLUSIVE` and adding to `entered` are `Acquire`, clearing it and adding
//! to `left` `Release`: each pairs with the other side's. `next_ticket`: Relaxed, as `serving`
//! orders what ticket holders do: `Release` when it goes up, `Acquire` when it is waited for.
//!
//! **A losing interleaving**, and what excludes it:
//! ```text
//!   exclusive X             shared S                      exclusive Y
//!   sets EXCLUSIVE
//!                           enters, finds it set, waits
//!   clears it, leaves
//!                           (is preempted)                sets EXCLUSIVE; waits for S, which entered before
//!                           finds it set still: waits for Y. Neither moves.
//! ```
//! With `PHASE`, S sees that this isn't the one it waited for, and is in.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

use sync::PerCpu;
use sync::atomic::{AtomicU32, Backoff, Ordering};

const EXCLUSIVE: u32 = 1;
const PHASE: u32 = 2;
const PHASE_BITS: u32 = EXCLUSIVE | PHASE;
/// One thread that entered.
const ONE: u32 = 4;

/// What a CPU's threads write to when they enter and leave shared mode.
#[derive(Debug, Default)]
struct Slot {
    entered: AtomicU32,
    left: AtomicU32,
    /// How many had entered when exclusive mode was asked for: its owner's.
    awaited: AtomicU32,
}

/// A value under a lock with two modes: `&T` for many threads at once, or `&mut T` for one.
pub struct TwoModeLock<T> {
    slots: PerCpu<Slot>,
    next_ticket: AtomicU32,
    serving: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached as `&T` from many threads (so `T: Sync`), and as `&mut T` from the
// one that is in exclusive mode, which may be another one than made it (so `T: Send`).
unsafe impl<T: Send + Sync> Sync for TwoModeLock<T> {}
// SAFETY: the lock owns the value, and nothing else that a thread couldn't take with it.
unsafe impl<T: Send> Send for TwoModeLock<T> {}

impl<T> TwoModeLock<T> {
    /// A free lock around `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            slots: PerCpu::new(Slot::default),
            next_ticket: AtomicU32::new(0),
            serving: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until no thread is in exclusive mode, and enters shared mode.
    pub fn shared(&self) -> SharedMode<'_, T> {
        let slot = self.slots.here();
        let before = slot.entered.fetch_add(ONE, Ordering::Acquire);
        if before & EXCLUSIVE != 0 {
            wait_until(|| slot.entered.load(Ordering::Acquire) & PHASE_BITS != before & PHASE_BITS);
        }
        SharedMode { lock: self, slot }
    }

    /// Waits until no thread is in any mode, and enters exclusive mode. Threads that want it take
    /// turns.
    pub fn exclusive(&self) -> ExclusiveMode<'_, T> {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        wait_until(|| self.serving.load(Ordering::Acquire) == ticket);
        // All slots first, so that threads that are in leave while others are told.
        let bits = EXCLUSIVE | if ticket & 1 == 0 { 0 } else { PHASE };
        for slot in self.slots.iter() {
            let entered = slot.entered.fetch_add(bits, Ordering::Acquire) & !PHASE_BITS;
            slot.awaited.store(entered, Ordering::Relaxed);
        }
        for slot in self.slots.iter() {
            let entered = slot.awaited.load(Ordering::Relaxed);
            wait_until(|| slot.left.load(Ordering::Acquire) == entered);
        }
        ExclusiveMode { lock: self, bits }
    }

    /// CPUs' slots: what [`exclusive`](Self::exclusive) goes through.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.iter().count()
    }

    /// The value, which no other thread can be using.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let mut backoff = Backoff::new();
    while !is_so() {
        backoff.wait();
    }
}

impl<T: fmt::Debug> fmt::Debug for TwoModeLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoModeLock").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// The guard of a thread in shared mode, one of possibly many: it allows what many threads may do
/// at once.
#[must_use = "dropped, it leaves shared mode"]
pub struct SharedMode<'a, T> {
    lock: &'a TwoModeLock<T>,
    /// Where it entered: the thread may be on another CPU by now.
    slot: &'a Slot,
}

impl<T> Deref for SharedMode<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: no thread is in exclusive mode while this lives: one that wants it waits until
        // `left` has caught up (T2).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for SharedMode<'_, T> {
    fn drop(&mut self) {
        self.slot.left.fetch_add(ONE, Ordering::Release);
    }
}

/// The guard of the one thread in exclusive mode.
#[must_use = "dropped, it leaves exclusive mode"]
pub struct ExclusiveMode<'a, T> {
    lock: &'a TwoModeLock<T>,
    bits: u32,
}

impl<T> Deref for ExclusiveMode<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as in `deref_mut`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for ExclusiveMode<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: threads that were in shared mode have left (T2), threads that come wait (T1), and
        // the ticket keeps out other threads that want exclusive mode.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for ExclusiveMode<'_, T> {
    fn drop(&mut self) {
        for slot in self.lock.slots.iter() {
            slot.entered.fetch_sub(self.bits, Ordering::Release);
        }
        self.lock.serving.fetch_add(1, Ordering::Release);
    }
}

impl<T> fmt::Debug for SharedMode<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMode").field("slot", self.slot).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ExclusiveMode<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExclusiveMode").field("bits", &self.bits).finish_non_exhaustive()
    }
}
