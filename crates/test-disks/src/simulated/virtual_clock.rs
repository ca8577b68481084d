//! Computes the time that a simulated disk takes, without any thread waiting.
//!
//! The disk works on `queue_depth` requests at once. Their latencies overlap, but their transfers
//! share one channel. Each request is assumed to arrive as soon as the disk has room for it, as if
//! every caller always had its next request ready:
//!
//! ```text
//! lane 0  |-- latency --|== transfer ==|-- latency --| …
//! lane 1  |-- latency --|              |== transfer ==|-- latency --| …
//! ```
//!
//! So a queue depth of 1 simulates a disk with one synchronous caller, and a depth of 32 simulates
//! a disk with 32 synchronous callers. This is an approximation, because the real number of callers
//! has no effect. Its advantage is that the time depends only on the requests and their order, not
//! on how the machine schedules threads.

/// How fast a simulated disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time from taking a request to its first byte.
    pub latency_ns: u64,
    /// The bandwidth that all requests share; 0 means that transfers take no time.
    pub bytes_per_second: u64,
    /// The number of requests that the disk works on at once; 0 counts as 1.
    pub queue_depth: u32,
    /// The time that a sync takes once all earlier requests have ended. The disk does nothing else
    /// meanwhile.
    pub sync_ns: u64,
}

impl Default for Timing {
    /// A mid-range NVMe disk with one synchronous caller.
    fn default() -> Self {
        Self { latency_ns: 80_000, bytes_per_second: 3_000_000_000, queue_depth: 1, sync_ns: 1_000_000 }
    }
}

impl Timing {
    fn transfer_ns(self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * 1_000_000_000;
        let ns = ns.checked_div(u128::from(self.bytes_per_second)).unwrap_or(0);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// When each part of the disk is free again. Times saturate at the maximum, after 584 years.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    timing: Timing,
    lanes_free_ns: Vec<u64>,
    channel_free_ns: u64,
    now_ns: u64,
    idle_ns: u64,
}

impl VirtualClock {
    pub(crate) fn new(timing: Timing) -> Self {
        let lanes = timing.queue_depth.max(1) as usize;
        Self { timing, lanes_free_ns: vec![0; lanes], channel_free_ns: 0, now_ns: 0, idle_ns: 0 }
    }

    /// Returns when the last request so far ends.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the time during which at least one request was in progress.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.now_ns - self.idle_ns
    }

    /// Serves a request of `bytes` bytes in the lane that is free first.
    pub(crate) fn serve(&mut self, bytes: u64) {
        let Some(lane) = self.lanes_free_ns.iter_mut().min() else { return };
        let ready = lane.saturating_add(self.timing.latency_ns).max(self.channel_free_ns);
        let end = ready.saturating_add(self.timing.transfer_ns(bytes));
        *lane = end;
        self.channel_free_ns = end;
        self.now_ns = self.now_ns.max(end);
    }

    /// Performs a sync.
    pub(crate) fn flush(&mut self) {
        let end = self.now_ns.saturating_add(self.timing.sync_ns);
        self.now_ns = end;
        self.channel_free_ns = end;
        self.lanes_free_ns.fill(end);
    }

    /// Waits until all requests have ended, and then for another `ns`.
    pub(crate) fn idle(&mut self, ns: u64) {
        let then = self.now_ns.saturating_add(ns);
        self.idle_ns += then - self.now_ns;
        self.now_ns = then;
        self.lanes_free_ns.fill(then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(queue_depth: u32, requests: &[u64]) -> u64 {
        let mut clock =
            VirtualClock::new(Timing { latency_ns: 100, bytes_per_second: 1_000_000_000, queue_depth, sync_ns: 7 });
        requests.iter().for_each(|&bytes| clock.serve(bytes));
        assert_eq!(clock.busy_ns(), clock.now_ns());
        clock.now_ns()
    }

    #[test]
    fn one_at_a_time_adds_up() {
        assert_eq!(time(1, &[10, 20, 0]), 330);
        assert_eq!(time(0, &[10, 20, 0]), 330);
    }

    #[test]
    fn latencies_overlap_and_transfers_do_not() {
        assert_eq!(time(4, &[10; 4]), 140);
        assert_eq!(time(2, &[10; 4]), 230);
        // From here on the channel is the bottleneck.
        assert_eq!(time(100, &[10; 1000]), 100 + 10_000);
    }

    #[test]
    fn idle_time_is_not_busy_time() {
        let mut clock = VirtualClock::new(Timing { latency_ns: 100, bytes_per_second: 0, queue_depth: 2, sync_ns: 7 });
        clock.serve(1 << 40);
        clock.idle(50);
        clock.serve(1);
        clock.serve(1);
        assert_eq!((clock.now_ns(), clock.busy_ns()), (250, 200));
    }

    #[test]
    fn a_sync_waits_for_all_and_lets_nobody_else_work() {
        let mut clock =
            VirtualClock::new(Timing { latency_ns: 100, bytes_per_second: 1_000_000_000, queue_depth: 3, sync_ns: 7 });
        clock.serve(10);
        clock.serve(10);
        clock.flush();
        assert_eq!(clock.now_ns(), 127);
        clock.serve(10);
        assert_eq!((clock.now_ns(), clock.busy_ns()), (237, 237));
    }

    #[test]
    fn time_saturates() {
        let mut clock =
            VirtualClock::new(Timing { latency_ns: u64::MAX, bytes_per_second: 1, queue_depth: 1, sync_ns: 7 });
        clock.serve(u64::MAX);
        clock.serve(1);
        clock.idle(1);
        assert_eq!((clock.now_ns(), clock.busy_ns()), (u64::MAX, u64::MAX));
    }
}
