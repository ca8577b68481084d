//! Bytes that threads share, and that are copied rather than accessed as atomics.
//!
//! A copy of a few lines is charged as accesses to those lines. A larger copy is charged as named
//! work: the core moves the bytes at the rate of the cache or memory that holds them. All cores of
//! a socket share the bus to memory (see [the page on the model](crate::model)). Each call charges
//! one side of a copy, the shared bytes. The other side, a buffer, is assumed to be private and in
//! the first-level cache, and costs nothing.
//!
//! Inside a machine, the range is moved in parts, from the lowest address to the highest. A part
//! has up to 4 KiB, or up to 512 bytes if the machine runs its threads in random order. For each
//! part, the thread waits for its turn and calls `copy`; other threads may run between two parts.
//! The smaller parts make torn copies likelier, so that tests with a machine in random order find
//! them. Outside a machine, `copy` is called once with the whole range.

use crate::access::Kind;
use crate::blocks::{BLOCK, BlockId, Place};
use crate::directory::{CoreSet, NOBODY};
use crate::ledger::{At, Spent};
use crate::state::{Order, State};
use crate::task::here;
use crate::world;
use std::ops::Range;

/// Bytes in a line.
const LINE: usize = 64;

/// Up to this many bytes, each line is charged as an access.
const FEW: usize = 128;

/// In random order, at most this many bytes move at one moment.
const TORN: usize = 512;

/// The way in which bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Read,
    Write,
    /// Written past the caches.
    Stream,
}

/// Reads `len` bytes at `address` by calling `copy` for each part.
#[inline]
#[track_caller]
pub fn read(address: usize, len: usize, copy: impl FnMut(Range<usize>)) {
    go(Move::Read, address, len, here(), copy);
}

/// Writes `len` bytes at `address` by calling `copy` for each part.
#[inline]
#[track_caller]
pub fn write(address: usize, len: usize, copy: impl FnMut(Range<usize>)) {
    go(Move::Write, address, len, here(), copy);
}

/// Writes like [`write()`], with stores that bypass the caches.
#[inline]
#[track_caller]
pub fn stream(address: usize, len: usize, copy: impl FnMut(Range<usize>)) {
    go(Move::Stream, address, len, here(), copy);
}

/// Records that a device has written `len` bytes at `address`, so no cache has them. Charges no
/// CPU; see [`work::disk`](crate::work::disk) for the device's time.
pub fn written_by_device(address: usize, len: usize) {
    if let Some(world) = world::current() {
        world.state.borrow_mut().blocks.forget(address, len);
    }
}

fn go(how: Move, address: usize, len: usize, at: At, mut copy: impl FnMut(Range<usize>)) {
    let Some(world) = world::current() else { return copy(0..len) };
    let most = if world.state.borrow().setup.order == Order::Random { TORN } else { BLOCK };
    let mut done = 0;
    while done < len {
        let start = address + done;
        let part = (len - done).min(most - start % most);
        world.arrive(at);
        {
            let mut state = world.state.borrow_mut();
            if part <= FEW {
                state.move_lines(how, start, part);
            } else {
                state.move_block(how, start, part);
            }
        }
        copy(done..done + part);
        done += part;
    }
}

impl State {
    /// Charges the running CPU for each line of a few bytes within one block.
    fn move_lines(&mut self, how: Move, address: usize, len: usize) {
        let (core, socket) = self.core_and_socket();
        let block = self.blocks.find(address);
        let near = self.blocks.is_near(block, core, socket);
        let in_socket = self.blocks.locate(block, core, socket) == Place::Socket;
        let home = self.blocks.home(block, socket);
        let kind = if how == Move::Read { Kind::Load } else { Kind::Store };
        for line in address / LINE..=(address + len - 1) / LINE {
            let known = *self.blocks.block(block);
            let id = self.directory.find(line * LINE);
            let line_state = self.directory.line(id);
            if line_state.filled != known.filled {
                line_state.filled = known.filled;
                line_state.holders = CoreSet::default();
                line_state.modified = known.filled_by != NOBODY;
                if line_state.modified {
                    line_state.holders.add(known.filled_by);
                }
            }
            if near {
                line_state.holders.add(core);
            }
            (line_state.in_socket_cache, line_state.home) = (in_socket, home);
            let (id, _) = self.touch(kind, line * LINE);
            if kind == Kind::Store {
                self.changed(id);
            }
        }
        self.blocks.block(block).last = self.cpu as u16;
        if kind == Kind::Store {
            self.blocks.wrote_lines(block, core, socket);
        }
        self.cannot_watch(how);
    }

    /// Charges the running CPU for moving bytes within one block.
    fn move_block(&mut self, how: Move, address: usize, len: usize) {
        let (core, socket) = self.core_and_socket();
        let block = self.blocks.find(address);
        let place = self.blocks.locate(block, core, socket);
        let home = self.blocks.home(block, socket);
        let lines = len.div_ceil(LINE) as u64;
        let taken = self.taken_from_others(how, block, place);
        let (site, subject) = self.place();
        let moved = if matches!(place, Place::Writer(_)) || taken.1 { lines } else { 0 };
        self.ledger.count(site, subject, moved, if taken.0 { lines } else { 0 });
        match how {
            Move::Read => self.blocks.read(block, core, socket),
            Move::Write => {
                self.blocks.wrote(block, core, socket);
                self.blocks.filled(block, core);
            }
            Move::Stream => {
                self.blocks.lose(block);
                self.blocks.filled(block, NOBODY);
            }
        }
        self.blocks.block(block).last = self.cpu as u16;
        self.cannot_watch(how);
        if self.goes_free() {
            return;
        }
        let mut transfer = 0;
        if self.setup.contention && moved != 0 {
            let near = matches!(place, Place::Writer(other) if self.cpus[self.cpu].socket_cores.has(other));
            let near = near || (taken.1 && !matches!(place, Place::Writer(_)));
            transfer = if near { self.times.transfer_socket } else { self.times.transfer_machine };
        }
        if transfer != 0 {
            self.spend(site, subject, Spent::Transferring, transfer);
        }
        let from = match place {
            _ if how == Move::Stream => home,
            Place::Writer(core) => self.setup.shape.socket_of_core(usize::from(core)) as u16,
            Place::First | Place::Core | Place::Socket => socket,
            Place::Memory => home,
        };
        self.move_at(how, place, len as u64, [socket, from]);
    }

    /// Returns whether a move writes bytes that another CPU touched last, and whether this write
    /// has to invalidate copies in other caches.
    fn taken_from_others(&mut self, how: Move, block: BlockId, place: Place) -> (bool, bool) {
        let this = self.cpu as u16;
        let last = self.blocks.block(block).last;
        let shared = how != Move::Read && last != NOBODY && last != this;
        (shared, shared && place != Place::Memory)
    }

    /// Charges the core for moving the bytes, depending on where they are. Also charges the memory
    /// bus if the bytes are in memory. `sockets` are the socket of the core and that of the bytes;
    /// if they differ, the links are charged, too.
    fn move_at(&mut self, how: Move, place: Place, bytes: u64, sockets: [u16; 2]) {
        let times = &self.times;
        let memory = (times.first_touch, times.memory_read.time_of(bytes), times.zero_bus.time_of(bytes));
        let (name, latency, core, bus) = match (how, place) {
            (Move::Stream, _) => ("stream to memory", 0, times.zero.time_of(bytes), times.zero_bus.time_of(bytes)),
            (Move::Read, Place::First) => ("read in first cache", times.line_hit, times.first_rate.time_of(bytes), 0),
            (Move::Read, Place::Core) => ("read in core's cache", times.line_hit, times.core_rate.time_of(bytes), 0),
            (Move::Read, Place::Socket) => {
                ("read in socket's cache", times.socket_hit, times.socket_rate.time_of(bytes), 0)
            }
            (Move::Read, Place::Writer(_)) => {
                ("read in writer's cache", times.line_hit, times.socket_rate.time_of(bytes), 0)
            }
            (Move::Read, Place::Memory) => ("read in memory", memory.0, memory.1, memory.2),
            (Move::Write, Place::First) => ("write in first cache", times.line_hit, times.first_rate.time_of(bytes), 0),
            (Move::Write, Place::Core) => ("write in core's cache", times.line_hit, times.core_rate.time_of(bytes), 0),
            (Move::Write, Place::Socket | Place::Writer(_)) => {
                ("write in other cache", times.line_hit, times.socket_rate.time_of(bytes), 0)
            }
            // The lines are fetched, and written back later.
            (Move::Write, Place::Memory) => ("write in memory", memory.0, times.zero.time_of(bytes), 2 * memory.2),
        };
        let work = self.ledger.work(name);
        work.count += 1;
        work.bytes += bytes;
        let is_far = sockets[0] != sockets[1];
        let detour = if is_far && bus != 0 { self.times.memory_detour } else { 0 };
        let core = self.jittered(latency + detour + core + self.times.residual);
        let mut end = self.clock();
        if bus != 0 {
            end = self.paths.bus(sockets[1], end, bus) + bus;
        }
        if is_far && (bus != 0 || self.setup.contention) {
            let on_link = self.times.link.time_of(bytes);
            end = end.max(self.paths.link(sockets, self.clock(), self.clock(), on_link) + on_link);
        }
        self.move_until(name, core, end);
    }

    fn core_and_socket(&self) -> (u16, u16) {
        let cpu = &self.cpus[self.cpu];
        (cpu.core, cpu.socket)
    }

    /// Prevents a thread that spins on bytes from being parked: a change of bytes wakes no thread.
    fn cannot_watch(&mut self, how: Move) {
        self.current().watched_over |= how == Move::Read;
    }
}
