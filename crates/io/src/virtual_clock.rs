//! The time that a simulated disk has taken, without any thread waiting.
//!
//! The disk works on `queue_depth` requests at once. Their latencies overlap; their bytes share one
//! channel. Requests are taken to arrive as soon as there is room for them, as from callers that
//! always have the next one ready:
//!
//! ```text
//! lane 0  |-- latency --|== transfer ==|-- latency --| …
//! lane 1  |-- latency --|              |== transfer ==|-- latency --| …
//! ```
//!
//! So a queue depth of 1 is the disk under one synchronous caller, and a depth of 32 the disk under
//! 32 of them. This is an approximation: how many callers there really are doesn't count. In return
//! the time depends only on the requests and their order, not on how the machine schedules threads.

/// How fast a simulated disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time from taking a request to its first byte.
    pub latency_ns: u64,
    /// Bytes that all requests together get in a second; 0 means that transfers take no time.
    pub bytes_per_second: u64,
    /// Requests that the disk works on at once; 0 counts as 1.
    pub queue_depth: u32,
    /// Time that a sync takes once everything before it has ended; nothing else is worked on
    /// meanwhile.
    pub sync_ns: u64,
}

impl Default for Timing {
    /// An NVMe disk of the middle class, under one synchronous caller.
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

/// When each part of the disk is free again. Times saturate at the end of time, 584 years away.
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

    /// When the last request that was served ends.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Time in which at least one request was being worked on.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.now_ns - self.idle_ns
    }

    /// Serves a request of so many bytes in the lane that is free first.
    pub(crate) fn serve(&mut self, bytes: u64) {
        let Some(lane) = self.lanes_free_ns.iter_mut().min() else { return };
        let ready = lane.saturating_add(self.timing.latency_ns).max(self.channel_free_ns);
        let end = ready.saturating_add(self.timing.transfer_ns(bytes));
        *lane = end;
        self.channel_free_ns = end;
        self.now_ns = self.now_ns.max(end);
    }

    /// Syncs.
    pub(crate) fn flush(&mut self) {
        let end = self.now_ns.saturating_add(self.timing.sync_ns);
        self.now_ns = end;
        self.channel_free_ns = end;
        self.lanes_free_ns.fill(end);
    }

    /// Waits until all requests have ended, and so much longer.
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
        // From here on the channel is the limit.
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
