//! Threads of the machine and the CPUs that they run on, as the scheduler sees them.

use crate::directory::{CoreSet, LineId};
use crate::ledger::At;
use crate::shape::Shape;
use crate::ticks::Ticks;
use corosensei::Yielder;
use std::collections::VecDeque;
use std::panic::Location;

/// A thread's number, in order of their start.
pub(crate) type TaskId = u32;

/// How a running coroutine gives the host thread back to the scheduler.
pub(crate) type Suspender = Yielder<(), ()>;

/// Lines that a spinning thread can watch at once. A thread that reads more lines between two hints
/// isn't parked.
pub(crate) const WATCHED_MAX: usize = 8;

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Running, or waiting for a CPU.
    Running,
    /// Spinning until one of the lines that it read changes.
    Spinning,
    /// Waiting for a lock; the number is the subject's.
    Locking(u32),
    /// Waiting for a condition variable.
    Waiting,
    /// Parked.
    Parked,
    /// Waiting for another thread's end.
    Joining(TaskId),
    /// Sleeping, or waiting for a disk.
    Sleeping,
    /// Ended.
    Finished,
}

impl Doing {
    /// Returns whether such a wait is caused by contention, and so is free on a machine without
    /// contention.
    pub(crate) fn is_contention(self) -> bool {
        matches!(self, Self::Spinning | Self::Locking(_))
    }
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) doing: Doing,
    /// Its number among the threads that are alive.
    pub(crate) index: usize,
    /// The CPU that it runs on, or ran on last.
    pub(crate) cpu: u16,
    pub(crate) pinned: bool,
    /// The source line of its last event.
    pub(crate) at: At,
    /// The profile region that it is in.
    pub(crate) region: u32,
    /// If it is in one of this crate's locks: the source line of the call.
    pub(crate) caller: Option<At>,
    /// The lock that it is taking or releasing, as a subject of the profile.
    pub(crate) subject: u32,
    /// Without contention: it waits for a lock, and its events for that cost nothing.
    pub(crate) free: bool,
    /// Without contention: this many of its next events cost nothing.
    pub(crate) free_events: u8,
    /// Lines read since the last spin hint, with their versions.
    pub(crate) watched: Vec<(LineId, u32)>,
    /// The next spin hint must not suspend the thread, because the thread has read shared bytes or
    /// too many lines, or a compare-and-swap has failed at random.
    pub(crate) watched_over: bool,
    /// The source line of the last spin hint.
    pub(crate) hinted_at: Option<u32>,
    /// It read the clock since the last spin hint.
    pub(crate) watched_time: bool,
    /// Incremented with every wait, so that the timer of an earlier wait doesn't fire.
    pub(crate) waits: u64,
    /// The last wait ended by its timer.
    pub(crate) timed_out: bool,
    /// When the last wait began.
    pub(crate) blocked_at: Ticks,
    /// The address of the queue that it waits in, or 0.
    pub(crate) queue: usize,
    /// Set by `unpark`: the next `park` returns at once.
    pub(crate) permit: bool,
    pub(crate) joiners: Vec<TaskId>,
    /// Set when the coroutine starts; valid until it ends.
    pub(crate) suspender: *const Suspender,
    /// An address on its stack near which it was suspended last.
    pub(crate) suspended_at: usize,
}

impl Task {
    pub(crate) fn new(name: String, index: usize, cpu: u16, pinned: bool, at: At) -> Self {
        Self {
            name,
            index,
            doing: Doing::Running,
            cpu,
            pinned,
            at,
            region: 0,
            caller: None,
            subject: 0,
            free: false,
            free_events: 0,
            watched: Vec::with_capacity(WATCHED_MAX),
            watched_over: false,
            hinted_at: None,
            watched_time: false,
            waits: 0,
            timed_out: false,
            blocked_at: 0,
            queue: 0,
            permit: false,
            joiners: Vec::new(),
            suspender: std::ptr::null(),
            suspended_at: 0,
        }
    }

    /// Records that the thread has read `line` at `version`. The next spin hint suspends the thread
    /// until one of the lines that it has read changes. If the thread reads a line several times
    /// between two hints, the first version counts: if the line has changed since the first read,
    /// the hint must return at once instead of waiting for another change.
    #[inline]
    pub(crate) fn watch(&mut self, line: LineId, version: u32) {
        if self.watched_over {
            return;
        }
        if self.watched.iter().any(|watched| watched.0 == line) {
            return;
        }
        match self.watched.len() < WATCHED_MAX {
            true => self.watched.push((line, version)),
            false => self.watched_over = true,
        }
    }

    /// Begins a new round of a spin.
    pub(crate) fn watch_nothing(&mut self) {
        self.watched.clear();
        self.watched_over = false;
        self.watched_time = false;
    }
}

/// The most lines that a CPU keeps at the same time while other CPUs wait for them.
const KEPT: usize = 4;

/// A line that came to a CPU. The CPU keeps the line until the next core's request can have reached
/// this CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    line: LineId,
    until: Ticks,
    /// It came for writing.
    writes: bool,
}

/// The most prefetches that a CPU has under way; it ignores further ones. Intel's and AMD's
/// first-level caches have 10 to 16 buffers for prefetched lines.
const FETCHES: usize = 10;

/// A line that a CPU has requested by a prefetch.
#[derive(Clone, Copy, Debug, Default)]
struct Fetch {
    line: LineId,
    arrives: Ticks,
}

/// A hardware thread.
#[derive(Debug)]
pub(crate) struct Cpu {
    /// Its own time.
    pub(crate) clock: Ticks,
    /// The thread on it; none while idle.
    pub(crate) task: Option<TaskId>,
    /// Threads that wait for this CPU.
    pub(crate) queue: VecDeque<TaskId>,
    /// When the CPU's thread must make room for a waiting thread. `Ticks::MAX` while no thread
    /// waits.
    pub(crate) preempt_at: Ticks,
    pub(crate) slice_end: Ticks,
    /// Its thread spins.
    pub(crate) spinning: bool,
    /// When the line of its last store arrives: a read-modify-write or a fence waits for that.
    pub(crate) stored: Ticks,
    /// The time of the CPU's work since its last wait or unforeseen event; at most as much as its
    /// reorder buffer holds.
    pub(crate) worked: Ticks,
    /// The total time of recent waits before that work: those during which the following accesses
    /// were already in the reorder buffer.
    pub(crate) waited: Ticks,
    /// Lines that came to this CPU recently.
    pub(crate) kept: [Kept; KEPT],
    /// Lines that it has requested by prefetches.
    fetches: [Fetch; FETCHES],
    /// When the last prefetched line arrives.
    fetched: Ticks,
    /// The address that its thread touches when it runs again, if that is known; else any.
    pub(crate) touches: usize,
    /// Its thread's spin has ended, which the core didn't foresee.
    pub(crate) surprised: bool,
    pub(crate) core: u16,
    pub(crate) socket: u16,
    /// All cores of the socket.
    pub(crate) socket_cores: CoreSet,
    pub(crate) sibling: Option<u16>,
    /// In random order, the CPU with the lowest priority value runs first.
    pub(crate) priority: u64,
}

impl Cpu {
    pub(crate) fn all(shape: &Shape) -> Vec<Self> {
        let small = |n: usize| u16::try_from(n).expect("at most 256 CPUs");
        let cpu = |cpu| {
            let core = shape.core_of(cpu);
            let socket = shape.socket_of_core(core);
            let mut socket_cores = CoreSet::default();
            let first = socket * shape.cores_per_socket;
            (first..first + shape.cores_per_socket).for_each(|core| socket_cores.add(small(core)));
            Self {
                clock: 0,
                task: None,
                queue: VecDeque::new(),
                preempt_at: Ticks::MAX,
                slice_end: 0,
                spinning: false,
                stored: 0,
                worked: 0,
                waited: 0,
                kept: [Kept::default(); KEPT],
                fetches: [Fetch::default(); FETCHES],
                fetched: 0,
                touches: 0,
                surprised: false,
                core: small(core),
                socket: small(socket),
                socket_cores,
                sibling: shape.sibling_of(cpu).map(small),
                priority: 0,
            }
        };
        (0..shape.cpus()).map(cpu).collect()
    }

    /// Returns whether the CPU can fetch one more line.
    pub(crate) fn can_fetch(&self) -> bool {
        self.fetches.iter().any(|fetch| fetch.arrives <= self.clock)
    }

    /// Records that a prefetched line comes.
    pub(crate) fn fetch(&mut self, line: LineId, arrives: Ticks) {
        let clock = self.clock;
        if let Some(free) = self.fetches.iter_mut().find(|fetch| fetch.arrives <= clock) {
            *free = Fetch { line, arrives };
            self.fetched = self.fetched.max(arrives);
        }
    }

    /// Returns for how long a prefetched line is still on its way.
    #[inline]
    pub(crate) fn awaits(&self, line: LineId) -> Ticks {
        if self.fetched <= self.clock {
            return 0; // The usual case: no prefetched line is on its way.
        }
        let is_coming = |fetch: &&Fetch| fetch.line == line && fetch.arrives > self.clock;
        self.fetches.iter().find(is_coming).map_or(0, |fetch| fetch.arrives - self.clock)
    }

    /// Records that a line comes, and stays at least until `until`.
    pub(crate) fn keep(&mut self, line: LineId, until: Ticks, writes: bool) {
        self.kept.rotate_right(1);
        self.kept[0] = Kept { line, until, writes };
    }

    /// Returns whether the CPU still has a line that others have requested.
    #[inline]
    pub(crate) fn keeps(&self, line: LineId, writes: bool) -> bool {
        let kept = self.kept.iter().find(|kept| kept.line == line);
        kept.is_some_and(|kept| self.clock < kept.until && (kept.writes || !writes))
    }

    /// Returns whether this CPU slows its sibling down. A spinning CPU doesn't: it executes PAUSE
    /// most of the time, and PAUSE leaves the core to the sibling.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.task.is_some() && !self.spinning
    }
}

/// Returns the source line of the caller, for events.
#[track_caller]
pub(crate) fn here() -> At {
    Location::caller()
}
