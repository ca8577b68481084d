//! Charges accesses to memory: what each costs, given which caches hold the line.
//!
//! | the core | load | store, read-modify-write |
//! |---|---|---|
//! | is the only holder | hit | hit |
//! | holds a copy, others too | hit | invalidate the others' |
//! | has no copy | copy from the nearest holder | take it from all holders |
//! | no core has a copy | memory | memory |
//!
//! If no core has a line, the line is read from the socket's cache if it was evicted to there, and
//! otherwise from memory. A line is in the memory of the socket whose core touched it first.
//! Reading the line occupies the bus of that memory. If the reader is in another socket, it also
//! occupies the links between the two sockets.
//!
//! An access that isn't a hit and doesn't go to memory needs a transfer. The transfer waits until
//! the line isn't busy, and then makes the line busy. If the transfer moves ownership, or the line
//! is modified, the line is busy for the whole transfer. If the transfer only makes one more copy
//! of a clean line, the line is busy only for the time that handing out a copy takes (`read_port`).
//!
//! A transfer across sockets also occupies the links of both sockets. Such a transfer takes longer
//! if the line's memory isn't in the socket of the line's owner, because the request goes to the
//! memory's socket first.
//!
//! Requests for a line are served in order. A transfer has two parts. In the first, which is the
//! fraction `transfer_overlap` of its time, the request is on its way, and the core that has the
//! line continues to use the line. The requesting access is executed when the line has arrived. The
//! core that gets the line then keeps it for the fraction `transfer_hold` of a transfer's time,
//! even if other requests already wait. So cores that contend for a line take turns. In its turn,
//! each core makes at least one access, and as many as fit into the hold. If no request waits when
//! the line arrives, the core continues to access the line until the next request reaches the core:
//! ```text
//!   A  has it … … … … …|                        gets it … … …|
//!                 B's request … … …|line moves|has it … … … |line moves|
//!                                             A's request … |
//! ```
//!
//! A store goes into its core's store buffer: the core continues at once, and the line arrives
//! later. Other cores see the stored value only after the line has arrived, because their accesses
//! wait for the line.
//!
//! Other cores may have requested the line before the store did. Those cores use the line first,
//! and so read the old value. While one of them can still read the old value, it must not see the
//! effects of anything that the storing core does after the store. So in this case the storing core
//! doesn't continue at once, but waits for the line.
//!
//! A read-modify-write, a fence and a sequentially consistent store wait until the store buffer is
//! empty, as on x86.
//!
//! A prefetch requests a line, and its core continues at once. If the core accesses the line before
//! it arrives, the access waits for the rest of the transfer. A core has a few prefetches under
//! way, and ignores further ones.
//!
//! A core requests the line of an access when the access enters the core's reorder buffer, up to
//! `window` of work before the access is executed. While an earlier access waits, the core also
//! requests the lines of the loads and stores that follow. It requests the line of a
//! read-modify-write only after the wait. It requests no line ahead for accesses that follow the
//! end of a spin, or a fence.
//!
//! A request made ahead is too early if the line's owner uses the line again after the time at
//! which the request would take the line away. Such a request has no effect, and the core repeats
//! it when it executes the access.
//! ```text
//!   work … … … … … … … … …|gets B                   work … … … … … … … … … … … … … … …|
//!       B asked for … … …|                              B asked for … |owner's again   B asked for … … …|
//! ```

use crate::directory::{CoreSet, Line, LineId, NOBODY};
use crate::ledger::Spent;
use crate::line_caches::LineCaches;
use crate::paths::Paths;
use crate::shape::Shape;
use crate::state::{Order, State};
use crate::task::Cpu;
use crate::ticks::{Ticks, Times};

/// The kind of an access. It determines in which state the core needs the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    Store,
    /// Read-modify-write. This includes a compare-and-swap that fails, because it takes the line,
    /// too.
    Update,
}

/// The capacity of a core's store buffer: how many stores can wait for their lines.
const STORE_BUFFER: Ticks = 48;

/// What a line passes through on its way to a core, and what that costs.
struct Between<'a> {
    shape: &'a Shape,
    times: &'a Times,
    paths: &'a mut Paths,
    caches: &'a mut LineCaches,
}

impl Between<'_> {
    /// Reads a line that no core has, for a CPU, from the socket's cache or from memory. Returns
    /// how long the CPU first waits for the bus and the links, and how long the read itself takes.
    fn read(&mut self, cpu: &Cpu, id: LineId, line: &mut Line) -> (Ticks, Ticks) {
        let (now, socket) = (cpu.clock, cpu.socket);
        if line.in_socket_cache || line.sank_in == socket && self.caches.socket_has(socket, id) {
            return (0, self.times.socket_hit);
        }
        if line.home == NOBODY {
            line.home = socket;
        }
        let start = self.paths.bus(line.home, now, self.times.memory_line);
        if line.home == socket {
            return (start - now, self.times.first_touch);
        }
        let start = self.paths.link([socket, line.home], now, start, self.times.link_line);
        (start - now, self.times.first_touch + self.times.memory_detour)
    }
}

/// A line that comes from another core.
#[derive(Clone, Copy, Debug, Default)]
struct Transfer {
    /// When the line arrives.
    arrives: Ticks,
    /// How long the transfer takes, if no other core wants the line.
    takes: Ticks,
    /// The transfer is for a store that its core doesn't wait for.
    buffered: bool,
}

impl Transfer {
    /// Requests a line that the core doesn't hold in the state that the access needs. `ours`: this
    /// CPU was the last to access the line.
    fn ask(kind: Kind, cpu: &mut Cpu, id: LineId, line: &mut Line, machine: &mut Between<'_>, ours: bool) -> Self {
        let (now, writes) = (cpu.clock, kind != Kind::Load);
        let times = machine.times;
        let is_near = !writes && line.holders.meets(&cpu.socket_cores);
        let far = line.holders.first_beyond(&cpu.socket_cores).filter(|_| !is_near);
        let far = far.map(|core| machine.shape.socket_of_core(usize::from(core)) as u16);
        let takes = match far {
            None => times.transfer_socket,
            Some(owner) if line.home == owner || line.home == NOBODY => times.transfer_machine,
            Some(_) => times.transfer_machine + times.transfer_detour,
        };
        // Returns the time at which a line that is ready at `ready` is sent: at once, unless the
        // line has to wait for links to another socket.
        let mut sent =
            |ready| far.map_or(ready, |far| machine.paths.link([cpu.socket, far], now, ready, times.link_line));
        let before = if kind == Kind::Update { cpu.worked } else { cpu.worked + cpu.waited };
        let early = now.saturating_sub(before).max(line.busy);
        if !writes && !line.modified {
            line.busy = early + times.read_port;
            return Self { arrives: sent(early) + takes, takes, buffered: false };
        }
        let way = times.transfer_overlap.times(takes);
        let lost = !ours && early < now && early + way < line.used;
        let start = sent(if lost { now } else { early });
        let free = now >= line.busy;
        if free {
            line.leaves = if kind == Kind::Store { start } else { start + way };
            line.before = line.holders;
        }
        line.busy = start + takes;
        cpu.keep(id, line.busy + times.transfer_hold.times(takes), writes);
        let buffered = free && kind == Kind::Store;
        Self { arrives: line.busy, takes, buffered }
    }
}

impl State {
    /// Charges the running CPU for an access. Afterwards the CPU holds the line in the way that the
    /// access needs. Returns true if the CPU's clock was advanced to the time at which the line
    /// arrives from another core. Other CPUs may still use the line before that time, so the caller
    /// must wait for its turn once more. Returns false for a buffered store, because its core
    /// doesn't wait.
    #[inline]
    pub(crate) fn touch(&mut self, kind: Kind, address: usize) -> (LineId, bool) {
        if kind == Kind::Update {
            self.drain_stores();
        }
        let id = self.directory.find(address);
        let cpu = &mut self.cpus[self.cpu];
        let (now, core) = (cpu.clock, cpu.core);
        let line = self.directory.line(id);
        let writes = kind != Kind::Load;
        let (mut transfer, mut transfers, mut work) = (Transfer::default(), 0, self.times.line_hit);
        let mut in_order = 0;
        let has_it = |holders: &CoreSet| holders.has(core) && (!writes || *holders == CoreSet::only(core));
        let mut waits = 0;
        let (shape, times, paths, caches) = (&self.setup.shape, &self.times, &mut self.paths, &mut self.line_caches);
        let mut between = Between { shape, times, paths, caches };
        if line.holders.is_empty() {
            (waits, work) = between.read(cpu, id, line);
            line.holders.add(core);
        } else if !(has_it(&line.holders) || now < line.leaves && has_it(&line.before) || cpu.keeps(id, writes)) {
            transfers = 1;
            if self.setup.contention {
                let ours = line.last == self.cpu as u16;
                transfer = Transfer::ask(kind, cpu, id, line, &mut between, ours);
            }
            line.come_to(core, writes);
        } else {
            // Nothing, unless the line was prefetched too late.
            let rest = cpu.awaits(id);
            transfer = Transfer { arrives: now + rest, takes: rest, buffered: kind == Kind::Store };
        }
        line.modified |= writes;
        line.used = now.max(transfer.arrives);
        let this = self.cpu as u16;
        let shared_write = u64::from(writes && line.last != this && line.last != NOBODY);
        line.last = this;
        let (mut subject, version) = (line.subject, line.version);
        self.enter_cache(id);
        if kind == Kind::Update {
            in_order = self.times.rmw;
        }
        if kind != Kind::Store {
            self.current().watch(id, version);
        }
        let task = self.current();
        if task.subject != 0 {
            subject = task.subject;
        }
        let (at, region) = (task.at, task.region);
        let site = self.ledger.site(at, region);
        self.ledger.count(site, subject, transfers, shared_write);
        if self.goes_free() {
            return (id, false);
        }
        if transfer.takes != 0 {
            self.await_line(transfer, site, subject);
        } else if waits != 0 {
            self.waited(waits);
            self.spend(site, subject, Spent::Waiting, waits);
        }
        let residual = self.jittered(self.times.residual);
        let work = self.beside_sibling(work + residual + in_order);
        self.spend(site, subject, Spent::Working, work);
        self.worked(work);
        (id, transfer.takes != 0 && !transfer.buffered)
    }

    /// Requests a line for the running CPU, for reading or for `writes`. Doesn't wait for the line.
    /// Does nothing if the CPU has the line, or if too many of its prefetches are under way
    /// already.
    pub(crate) fn prefetch(&mut self, address: usize, writes: bool) {
        let id = self.directory.find(address);
        let cpu = &mut self.cpus[self.cpu];
        let (now, core) = (cpu.clock, cpu.core);
        let line = self.directory.line(id);
        let has_it = line.holders.has(core) && (!writes || line.holders == CoreSet::only(core));
        if has_it || !cpu.can_fetch() {
            return;
        }
        let (shape, times, paths, caches) = (&self.setup.shape, &self.times, &mut self.paths, &mut self.line_caches);
        let mut between = Between { shape, times, paths, caches };
        let (mut arrives, mut transfers) = (now, 0);
        if line.holders.is_empty() {
            let (waits, work) = between.read(cpu, id, line);
            arrives += waits + work;
        } else {
            transfers = 1;
            if self.setup.contention {
                let kind = if writes { Kind::Store } else { Kind::Load };
                let ours = line.last == self.cpu as u16;
                arrives = Transfer::ask(kind, cpu, id, line, &mut between, ours).arrives;
            }
        }
        line.come_to(core, writes);
        cpu.fetch(id, arrives);
        self.enter_cache(id);
        let task = self.current();
        let (at, region, subject) = (task.at, task.region, task.subject);
        let site = self.ledger.site(at, region);
        self.ledger.count(site, subject, transfers, 0);
    }

    /// Puts line `id` into the cache of the running CPU's core. If that evicts another line, and no
    /// other core has the evicted line, the evicted line moves to the socket's cache. In random
    /// order this does nothing: times mean nothing there, so the caches count as unlimited.
    #[inline]
    fn enter_cache(&mut self, id: LineId) {
        let cpu = &self.cpus[self.cpu];
        if self.setup.order == Order::Random {
            return;
        }
        let Some(out) = self.line_caches.used(cpu.core, id) else { return };
        let (core, socket) = (cpu.core, cpu.socket);
        let line = self.directory.line(out);
        if line.holders.has(core) {
            line.holders.remove(core);
            if line.holders.is_empty() {
                line.modified = false;
                line.sank_in = socket;
                self.line_caches.sank(socket, out);
            }
        }
    }

    /// Waits until a line has arrived. For a store, waits only until the store buffer has room.
    fn await_line(&mut self, transfer: Transfer, site: u32, subject: u32) {
        let cpu = &mut self.cpus[self.cpu];
        let now = cpu.clock;
        let mut until = now.max(transfer.arrives);
        if transfer.buffered {
            cpu.stored = cpu.stored.max(transfer.arrives);
            until = now.max(cpu.stored.saturating_sub(STORE_BUFFER * transfer.takes));
        }
        let waits = until - now;
        self.waited(waits);
        let moves = waits.min(transfer.takes);
        if waits > moves {
            self.spend(site, subject, Spent::Waiting, waits - moves);
        }
        if moves != 0 {
            self.spend(site, subject, Spent::Transferring, moves);
        }
    }

    /// Waits until the lines of the running CPU's stores have arrived.
    pub(crate) fn drain_stores(&mut self) {
        let waits = self.cpus[self.cpu].stored.saturating_sub(self.clock());
        if waits != 0 {
            let (site, subject) = self.place();
            self.waited(waits);
            self.spend(site, subject, Spent::Transferring, waits);
        }
    }

    /// Records that the running CPU has waited for `ticks`. During this wait, the accesses that
    /// follow have entered the CPU's reorder buffer.
    fn waited(&mut self, ticks: Ticks) {
        if ticks != 0 {
            let cpu = &mut self.cpus[self.cpu];
            cpu.worked = 0;
            cpu.waited += ticks;
        }
    }

    /// Records that the following accesses aren't in the running CPU's reorder buffer yet.
    pub(crate) fn foresee_nothing(&mut self) {
        let cpu = &mut self.cpus[self.cpu];
        (cpu.worked, cpu.waited) = (0, 0);
    }

    /// Records that the running CPU has worked for `ticks`. It can therefore request the line of
    /// its next access earlier: by the time of this work, but by at most `window`. The core can't
    /// foresee the end of a spin, so after a spin the CPU requests no line ahead.
    #[inline]
    pub(crate) fn worked(&mut self, ticks: Ticks) {
        let window = self.times.window;
        let cpu = &mut self.cpus[self.cpu];
        cpu.worked += ticks;
        if std::mem::take(&mut cpu.surprised) {
            self.foresee_nothing();
        } else if cpu.worked >= window {
            (cpu.worked, cpu.waited) = (window, 0);
        }
    }

    /// Records that a value in the line changed: each thread that spins on the line looks again.
    #[inline]
    pub(crate) fn changed(&mut self, id: LineId) {
        let line = self.directory.line(id);
        let before = line.version;
        line.version = before.wrapping_add(1);
        let after = line.version;
        let any = line.has_waiters;
        // A thread's own change doesn't wake its own spin.
        let watched = self.current().watched.iter_mut().find(|watched| **watched == (id, before));
        if let Some(watched) = watched {
            watched.1 = after;
        }
        if any {
            self.wake_spinners(id);
        }
    }

    fn wake_spinners(&mut self, id: LineId) {
        let now = self.clock();
        for cpu in self.directory.take_waiters(id) {
            let cpu = usize::from(cpu);
            // A spinning thread reads the line once in every pause. The change comes at a random
            // moment of that pause.
            let time = match self.setup.contention {
                true => now + self.random.below(self.times.pause + 1),
                false => self.cpus[cpu].clock,
            };
            self.end_spin(cpu, time);
        }
    }

    /// Returns the site and the subject of the running thread's event.
    pub(crate) fn place(&mut self) -> (u32, u32) {
        let task = self.current();
        let (at, region, subject) = (task.at, task.region, task.subject);
        (self.ledger.site(at, region), subject)
    }

    /// Charges the running CPU for work that touches no line.
    pub(crate) fn work(&mut self, ticks: Ticks) {
        let (site, subject) = self.place();
        self.ledger.count(site, subject, 0, 0);
        let ticks = self.beside_sibling(ticks);
        self.spend(site, subject, Spent::Working, ticks);
    }

    /// Returns whether the running thread's event costs nothing, because it is part of a wait on a
    /// machine without contention.
    #[inline]
    pub(crate) fn goes_free(&mut self) -> bool {
        if self.setup.contention {
            return false;
        }
        let task = self.current();
        let free = task.free || task.free_events > 0;
        task.free_events = task.free_events.saturating_sub(1);
        free
    }

    /// Returns a time that varies by the machine's jitter.
    #[inline]
    pub(crate) fn jittered(&mut self, ticks: Ticks) -> Ticks {
        let spread = self.times.jitter.times(ticks);
        if spread == 0 { ticks } else { ticks - spread + self.random.below(2 * spread + 1) }
    }

    /// Returns the time of local work, which is longer while the core's other hardware thread works
    /// too.
    #[inline]
    pub(crate) fn beside_sibling(&self, ticks: Ticks) -> Ticks {
        match self.cpus[self.cpu].sibling {
            Some(sibling) if self.cpus[usize::from(sibling)].is_busy() => self.times.sibling_slowdown.times(ticks),
            _ => ticks,
        }
    }
}
