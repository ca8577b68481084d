//! What a run says about itself.
//!
//! Shares are of all CPU time: of what the CPUs did, not of the time they were idle. Everything is
//! sorted by time and then by name, so two runs with the same seed give the same bytes.

use serde::Serialize;

/// A run's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The name of the machine: of its preset or its file, or `custom`.
    pub machine: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// The seed.
    pub seed: u64,
    /// False if contention was free.
    pub contention: bool,
    /// True if the order was random: then times mean nothing.
    pub random_order: bool,
    /// Virtual time from start to end.
    pub elapsed_ns: f64,
    /// What the CPUs spent, altogether.
    pub cpu_ns: f64,
    /// What they were idle.
    pub idle_ns: f64,
    /// Operations counted by the program.
    pub operations: u64,
    /// Operations in a second of virtual time.
    pub operations_per_s: f64,
    /// Accesses, hints, work: what the machine went through.
    pub events: u64,
    /// Lines that were moved between cores, or whose copies were invalidated.
    pub transfers: u64,
    /// Stores and read-modify-writes to a line that another CPU touched last.
    pub shared_writes: u64,
    /// The same for each operation; 0 without operations.
    pub transfers_per_operation: f64,
    /// The same for each operation; 0 without operations.
    pub shared_writes_per_operation: f64,
    /// Times that a CPU went from one thread to another.
    pub context_switches: u64,
    /// Times that a parked thread was woken.
    pub wakeups: u64,
    /// Shares of all CPU time.
    pub shares: Shares,
    /// By lock or named line and where it was used, most expensive first.
    pub chains: Vec<ChainShare>,
    /// By lock and by named line, most expensive first.
    pub locks: Vec<LockShare>,
    /// By source line and region, most expensive first.
    pub lines: Vec<LineShare>,
    /// By named work.
    pub works: Vec<WorkShare>,
}

/// Percent of all CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Spinning, or queueing for a line or for memory.
    pub waiting: f64,
    /// Moving lines from other cores.
    pub transferring: f64,
    /// What a CPU alone would do too.
    pub working: f64,
    /// Parking, waking and switching.
    pub system: f64,
}

impl Shares {
    /// Waiting and transferring: what is lost to others.
    #[must_use]
    pub fn lost(&self) -> f64 {
        self.waiting + self.transferring
    }
}

/// Time lost at a lock or a named line, in one region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainShare {
    /// `kind.name.region.outer_region`.
    pub chain: String,
    /// Waiting and transferring, percent of all CPU time.
    pub lost: f64,
}

/// What a lock or a named line costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockShare {
    /// Its name, or the source line where it was made.
    pub name: String,
    /// `mutex`, `rwlock` or `line`.
    pub kind: String,
    /// Percent of all CPU time.
    pub shares: Shares,
    /// Time that threads were parked for it, as percent of all CPU time; their CPUs were free
    /// meanwhile.
    pub parked: f64,
    /// Times it was taken.
    pub taken: u64,
    /// Times that it wasn't free.
    pub contended: u64,
    /// Transfers of its line.
    pub transfers: u64,
    /// Shared writes to its line.
    pub shared_writes: u64,
}

/// What a source line costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineShare {
    /// File, line and column.
    pub line: String,
    /// The regions it was in, innermost first, with dots between.
    pub region: String,
    /// Percent of all CPU time.
    pub shares: Shares,
    /// Events there.
    pub events: u64,
    /// Transfers there.
    pub transfers: u64,
    /// Shared writes there.
    pub shared_writes: u64,
}

/// What named work costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkShare {
    /// Its name.
    pub name: String,
    /// Times it was asked for.
    pub count: u64,
    /// Bytes, if it has any.
    pub bytes: u64,
    /// Time spent on it; for a disk, the time its requests took.
    pub time_ns: f64,
    /// Time it had to wait for the memory bus, or the disk.
    pub waited_ns: f64,
    /// Percent of all CPU time; 0 for a disk.
    pub share: f64,
}

impl Report {
    /// The source line that most time is lost at, waiting or transferring.
    #[must_use]
    pub fn hottest_line(&self) -> Option<&LineShare> {
        self.lines.iter().max_by(|a, b| a.shares.lost().total_cmp(&b.shares.lost()))
    }
}
