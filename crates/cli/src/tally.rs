//! The counts and latencies of a thread.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer latencies are counted as this one.
const LATENCY_NS_MAX: u64 = 1_000_000_000_000;

/// Significant digits of latencies.
const LATENCY_DIGITS: u8 = 3;

/// Operations of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
    pub(crate) latency_ns: Histogram<u64>,
}

impl Measured {
    /// Creates an empty count.
    pub(crate) fn new() -> Self {
        let latency_ns = Histogram::new_with_max(LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are valid");
        Self { ops: 0, bytes: 0, latency_ns }
    }

    /// Counts an operation.
    pub(crate) fn record(&mut self, bytes: u64, latency: Duration) {
        self.ops += 1;
        self.bytes += bytes;
        self.latency_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.latency_ns.add(&other.latency_ns).expect("all histograms have the same bounds");
    }
}

/// The work of one thread for one group.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) reads: Measured,
    pub(crate) writes: Measured,
    pub(crate) syncs: Measured,
    /// Operations not done, because they begin at or past the end of the file.
    pub(crate) past_end: u64,
    /// Operations shortened, because they reach past the end of the file.
    pub(crate) cut: u64,
    /// CPU time of the thread.
    pub(crate) cpu: Duration,
}

impl Tally {
    /// Creates an empty tally.
    pub(crate) fn new() -> Self {
        let [reads, writes, syncs] = [(); 3].map(|()| Measured::new());
        Self { reads, writes, syncs, past_end: 0, cut: 0, cpu: Duration::ZERO }
    }

    /// Returns the number of operations of all kinds.
    pub(crate) fn ops(&self) -> u64 {
        self.reads.ops + self.writes.ops + self.syncs.ops
    }

    /// Adds the tally of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.syncs.add(&other.syncs);
        self.past_end += other.past_end;
        self.cut += other.cut;
        self.cpu += other.cpu;
    }
}
