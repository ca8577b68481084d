//! Decides which thread reaps the answers of a ring: one thread at a time.
//!
//! When an answer arrives, the kernel wakes a thread that sleeps on the ring. If that thread then
//! had to wake the thread that needs the answer, the second wake-up would cost more than everything
//! else about a read. So a thread that needs an answer sleeps on the ring itself, as the ring's
//! *leader*. The leader completes every answer that arrives, including those that other threads
//! need.
//!
//! The other threads that need an answer *follow*. The leader completes answers in *passes*, and
//! after each pass the followers check whether they have their answers. When the leader leaves, one
//! of the followers becomes the leader.
//!
//! A ring with unfinished requests but without a leader is *watched*: its next answer wakes the
//! reaper. The reaper then becomes the leader, completes the answers that are available, and
//! leaves.
//!
//! In the table, *left by* says which thread ends the state, and which state follows:
//!
//! | `led` | `watched` | the ring is | left by |
//! |---|---|---|---|
//! | no | no | idle; or has followers on their way to lead it | a submission: watched; a thread that helps: led |
//! | no | yes | the reaper's: an answer wakes the reaper | the reaper, or a thread that helps: led |
//! | yes | no | the leader's | the leader: watched, unless there is nothing to wait for or there are followers |
//!
//! - L1. Only the leader reaps, that is, takes answers and completes their requests. So a request
//!   that the kernel has stays in flight until the leader itself has completed it: no other thread
//!   can take its answer.
//! - L2. A follower reads `passes` before it calls `done()`, and then sleeps only if `passes` is
//!   unchanged and there is a leader. The leader increments `passes` after the completions of a
//!   pass. So if a completion comes too late for the follower's call of `done()`, the follower
//!   either finds `passes` changed, or is woken by the leader.
//! - L3. A submitter counts its requests as unfinished before it checks for a leader. A leader
//!   checks for unfinished requests as it leaves. Both checks are made under the lock. If the
//!   submitter's check comes first, the leader finds the requests as it leaves. If the leader's
//!   check comes first, the submitter finds no leader. In both cases, the thread whose check comes
//!   last makes sure that the ring is watched:
//!
//! ```text
//! leader: nothing unfinished ─────────────────────────── lock, leave
//! submitter:            count, submit ── lock, led: its affair ─┘ (the leader looks again here)
//! ```
//!
//! - L4. Watching is level-triggered: the reaper is woken, too, if an answer arrived before the
//!   ring was watched.
//! - L5. A leader that expects to be back soon (`Leaving::ForNow`) sets a timer instead of making
//!   the next answer wake the reaper. When the timer expires, the reaper visits the ring, even if
//!   there is no answer, and then leaves the ring watched as usual. If the leader comes back before
//!   the timer expires, the visit is needless but harmless. A visit to a ring with a leader changes
//!   nothing; a visit to any other ring leaves the ring watched if necessary.
//! - L6. If there are followers, a leader that leaves wakes them all, and leaves the ring to them,
//!   unwatched. Each follower becomes the leader if there is none, and otherwise checks `done()`
//!   again. A follower that reaches its time limit is still counted in `followers` until it takes
//!   the lock and decrements the count. If the leader leaves before this decrement, it relies on
//!   this follower, and leaves the ring unwatched. If the follower simply returned, unfinished
//!   requests would stay unwatched. So the follower first checks for a leader. If there is none,
//!   the follower leads for a moment, and makes the reaper watch the ring when it leaves.
//! - L7. The pool's threads also complete requests that this ring's helpers wait for, but they
//!   don't wake a helper that sleeps on the ring. So a leader or follower sleeps without a limit
//!   only if an answer on this ring is certain to end its wait ([`Answers::will_answer`]): the
//!   kernel has all unfinished requests of this ring, and the pool has none. Otherwise the thread
//!   checks `done()` again after a [`PAUSE`]. Before each call of `done()`, the thread reads how
//!   much work the pool has completed. So if the pool completes a request between this read and the
//!   sleep, the thread notices, even if `done()` itself has submitted the request:
//!
//! ```text
//! helper: others_over: 5 ── done(): false ─────────────── will_answer(5): no, a 6th was queued ── pause
//! pool:                                  completes the 6th
//! ```

use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::time::{Duration, Instant};

use crate::Helping;

/// How long a thread sleeps on a ring if an answer isn't certain to end its wait.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// The answers of one ring, as the leader sees them.
pub(crate) trait Answers {
    /// Returns how many pieces of work the pool has completed.
    fn others_over(&self) -> u64;
    /// Returns whether each request that the calling thread may be waiting for is certain to get an
    /// answer here, and there is at least one (L7). `others_over` is what [`others_over`] returned
    /// before the thread last called `done()`.
    ///
    /// [`others_over`]: Self::others_over
    fn will_answer(&self, others_over: u64) -> bool;
    /// Completes some of the available answers. If there are none and `visit` is [`Visit::Wait`],
    /// waits for one first. Returns whether it completed any. Only the leader may call this.
    fn reap(&self, visit: Visit) -> bool;
    /// Returns whether all submitted requests have completed.
    fn is_idle(&self) -> bool;
    /// If `watch` is true, makes the kernel notify the reaper of the next answer, once. Otherwise
    /// cancels this notification.
    fn watch(&self, watch: bool);
    /// Makes the reaper visit the ring after a delay, once, even if the ring is led again
    /// meanwhile.
    fn watch_later(&self);
}

/// How the leader looks for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// As the reaper: without waiting, and without submitting requests.
    Reaper,
    /// Checks for answers without waiting.
    Look,
    /// Waits for an answer, at most for the given time.
    Wait(Option<Duration>),
}

#[derive(Debug, Default)]
pub(crate) struct Reaping {
    state: Mutex<State>,
    /// Signaled when `passes` has changed and there are followers.
    passed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    led: bool,
    watched: bool,
    /// How often the leader has completed answers, or left.
    passes: u64,
    followers: u32,
}

impl Reaping {
    /// Completes answers as the leader, or follows the leader. Returns when `done()` is true, when
    /// all submitted requests have completed, or when the time limit has passed.
    pub(crate) fn help(&self, answers: &impl Answers, how: Helping, done: &dyn Fn() -> bool) {
        let time = how.at_most.map(|most| (most, Instant::now()));
        let rest = || time.map(|(most, start)| most.saturating_sub(start.elapsed()));
        let leaving = if how.back_soon { Leaving::ForNow } else { Leaving::ForGood };
        loop {
            let state = self.state.lock();
            if !state.led {
                return self.lead(state, answers, leaving).until(done, &rest);
            }
            let seen = state.passes;
            drop(state);
            let (rest, others_over) = (rest(), answers.others_over());
            if done() || rest == Some(Duration::ZERO) {
                return;
            }
            let rest = sleep_time(answers, others_over, rest);
            let mut state = self.state.lock();
            if state.led && state.passes == seen {
                state.followers += 1;
                match rest {
                    None => self.passed.wait(&mut state),
                    Some(rest) => {
                        self.passed.wait_for(&mut state, rest);
                    }
                }
                state.followers -= 1;
            }
        }
    }

    /// Makes sure that the leader or the reaper will complete the requests that the calling thread
    /// has just submitted.
    pub(crate) fn attend(&self, answers: &impl Answers) {
        let mut state = self.state.lock();
        if !state.led && !state.watched {
            state.watched = true;
            answers.watch(true);
        }
    }

    /// Completes the available answers. The reaper calls this after an answer, or the ring's timer,
    /// has woken it.
    pub(crate) fn visit(&self, answers: &impl Answers) {
        let mut state = self.state.lock();
        state.watched = false;
        if !state.led {
            let _lead = self.lead(state, answers, Leaving::ForGood);
            while answers.reap(Visit::Reaper) {
                self.pass();
            }
        }
    }

    fn lead<'a, A: Answers>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        answers: &'a A,
        leaving: Leaving,
    ) -> Lead<'a, A> {
        state.led = true;
        if std::mem::take(&mut state.watched) {
            answers.watch(false);
        }
        Lead { reaping: self, answers, leaving }
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.passes += 1;
        if state.followers > 0 {
            self.passed.notify_all();
        }
    }
}

/// Returns how long a helper whose `done()` was false may sleep, if it has the time `rest` left.
fn sleep_time(answers: &impl Answers, others_over: u64, rest: Option<Duration>) -> Option<Duration> {
    if answers.will_answer(others_over) {
        return rest;
    }
    // Sometimes: a helper waits for requests that get no answer on its ring.
    Some(rest.map_or(PAUSE, |rest| rest.min(PAUSE)))
}

/// The leadership of a ring. Dropping it, also during unwinding, makes the leader leave.
struct Lead<'a, A: Answers> {
    reaping: &'a Reaping,
    answers: &'a A,
    leaving: Leaving,
}

/// How a leader leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    ForGood,
    /// The leader will come back in a moment.
    ForNow,
}

impl<A: Answers> Lead<'_, A> {
    fn until(&self, done: &dyn Fn() -> bool, rest: &dyn Fn() -> Option<Duration>) {
        while self.answers.reap(Visit::Look) {
            self.reaping.pass();
        }
        loop {
            let others_over = self.answers.others_over();
            if done() || self.answers.is_idle() {
                return;
            }
            let rest = rest();
            if rest == Some(Duration::ZERO) {
                return;
            }
            self.answers.reap(Visit::Wait(sleep_time(self.answers, others_over, rest)));
            self.reaping.pass();
        }
    }
}

impl<A: Answers> Drop for Lead<'_, A> {
    fn drop(&mut self) {
        let mut state = self.reaping.state.lock();
        state.led = false;
        state.passes += 1;
        if state.followers > 0 {
            self.reaping.passed.notify_all();
        } else if !self.answers.is_idle() && !state.watched {
            state.watched = true;
            match self.leaving {
                Leaving::ForGood => self.answers.watch(true),
                Leaving::ForNow => self.answers.watch_later(),
            }
        }
    }
}

#[cfg(all(test, pagefold_loom))]
#[path = "reaping_models.rs"]
mod models;

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use sync::atomic::{AtomicBool, Ordering};
    use sync::{Arc, thread};

    use super::*;
    use crate::lines::Tally;
    use crate::patience::wait_until;

    /// A ring with answers for the first three calls of `reap`. Each call records how many passes
    /// were counted before the call.
    struct Busy {
        reaping: Reaping,
        told: Mutex<Vec<u64>>,
    }

    impl Answers for Busy {
        fn others_over(&self) -> u64 {
            0
        }

        fn will_answer(&self, _: u64) -> bool {
            true
        }

        fn reap(&self, _: Visit) -> bool {
            let mut told = self.told.lock();
            told.push(self.reaping.state.lock().passes);
            told.len() < 4
        }

        fn is_idle(&self) -> bool {
            true
        }

        fn watch(&self, _: bool) {}

        fn watch_later(&self) {}
    }

    /// Regression: the reaper completed a request that a follower waited for, and went on with the
    /// next answers without waking the follower. On a ring that many threads share, the follower
    /// slept until the reaper found no more answers.
    #[test]
    fn followers_hear_of_each_pass_of_the_reaper() {
        let ring = Busy { reaping: Reaping::default(), told: Mutex::default() };
        ring.reaping.visit(&ring);
        assert_eq!(*ring.told.lock(), [0, 1, 2, 3]);
    }

    /// A ring whose only request is never answered, until the test ends. The pool has a request,
    /// too.
    #[derive(Default)]
    struct Silent {
        reaping: Reaping,
        others: Tally,
        is_over: Mutex<bool>,
        changed: Condvar,
    }

    impl Answers for Silent {
        fn others_over(&self) -> u64 {
            self.others.over()
        }

        fn will_answer(&self, others_over: u64) -> bool {
            self.others.are_all_over(others_over)
        }

        fn reap(&self, visit: Visit) -> bool {
            let mut is_over = self.is_over.lock();
            while let Visit::Wait(at_most) = visit
                && !*is_over
            {
                match at_most {
                    None => self.changed.wait(&mut is_over),
                    Some(most) => {
                        self.changed.wait_for(&mut is_over, most);
                        break;
                    }
                }
            }
            false
        }

        fn is_idle(&self) -> bool {
            *self.is_over.lock()
        }

        fn watch(&self, _: bool) {}

        fn watch_later(&self) {}
    }

    /// Regression: a follower slept until the leader's next pass, although a thread of the pool had
    /// completed what the follower waited for.
    #[test]
    fn a_follower_notices_what_the_pool_completes() {
        let (ring, completed) = (Arc::new(Silent::default()), Arc::new(AtomicBool::new(false)));
        ring.others.enter(1);
        let theirs = Arc::clone(&ring);
        let lead = move || theirs.reaping.help(&*theirs, Helping::default(), &|| false);
        let leader = thread::spawn("leader", lead).unwrap();
        wait_until("the ring is led", || ring.reaping.state.lock().led);
        let (theirs, told) = (Arc::clone(&ring), Arc::clone(&completed));
        let done = move || told.load(Ordering::Acquire);
        let follow = move || theirs.reaping.help(&*theirs, Helping::default(), &done);
        let follower = thread::spawn("follower", follow).unwrap();
        wait_until("the follower sleeps", || ring.reaping.state.lock().followers > 0);
        completed.store(true, Ordering::Release);
        ring.others.end();
        wait_until("the follower returns", || thread::has_ended(&follower));
        *ring.is_over.lock() = true;
        ring.changed.notify_all();
        leader.join().unwrap();
        follower.join().unwrap();
    }
}
