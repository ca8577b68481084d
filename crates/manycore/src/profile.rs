//! Functions by which a program annotates the profile. They are free of charge, and do nothing
//! outside of a machine.

use crate::ticks::Ticks;
use crate::time::{Duration, ticks_of};
use crate::world;
use std::marker::PhantomData;

/// A guard: while it lives, this thread's events are profiled under a region, inside the regions
/// that the thread has already entered.
#[must_use = "the region ends where this is dropped"]
#[derive(Debug)]
pub struct Region {
    before: u32,
    /// Regions end on the thread that entered them.
    _here: PhantomData<*const ()>,
}

/// Enters a region. The profile then shows `lock.region.outer_region`, like a call graph.
pub fn region(name: &str) -> Region {
    let before = world::current().map_or(0, |world| {
        let mut state = world.state.borrow_mut();
        let before = state.current().region;
        let inside = state.ledger.region(before, name);
        state.current().region = inside;
        before
    });
    Region { before, _here: PhantomData }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(world) = world::current() {
            world.state.borrow_mut().current().region = self.before;
        }
    }
}

/// Gives the cache line of `value` a name in the profile. The time that threads spend waiting for
/// the line, or transferring it, is counted under this name. Use this for spinlocks and other
/// contended words of the program.
pub fn name<T: ?Sized>(value: &T, name: &str) {
    if let Some(world) = world::current() {
        let mut state = world.state.borrow_mut();
        let line = state.directory.find(std::ptr::from_ref(value).addr());
        let subject = state.ledger.subject("line", name);
        state.directory.line(line).subject = subject;
    }
}

/// Counts `count` operations, the unit of the program's throughput.
pub fn operations(count: u64) {
    if let Some(world) = world::current() {
        world.state.borrow_mut().ledger.operations += count;
    }
}

/// Counts an operation, and how long it took.
pub(crate) fn operation_took(time: Duration) {
    if let Some(world) = world::current() {
        let ledger = &mut world.state.borrow_mut().ledger;
        ledger.operations += 1;
        ledger.latencies.add(ticks_of(time));
    }
}

/// Returns the total time for which memory buses have been reserved so far. Called at the beginning
/// of a task's window.
pub(crate) fn window_begins() -> Ticks {
    world::current().map_or(0, |world| world.state.borrow().paths.reserved)
}

/// Records the number of operations that a task executed in its window of `time`. `before` is what
/// [`window_begins`] returned when the window began.
pub(crate) fn window_ended(operations: f64, time: Duration, before: Ticks) {
    if let Some(world) = world::current() {
        let mut state = world.state.borrow_mut();
        let buses = state.setup.shape.sockets as u64 * ticks_of(time);
        let used = (state.paths.reserved - before) as f64 / buses.max(1) as f64;
        let ledger = &mut state.ledger;
        ledger.rate += operations / time.as_secs_f64();
        ledger.windows += 1;
        ledger.memory += used;
    }
}

/// Sets all counts to zero and begins to measure; use it after setting up.
///
/// Elapsed time counts from this thread's clock. Other threads should not be running yet.
pub fn start() {
    if let Some(world) = world::current() {
        let mut state = world.state.borrow_mut();
        state.origin = state.clock();
        state.ledger.reset();
    }
}
