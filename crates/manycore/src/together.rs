//! Starts and stops threads together, so that only the time between is measured.

use crate::report::Report;
use crate::task::{Doing, here};
use crate::ticks::NS;
use crate::world;

/// Waits until `count` threads have called this function. Then all continue at one moment, each
/// delayed by its `offset_ns`. Whatever was counted before is discarded.
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
        // All CPUs complete their context switches before `start`.
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

/// Records that this thread, one of `count` that started together, has finished. The measurement
/// ends when the last of them finishes.
#[track_caller]
pub(crate) fn stop(count: usize) {
    let world = world::expect("stopping virtual threads");
    world.arrive(here());
    let mut state = world.state.borrow_mut();
    state.stopped += 1;
    if state.stopped < count {
        // This thread's later events aren't measured: it pauses until the report has been made.
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

/// Waits, blocked, until `count` threads have stopped.
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
