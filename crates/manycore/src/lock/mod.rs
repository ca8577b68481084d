//! Locks in virtual time, with parking_lot's interface: no poisoning.
//!
//! They are made of the machine's own atomics and of queues at an address (a futex, in other
//! words): first they try, then spin as parking_lot does, then park. Nothing but the machine's
//! directory decides which thread gets a free lock, so barging and convoys are seen as they are.
//!
//! Outside of a machine the same words are taken by compare-and-swap, and a thread that finds one
//! taken lets others run: right, but slow; enough for setting things up.

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

/// What the profile calls a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Label {
    /// By its name.
    Name(&'static str),
    /// By the source line where it was made.
    Place(At),
}

impl Label {
    /// What tells this label from others, quickly.
    fn key(self) -> usize {
        match self {
            Self::Name(name) => name.as_ptr().addr(),
            Self::Place(at) => std::ptr::from_ref(at).addr(),
        }
    }

    /// The number under which the lock at `address` is profiled.
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

/// While it lives, the thread's events are profiled under a lock.
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

    /// The lock isn't free: on a machine without contention, it costs nothing to wait for it.
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

/// What a thread that spins for a lock sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It can be taken.
    Free,
    /// A thread has it.
    Taken,
    /// Others are parked for it: spinning has been in vain before.
    Wanted,
}

/// Looks at a lock before parking for it, and how many of them have pauses between: 2, then 4,
/// then 8. Between the others the thread yields. The numbers are those of parking_lot 0.12
/// (`SpinWait`).
const LOOKS: u32 = 10;
const PAUSED_LOOKS: u32 = 3;

/// Waits for the word at `address`: tries to `take` it, looks for a while whether it is free, then
/// parks.
///
/// `take_or_mark` is the last thing before parking: one access that takes the word or marks it as
/// waited for. No other thread runs between that access and `block_at`; so the thread that gives
/// the word back afterwards sees the mark, and finds this thread in the queue.
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
        // Where waiting is free, so is parking.
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

/// Pauses so many times, whatever happens to any line meanwhile.
#[track_caller]
fn rest(world: &World, pauses: u64) {
    world.arrive(here());
    let mut state = world.state.borrow_mut();
    let time = state.times.pause * pauses;
    state.rest(time);
}

/// Gives the word at `address` back: `give` says how many threads that [`wait_for`] it are to be
/// woken. Counted where the lock was taken: what drops a guard has no place in the source.
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
