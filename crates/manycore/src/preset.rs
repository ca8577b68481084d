//! Frozen machines: shapes and costs of machines on which results were published.
//!
//! A preset is fixed before any result of the model is looked at, from figures that others measured or vendors state;
//! where there is none, the source says "assumed". Costs that a preset doesn't name are [`Costs::default`]'s. A source
//! that begins with "recalled:" was written down from memory, and has yet to be compared with its text; the others were
//! read. Nothing here is fitted to a benchmark: if the model disagrees with a published table, that is a finding.

use crate::{Costs, SetupError, Shape};
use serde::Serialize;

/// A cost of a preset and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sourced {
    /// The field of [`Costs`].
    pub cost: &'static str,
    /// Its value.
    pub value: f64,
    /// Who measured or stated it, or why it was assumed.
    pub source: &'static str,
}

/// A machine with a name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Preset {
    /// What to ask for.
    pub name: &'static str,
    /// The machine it stands for.
    pub machine: &'static str,
    /// Sockets, cores, threads.
    pub shape: Shape,
    /// Costs that differ from the default ones.
    pub costs: &'static [Sourced],
}

const fn cost(cost: &'static str, value: f64, source: &'static str) -> Sourced {
    Sourced { cost, value, source }
}

const SKYLAKE_SERVER: &[Sourced] = &[
    cost("line_hit", 1.6, "recalled: Intel optimization manual: 4 to 5 cycles, at about 2.7 GHz"),
    cost("rmw", 6.5, "recalled: Fog, instruction tables: locked operations take 18 to 20 cycles on Skylake"),
    cost("fence", 12.0, "recalled: Fog, instruction tables: MFENCE about 33 cycles"),
    cost(
        "transfer_socket",
        50.0,
        "recalled: Velten et al., ICPE 2022: modified lines in the same Cascade Lake socket, about 50 ns",
    ),
    cost(
        "transfer_machine",
        120.0,
        "recalled: Velten et al., ICPE 2022: modified lines in the other socket, 110 to 135 ns",
    ),
    cost("first_touch", 85.0, "recalled: Intel Memory Latency Checker on this family: 80 to 90 ns local"),
    cost("pause", 50.0, "recalled: Intel optimization manual: PAUSE takes about 140 cycles from Skylake on"),
    cost("memory_bandwidth", 100.0, "recalled: six channels of DDR4-2666 give 128 GB/s; about 80 % is sustained"),
];

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "xeon-e5-2699v4",
        machine: "two Xeon E5-2699 v4 (Broadwell), 44 cores, 88 threads",
        shape: Shape { sockets: 2, cores_per_socket: 22, threads_per_core: 2 },
        costs: &[
            cost(
                "line_hit",
                1.5,
                "recalled: Intel optimization manual: 4 to 5 cycles, at about 2.8 GHz with all cores busy",
            ),
            cost("rmw", 6.5, "recalled: Fog, instruction tables: locked operations take about 19 cycles on Broadwell"),
            cost("fence", 12.0, "recalled: Fog, instruction tables: MFENCE about 33 cycles"),
            cost(
                "transfer_socket",
                42.0,
                "McCalpin, Intel forum: E5-2660 v4, modified line in the same socket, 40.3 to 42.3 ns",
            ),
            cost(
                "transfer_machine",
                108.0,
                "recalled: Intel Memory Latency Checker on the v4 family: 100 to 120 ns, modified line in the other socket",
            ),
            cost("first_touch", 85.0, "recalled: Intel Memory Latency Checker on the v4 family: 80 to 90 ns local"),
            cost("pause", 4.0, "recalled: Fog, instruction tables: PAUSE about 9 cycles before Skylake"),
            cost("memory_bandwidth", 60.0, "four channels of DDR4-2400 give 76.8 GB/s; about 80 % is sustained"),
        ],
    },
    Preset {
        name: "xeon-48-cores",
        machine: "two 24-core Skylake or Cascade Lake Xeons, 48 cores, 96 threads",
        shape: Shape { sockets: 2, cores_per_socket: 24, threads_per_core: 2 },
        costs: SKYLAKE_SERVER,
    },
    Preset {
        name: "xeon-80-cpus",
        machine: "two 20-core Skylake Xeons, 40 cores, 80 threads",
        shape: Shape { sockets: 2, cores_per_socket: 20, threads_per_core: 2 },
        costs: SKYLAKE_SERVER,
    },
    Preset {
        name: "altix-64",
        machine: "a 64-way SGI Altix 3700 (Itanium 2, 1.5 GHz): 32 nodes with two CPUs each",
        shape: Shape { sockets: 32, cores_per_socket: 2, threads_per_core: 1 },
        costs: &[
            cost(
                "line_hit",
                3.3,
                "Texas A&M, Cosmos hardware page: second-level load 5 clocks (1.5 GHz); stores and atomics pass the first level by",
            ),
            cost("rmw", 8.0, "recalled: Intel: fetchadd and cmpxchg about 12 cycles in the second level"),
            cost("fence", 15.0, "assumed: about 20 cycles"),
            cost("residual", 2.0, "assumed: an in-order CPU at half the clock"),
            cost("transfer_socket", 200.0, "assumed: local memory latency and a snoop of the node's bus"),
            cost(
                "transfer_machine",
                500.0,
                "assumed: a three-hop directory miss; Texas A&M, Cosmos hardware page: 50 ns per router, up to five routers",
            ),
            cost("read_port", 20.0, "assumed: one 128-byte line at the node's 6.4 GB/s bus"),
            cost("first_touch", 145.0, "recalled: SGI: local memory latency of the Altix 3000"),
            cost("pause", 4.0, "assumed: hint@pause is a few cycles"),
            cost("copy_rate", 1.5, "assumed: half of a CPU's share of the node's memory bandwidth"),
            cost("zero_rate", 2.0, "assumed: a CPU's share of the node's memory bandwidth"),
            cost("memory_bandwidth", 4.0, "recalled: STREAM on Altix: about 2 GB/s for each CPU of a node"),
            cost("park_call", 1500.0, "assumed: twice the default, an older and slower CPU"),
            cost("wake_call", 2000.0, "assumed: twice the default"),
            cost("context_switch", 3000.0, "assumed: twice the default"),
            cost("sibling_slowdown", 1.0, "one thread per core"),
        ],
    },
];

impl Preset {
    /// The preset called `name`.
    ///
    /// # Errors
    /// [`SetupError::UnknownPreset`], which lists the names.
    pub fn find(name: &str) -> Result<&'static Self, SetupError> {
        let found = PRESETS.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| SetupError::UnknownPreset { name: name.to_owned() })
    }

    /// The whole cost table.
    #[must_use]
    pub fn table(&self) -> Costs {
        let costs =
            self.costs.iter().try_fold(Costs::default(), |costs, sourced| costs.with(sourced.cost, sourced.value));
        costs.expect("presets name known costs")
    }

    /// Where a cost comes from.
    #[must_use]
    pub fn source(&self, cost: &str) -> &'static str {
        let sourced = self.costs.iter().find(|sourced| sourced.cost == cost);
        sourced.map_or("assumed: the same for all machines", |sourced| sourced.source)
    }
}

/// The names of all presets, for messages.
pub(crate) fn names() -> String {
    PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_their_published_sizes_and_valid_costs() {
        let cpus: Vec<_> = PRESETS.iter().map(|preset| (preset.shape.cores(), preset.shape.cpus())).collect();
        assert_eq!(cpus, [(44, 88), (48, 96), (40, 80), (64, 64)]);
        for preset in PRESETS {
            preset.table().check().unwrap();
            assert!(preset.costs.iter().all(|sourced| !sourced.source.is_empty()));
        }
    }

    #[test]
    fn unknown_presets_are_answered_with_the_known_ones() {
        let message = Preset::find("cray-1").unwrap_err().to_string();
        assert!(PRESETS.iter().all(|preset| message.contains(preset.name)), "{message}");
    }
}
