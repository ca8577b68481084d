//! The figures that a run reports.
//!
//! Shares are percentages of all CPU time, which doesn't include idle time. Lists are sorted by
//! time, and by name where times are equal. So two runs with the same seed produce the same bytes.

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
    /// Whether contention had a cost.
    pub contention: bool,
    /// Whether the order was random; if so, times mean nothing.
    pub random_order: bool,
    /// Virtual time from start to end.
    pub elapsed_ns: f64,
    /// Busy time of all CPUs.
    pub cpu_ns: f64,
    /// Idle time of all CPUs.
    pub idle_ns: f64,
    /// Operations counted by the program.
    pub operations: u64,
    /// Operations in a second of virtual time. If each task was measured in a
    /// [`Window`](crate::Window), this is the sum of the tasks' rates in their windows. Otherwise
    /// it is all operations, divided by the time from start to end.
    pub operations_per_s: f64,
    /// How long operations took, if each task was measured in a window.
    pub latency: Option<Latency>,
    /// The part of the sockets' memory bandwidth that was used, in percent: the mean over the
    /// tasks' windows. `None` unless each task was measured in a window.
    pub memory: Option<f64>,
    /// Events that the machine executed: accesses, hints, work.
    pub events: u64,
    /// Lines that were moved between cores, or whose copies were invalidated.
    pub transfers: u64,
    /// Stores and read-modify-writes to a line that another CPU touched last.
    pub shared_writes: u64,
    /// Transfers for each operation; 0 without operations.
    pub transfers_per_operation: f64,
    /// Shared writes for each operation; 0 without operations.
    pub shared_writes_per_operation: f64,
    /// Times that a CPU went from one thread to another.
    pub context_switches: u64,
    /// Times that a parked thread was woken.
    pub wakeups: u64,
    /// Shares of all CPU time.
    pub shares: Shares,
    /// By lock or named line, and by the region in which it was used; most expensive first.
    pub chains: Vec<ChainShare>,
    /// By lock and by named line, most expensive first.
    pub locks: Vec<LockShare>,
    /// By source line and region, most expensive first.
    pub lines: Vec<LineShare>,
    /// By named work.
    pub works: Vec<WorkShare>,
}

/// Times of operations in nanoseconds, rounded up by less than 7 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the operations took no longer.
    pub p50_ns: f64,
    /// 99 % of them took no longer.
    pub p99_ns: f64,
    /// 99.9 % of them took no longer.
    pub p999_ns: f64,
    /// The longest.
    pub max_ns: f64,
}

/// Percentages of all CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Spinning, or queueing for a line or for memory.
    pub waiting: f64,
    /// Moving lines from other cores.
    pub transferring: f64,
    /// Work that a single CPU would do, too.
    pub working: f64,
    /// Parking, waking and switching.
    pub system: f64,
}

impl Shares {
    /// Returns waiting and transferring together: the time lost to other CPUs.
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
    /// Waiting and transferring, as percentage of all CPU time.
    pub lost: f64,
}

/// The costs of a lock or a named line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockShare {
    /// Its name, or the source line where it was made.
    pub name: String,
    /// `mutex`, `rwlock` or `line`.
    pub kind: String,
    /// Percentages of all CPU time.
    pub shares: Shares,
    /// The time for which threads were parked for it, as percentage of all CPU time. Meanwhile
    /// their CPUs could run other threads.
    pub parked: f64,
    /// Times it was taken.
    pub taken: u64,
    /// Times that it wasn't free when requested.
    pub contended: u64,
    /// Transfers of its line.
    pub transfers: u64,
    /// Shared writes to its line.
    pub shared_writes: u64,
}

/// The costs of a source line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineShare {
    /// File, line and column.
    pub line: String,
    /// The regions that it was in, innermost first, separated by dots.
    pub region: String,
    /// Percentages of all CPU time.
    pub shares: Shares,
    /// Events there.
    pub events: u64,
    /// Transfers there.
    pub transfers: u64,
    /// Shared writes there.
    pub shared_writes: u64,
}

/// The costs of named work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkShare {
    /// Its name.
    pub name: String,
    /// Times that it was executed.
    pub count: u64,
    /// Bytes, if the work has a size.
    pub bytes: u64,
    /// Time spent on it; for a disk, the time its requests took.
    pub time_ns: f64,
    /// Time that it waited for the memory bus, or the disk.
    pub waited_ns: f64,
    /// Percentage of all CPU time; 0 for a disk.
    pub share: f64,
}

impl Report {
    /// Returns the source line at which the most time is lost, waiting or transferring.
    #[must_use]
    pub fn hottest_line(&self) -> Option<&LineShare> {
        self.lines.iter().max_by(|a, b| a.shares.lost().total_cmp(&b.shares.lost()))
    }
}
