//! The number of this CPU, and the number of CPUs.

use crate::world;

/// Returns the number of CPUs of the machine; outside of a machine, of the host.
///
/// Per-CPU data that is sized by this number must be created inside of the machine.
#[must_use]
pub fn count() -> usize {
    match world::current() {
        Some(world) => world.state.borrow().cpus.len(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Returns the CPU that this thread runs on, free of charge; outside of a machine, 0.
#[inline]
#[must_use]
pub fn current() -> usize {
    world::current().map_or(0, |world| world.state.borrow().cpu)
}

/// Returns the socket of the CPU that this thread runs on; outside of a machine, 0.
#[must_use]
pub fn socket() -> usize {
    world::current().map_or(0, |world| {
        let state = world.state.borrow();
        usize::from(state.cpus[state.cpu].socket)
    })
}

/// Returns the socket of each CPU of the machine; outside of a machine, one socket for all CPUs of
/// the host.
#[must_use]
pub fn sockets() -> Vec<usize> {
    world::current().map_or_else(
        || vec![0; count()],
        |world| world.state.borrow().cpus.iter().map(|cpu| usize::from(cpu.socket)).collect(),
    )
}
