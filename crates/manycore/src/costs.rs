//! The costs of all operations. Every constant of the model has a name, a unit, an explanation and,
//! for each preset, a source.
//!
//! Times are in nanoseconds, rates are in bytes per nanosecond (which is GB/s), and factors are
//! plain numbers. No other file of the crate contains a cost, except `preset`.

use crate::SetupError;
use serde::Serialize;

/// Declares [`Costs`] and the access to its fields by name.
macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident: $default:literal, $unit:literal;)+) => {
        /// The cost table of a machine.
        ///
        /// [`Costs::default`] is a middle-of-the-road server. A preset replaces some of its costs.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct Costs {
            $($(#[doc = $doc])+ pub $name: f64,)+
        }

        impl Default for Costs {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Costs {
            /// Every cost: its name, its unit, and what it means.
            pub const ALL: &'static [Cost] =
                &[$(Cost { name: stringify!($name), unit: $unit, meaning: concat!($($doc),+) },)+];

            fn field(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

costs! {
    /// A load or store of a line that the core already holds in the right state (a first-level
    /// hit).
    line_hit: 1.5, "ns";
    /// An atomic read-modify-write, in addition to the cost of getting the line.
    rmw: 6.5, "ns";
    /// A sequentially consistent fence.
    fence: 10.0, "ns";
    /// Moving a line from another core's cache in the same socket, or invalidating copies there.
    transfer_socket: 45.0, "ns";
    /// As `transfer_socket`, across sockets.
    transfer_machine: 110.0, "ns";
    /// How much longer a transfer across sockets takes if the line's memory isn't in the socket of
    /// the core that has the line. The request then goes to the memory's socket first.
    transfer_detour: 30.0, "ns";
    /// The fraction of a transfer's time until the line leaves its owner. In this time the request
    /// travels to the owner, which can still use the line. Exception: if the transfer is for a
    /// store, the owner loses the line as soon as the transfer begins.
    transfer_overlap: 0.5, "fraction";
    /// How long a core keeps a line that it just got although other cores wait for it, as a
    /// fraction of a transfer's time. Meanwhile the next core's request travels to the new owner.
    /// With 0, the core makes one access and then loses the line.
    //
    // The default is that of the presets. It comes from measurements with two CPUs of a Xeon, which
    // gave 0.26 to 0.38. (Those with an EPYC gave 0.5 to 0.65.) On the Xeon, 0 was further off than
    // any other variant of the model that was tried (docs/model.md).
    transfer_hold: 0.34, "fraction";
    /// How far ahead a core requests lines: the amount of work that its reorder buffer holds. 0
    /// means that the core executes in order.
    window: 30.0, "ns";
    /// How long a clean line is occupied when one more core gets a copy of it.
    read_port: 5.0, "ns";
    /// The first access to a line that no core holds: a read from the memory of the core's own
    /// socket.
    first_touch: 85.0, "ns";
    /// How much longer a read from another socket's memory takes.
    memory_detour: 50.0, "ns";
    /// The bandwidth of the links of a socket to the other sockets, both directions together.
    link_bandwidth: 60.0, "bytes/ns";
    /// The bytes that one transfer of a line moves on a link, including request, header and answer.
    link_line: 96.0, "bytes";
    /// The code between two accesses, which the machine doesn't see. It is charged with each
    /// access, and must be calibrated.
    residual: 1.0, "ns";
    /// The fraction by which residual and named work vary around their mean, so that CPUs don't run
    /// in step.
    jitter: 0.1, "fraction";
    /// A spin hint (the PAUSE instruction).
    pause: 10.0, "ns";
    /// Reading the clock.
    clock_read: 20.0, "ns";
    /// Asking the operating system to run another thread.
    yield_call: 300.0, "ns";
    /// Parking: what the parking thread spends in the operating system.
    park_call: 700.0, "ns";
    /// Waking: the time that the waking thread spends in the operating system, for each thread
    /// woken.
    wake_call: 900.0, "ns";
    /// The time from the wake-up call until the woken thread runs on an idle CPU.
    wake_up: 4000.0, "ns";
    /// Switching from one thread to another on the same CPU, including the loss of cached data.
    context_switch: 1500.0, "ns";
    /// How long a thread may run while others wait for its CPU.
    time_slice: 3_000_000.0, "ns";
    /// Starting a thread.
    thread_start: 10_000.0, "ns";
    /// The factor by which local work takes longer while the core's other hardware thread works,
    /// too.
    sibling_slowdown: 1.6, "factor";
    /// A core's first-level cache.
    first_cache: 32_768.0, "bytes";
    /// A core's larger cache.
    core_cache: 1_048_576.0, "bytes";
    /// The cache that a socket's cores share.
    socket_cache: 33_554_432.0, "bytes";
    /// Getting a line, or the first of several, from the socket's cache.
    socket_hit: 20.0, "ns";
    /// The rate at which one core moves bytes that are in its first-level cache.
    first_cache_rate: 100.0, "bytes/ns";
    /// The rate at which one core moves bytes that are in its larger cache.
    core_cache_rate: 40.0, "bytes/ns";
    /// The rate at which one core moves bytes that are in the socket's cache, or in another core's.
    socket_cache_rate: 20.0, "bytes/ns";
    /// The rate at which one core reads from memory, after the first line.
    memory_read_rate: 12.0, "bytes/ns";
    /// The rate at which one core copies from memory to memory.
    copy_rate: 8.0, "bytes/ns";
    /// The rate at which one core zeroes memory.
    zero_rate: 10.0, "bytes/ns";
    /// The bytes that cross the memory bus for each byte copied: one read and one written, or more
    /// with write-allocate.
    copy_traffic: 2.0, "factor";
    /// The sustained bandwidth of a socket's memory.
    memory_bandwidth: 60.0, "bytes/ns";
    /// The time from a disk request until its first byte.
    disk_latency: 80_000.0, "ns";
    /// The disk's bandwidth.
    disk_bandwidth: 3.0, "bytes/ns";
    /// The time that the disk takes to get to a request's position, if the request doesn't begin
    /// where the one before it ended. 0 for a disk that doesn't rotate.
    disk_seek: 0.0, "ns";
}

/// One entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The field of [`Costs`].
    pub name: &'static str,
    /// `ns`, `bytes`, `bytes/ns`, `factor` or `fraction`.
    pub unit: &'static str,
    /// Its explanation.
    pub meaning: &'static str,
}

impl Costs {
    /// The names of all costs.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|cost| cost.name)
    }

    /// Returns the cost called `name`.
    ///
    /// # Errors
    /// [`SetupError::UnknownCost`], which lists the names.
    pub fn get(&self, name: &str) -> Result<f64, SetupError> {
        self.clone().field(name).copied().ok_or_else(|| unknown(name))
    }

    /// Returns the same table with one cost set.
    ///
    /// # Errors
    /// [`SetupError::UnknownCost`], which lists the names; [`SetupError::BadCost`] if the value is
    /// out of range.
    pub fn with(mut self, name: &str, value: f64) -> Result<Self, SetupError> {
        *self.field(name).ok_or_else(|| unknown(name))? = value;
        self.check()?;
        Ok(self)
    }

    /// Returns the same table with one cost multiplied, for showing that a conclusion holds when
    /// the cost is halved or doubled.
    ///
    /// For a factor such as `sibling_slowdown`, the part above 1 is scaled, so that halving it
    /// doesn't turn a loss into a gain.
    ///
    /// # Errors
    /// Same as for [`Costs::with`].
    pub fn scaled(self, name: &str, factor: f64) -> Result<Self, SetupError> {
        let value = self.get(name)?;
        let is_factor = Self::ALL.iter().any(|cost| cost.name == name && cost.unit == "factor");
        let scaled = if is_factor { 1.0 + (value - 1.0) * factor } else { value * factor };
        self.with(name, scaled)
    }

    /// Checks that the machine can run with every cost.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        for cost in Self::ALL {
            let value = self.get(cost.name)?;
            let wanted = match cost.unit {
                "ns" if cost.name == "time_slice" => ((1_000.0..=1e12).contains(&value), "1,000 to 1e12 ns"),
                "ns" => ((0.0..=1e12).contains(&value), "0 to 1e12 ns"),
                "bytes" => ((0.0..=1e12).contains(&value), "0 to 1e12 bytes"),
                "bytes/ns" => ((1e-6..=1e6).contains(&value), "0.000001 to 1,000,000 bytes/ns"),
                "factor" => ((1.0..=1e3).contains(&value), "1 to 1,000"),
                _ => ((0.0..=1.0).contains(&value), "0 to 1"),
            };
            if !wanted.0 {
                return Err(SetupError::BadCost { name: cost.name, value, wanted: wanted.1 });
            }
        }
        Ok(())
    }
}

fn unknown(name: &str) -> SetupError {
    SetupError::UnknownCost { name: name.to_owned(), known: Costs::names().collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_can_be_halved_and_doubled() {
        let is_zero = |name: &str| Costs::default().get(name).unwrap() == 0.0;
        for name in Costs::names().filter(|name| !is_zero(name)) {
            for factor in [0.5, 2.0] {
                let scaled = Costs::default().scaled(name, factor).unwrap();
                assert_ne!(scaled.get(name).unwrap(), Costs::default().get(name).unwrap(), "{name}");
                let others = Costs::names().filter(|&other| other != name);
                for other in others {
                    assert_eq!(scaled.get(other).unwrap(), Costs::default().get(other).unwrap());
                }
            }
        }
    }

    #[test]
    fn bad_costs_are_refused_with_what_would_do() {
        let error = Costs::default().with("line_hti", 1.0).unwrap_err().to_string();
        assert!(error.contains("line_hit"), "{error}");
        let error = Costs::default().with("memory_bandwidth", 0.0).unwrap_err().to_string();
        assert!(error.contains("bytes/ns"), "{error}");
        assert!(Costs::default().with("line_hit", f64::NAN).is_err());
    }
}
