//! Locks in virtual time, with parking_lot's interface: no poisoning.
//!
//! The lock words are the machine's own atomics. A thread first tries to take the lock, then spins
//! as parking_lot does, and then parks in a queue at the lock word's address, like a futex. If
//! several threads try to take a free lock, the first to get the lock word's cache line wins. So
//! barging and convoys appear in the results.
//!
//! Outside of a machine, a thread takes a lock by compare-and-swap on the same word, and yields
//! while another thread holds the lock. That is correct but slow; it suffices for set-up code.

mod condvar;
mod mutex;
mod once;
mod rwlock;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::OnceCell;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::ledger::At;
use crate::task::{Doing, here};
use crate::world::{self, World};

/// The name of a lock in the profile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Label {
    /// By its name.
    Name(&'static str),
    /// By the source line where it was made.
    Place(At),
}

impl Label {
    /// Returns a number that identifies this label, at little cost.
    fn key(self) -> usize {
        match self {
            Self::Name(name) => name.as_ptr().addr(),
            Self::Place(at) => std::ptr::from_ref(at).addr(),
        }
    }

    /// Returns the number under which the lock at `address` is profiled.
    fn subject(self, world: &World, kind: &'static str, address: usize) -> u32 {
        let mut state = world.state.borrow_mut();
        if let Some(&(key, subject)) = state.locks.get(&address)
            && key == self.key()
        {
            return subject;
        }
        let subject = match self {
            Self::Name(name) => state.ledger.subject(kind, name),
            Self::Place(at) => state.ledger.subject(kind, &at.to_string()),
        };
        state.locks.insert(address, (self.key(), subject));
        subject
    }
}

/// A guard: while it lives, the thread's events are profiled under a lock.
struct Under<'a> {
    world: &'a World,
    before: (u32, bool, Option<At>),
}

impl<'a> Under<'a> {
    fn lock(world: &'a World, subject: u32, at: At) -> Self {
        let mut state = world.state.borrow_mut();
        let task = state.current();
        let before = (task.subject, task.free, task.caller);
        task.subject = subject;
        task.caller = task.caller.or(Some(at));
        Self { world, before }
    }

    /// Records that the thread waits for the lock: on a machine without contention the wait costs
    /// nothing.
    fn wait(&self) {
        self.world.state.borrow_mut().current().free = true;
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        let mut state = self.world.state.borrow_mut();
        let task = state.current();
        (task.subject, task.free, task.caller) = self.before;
        task.free_events = 0;
    }
}

/// The state of a lock, as a thread that spins for it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It can be taken.
    Free,
    /// A thread holds it.
    Taken,
    /// Other threads are parked for it, so spinning has failed before.
    Wanted,
}

/// The most checks of a lock that a thread makes before it parks. After each of the first
/// `PAUSED_LOOKS` checks, the thread executes PAUSE several times: twice after the first check,
/// then 4 times, then 8 times. After each later check, the thread yields its CPU instead. The
/// numbers are those of parking_lot 0.12 (`SpinWait`).
const LOOKS: u32 = 10;
const PAUSED_LOOKS: u32 = 3;

/// Waits for the word at `address`: tries to `take` it, then checks by `look`, up to `LOOKS` times,
/// whether it is free, then parks.
///
/// `take_or_mark` is the last step before parking: a single access that takes the word, or marks it
/// as having a waiter. No other thread runs between that access and `block_at`. So a thread that
/// releases the word afterwards sees the mark and finds this thread in the queue: no wake-up is
/// lost.
#[track_caller]
fn wait_for(
    (label, kind, address): (Label, &'static str, usize),
    take: impl Fn() -> bool,
    look: impl Fn() -> Look,
    take_or_mark: impl Fn() -> bool,
) {
    let Some(world) = world::current() else {
        while !take() {
            std::thread::yield_now();
        }
        return;
    };
    let subject = label.subject(world, kind, address);
    let under = Under::lock(world, subject, here());
    world.state.borrow_mut().ledger.subjects[subject as usize].taken += 1;
    if take() {
        return;
    }
    under.wait();
    let looks = {
        let mut state = world.state.borrow_mut();
        state.ledger.subjects[subject as usize].contended += 1;
        // On a machine without contention, parking is free, so a thread parks without spinning.
        if state.setup.contention { LOOKS } else { 0 }
    };
    for turn in 1..=looks {
        match look() {
            Look::Free if take() => return,
            Look::Wanted => break,
            Look::Free | Look::Taken if turn <= PAUSED_LOOKS => rest(world, 1 << turn),
            Look::Free | Look::Taken => crate::thread::give_up_cpu(world),
        }
    }
    while !take_or_mark() {
        world.state.borrow_mut().block_at(address, Doing::Locking(subject), None);
        world.wait();
    }
}

/// Pauses `pauses` times, without watching any line.
#[track_caller]
fn rest(world: &World, pauses: u64) {
    world.arrive(here());
    let mut state = world.state.borrow_mut();
    let time = state.times.pause * pauses;
    state.rest(time);
}

/// Releases the lock word at `address`. `give` frees the word, and returns how many of the threads
/// that are parked in [`wait_for`] must be woken. The profile charges the release to `at`, the
/// source line that took the lock, because the drop of a guard has no source line of its own.
fn give_back((label, kind, address): (Label, &'static str, usize), at: At, give: impl FnOnce() -> usize) {
    let Some(world) = world::current() else {
        give();
        return;
    };
    let subject = label.subject(world, kind, address);
    let _under = Under::lock(world, subject, at);
    match give() {
        0 => {}
        count => {
            world.state.borrow_mut().wake_at(address, count);
        }
    }
}
