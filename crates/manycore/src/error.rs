//! Errors of setting a machine up, and of running it.

use std::fmt;

/// An impossible machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// Zero sockets, cores, threads, CPUs or tasks.
    #[error("a machine needs at least one socket, core and thread, and at least one task to run")]
    NoCpus,
    /// More CPUs, or tasks, than the crate supports.
    #[error("{asked} CPUs asked for: there are 1 to {have}")]
    TooManyCpus {
        /// CPUs asked for.
        asked: usize,
        /// The maximum.
        have: usize,
    },
    /// Cores with three or more hardware threads aren't modelled.
    #[error("{asked} hardware threads in a core: the model has 1 or 2")]
    ThreadsPerCore {
        /// Threads asked for.
        asked: usize,
    },
    /// There is no such preset.
    #[error("no preset is called {name:?}: there are {known}")]
    UnknownPreset {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// There is no such cost.
    #[error("no cost is called {name:?}: there are {known}")]
    UnknownCost {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// The text doesn't describe a machine.
    #[error("not a machine's description (a name, a shape, costs): {message}")]
    NoDescription {
        /// What is wrong, and where.
        message: String,
    },
    /// A cost out of its range.
    #[error("{name} can't be {value}: {wanted}")]
    BadCost {
        /// The cost.
        name: &'static str,
        /// The requested value.
        value: f64,
        /// The possible values.
        wanted: &'static str,
    },
    /// Stacks too small to unwind a panic on, or too large to have 256 of.
    #[error("stacks of {bytes} bytes: 64 KiB to 64 MiB are possible")]
    StackSize {
        /// Bytes asked for.
        bytes: usize,
    },
}

/// A run that failed.
///
/// `Debug` prints the same as `Display`, so that `unwrap` shows what happened.
#[derive(Clone, PartialEq, thiserror::Error)]
pub struct Failure {
    /// The cause of the failure.
    pub cause: Cause,
    /// The seed that repeats the run.
    pub seed: u64,
    /// Whether that seed chose the order of events (see
    /// [`Machine::random_order`](crate::Machine::random_order)).
    pub random_order: bool,
    /// The unfinished threads and their positions.
    pub threads: Vec<Position>,
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// No thread can ever continue.
    Deadlock,
    /// A thread panicked.
    Panic {
        /// The thread's name.
        thread: String,
        /// The panic's message.
        message: String,
    },
    /// More events than [`Machine::events_max`](crate::Machine::events_max) allows: an endless
    /// loop?
    TooManyEvents {
        /// The limit.
        limit: u64,
    },
    /// The operating system had no stack for another thread.
    NoStack {
        /// The system's message.
        message: String,
    },
}

/// The position of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// The thread's name.
    pub thread: String,
    /// The CPU it ran on last.
    pub cpu: usize,
    /// Its virtual time in nanoseconds.
    pub at_ns: u64,
    /// The activity of the thread.
    pub doing: String,
    /// The source line of its last event.
    pub line: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Deadlock => writeln!(f, "deadlock: no thread can go on")?,
            Cause::Panic { thread, message } => writeln!(f, "thread {thread:?} panicked: {message}")?,
            Cause::TooManyEvents { limit } => writeln!(f, "more than {limit} events: an endless loop?")?,
            Cause::NoStack { message } => writeln!(f, "no stack for another thread: {message}")?,
        }
        for position in &self.threads {
            let Position { thread, cpu, at_ns, doing, line } = position;
            writeln!(f, "  {thread:?} on CPU {cpu} at {at_ns} ns: {doing}, {line}")?;
        }
        let order = if self.random_order { "order of events from seed" } else { "seed" };
        write!(f, "{order} {}; to repeat it: MANYCORE_SEED={}", self.seed, self.seed)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
