//! Which thread reaps the answers of a ring: one at a time.
//!
//! The kernel wakes a thread that sleeps on a ring when an answer comes; waking a thread that
//! sleeps elsewhere costs more than all the rest of a read. So a thread that wants an answer sleeps
//! on the ring itself, as its *leader*, and completes every answer that comes, its own or another
//! thread's. Other threads that want an answer *follow*: they look again after each of the leader's
//! passes, and one of them leads when the leader leaves. A ring without a leader is *watched*, if
//! it has something unfinished: the reaper is told of its next answer, leads, completes the answers
//! that are there, and leaves.
//!
//! | `led` | `watched` | the ring is | left by |
//! |---|---|---|---|
//! | no | no | idle; or has followers on their way to lead it | a submission: watched; a thread that helps: led |
//! | no | yes | the reaper's: an answer makes it come | the reaper, or a thread that helps: led |
//! | yes | no | the leader's | the leader: watched, unless there is nothing to wait for or there are followers |
//!
//! - L1. Only the leader reaps. So a request that it waits for is in flight until the leader itself
//!   has completed it. Having seen `done()` false and something unfinished, it may sleep until
//!   there is an answer.
//! - L2. A follower reads `passes` before it asks `done()`, and sleeps only if the number is still
//!   the same and there is a leader. Passes are counted after their completions. So it misses none.
//! - L3. A submitter counts its requests as unfinished before it checks for a leader; a leader
//!   checks for unfinished requests as it leaves. Both check under the lock, so one of the two sees
//!   to it that the ring is watched:
//!
//! ```text
//! leader: nothing unfinished ─────────────────────────── lock, leave
//! submitter:            count, submit ── lock, led: its affair ─┘ (the leader looks again here)
//! ```
//!
//! - L4. Watching is level-triggered: answers that are there already make the reaper come too.
//! - L5. A leader that leaves for now has the reaper come after a while instead, whether or not
//!   there are answers; then the ring is watched as ever. It comes in vain if the ring is led, or
//!   was led meanwhile, which does no harm: a visit changes nothing but `watched`, and leaves the
//!   ring watched if that is called for.
//! - L6. A follower that leaves when its time is over is counted out under the lock. A leader that
//!   leaves sees followers only if they sleep: each of them is woken, and leads or finds that it is
//!   done. A follower whose time is over at that very moment may leave the ring unwatched with
//!   something unfinished, so it looks once more, as a leader.

use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::time::{Duration, Instant};

use crate::Helping;

/// The answers of one ring.
pub(crate) trait Answers {
    /// Completes some of the answers that there are; if there is none, waits for one if `visit`
    /// says so. Says whether there were any. For the leader alone.
    fn reap(&self, visit: Visit) -> bool;
    /// Whether all that was submitted is completed.
    fn is_idle(&self) -> bool;
    /// Has the reaper told of the next answer, once; or not any more.
    fn watch(&self, watch: bool);
    /// Has the reaper come after a while, once; also if the ring was led again meanwhile.
    fn watch_later(&self);
}

/// What brings the leader to the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// It is the reaper, which waits for nothing, and submits nothing.
    Reaper,
    /// It looks what there is.
    Look,
    /// It waits for an answer, so long at most.
    Wait(Option<Duration>),
}

#[derive(Debug, Default)]
pub(crate) struct Reaping {
    state: Mutex<State>,
    /// `passes` has changed, and there are followers.
    passed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    led: bool,
    watched: bool,
    /// Times that the leader has completed answers, or left.
    passes: u64,
    followers: u32,
}

impl Reaping {
    /// Completes answers until `done()`, until all that was submitted is completed, or until the
    /// time is over.
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
            let rest = rest();
            if done() || rest == Some(Duration::ZERO) {
                return;
            }
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

    /// For a thread that has submitted something: sees to it that the leader or the reaper will
    /// complete it.
    pub(crate) fn attend(&self, answers: &impl Answers) {
        let mut state = self.state.lock();
        if !state.led && !state.watched {
            state.watched = true;
            answers.watch(true);
        }
    }

    /// For the reaper, which was told of an answer.
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

/// Being the leader; dropped, by unwinding too, it leaves.
struct Lead<'a, A: Answers> {
    reaping: &'a Reaping,
    answers: &'a A,
    leaving: Leaving,
}

/// How a leader leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    ForGood,
    /// It will be back in a moment.
    ForNow,
}

impl<A: Answers> Lead<'_, A> {
    fn until(&self, done: &dyn Fn() -> bool, rest: &dyn Fn() -> Option<Duration>) {
        while self.answers.reap(Visit::Look) {
            self.reaping.pass();
        }
        while !done() && !self.answers.is_idle() {
            let rest = rest();
            if rest == Some(Duration::ZERO) {
                return;
            }
            self.answers.reap(Visit::Wait(rest));
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
    use super::*;

    /// A ring with answers for some passes, which sees whether followers were told of the ones
    /// before.
    struct Busy {
        reaping: Reaping,
        told: Mutex<Vec<u64>>,
    }

    impl Answers for Busy {
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

    /// The reaper completed what a follower waited for, and went on with the next answers: on a
    /// ring that many threads share, the follower slept until there was none for a moment.
    #[test]
    fn followers_hear_of_each_pass_of_the_reaper() {
        let ring = Busy { reaping: Reaping::default(), told: Mutex::default() };
        ring.reaping.visit(&ring);
        assert_eq!(*ring.told.lock(), [0, 1, 2, 3]);
    }
}
