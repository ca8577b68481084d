//! Where pages go that don't fit into memory.

use clap::ValueEnum;

/// Where pages go that don't fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// Memory beside the budget
    #[default]
    Memory,
    /// The same, in which pages are compressed
    Compressed,
    /// A file
    Disk,
    /// A simulated disk: on virtual CPUs with the latency in the machine's costs, on real CPUs
    /// without any
    Simulated,
}

impl Device {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compressed => "compressed",
            Self::Disk => "disk",
            Self::Simulated => "simulated",
        }
    }
}
