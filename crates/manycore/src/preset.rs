//! Presets: fixed shapes and costs of machines for which results were published.
//!
//! The costs were measured by others, or stated by vendors. If no value was found, `source` says
//! "estimate", and gives the range in which the value probably lies. A cost that a preset doesn't
//! name has the value of [`Costs::default`], which is an estimate for a server of the same years as
//! the presets' machines. Nothing here is fitted to a published result. If the model disagrees with
//! such a result, that is a finding about the model.
//!
//! The presets were last changed on 27 November 2026.
//!
//! `transfer_overlap` is 0.5 for all presets. This estimate was chosen after one machine had been
//! measured (0.5 to 0.65, an AMD EPYC).
//!
//! `transfer_hold` determines how much throughput cores lose when they contend for a line. It has
//! been measured only with two CPUs. For some time it was 0 in all presets. That value was chosen
//! for its result: with 0 the model reproduced the published results on the Altix, and with 0.5 it
//! didn't. Now the presets, and [`Costs::default`], have a measured value. A claim about Pagefold
//! should hold with each of 0, 0.25 and 0.5.
//!
//! `window` was added when measurements on the EPYC showed that the model lacked it. Its values
//! come from the sizes of reorder buffers, not from results.

use crate::{Costs, SetupError, Shape};
use serde::Serialize;

/// A cost of a preset and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sourced {
    /// The name of the field of [`Costs`].
    pub cost: &'static str,
    /// Its value.
    pub value: f64,
    /// Where it was measured or stated, or why it was assumed.
    pub source: &'static str,
}

/// A machine with a name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Preset {
    /// The name by which it is found.
    pub name: &'static str,
    /// The real machine that it describes.
    pub machine: &'static str,
    /// Sockets, cores, threads.
    pub shape: Shape,
    /// Costs that differ from the default ones.
    pub costs: &'static [Sourced],
}

const fn cost(cost: &'static str, value: f64, source: &'static str) -> Sourced {
    Sourced { cost, value, source }
}

/// The value measured on a Xeon. It hasn't been measured on the machines of the presets.
const TRANSFER_HOLD: Sourced = cost(
    "transfer_hold",
    0.34,
    "measured by Pagefold's `calibrate` on a Xeon (Emerald Rapids), two CPUs; on an AMD EPYC (Zen 5) 0.5 to 0.65",
);

const SKYLAKE_SERVER: &[Sourced] = &[
    cost("line_hit", 1.4, "AnandTech, Xeon Skylake-SP: first level in 4 cycles; taken at 2.8 GHz"),
    cost("rmw", 6.5, "estimate: 18 to 20 cycles, 6 to 8 ns (uops.info has 19 for later cores)"),
    cost("fence", 12.0, "estimate: about 33 cycles, 9 to 20 ns"),
    cost(
        "transfer_socket",
        50.0,
        "Memory Latency Checker on a Platinum 8269CY (Cascade Lake), as plantegg published it: modified line, 50.1 ns",
    ),
    cost("transfer_machine", 111.0, "the same: modified line in the other socket, its memory with the writer"),
    cost("transfer_detour", 65.0, "the same: 176 ns if its memory is with the reader"),
    TRANSFER_HOLD,
    cost("first_touch", 79.0, "the same: 78.5 ns to the socket's own memory (AnandTech, LMbench: 89 to 91)"),
    cost("memory_detour", 60.0, "estimate: 50 to 70 ns; memory of the other socket in 130 to 145 ns"),
    cost("link_bandwidth", 124.8, "Intel: three links (UPI) at 10.4 GT/s, 20.8 GB/s each way; the data sheet's rate"),
    cost("link_line", 120.0, "estimate: 64 bytes are in four flits of 24 bytes with the header; one for the request"),
    cost("socket_hit", 20.0, "AnandTech, LMbench, Skylake-SP: 54 to 56 cycles; 25 to 27 ns for 16 to 32 MB"),
    cost("core_cache", 1_048_576.0, "Intel: 1 MiB of second level for each core"),
    cost("socket_cache", 34_603_008.0, "Intel: 1.375 MiB of third level for each of 24 cores"),
    cost("window", 40.0, "estimate: 224 entries in the reorder buffer (Intel), at 2 instructions a cycle and 2.8 GHz"),
    cost("pause", 50.0, "Microsoft support, on .NET spinning: Skylake up to 140 cycles; taken at 2.8 GHz"),
    cost("memory_bandwidth", 113.0, "Memory Latency Checker on the 8269CY: 113 GB/s read in a socket"),
];

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "xeon-e5-2699v4",
        machine: "two Xeon E5-2699 v4 (Broadwell), 44 cores, 88 threads",
        shape: Shape { sockets: 2, cores_per_socket: 22, threads_per_core: 2 },
        costs: &[
            cost("line_hit", 1.4, "AnandTech, Xeon E5-2699 v4: first level in 4 cycles; taken at 2.8 GHz"),
            cost("rmw", 6.5, "estimate: 18 to 20 cycles, 6 to 8 ns (uops.info has 19 for later cores)"),
            cost("fence", 12.0, "estimate: about 33 cycles, 9 to 20 ns"),
            cost(
                "transfer_socket",
                46.0,
                "Memory Latency Checker on E5-2682 v4, as plantegg published it: 46.3 ns (McCalpin, E5-2660 v4: 40 to \
                 42)",
            ),
            cost("transfer_machine", 109.0, "the same: modified line in the other socket, 108.6 to 110.1 ns"),
            cost("transfer_detour", 1.5, "the same: the two figures, its memory with the writer and with the reader"),
            TRANSFER_HOLD,
            cost("first_touch", 85.0, "the same: 84 to 85 ns to the socket's own memory (AnandTech, LMbench: 95)"),
            cost("memory_detour", 45.0, "estimate: 40 to 50 ns; memory of the other socket in 125 to 135 ns"),
            cost(
                "link_bandwidth",
                76.8,
                "Intel: two links (QPI) at 9.6 GT/s, 19.2 GB/s each way; the data sheet's rate",
            ),
            cost(
                "link_line",
                88.0,
                "estimate: 64 bytes in eight flits of 8 bytes, one for the header, two to ask and end",
            ),
            cost("socket_hit", 16.0, "AnandTech, LMbench, E5-2699 v4: 38 to 51 cycles; 27 to 42 ns for 16 to 32 MB"),
            cost("core_cache", 262_144.0, "Intel: 256 KiB of second level for each core"),
            cost("socket_cache", 57_671_680.0, "Intel: 55 MiB of third level"),
            cost(
                "window",
                34.0,
                "estimate: 192 entries in the reorder buffer (Intel), at 2 instructions a cycle and 2.8 GHz",
            ),
            cost("pause", 3.6, "Microsoft support, on .NET spinning: about 10 cycles before Skylake; taken at 2.8 GHz"),
            cost("memory_bandwidth", 62.0, "Memory Latency Checker on E5-2682 v4: 62 GB/s read in a socket"),
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
        name: "xeon-4-cores",
        machine: "a Skylake Xeon with 4 cores, 8 threads: no published machine is named; a published curve suggests \
                  this shape",
        shape: Shape { sockets: 1, cores_per_socket: 4, threads_per_core: 2 },
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
                "Texas A&M, Cosmos hardware page: second-level load 5 clocks (1.5 GHz); stores and atomics pass the \
                 first level by",
            ),
            cost("rmw", 8.0, "estimate: about 12 cycles in the second level, 5 to 15 ns"),
            cost("fence", 15.0, "estimate: about 20 cycles"),
            cost("residual", 2.0, "estimate: an in-order CPU at half the clock"),
            cost(
                "transfer_socket",
                200.0,
                "estimate: local memory latency and a snoop of the node's bus, 150 to 300 ns",
            ),
            cost(
                "transfer_machine",
                500.0,
                "estimate: a three-hop directory miss, 300 to 900 ns; SGI and Texas A&M: 50 ns a router, up to five \
                 routers",
            ),
            cost("transfer_detour", 0.0, "included above"),
            TRANSFER_HOLD,
            cost("window", 0.0, "an in-order CPU"),
            cost("read_port", 20.0, "estimate: one 128-byte line at the node's 6.4 GB/s bus"),
            cost("first_touch", 145.0, "estimate: local memory, 130 to 200 ns; no published figure was found"),
            cost("memory_detour", 150.0, "estimate: one to five routers of 50 ns and their links, there and back"),
            cost(
                "link_bandwidth",
                12.8,
                "SGI: two NUMAlink 4 ports of a node, 3.2 GB/s each way; the data sheet's rate",
            ),
            cost("link_line", 192.0, "estimate: 128 bytes, and half as much for request, header and answer"),
            cost("core_cache", 262_144.0, "Texas A&M, Cosmos hardware page: 256 KB of second level"),
            cost(
                "socket_cache",
                6_291_456.0,
                "Texas A&M, Cosmos hardware page: 3 MB of third level a CPU, two in a node",
            ),
            cost("first_cache_rate", 8.0, "estimate: half of two loads a cycle, 6 to 20 bytes/ns"),
            cost("core_cache_rate", 6.0, "estimate: 4 to 12 bytes/ns"),
            cost("socket_cache_rate", 3.0, "estimate: 2 to 6 bytes/ns"),
            cost("memory_read_rate", 2.0, "estimate: a CPU's share of the node's memory bandwidth"),
            cost("pause", 4.0, "estimate: hint@pause is a few cycles"),
            cost("copy_rate", 1.5, "estimate: half of a CPU's share of the node's memory bandwidth"),
            cost("zero_rate", 2.0, "estimate: a CPU's share of the node's memory bandwidth"),
            cost("memory_bandwidth", 4.0, "estimate: about 2 GB/s for each CPU of a node; the bus has 6.4"),
            cost("park_call", 1500.0, "estimate: twice the default, an older and slower CPU"),
            cost("wake_call", 2000.0, "estimate: twice the default"),
            cost("context_switch", 3000.0, "estimate: twice the default"),
            cost("sibling_slowdown", 1.0, "one thread per core"),
        ],
    },
];

impl Preset {
    /// Returns the preset called `name`.
    ///
    /// # Errors
    /// [`SetupError::UnknownPreset`], which lists the names.
    pub fn find(name: &str) -> Result<&'static Self, SetupError> {
        let found = PRESETS.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| SetupError::UnknownPreset { name: name.to_owned(), known: names() })
    }

    /// Returns the whole cost table.
    #[must_use]
    pub fn table(&self) -> Costs {
        let costs =
            self.costs.iter().try_fold(Costs::default(), |costs, sourced| costs.with(sourced.cost, sourced.value));
        costs.expect("presets name known costs")
    }

    /// Returns the source of a cost.
    #[must_use]
    pub fn source(&self, cost: &str) -> &'static str {
        let sourced = self.costs.iter().find(|sourced| sourced.cost == cost);
        sourced.map_or("estimate: the same for all machines", |sourced| sourced.source)
    }
}

/// Returns the names of all presets, for messages.
fn names() -> String {
    PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_their_published_sizes_and_valid_costs() {
        let cpus: Vec<_> = PRESETS.iter().map(|preset| (preset.shape.cores(), preset.shape.cpus())).collect();
        assert_eq!(cpus, [(44, 88), (48, 96), (40, 80), (4, 8), (64, 64)]);
        for preset in PRESETS {
            preset.table().check().unwrap();
            assert_eq!(preset.table().transfer_hold, Costs::default().transfer_hold, "one value for all machines");
            assert!(preset.costs.iter().all(|sourced| !sourced.source.is_empty()));
        }
    }

    #[test]
    fn unknown_presets_are_answered_with_the_known_ones() {
        let message = Preset::find("cray-1").unwrap_err().to_string();
        assert!(PRESETS.iter().all(|preset| message.contains(preset.name)), "{message}");
    }
}
