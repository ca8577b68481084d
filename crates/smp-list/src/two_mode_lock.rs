//! A lock with two modes. In *shared* mode many threads use the value at the same time. They may
//! also change it, by operations that are designed for concurrency, so *shared* doesn't mean
//! *read*. *Exclusive* mode is for all other operations, including walks that change nothing.
//!
//! A thread that enters shared mode writes only to its CPU's slot, so no cache line moves between
//! CPUs. This is the per-CPU reader indicator of the "big-reader" locks of Linux 2.4.
//!
//! A thread that wants exclusive mode visits the slots of all CPUs twice. So the cost of exclusive
//! mode is bounded: 2 × [`slots`](TwoModeLock::slots) cache-line fetches, plus the wait for threads
//! in shared mode.
//!
//! Each slot is a phase-fair lock (Brandenburg and Anderson, "Spin-based reader-writer
//! synchronization for multiprocessor real-time systems", Real-Time Systems 46, 2010), without the
//! part that orders writers. Instead, one mutex keeps the writers of all slots apart. Its waiters
//! sleep, and any of them may be next. A ticket lock would hand the lock to the next thread in
//! line, even if that thread sleeps or has lost its CPU, and all other threads would wait for that
//! thread. These are the bits of a slot:
//!
//! | `entered` of a slot | |
//! |---|---|
//! | bit 0 | `EXCLUSIVE`: a thread has exclusive mode, or waits for threads that entered shared mode before |
//! | bit 1 | `PHASE`: alternates from each thread in exclusive mode to the next |
//! | bits 2–63 | how many threads entered shared mode here. The same bits of the word `left` count how many left it |
//!
//! - T1. A thread that adds itself to `entered` and finds `EXCLUSIVE` clear is in shared mode. If
//!   it finds `EXCLUSIVE` set, it waits until bit 0 or bit 1 of `entered` changes; then it is in
//!   shared mode.
//! - T2. The operation that sets `EXCLUSIVE` in a slot also returns how many threads have entered
//!   this slot so far. The thread that set `EXCLUSIVE` waits until that many threads have left.
//!   Some of these threads are in shared mode already. Others waited for the previous thread in
//!   exclusive mode, and haven't noticed yet that it has left; they get shared mode before this
//!   thread gets exclusive mode.
//!
//!   So neither mode starves the other. A thread that wants shared mode waits at most until one
//!   other thread has been through exclusive mode. A thread that has the mutex waits only for the
//!   threads that entered a slot before it set `EXCLUSIVE` there.
//! - T3. A thread that wants shared mode waits for one thread in exclusive mode to leave. If
//!   another thread enters exclusive mode at once, `EXCLUSIVE` is set again, but `PHASE` has
//!   changed, so the wait ends.
//!
//! No fence is needed to order a store here before a later load of another word, because both sides
//! change the same word, `entered`.
//!
//! **Orderings.** Leaving a mode is a `Release`: a thread clears `EXCLUSIVE`, or adds to `left`.
//! Entering a mode is an `Acquire`, so that the thread sees the writes of the threads that left.
//! The Acquire operations of shared mode are the addition to `entered` and the loads that wait for
//! a change there. Those of exclusive mode are the operation that sets `EXCLUSIVE` and the loads
//! that wait for `left`. The mutex orders the threads in exclusive mode among each other.
//!
//! **A losing interleaving**, and the rule that excludes it:
//! ```text
//!   exclusive X             shared S                      exclusive Y
//!   sets EXCLUSIVE
//!                           enters, finds it set, waits
//!   clears it, leaves
//!                           (is preempted)                sets EXCLUSIVE; waits for S, which entered before
//!                           finds it set still: waits for Y. Neither moves.
//! ```
//! With `PHASE`, S sees that Y isn't the thread that it waited for, and enters shared mode.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

use sync::PerCpu;
use sync::atomic::{AtomicU64, Backoff, Ordering};
use sync::lock::{Mutex, MutexGuard};

const EXCLUSIVE: u64 = 1;
const PHASE: u64 = 2;
const PHASE_BITS: u64 = EXCLUSIVE | PHASE;
/// One thread in the count. The count has 62 bits, so it never wraps, not even if threads forget
/// their guards.
const ONE: u64 = 4;

/// The words that a CPU's threads write when they enter and leave shared mode.
#[derive(Debug, Default)]
struct Slot {
    entered: AtomicU64,
    left: AtomicU64,
    /// The value that `left` must reach before exclusive mode begins; set when exclusive mode is
    /// requested. Only the thread that holds the mutex uses this word.
    awaited: AtomicU64,
}

/// A value under a lock with two modes: `&T` for many threads at once, or `&mut T` for one.
pub struct TwoModeLock<T> {
    slots: PerCpu<Slot>,
    /// Held by the thread in exclusive mode, also while that thread still waits for threads in
    /// shared mode. The value is the phase of the last thread that held the mutex: `PHASE` or 0.
    phase: Mutex<u64>,
    value: UnsafeCell<T>,
}

// SAFETY: many threads reach the value as `&T` (so `T: Sync`). The thread in exclusive mode reaches
// it as `&mut T`, and needn't be the thread that created it (so `T: Send`).
unsafe impl<T: Send + Sync> Sync for TwoModeLock<T> {}
// SAFETY: the lock owns the value, and nothing else that is tied to a thread.
unsafe impl<T: Send> Send for TwoModeLock<T> {}

impl<T> TwoModeLock<T> {
    /// Creates a free lock around `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { slots: PerCpu::new(Slot::default), phase: Mutex::new(0), value: UnsafeCell::new(value) }
    }

    /// Enters shared mode. Waits while another thread is in exclusive mode, or waits for exclusive
    /// mode.
    ///
    /// A thread that is in shared mode already must not call this. It could wait for a thread that
    /// wants exclusive mode, while that thread waits for the caller's first guard to be dropped.
    pub fn shared(&self) -> SharedMode<'_, T> {
        let slot = self.slots.here();
        let before = slot.entered.fetch_add(ONE, Ordering::Acquire);
        if before & EXCLUSIVE != 0 {
            wait_until(|| slot.entered.load(Ordering::Acquire) & PHASE_BITS != before & PHASE_BITS);
        }
        SharedMode { lock: self, slot }
    }

    /// Enters exclusive mode. Waits until no thread is in either mode. Of several threads that
    /// wait for exclusive mode, any may be the next.
    ///
    /// A thread that is in either mode must not call this: it would wait for itself.
    pub fn exclusive(&self) -> ExclusiveMode<'_, T> {
        self.enter(self.phase.lock())
    }

    /// Enters exclusive mode, unless another thread is in it or waits for it. Waits until no thread
    /// is in shared mode.
    ///
    /// A thread that is in shared mode must not call this: it would wait for itself.
    pub fn try_exclusive(&self) -> Option<ExclusiveMode<'_, T>> {
        self.phase.try_lock().map(|phase| self.enter(phase))
    }

    /// Enters exclusive mode. This thread holds the mutex.
    fn enter<'a>(&'a self, mut phase: MutexGuard<'a, u64>) -> ExclusiveMode<'a, T> {
        *phase ^= PHASE;
        // All slots first, so that the waits for the threads in shared mode overlap.
        let bits = EXCLUSIVE | *phase;
        for slot in self.slots.iter() {
            let entered = slot.entered.fetch_add(bits, Ordering::Acquire) & !PHASE_BITS;
            slot.awaited.store(entered, Ordering::Relaxed);
        }
        for slot in self.slots.iter() {
            let entered = slot.awaited.load(Ordering::Relaxed);
            wait_until(|| slot.left.load(Ordering::Acquire) == entered);
        }
        ExclusiveMode { lock: self, bits, _phase: phase }
    }

    /// Returns the number of slots, one per CPU, that [`exclusive`](Self::exclusive) visits.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.iter().count()
    }

    /// Returns the value. No other thread can be using it.
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

/// The guard of a thread in shared mode. Several threads may have such guards at the same time, so
/// a guard permits only operations that are safe for concurrent use.
#[must_use = "dropped, it leaves shared mode"]
pub struct SharedMode<'a, T> {
    lock: &'a TwoModeLock<T>,
    /// The slot that the thread entered by: the thread may run on another CPU by now.
    slot: &'a Slot,
}

impl<T> Deref for SharedMode<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: no thread is in exclusive mode while this guard lives: a thread that wants
        // exclusive mode waits until `left` has caught up (T2).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for SharedMode<'_, T> {
    fn drop(&mut self) {
        self.slot.left.fetch_add(ONE, Ordering::Release);
    }
}

/// The guard of the only thread in exclusive mode.
#[must_use = "dropped, it leaves exclusive mode"]
pub struct ExclusiveMode<'a, T> {
    lock: &'a TwoModeLock<T>,
    bits: u64,
    /// Released last, when the slots are as before.
    _phase: MutexGuard<'a, u64>,
}

impl<T> Deref for ExclusiveMode<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: see `deref_mut`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for ExclusiveMode<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: threads that were in shared mode have left (T2), threads that arrive wait (T1),
        // and the mutex keeps out other threads that want exclusive mode.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for ExclusiveMode<'_, T> {
    fn drop(&mut self) {
        for slot in self.lock.slots.iter() {
            slot.entered.fetch_sub(self.bits, Ordering::Release);
        }
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
