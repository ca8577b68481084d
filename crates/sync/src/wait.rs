//! How a thread waits for another one that doesn't wake it: the one policy of every loop that
//! looks, waits a turn, and looks again.
//!
//! | turns | a turn | for the case that |
//! |---|---|---|
//! | 0 to 5 | spins: 1, 2, 4, … 32 hints, about 3 µs in all | the other thread is running, and done in a few instructions |
//! | 6 to 31 | yields the CPU | the other thread was preempted, perhaps on this CPU |
//! | from 32 on | sleeps: 50 µs, twice as long each time, at most 1 ms | the other thread waits itself; or has a lower real-time priority |
//!
//! A yield doesn't let threads of a lower real-time priority run (`sched_yield` under
//! `SCHED_FIFO`), so a loop without sleep would keep such a holder from its CPU for ever. As each
//! sleep is at most twice as long as the one before it, until they are 1 ms, a wait takes at most
//! about twice as long as it has to, or 1 ms more.
//!
//! What a loop waits for decides how it ends:
//!
//! | | the other thread | ends |
//! |---|---|---|
//! | [`wait_awake`](Backoff::wait_awake) | needs a few instructions, or the caller must not sleep | before the first sleep |
//! | [`wait_shortly`](Backoff::wait_shortly) | is done in moments, unless a user keeps it | after about 15 ms |
//! | [`wait_or`](Backoff::wait_or) | may be a user who keeps a guard | after [`PATIENCE`], with an error |
//! | [`wait`](Backoff::wait) | needs a few instructions, and depends on no other thread | never |
//!
//! A model has neither time nor CPUs: each turn there lets other threads run. A virtual CPU spins
//! with one hint a turn, as that waits for a store to what the thread looked at, and sleeps in
//! virtual time.

use crate::thread::{sleep, yield_now};
use crate::time::{Duration, Instant};

/// One turn of a bounded spin: tells the CPU, or the model, that this thread waits for another
/// one's store.
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

/// How long [`Backoff::wait_or`] waits before it gives up. A call may meet two such waits, and
/// answers within 5 s.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Turns that spin; 2^6 − 1 hints altogether.
const SPINS: u32 = 6;
/// Turns before the first sleep. In a model few, so that waits that give up are among what it
/// explores.
const AWAKE_TURNS: u32 = if cfg!(pagefold_loom) { 0 } else { 32 };
/// Turns of a short wait: sleeps of about 15 ms in all.
const SHORT_TURNS: u32 = AWAKE_TURNS + 18;
/// Turns that a patient wait takes at least: a process that was stopped for seconds, with all its
/// threads, hasn't waited.
const PATIENT_TURNS: u32 = AWAKE_TURNS + 100;
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// One wait: how many turns it has taken so far.
#[derive(Debug, Default)]
pub struct Backoff {
    turns: u32,
    /// When the first sleep began.
    asleep_since: Option<Instant>,
}

impl Backoff {
    /// A wait that hasn't begun yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits a turn, a little longer than the last one.
    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn wait(&mut self) {
        if self.turns < SPINS {
            // A model's hint is a yield already. A virtual CPU's waits for a store: more than one a
            // turn would say nothing new.
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

    /// Waits a turn. Returns false, without having waited, if that turn would sleep.
    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    #[must_use]
    pub fn wait_awake(&mut self) -> bool {
        self.wait_until_turn(AWAKE_TURNS)
    }

    /// Waits a turn. Returns false, without having waited, if that has gone on for about 15 ms.
    #[cfg_attr(pagefold_manycore, track_caller)]
    #[must_use]
    pub fn wait_shortly(&mut self) -> bool {
        self.wait_until_turn(SHORT_TURNS)
    }

    /// Waits a turn.
    ///
    /// # Errors
    /// `error`, without having waited, if that has gone on for [`PATIENCE`].
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

    /// Turns taken so far.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    /// How often this thread has left its CPU to others by going to sleep.
    fn times_asleep() -> u64 {
        // SAFETY: all numbers, of which zero is one.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a structure of this function's own.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
        usage.ru_nvcsw as u64
    }

    /// A thread that waited for another one, as for a page that a client had pinned for a second,
    /// looked at it again and again without a sleep: a CPU for nothing, and for ever if the other
    /// thread had a lower real-time priority on this CPU.
    #[test]
    fn a_long_wait_leaves_the_cpu_to_others() {
        const SLEEPS: u32 = 300;
        let mut backoff = Backoff::new();
        while backoff.wait_awake() {}
        let (start, before) = (Instant::now(), times_asleep());
        while backoff.turns() < AWAKE_TURNS + SLEEPS {
            backoff.wait();
        }
        // But for those whose time was over before the thread was asleep, because it had no CPU.
        let asleep = times_asleep() - before;
        assert!(asleep >= u64::from(SLEEPS) / 2, "{asleep} sleeps in {SLEEPS} turns");
        // The first ones are shorter.
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
