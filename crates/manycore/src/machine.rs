//! The machine that programs run on: its description, and its runs.

use crate::costs::Costs;
use crate::error::{Cause, Failure, SetupError};
use crate::preset::Preset;
use crate::random::Random;
use crate::report::Report;
use crate::shape::{CPUS_MAX, Shape};
use crate::state::{Order, Setup};
use crate::thread;
use crate::time::{Duration, Instant};
use crate::world::{Body, World};
use crate::{profile, task, together, work};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Run<T> {
    /// The return value of the program.
    pub value: T,
    /// Where the time went.
    pub report: Report,
}

/// Which operations of each task a measurement counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Each task counts the operations that it executes within this time. An operation that is
    /// unfinished when the time ends counts as a fraction: the part of it that was within the time.
    Time(Duration),
    /// Each task counts this many operations, at least one. A task that has executed them continues
    /// until all other tasks have executed theirs, so that all tasks meet the same contention.
    Operations(u64),
}

impl From<Duration> for Window {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

/// Throughput with and without contention.
#[derive(Clone, Debug)]
pub struct Efficiency {
    /// With contention as the machine has it.
    pub with: Report,
    /// With all contention costs at zero.
    pub without: Report,
}

impl Efficiency {
    /// Throughput with contention, divided by that without contention; 1 is best. 0 if no
    /// operations were counted.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let without = self.without.operations_per_s;
        if without == 0.0 { 0.0 } else { self.with.operations_per_s / without }
    }
}

/// A virtual machine: a shape, costs, a seed, and the order of events.
///
/// A machine is a description: it can be run any number of times, and each run starts with cold
/// caches at time 0.
#[derive(Clone, Debug)]
pub struct Machine {
    setup: Setup,
    stack_bytes: usize,
}

impl Machine {
    /// Creates a machine of any shape.
    ///
    /// # Errors
    /// [`SetupError::BadCost`], if a cost is out of its range.
    pub fn new(shape: Shape, costs: Costs) -> Result<Self, SetupError> {
        costs.check()?;
        // The fields of `Shape` are public, so it is checked once more.
        let shape = Shape::new(shape.sockets, shape.cores_per_socket, shape.threads_per_core)?;
        let name = "custom".to_owned();
        let order = Order::Measured;
        let setup = Setup { name, shape, costs, contention: true, order, seed: 1, events_max: u64::MAX, spread: false };
        Ok(Self { setup, stack_bytes: 512 << 10 })
    }

    /// Creates the machine of one of the [presets](crate::PRESETS).
    ///
    /// # Errors
    /// [`SetupError::UnknownPreset`], which lists the names.
    pub fn preset(name: &str) -> Result<Self, SetupError> {
        let preset = Preset::find(name)?;
        Ok(Self::new(preset.shape, preset.table())?.named(preset.name))
    }

    /// Returns the same machine with another name in reports.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.setup.name);
        self
    }

    /// Returns the same machine with other costs.
    ///
    /// # Errors
    /// [`SetupError::BadCost`], if a cost is out of its range.
    pub fn costs(mut self, costs: Costs) -> Result<Self, SetupError> {
        costs.check()?;
        if costs != self.setup.costs {
            self.setup.costs = costs;
            self.setup.name = "custom".to_owned();
        }
        Ok(self)
    }

    /// Returns the same machine with another seed, for jitter and for the random order.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.setup.seed = seed;
        self
    }

    /// Returns the same machine without contention. Lines move for free. After a thread has waited
    /// for a lock or has spun, it continues at the virtual time at which it began to wait.
    #[must_use]
    pub fn without_contention(mut self) -> Self {
        self.setup.contention = false;
        self
    }

    /// Returns the same machine in random order: threads run in the order of random priorities,
    /// which change at random events. This is for finding bugs, not for measuring. The seed
    /// determines the order, so a run with the same seed repeats the order.
    ///
    /// After Burckhardt, Kothari, Musuvathi and Nagarakatte, "A randomized scheduler with
    /// probabilistic guarantees of finding bugs" (ASPLOS 2010). Here priorities are drawn anew
    /// rather than lowered, so that a thread that spins without a hint can't starve the others.
    #[must_use]
    pub fn random_order(mut self) -> Self {
        self.setup.order = Order::Random;
        self
    }

    /// Returns the same machine with tasks assigned to the sockets round robin. An operating system
    /// spreads a few tasks in this way, too. Each task gets a core of its own while free cores are
    /// left. Without this, task N runs on CPU N, so a few tasks all run in the first socket.
    #[must_use]
    pub fn spread(mut self) -> Self {
        self.setup.spread = true;
        self
    }

    /// Returns the CPU of a task.
    fn cpu_of_task(&self, task: usize) -> usize {
        let shape = &self.setup.shape;
        if !self.setup.spread {
            return task;
        }
        let (turn, place) = (task / shape.cores(), task % shape.cores());
        let core = place % shape.sockets * shape.cores_per_socket + place / shape.sockets;
        turn * shape.cores() + core
    }

    /// Returns the same machine with a limit on the events of a run, against endless loops.
    #[must_use]
    pub fn events_max(mut self, events: u64) -> Self {
        self.setup.events_max = events;
        self
    }

    /// Returns the same machine with another stack size for threads; 512 KiB by default. There is a
    /// guard page below each stack.
    ///
    /// # Errors
    /// [`SetupError::StackSize`], if the size isn't possible.
    pub fn stack_bytes(mut self, bytes: usize) -> Result<Self, SetupError> {
        if !(64 << 10..=64 << 20).contains(&bytes) {
            return Err(SetupError::StackSize { bytes });
        }
        self.stack_bytes = bytes;
        Ok(self)
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.setup.shape.cpus()
    }

    /// Returns the cost table.
    #[must_use]
    pub fn cost_table(&self) -> &Costs {
        &self.setup.costs
    }

    /// Runs a program: `main` on CPU 0, and the threads that it starts, until all have ended.
    ///
    /// The machine has a host thread of its own, so thread-locals of the host start fresh.
    ///
    /// # Errors
    /// [`Failure`]: a deadlock, a panic of any thread, too many events. Then the threads that
    /// hadn't ended are leaked, with everything they own, as if the process had been killed.
    ///
    /// # Panics
    /// If the host can't start a thread.
    pub fn run<T: Send>(&self, main: impl FnOnce() -> T + Send) -> Result<Run<T>, Box<Failure>> {
        std::thread::scope(|scope| {
            let host = std::thread::Builder::new().name("manycore".to_owned());
            let host = host.spawn_scoped(scope, || self.run_here(main)).expect("a host thread for the machine");
            host.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        })
    }

    #[track_caller]
    fn run_here<T>(&self, main: impl FnOnce() -> T) -> Result<Run<T>, Box<Failure>> {
        let world = World::new(self.setup.clone(), self.stack_bytes);
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        let body: Box<dyn FnOnce() + '_> = Box::new(move || {
            let value = main();
            *result.borrow_mut() = Some(value);
        });
        // SAFETY: only the lifetime changes. The body borrows from the caller, whose data lives
        // until this function returns. When `drive` returns, and so before this function does, the
        // body has either ended, or was leaked and never runs again (W4 in `world`).
        let body: Body = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Body>(body) };
        if let Err(error) = world.start("main".to_owned(), None, task::here(), body) {
            world.state.borrow_mut().failure = Some(Cause::NoStack { message: error.to_string() });
        }
        world.drive()?;
        let mut state = world.state.borrow_mut();
        let report = state.report.take().unwrap_or_else(|| Report::of(&state));
        let value = slot.borrow_mut().take().expect("main has returned");
        Ok(Run { value, report })
    }

    /// Runs `tasks` threads, and measures from their start until the last of them ends. Task i runs
    /// on CPU i modulo the number of CPUs, unless the machine [spreads](Self::spread) its tasks.
    ///
    /// # Errors
    /// Same as for [`run`](Self::run).
    ///
    /// # Panics
    /// If `tasks` is 0 or above 4096: use [`check_tasks`](Self::check_tasks) on numbers from users.
    pub fn run_tasks(&self, tasks: usize, body: impl Fn(usize) + Send + Sync) -> Result<Report, Box<Failure>> {
        self.run_tasks_with(tasks, || (), |(), task| body(task))
    }

    /// Runs threads like [`run_tasks`](Self::run_tasks), on data that `set_up` creates inside the
    /// machine. The data is also dropped inside the machine. Neither creating nor dropping the data
    /// is measured. Use this if the data has threads of its own, or a part for each CPU.
    ///
    /// # Errors
    /// Same as for [`run`](Self::run).
    ///
    /// # Panics
    /// Same as for [`run_tasks`](Self::run_tasks).
    pub fn run_tasks_with<S: Sync>(
        &self,
        tasks: usize,
        set_up: impl FnOnce() -> S + Send,
        body: impl Fn(&S, usize) + Send + Sync,
    ) -> Result<Report, Box<Failure>> {
        self.run_prepared(tasks, set_up, |_, _| (), body)
    }

    /// Runs threads like [`run_tasks_with`](Self::run_tasks_with). Each task first calls `prepare`,
    /// which isn't measured.
    fn run_prepared<S: Sync>(
        &self,
        tasks: usize,
        set_up: impl FnOnce() -> S + Send,
        prepare: impl Fn(&S, usize) + Send + Sync,
        body: impl Fn(&S, usize) + Send + Sync,
    ) -> Result<Report, Box<Failure>> {
        self.check_tasks(tasks).unwrap_or_else(|error| panic!("{error}"));
        let mut offsets = Random::seeded(self.setup.seed ^ 0x5eed);
        let offsets: Vec<u64> = (0..tasks).map(|_| offsets.below(500)).collect();
        let main = || {
            let subject = set_up();
            self.run_threads(&offsets, &|task| prepare(&subject, task), &|task| body(&subject, task));
        };
        // Boxed, so that the code that starts and ends a machine is compiled only once.
        Ok(self.run(Box::new(main) as Box<dyn FnOnce() + Send + '_>)?.report)
    }

    /// Runs one thread for each of `offsets`, which are in nanoseconds. Each thread calls
    /// `prepare`, waits until all threads have done so, waits for its offset, and then calls
    /// `body`.
    fn run_threads(&self, offsets: &[u64], prepare: &(dyn Fn(usize) + Sync), body: &(dyn Fn(usize) + Sync)) {
        let tasks = offsets.len();
        thread::scope(|scope| {
            for (task, &offset) in offsets.iter().enumerate() {
                scope.spawn(Some(self.cpu_of_task(task)), move || {
                    prepare(task);
                    together::start(tasks, offset);
                    body(task);
                    together::stop(tasks);
                });
            }
            together::wait_until_stopped(tasks);
        });
    }

    /// Repeats `operation` on `tasks` threads for a [`Window`] (a time, or a number of operations),
    /// and counts the operations. The argument of `operation` is the number of the task. Each task
    /// first executes one operation that isn't counted, to warm up. The throughput is the sum of
    /// the tasks' rates. Each rate is measured over the task's own window.
    ///
    /// # Errors
    /// Same as for [`run`](Self::run).
    ///
    /// # Panics
    /// Same as for [`run_tasks`](Self::run_tasks).
    pub fn measure(
        &self,
        tasks: usize,
        window: impl Into<Window>,
        operation: impl Fn(usize) + Send + Sync,
    ) -> Result<Report, Box<Failure>> {
        self.measure_with(tasks, window, || (), |(), task| operation(task))
    }

    /// Measures like [`measure`](Self::measure), on data that `set_up` builds inside the machine.
    ///
    /// # Errors
    /// Same as for [`run`](Self::run).
    ///
    /// # Panics
    /// Same as for [`run_tasks`](Self::run_tasks).
    pub fn measure_with<S: Sync>(
        &self,
        tasks: usize,
        window: impl Into<Window>,
        set_up: impl FnOnce() -> S + Send,
        operation: impl Fn(&S, usize) + Send + Sync,
    ) -> Result<Report, Box<Failure>> {
        let (operation, window) = (&operation, window.into());
        let finished = AtomicUsize::new(0);
        self.run_prepared(tasks, set_up, operation, |subject, task| {
            let (start, before) = (Instant::now_free(), profile::window_begins());
            let (mut now, mut whole) = (start, 0_u64);
            loop {
                let began = now;
                operation(subject, task);
                if Instant::now_free() == now {
                    work::cpu(1); // An operation that costs nothing would never end.
                }
                now = Instant::now_free();
                profile::operation_took(now - began);
                whole += 1;
                match window {
                    Window::Time(time) if now - start >= time => {
                        let part = (start + time - began).as_secs_f64() / (now - began).as_secs_f64();
                        return profile::window_ended((whole - 1) as f64 + part, time, before);
                    }
                    Window::Operations(wanted) => {
                        if whole == wanted.max(1) {
                            profile::window_ended(whole as f64, now - start, before);
                            finished.fetch_add(1, Relaxed);
                        }
                        if finished.load(Relaxed) == tasks {
                            return;
                        }
                    }
                    Window::Time(_) => {}
                }
            }
        })
    }

    /// Checks that the machine can run that many tasks.
    ///
    /// # Errors
    /// [`SetupError`], if `tasks` is 0, or more than 16 times the largest possible number of CPUs.
    pub fn check_tasks(&self, tasks: usize) -> Result<(), SetupError> {
        match tasks {
            0 => Err(SetupError::NoCpus),
            tasks if tasks > 16 * CPUS_MAX => Err(SetupError::TooManyCpus { asked: tasks, have: 16 * CPUS_MAX }),
            _ => Ok(()),
        }
    }

    /// Executes the same run with the machine's contention, and without contention.
    ///
    /// # Errors
    /// The failure of the first run that fails.
    pub fn efficiency(&self, run: impl Fn(&Self) -> Result<Report, Box<Failure>>) -> Result<Efficiency, Box<Failure>> {
        Ok(Efficiency { with: run(self)?, without: run(&self.clone().without_contention())? })
    }

    /// Executes a run in random order with each of `seeds`, and stops at the first that fails. If
    /// the environment variable `MANYCORE_SEED` is set to a number, executes only the run with that
    /// seed.
    ///
    /// # Errors
    /// The first failure, which names its seed.
    pub fn explore<T>(
        &self,
        seeds: Range<u64>,
        run: impl Fn(&Self) -> Result<T, Box<Failure>>,
    ) -> Result<(), Box<Failure>> {
        let one = std::env::var("MANYCORE_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
        let seeds = one.map_or(seeds, |seed| seed..seed.saturating_add(1));
        let machine = self.clone().random_order();
        seeds.into_iter().try_for_each(|seed| run(&machine.clone().seed(seed)).map(drop))
    }
}
