//! Threads that start and stop together, so that what is measured is only what lies between.

use crate::report::Report;
use crate::task::{Doing, here};
use crate::ticks::NS;
use crate::world;

/// Waits until `count` threads have come here; then all go on at one moment, each `offset_ns`
/// later, and what was counted before is forgotten.
#[track_caller]
pub(crate) fn start(count: usize, offset_ns: u64) {
    let world = world::expect("starting virtual threads");
    world.arrive(here());
    let mut state = world.state.borrow_mut();
    let me = state.task;
    state.gate.push((me, offset_ns * NS));
    if state.gate.len() < count {
        state.block(Doing::Parked, None);
    } else {
        // All CPUs are done with their switches by then.
        let start = state.end() + 100_000 * NS;
        for (task, offset) in std::mem::take(&mut state.gate) {
            match task == me {
                true => state.block(Doing::Sleeping, Some(start + offset)),
                false => state.set_timer(task, start + offset),
            }
        }
        state.origin = start;
        state.ledger.reset();
    }
    drop(state);
    world.wait();
}

/// The thread, one of `count` that started together, is done; the last one's end is the end of what
/// is measured.
#[track_caller]
pub(crate) fn stop(count: usize) {
    let world = world::expect("stopping virtual threads");
    world.arrive(here());
    let mut state = world.state.borrow_mut();
    state.stopped += 1;
    if state.stopped < count {
        // What a thread does at its very end isn't measured either.
        let me = state.task;
        state.gate.push((me, 0));
        state.pause();
        drop(state);
        world.wait();
        return;
    }
    state.report = Some(Report::of(&state));
    for (task, _) in std::mem::take(&mut state.gate) {
        state.wake(task);
    }
    if let Some(waiter) = state.stop_waiter.take() {
        state.wake(waiter);
    }
}

/// Waits until `count` threads have stopped, out of their way.
#[track_caller]
pub(crate) fn wait_until_stopped(count: usize) {
    let world = world::expect("waiting for virtual threads");
    world.arrive(here());
    let blocked = {
        let mut state = world.state.borrow_mut();
        let blocked = state.stopped < count;
        if blocked {
            state.stop_waiter = Some(state.task);
            state.block(Doing::Waiting, None);
        }
        blocked
    };
    if blocked {
        world.wait();
    }
}
