//! How a thread waits for another thread that won't wake it. This is the one policy for all loops
//! that check a condition, wait a *turn*, and check again.
//!
//! | turns | a turn | for the case that |
//! |---|---|---|
//! | 0 to 5 | spins: 1, 2, 4, … 32 hints, about 3 µs in all | the other thread is running, and done in a few instructions |
//! | 6 to 31 | yields the CPU | the other thread was preempted, perhaps on this CPU |
//! | from 32 on | sleeps: 50 µs, twice as long each time, at most 1 ms | the other thread waits itself; or has a lower real-time priority |
//!
//! A loop that only yields may never end, because yielding doesn't let a thread of lower real-time
//! priority run (`sched_yield` under `SCHED_FIFO`). If the loop waits for such a thread on the same
//! CPU, that thread starves. So after some turns, the loop sleeps.
//!
//! Each sleep is at most twice as long as the one before, and at most 1 ms. The condition may
//! become true just as the last sleep begins. Then the loop ends late by the length of that sleep.
//! So a wait takes at most about twice as long as necessary, and is never more than 1 ms too long.
//!
//! The condition that a loop waits for determines when the loop gives up:
//!
//! | | for the case that | ends |
//! |---|---|---|
//! | [`wait_awake`](Backoff::wait_awake) | the other thread needs a few instructions, or the caller must not sleep | before the first sleep |
//! | [`wait_shortly`](Backoff::wait_shortly) | the other thread soon finishes, unless a user delays it | after about 15 ms |
//! | [`wait_or`](Backoff::wait_or) | a user may keep a guard for any length of time | after [`PATIENCE`], with an error |
//! | [`wait`](Backoff::wait) | the other thread needs a few instructions, and depends on no third thread | never |
//!
//! Under loom there is neither time nor a CPU, so each turn only lets other threads run. On a
//! virtual CPU, a sleep takes virtual time, and a spin hint waits until another CPU writes to a
//! cache line that the spinning thread has just read. So one hint per turn is enough.

use crate::thread::{sleep, yield_now};
use crate::time::{Duration, Instant};

/// Waits one turn of a bounded spin: informs the CPU or the model that this thread waits for
/// another thread's store.
#[inline]
#[cfg_attr(pagefold_manycore, track_caller)]
pub fn spin_hint() {
    #[cfg(pagefold_manycore)]
    manycore::spin_hint();
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    core::hint::spin_loop();
    #[cfg(pagefold_loom)]
    loom::thread::yield_now();
}

/// How long a thread waits with [`Backoff::wait_or`] before it gives up. A call of the library may
/// contain two such waits, one after the other. Together they usually end within 5 s.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The number of spinning turns; 2^6 − 1 hints in total.
const SPINS: u32 = 6;
/// The number of turns before the first sleep. Zero in a model, so that it also explores waits that
/// give up.
const AWAKE_TURNS: u32 = if cfg!(pagefold_loom) { 0 } else { 32 };
/// The number of turns of a short wait: its sleeps take about 15 ms in total.
const SHORT_TURNS: u32 = AWAKE_TURNS + 18;
/// [`Backoff::wait_or`] waits at least this many turns, even if [`PATIENCE`] has passed. If the
/// whole process was stopped for seconds, the thread that is waited for has had no time to finish,
/// so the wait must go on.
const PATIENT_TURNS: u32 = AWAKE_TURNS + 100;
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// One wait: counts its turns.
#[derive(Debug, Default)]
pub struct Backoff {
    turns: u32,
    /// When the first sleep began.
    asleep_since: Option<Instant>,
}

impl Backoff {
    /// Creates a wait that hasn't begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits a turn, a little longer than the previous one.
    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn wait(&mut self) {
        if self.turns < SPINS {
            // A model's hint yields already. A virtual CPU's hint waits for a store, so more than
            // one per turn would have no further effect.
            let hints = if cfg!(any(pagefold_manycore, pagefold_loom)) { 1 } else { 1_u32 << self.turns };
            for _ in 0..hints {
                spin_hint();
            }
        } else {
            self.wait_longer();
        }
        self.turns = self.turns.saturating_add(1);
    }

    #[cold]
    #[cfg_attr(pagefold_manycore, track_caller)]
    fn wait_longer(&mut self) {
        match self.turns.checked_sub(AWAKE_TURNS) {
            None => yield_now(),
            Some(sleeps) => {
                self.asleep_since.get_or_insert_with(Instant::now);
                sleep((SLEEP_MIN * (1 << sleeps.min(8))).min(SLEEP_MAX));
            }
        }
    }

    /// Waits a turn. Returns false, without waiting, if that turn would sleep.
    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    #[must_use]
    pub fn wait_awake(&mut self) -> bool {
        self.wait_until_turn(AWAKE_TURNS)
    }

    /// Waits a turn. Returns false, without waiting, if the wait has taken about 15 ms.
    #[cfg_attr(pagefold_manycore, track_caller)]
    #[must_use]
    pub fn wait_shortly(&mut self) -> bool {
        self.wait_until_turn(SHORT_TURNS)
    }

    /// Waits a turn.
    ///
    /// # Errors
    /// `error`, without waiting, if the wait has taken [`PATIENCE`].
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn wait_or<E>(&mut self, error: impl FnOnce() -> E) -> Result<(), E> {
        let is_over = |since: Instant| self.turns >= PATIENT_TURNS && since.elapsed() >= PATIENCE;
        if self.asleep_since.is_some_and(is_over) {
            return Err(error());
        }
        self.wait();
        Ok(())
    }

    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    fn wait_until_turn(&mut self, end: u32) -> bool {
        let waits = self.turns < end;
        if waits {
            self.wait();
        }
        waits
    }

    /// Returns the number of turns so far.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    /// Returns how often this thread has given up its CPU by sleeping.
    fn times_asleep() -> u64 {
        // SAFETY: the structure contains only numbers, for which zero is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a structure of this function's own.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
        usage.ru_nvcsw as u64
    }

    /// Regression: a thread that waited for another thread, for example for a page that a client
    /// had pinned for a second, checked repeatedly without sleeping. The wait wasted a CPU. It
    /// never ended if the other thread had a lower real-time priority on the same CPU.
    #[test]
    fn a_long_wait_leaves_the_cpu_to_others() {
        const SLEEPS: u32 = 300;
        let mut backoff = Backoff::new();
        while backoff.wait_awake() {}
        let (start, before) = (Instant::now(), times_asleep());
        while backoff.turns() < AWAKE_TURNS + SLEEPS {
            backoff.wait();
        }
        // Some sleeps end before the thread has gone to sleep, because it had no CPU meanwhile.
        let asleep = times_asleep() - before;
        assert!(asleep >= u64::from(SLEEPS) / 2, "{asleep} sleeps in {SLEEPS} turns");
        // The first sleeps are shorter.
        assert!(start.elapsed() >= (SLEEPS - 10) * SLEEP_MAX, "a turn takes {:?}", start.elapsed() / SLEEPS);
    }

    #[test]
    fn waits_end_as_they_say() {
        let mut backoff = Backoff::new();
        while backoff.wait_awake() {}
        assert!(backoff.asleep_since.is_none() && backoff.turns() == AWAKE_TURNS);
        let start = Instant::now();
        while backoff.wait_shortly() {}
        assert!(!backoff.wait_awake() && start.elapsed() > Duration::from_millis(10));
    }
}
