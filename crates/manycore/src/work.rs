//! Named work: work of a thread other than atomic accesses, charged by name.
//!
//! The program does the work itself; these functions only charge the thread for it. Outside of a
//! machine they do nothing.

use crate::ledger::Spent;
use crate::state::{Order, State};
use crate::task::{Doing, here};
use crate::ticks::{NS, Ticks};
use crate::time::{Duration, Instant, ticks_of};
use crate::world::{self, World};

/// Longer work is charged in parts, so that time slices can end during it, and siblings can start
/// and stop.
const PART: Ticks = 5_000 * NS;

/// Copies `bytes` from memory to memory, at the core's `copy_rate` and at the bandwidth of the
/// socket's bus.
#[track_caller]
pub fn copy(bytes: usize) {
    memory("copy", bytes, |state, bytes| (state.times.copy.time_of(bytes), state.times.copy_bus.time_of(bytes)));
}

/// Zeroes `bytes` of memory, at the core's `zero_rate` and at the bandwidth of the socket's bus.
#[track_caller]
pub fn zero(bytes: usize) {
    memory("zero", bytes, |state, bytes| (state.times.zero.time_of(bytes), state.times.zero_bus.time_of(bytes)));
}

/// Computes for `ns` nanoseconds.
#[track_caller]
pub fn cpu(ns: u64) {
    named("cpu", ns);
}

/// Computes for `ns` nanoseconds, under a name that the caller chooses.
#[track_caller]
pub fn named(name: &'static str, ns: u64) {
    let Some(world) = world::current() else { return };
    let at = here();
    let mut left = ticks_of(Duration::from_nanos(ns));
    world.state.borrow_mut().ledger.work(name).count += 1;
    // In random order, the scheduler chooses a thread at each event. If long work were charged in
    // parts, most choices would fall into work, where they don't matter. So it is a single event.
    let most = if world.state.borrow().setup.order == Order::Random { left } else { PART };
    while left != 0 {
        let part = left.min(most);
        left -= part;
        world.arrive(at);
        let mut state = world.state.borrow_mut();
        let part = state.jittered(part);
        state.work_for(name, part);
    }
}

/// Reads or writes `bytes` of the machine's disk. The thread waits, but doesn't occupy its CPU.
#[track_caller]
pub fn disk(bytes: usize) {
    let Some(world) = world::current() else { return };
    let done = request(world, None, bytes);
    crate::thread::sleep_until_ticks(world, done);
}

/// Submits a disk request for `bytes`, and returns the time at which it will complete.
#[must_use]
#[track_caller]
pub fn disk_request(bytes: usize) -> Instant {
    request_at(None, bytes)
}

/// Submits a disk request for `bytes` at a position of the disk, and returns the time at which it
/// will complete. On a disk that seeks (the cost `disk_seek`), this takes longer unless the request
/// begins where the one before it ended. Requests are served in the order in which they come.
#[must_use]
#[track_caller]
pub fn disk_request_at(position: u64, bytes: usize) -> Instant {
    request_at(Some(position), bytes)
}

#[track_caller]
fn request_at(position: Option<u64>, bytes: usize) -> Instant {
    world::current().map_or_else(Instant::now, |world| Instant::from_ticks(request(world, position, bytes)))
}

/// Waits until the request of [`disk_request`] has completed. The thread doesn't occupy its CPU.
#[track_caller]
pub fn disk_wait(done: Instant) {
    let Some(world) = world::current() else { return };
    crate::thread::sleep_until_ticks(world, done.ticks());
}

/// Submits a request. The disk serves one request after the other at its bandwidth; latencies
/// overlap.
#[track_caller]
fn request(world: &World, position: Option<u64>, bytes: usize) -> Ticks {
    world.arrive(here());
    let mut state = world.state.borrow_mut();
    let now = state.clock();
    let start = now.max(state.disk_free);
    let mut moved = state.times.disk.time_of(bytes as u64);
    if let Some(position) = position {
        let is_there = position == state.disk_position;
        moved += if is_there { 0 } else { state.times.disk_seek };
        state.disk_position = position.wrapping_add(bytes as u64);
    }
    state.disk_free = start + moved;
    let done = state.disk_free + state.times.disk_latency;
    let work = state.ledger.work("disk");
    work.count += 1;
    work.bytes += bytes as u64;
    work.time += done - start;
    work.waited += start - now;
    done
}

#[track_caller]
fn memory(name: &'static str, bytes: usize, times: impl Fn(&State, u64) -> (Ticks, Ticks)) {
    /// Bytes moved at once: the bus may pass to another CPU in between.
    const CHUNK: usize = 4096;
    let Some(world) = world::current() else { return };
    let at = here();
    {
        let mut state = world.state.borrow_mut();
        let work = state.ledger.work(name);
        work.count += 1;
        work.bytes += bytes as u64;
    }
    let mut left = bytes;
    while left != 0 {
        let chunk = left.min(CHUNK);
        left -= chunk;
        world.arrive(at);
        let mut state = world.state.borrow_mut();
        let (core, bus) = times(&state, chunk as u64);
        state.move_memory(name, core, bus);
    }
}

impl State {
    fn work_for(&mut self, name: &'static str, ticks: Ticks) {
        let before = self.clock();
        self.work(ticks);
        self.worked(ticks);
        let spent = self.clock() - before;
        self.ledger.work(name).time += spent;
    }

    /// Keeps the core busy for `core`, and the memory of its socket for `bus`; returns when both
    /// have completed.
    pub(crate) fn move_memory(&mut self, name: &'static str, core: Ticks, bus: Ticks) {
        if bus == 0 {
            return self.work_for(name, core);
        }
        let (now, socket) = (self.clock(), self.cpus[self.cpu].socket);
        let end = self.paths.bus(socket, now, bus) + bus;
        self.move_until(name, core, end);
    }

    /// Keeps the core busy for `core`, and returns at `end` at the earliest, when the bytes are
    /// there.
    pub(crate) fn move_until(&mut self, name: &'static str, core: Ticks, end: Ticks) {
        self.work_for(name, core);
        let waited = end.saturating_sub(self.clock());
        if waited == 0 {
            return;
        }
        let (site, subject) = self.place();
        self.spend(site, subject, Spent::Waiting, waited);
        self.ledger.work(name).waited += waited;
    }

    /// Blocks the running thread until `time`, unless that time has passed.
    pub(crate) fn sleep_until(&mut self, time: Ticks) -> bool {
        let ahead = time > self.clock();
        if ahead {
            self.block(Doing::Sleeping, Some(time));
        }
        ahead
    }
}
