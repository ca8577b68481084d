//! A lock with two modes. *Shared* is not *read*: many may be in it and change things at the same time, in ways that
//! are made for that. *Exclusive* is for everything else, walks that change nothing included.
//!
//! Whoever enters shared mode writes to a slot of its CPU, so no line goes between CPUs: a plain per-CPU reader indicator,
//! as in the "big-reader" locks of Linux 2.4. Whoever wants exclusive mode goes through the slots of all CPUs, twice. So
//! what exclusive mode costs is bounded: it is [`slots`](TwoModeLock::slots) lines fetched two times, besides the wait for
//! those in shared mode; the lock's owner can print it.
//!
//! Each slot is a phase-fair lock of its own (Brandenburg and Anderson, "Spin-based reader-writer synchronization for
//! multiprocessor real-time systems", Real-Time Systems 46, 2010), without the part that orders writers, which one
//! ticket lock does for all slots:
//!
//! | `entered` of a slot | |
//! |---|---|
//! | bit 0 | `EXCLUSIVE`: somebody has exclusive mode, or waits for those who entered before |
//! | bit 1 | `PHASE`: changes with each that comes |
//! | 2–31 | how many entered shared mode here, ever, modulo 2^30; `left`: how many left it |
//!
//! - T1. Who adds itself to `entered` and finds `EXCLUSIVE` clear is in. Who finds it set waits until bit 0 or 1 changes.
//! - T2. Who sets `EXCLUSIVE` learns in the same operation how many had entered, and waits until as many have left: those
//!   that are in, and those that had waited for the last one in exclusive mode, who go first. So neither side starves: who
//!   wants shared mode waits for at most one in exclusive mode to come and go, who wants exclusive mode for those before
//!   it, and for those who came before it to the slots.
//! - T3. Bit 1 tells the next in exclusive mode from the one that was waited for.
//!
//! There is nothing here that a store has to be ordered before a load of another word for: both sides change `entered`.
//!
//! **Orderings.** Setting `EXCLUSIVE` and adding to `entered` are `Acquire`, clearing it and adding to `left` `Release`:
//! each pairs with the other side's. `next_ticket`: Relaxed, as `serving` orders what ticket holders do: `Release` when
//! it goes up, `Acquire` when it is waited for.
//!
//! **A losing interleaving**, and what excludes it:
//! ```text
//!   exclusive X             shared S                      exclusive Y
//!   sets EXCLUSIVE
//!                           enters, finds it set, waits
//!   clears it, leaves
//!                           (is preempted)                sets EXCLUSIVE; waits for S, who entered before
//!                           finds it set still: waits for Y. Nobody moves.
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
/// One who entered.
const ONE: u32 = 4;

/// What a CPU's threads write to when they enter and leave shared mode.
#[derive(Debug, Default)]
struct Slot {
    entered: AtomicU32,
    left: AtomicU32,
    /// How many had entered when exclusive mode was asked for: its owner's.
    awaited: AtomicU32,
}

/// A value under a lock with two modes: `&T` for everybody at once, or `&mut T` for one.
pub struct TwoModeLock<T> {
    slots: PerCpu<Slot>,
    next_ticket: AtomicU32,
    serving: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached as `&T` from many threads (so `T: Sync`), and as `&mut T` from the one that is in
// exclusive mode, which may be another one than made it (so `T: Send`).
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

    /// Waits until nobody is in exclusive mode, and enters shared mode.
    pub fn shared(&self) -> SharedMode<'_, T> {
        let slot = self.slots.here();
        let before = slot.entered.fetch_add(ONE, Ordering::Acquire);
        if before & EXCLUSIVE != 0 {
            wait_until(|| slot.entered.load(Ordering::Acquire) & PHASE_BITS != before & PHASE_BITS);
        }
        SharedMode { lock: self, slot }
    }

    /// Waits until nobody is in any mode, and enters exclusive mode. Those who want it take turns.
    pub fn exclusive(&self) -> ExclusiveMode<'_, T> {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        wait_until(|| self.serving.load(Ordering::Acquire) == ticket);
        // All slots first, so that those who are in leave while others are told.
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

    /// The value, which nobody else can be using.
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

/// One of possibly many who are in shared mode: with what may be done by many at once.
#[must_use = "dropped, it leaves shared mode"]
pub struct SharedMode<'a, T> {
    lock: &'a TwoModeLock<T>,
    /// Where it entered: the thread may be on another CPU by now.
    slot: &'a Slot,
}

impl<T> Deref for SharedMode<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: nobody is in exclusive mode while this lives: who is waits until `left` has caught up (T2).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for SharedMode<'_, T> {
    fn drop(&mut self) {
        self.slot.left.fetch_add(ONE, Ordering::Release);
    }
}

/// The one who is in exclusive mode.
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
        // SAFETY: whoever was in shared mode has left (T2), whoever comes waits (T1), and the ticket keeps others who want
        // exclusive mode away.
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
