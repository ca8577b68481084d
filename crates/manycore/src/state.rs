//! The state of a running machine, and the choice of the CPU that goes next.
//!
//! In *measured* order the CPU with the smallest clock runs next; of CPUs with equal clocks, the
//! CPU with the smallest number. In *random* order the CPU with the smallest priority value runs
//! next, and priorities change at random events. Both orders use one heap with one kind of key,
//! `rank << 8 | cpu`, where the rank is the clock or the priority.
//!
//! - S1. A CPU is in `ready` exactly once if both of these hold: the CPU has a thread that isn't
//!   spinning, and the CPU isn't the running one. Otherwise the CPU isn't in `ready`.
//! - S2. `limit` is at most the smallest key in `ready`. In measured order it is also at most the
//!   key of the earliest timer; in random order, [`State::may_go_on`] checks the timers itself. So
//!   while the running CPU's key is below `limit` and no timer is due, the scheduler would choose
//!   this CPU again. Its thread therefore continues without asking the scheduler.
//! - S3. No code in this module runs code of the user, so the state is never borrowed while a
//!   thread runs.

use crate::blocks::Blocks;
use crate::costs::Costs;
use crate::directory::Directory;
use crate::error::Cause;
use crate::host;
use crate::ledger::{At, Ledger, Spent, Table};
use crate::line_caches::LineCaches;
use crate::paths::Paths;
use crate::random::Random;
use crate::report::Report;
use crate::shape::Shape;
use crate::task::{Cpu, Doing, Task, TaskId};
use crate::ticks::{Ticks, Times};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How a run is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By virtual time.
    Measured,
    /// By random priorities.
    Random,
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) costs: Costs,
    pub(crate) contention: bool,
    pub(crate) order: Order,
    pub(crate) seed: u64,
    pub(crate) events_max: u64,
    /// Tasks are dealt to the sockets round robin, rather than to the CPUs in the order of their
    /// numbers.
    pub(crate) spread: bool,
}

/// The scheduler's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Run(TaskId),
    Done,
    Failed,
}

/// The state of a running machine.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) setup: Setup,
    pub(crate) times: Times,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    /// Number of threads that aren't finished.
    pub(crate) live: usize,
    /// Numbers of ended threads that no later thread has taken over.
    pub(crate) indexes: BinaryHeap<Reverse<usize>>,
    pub(crate) directory: Directory,
    pub(crate) blocks: Blocks,
    pub(crate) ledger: Ledger,
    pub(crate) random: Random,
    /// Threads that wait at an address, first in, first out.
    pub(crate) queues: Table<usize, VecDeque<TaskId>>,
    /// The key and the number under which the lock at an address is profiled.
    pub(crate) locks: Table<usize, (usize, u32)>,
    pub(crate) line_caches: LineCaches,
    /// Memory buses, and links between sockets.
    pub(crate) paths: Paths,
    pub(crate) disk_free: Ticks,
    /// Where the last request that had a position ended.
    pub(crate) disk_position: u64,
    /// The CPU that runs, and its thread.
    pub(crate) cpu: usize,
    pub(crate) task: TaskId,
    limit: u64,
    ready: BinaryHeap<Reverse<u64>>,
    timers: BinaryHeap<Reverse<(Ticks, u64, TaskId)>>,
    pub(crate) events: u64,
    /// Threads that wait to start together, and the delay of each.
    pub(crate) gate: Vec<(TaskId, Ticks)>,
    /// How many of the threads that started together have stopped. `stop_waiter` is the thread that
    /// waits until all have stopped, and `report` is made at that moment.
    pub(crate) stopped: usize,
    pub(crate) stop_waiter: Option<TaskId>,
    pub(crate) report: Option<Report>,
    /// When counting began.
    pub(crate) origin: Ticks,
    /// In random order: the time, which all CPUs share. `change_at` is the number of the event at
    /// which a priority changes next.
    now: Ticks,
    change_at: u64,
    change_every: u64,
    pub(crate) failure: Option<Cause>,
}

impl State {
    pub(crate) fn new(setup: Setup) -> Self {
        let mut random = Random::seeded(setup.seed);
        let mut cpus = Cpu::all(&setup.shape);
        cpus.iter_mut().for_each(|cpu| cpu.priority = random.next_u64() >> 8);
        // Some bugs need two switches close together, others a long time without a switch. So the
        // seed determines how often priorities change.
        let change_every = 4 << (2 * random.below(5));
        let times = Times::of(&setup.costs);
        Self {
            blocks: Blocks::new(&setup.shape, &times),
            cpus,
            tasks: Vec::new(),
            live: 0,
            indexes: BinaryHeap::new(),
            directory: Directory::new(),
            ledger: Ledger::new(),
            random,
            queues: Table::default(),
            locks: Table::default(),
            line_caches: LineCaches::new(&setup.shape, &times),
            paths: Paths::new(setup.shape.sockets),
            times,
            disk_free: 0,
            disk_position: 0,
            cpu: 0,
            task: 0,
            limit: 0,
            ready: BinaryHeap::new(),
            timers: BinaryHeap::new(),
            events: 0,
            gate: Vec::new(),
            stopped: 0,
            stop_waiter: None,
            report: None,
            origin: 0,
            now: 0,
            change_at: change_every,
            change_every,
            failure: None,
            setup,
        }
    }

    /// Returns the running CPU's time.
    #[inline]
    pub(crate) fn clock(&self) -> Ticks {
        self.cpus[self.cpu].clock
    }

    /// Returns the running thread.
    #[inline]
    pub(crate) fn current(&mut self) -> &mut Task {
        &mut self.tasks[self.task as usize]
    }

    fn key(&self, cpu: usize) -> u64 {
        let rank = match self.setup.order {
            Order::Measured => self.cpus[cpu].clock,
            Order::Random => self.cpus[cpu].priority,
        };
        rank << 8 | cpu as u64
    }

    /// Advances the running CPU's clock.
    #[inline]
    pub(crate) fn spend(&mut self, site: u32, subject: u32, spent: Spent, ticks: Ticks) {
        self.cpus[self.cpu].clock += ticks;
        self.ledger.enter(site, subject, spent, ticks);
    }

    /// Charges time in the operating system to the source line of the running thread's last event.
    pub(crate) fn spend_system(&mut self, ticks: Ticks) {
        let (site, _) = self.place();
        self.spend(site, 0, Spent::System, ticks);
    }

    /// Begins an event of the running thread. Returns false if the thread's slice is over, another
    /// CPU must go first, a timer is due, or the run has had too many events. After false, the
    /// caller must suspend the thread, and call this function again when the thread is resumed.
    #[inline]
    pub(crate) fn may_go_on(&mut self, at: At) -> bool {
        let task = self.current();
        task.at = task.caller.unwrap_or(at);
        let cpu = &self.cpus[self.cpu];
        let my_turn = match self.setup.order {
            Order::Measured => (cpu.clock << 8 | self.cpu as u64) < self.limit && cpu.clock < cpu.preempt_at,
            Order::Random => cpu.clock < cpu.preempt_at && self.may_go_on_at_random(),
        };
        if my_turn {
            self.events += 1;
            if self.events > self.setup.events_max {
                self.failure = Some(Cause::TooManyEvents { limit: self.setup.events_max });
                return false;
            }
        }
        my_turn
    }

    fn may_go_on_at_random(&mut self) -> bool {
        self.now = self.now.max(self.clock());
        if self.events >= self.change_at {
            self.change_at = self.events + 1 + self.random.below(2 * self.change_every);
            self.cpus[self.cpu].priority = self.random.next_u64() >> 8;
        }
        let timer_due = self.timers.peek().is_some_and(|Reverse(timer)| timer.0 <= self.now);
        !timer_due && self.key(self.cpu) < self.limit
    }

    /// Records the address that the running CPU's thread will touch when it runs again. The thread
    /// is about to be suspended. Prefetches, on the host, the directory's slot for the address.
    pub(crate) fn will_touch(&mut self, address: usize) {
        self.cpus[self.cpu].touches = address;
        self.directory.expect(address);
    }

    /// Prepares the CPU for the suspension of its thread, because [`State::may_go_on`] returned
    /// false: its slice is over, or another CPU goes first.
    pub(crate) fn give_way(&mut self) {
        let cpu = &self.cpus[self.cpu];
        if cpu.clock >= cpu.preempt_at {
            self.preempt();
        } else {
            self.make_ready(self.cpu);
        }
    }

    /// In random order, lets all other CPUs go before the running one.
    pub(crate) fn step_back(&mut self) {
        if self.setup.order == Order::Random {
            let last = self.ready.iter().map(|Reverse(key)| key >> 8).max().unwrap_or(0);
            self.cpus[self.cpu].priority = (last + 1).min(u64::MAX >> 8);
        }
    }

    /// Enters a CPU into the heap (S1).
    pub(crate) fn make_ready(&mut self, cpu: usize) {
        let key = self.key(cpu);
        self.ready.push(Reverse(key));
        self.limit = self.limit.min(key);
    }

    /// Chooses which thread runs next, firing timers on the way.
    pub(crate) fn pick(&mut self) -> Next {
        loop {
            if self.failure.is_some() {
                return Next::Failed;
            }
            if self.live == 0 {
                return Next::Done;
            }
            let first = self.ready.peek().map(|Reverse(key)| *key);
            if let Some(&Reverse((time, wait, task))) = self.timers.peek() {
                let due = match (first, self.setup.order) {
                    (None, _) => true,
                    (Some(key), Order::Measured) => time << 8 <= key,
                    (Some(_), Order::Random) => time <= self.now,
                };
                if due {
                    self.timers.pop();
                    if self.tasks[task as usize].waits == wait {
                        self.time_out(task, time);
                    }
                    continue;
                }
            }
            let Some(key) = first else {
                self.failure = Some(Cause::Deadlock);
                return Next::Failed;
            };
            self.ready.pop();
            return Next::Run(self.start((key & 255) as usize));
        }
    }

    fn start(&mut self, cpu: usize) -> TaskId {
        self.cpu = cpu;
        self.limit = self.ready.peek().map_or(u64::MAX, |Reverse(key)| *key);
        match self.setup.order {
            Order::Measured => {
                if let Some(Reverse(timer)) = self.timers.peek() {
                    self.limit = self.limit.min(timer.0 << 8);
                }
            }
            Order::Random => self.cpus[cpu].clock = self.cpus[cpu].clock.max(self.now),
        }
        self.task = self.cpus[cpu].task.expect("a ready CPU has a thread (S1)");
        self.expect_next();
        self.task
    }

    /// Prefetches, on the host, what the CPU that probably runs next will need.
    fn expect_next(&self) {
        let Some(Reverse(key)) = self.ready.peek() else { return };
        let cpu = &self.cpus[(key & 255) as usize];
        if let Some(id) = self.directory.expect_line(cpu.touches) {
            self.line_caches.expect(cpu.core, id);
        }
        if let Some(task) = cpu.task {
            host::prefetch_at(self.tasks[task as usize].suspended_at);
        }
    }

    /// Sets a timer for the thread's current wait.
    pub(crate) fn set_timer(&mut self, task: TaskId, time: Ticks) {
        self.timers.push(Reverse((time, self.tasks[task as usize].waits, task)));
        if self.setup.order == Order::Measured {
            self.limit = self.limit.min(time << 8);
        }
    }

    /// Ends a thread's wait because of its timer.
    fn time_out(&mut self, id: TaskId, time: Ticks) {
        let task = &mut self.tasks[id as usize];
        task.timed_out = true;
        if task.doing == Doing::Spinning {
            self.end_spin(usize::from(self.tasks[id as usize].cpu), time);
            return;
        }
        let queue = std::mem::take(&mut task.queue);
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.retain(|&other| other != id);
        }
        self.resume(id, time);
    }

    /// Makes a spinning CPU continue at `time`.
    pub(crate) fn end_spin(&mut self, at: usize, time: Ticks) {
        let cpu = &mut self.cpus[at];
        cpu.spinning = false;
        cpu.surprised = true;
        let id = cpu.task.expect("a spinning CPU has a thread");
        let waited = time.saturating_sub(cpu.clock);
        cpu.clock += waited;
        let subject = self.spun_on(id);
        let task = &mut self.tasks[id as usize];
        task.doing = Doing::Running;
        task.waits += 1;
        for &(line, _) in &task.watched {
            self.directory.remove_waiter(line, at as u16);
        }
        task.watch_nothing();
        let site = self.ledger.site(task.at, task.region);
        self.ledger.enter(site, subject, Spent::Waiting, waited);
        self.make_ready(at);
    }

    /// Returns the time when the machine stopped: the latest clock.
    pub(crate) fn end(&self) -> Ticks {
        self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or(0)
    }
}
