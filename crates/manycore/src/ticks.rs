//! The cost table in the machine's own units: whole picoseconds, so that sums are the same on every
//! host.

use crate::Costs;

/// Virtual time in picoseconds.
pub(crate) type Ticks = u64;

/// Bytes in a cache line.
const LINE: u64 = 64;

/// Ticks in a nanosecond.
pub(crate) const NS: Ticks = 1_000;

/// Converts nanoseconds to ticks.
pub(crate) fn from_ns(ns: f64) -> Ticks {
    // `Costs::check` limits times to 1e12 ns, which is far below 2^64 ps (213 days).
    (ns * NS as f64).round() as Ticks
}

/// Converts ticks to nanoseconds.
pub(crate) fn to_ns(ticks: Ticks) -> f64 {
    ticks as f64 / NS as f64
}

/// A fixed-point factor: 1024 is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor(u64);

impl Factor {
    pub(crate) fn of(factor: f64) -> Self {
        Self((factor * 1024.0).round() as u64)
    }

    #[inline]
    pub(crate) fn times(self, ticks: Ticks) -> Ticks {
        (ticks * self.0) >> 10
    }
}

/// A rate: the ticks for each byte, as a fixed-point number with 20 fractional bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(u64);

impl Rate {
    /// Creates a rate from bytes per nanosecond. For each requested byte, `traffic` bytes are
    /// moved.
    pub(crate) fn of(bytes_per_ns: f64, traffic: f64) -> Self {
        Self((traffic * NS as f64 / bytes_per_ns * f64::from(1 << 20)).round() as u64)
    }

    pub(crate) fn time_of(self, bytes: u64) -> Ticks {
        Ticks::try_from((u128::from(bytes) * u128::from(self.0)) >> 20).unwrap_or(Ticks::MAX >> 9)
    }
}

macro_rules! times {
    ($($name:ident)+) => {
        /// [`Costs`] as ticks, factors and rates.
        #[derive(Clone, Debug)]
        pub(crate) struct Times {
            $(pub(crate) $name: Ticks,)+
            /// The jitter of residual and named work.
            pub(crate) jitter: Factor,
            pub(crate) transfer_overlap: Factor,
            pub(crate) transfer_hold: Factor,
            pub(crate) sibling_slowdown: Factor,
            pub(crate) copy: Rate,
            pub(crate) copy_bus: Rate,
            pub(crate) zero: Rate,
            pub(crate) zero_bus: Rate,
            pub(crate) disk: Rate,
            pub(crate) first_rate: Rate,
            pub(crate) core_rate: Rate,
            pub(crate) socket_rate: Rate,
            pub(crate) memory_read: Rate,
            pub(crate) link: Rate,
            /// How long a line occupies the links of a socket, and the bus of its memory.
            pub(crate) link_line: Ticks,
            pub(crate) memory_line: Ticks,
            /// Sizes of caches, in bytes.
            pub(crate) first_cache: u64,
            pub(crate) core_cache: u64,
            pub(crate) socket_cache: u64,
        }

        impl Times {
            pub(crate) fn of(costs: &Costs) -> Self {
                Self {
                    $($name: from_ns(costs.$name),)+
                    jitter: Factor::of(costs.jitter),
                    transfer_overlap: Factor::of(costs.transfer_overlap),
                    transfer_hold: Factor::of(costs.transfer_hold),
                    sibling_slowdown: Factor::of(costs.sibling_slowdown),
                    copy: Rate::of(costs.copy_rate, 1.0),
                    copy_bus: Rate::of(costs.memory_bandwidth, costs.copy_traffic),
                    zero: Rate::of(costs.zero_rate, 1.0),
                    zero_bus: Rate::of(costs.memory_bandwidth, 1.0),
                    disk: Rate::of(costs.disk_bandwidth, 1.0),
                    first_rate: Rate::of(costs.first_cache_rate, 1.0),
                    core_rate: Rate::of(costs.core_cache_rate, 1.0),
                    socket_rate: Rate::of(costs.socket_cache_rate, 1.0),
                    memory_read: Rate::of(costs.memory_read_rate, 1.0),
                    link: Rate::of(costs.link_bandwidth, 1.0),
                    link_line: Rate::of(costs.link_bandwidth, 1.0).time_of(costs.link_line as u64),
                    memory_line: Rate::of(costs.memory_bandwidth, 1.0).time_of(LINE),
                    first_cache: costs.first_cache as u64,
                    core_cache: costs.core_cache as u64,
                    socket_cache: costs.socket_cache as u64,
                }
            }
        }
    };
}

times! {
    line_hit rmw fence transfer_socket transfer_machine transfer_detour window read_port first_touch memory_detour
    socket_hit residual pause clock_read yield_call park_call wake_call wake_up context_switch time_slice thread_start
    disk_latency disk_seek
}
