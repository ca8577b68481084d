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
    /// The same, which rotates: 200 MB/s, and 8 ms between requests that aren't adjacent
    Rotating,
}

impl Device {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compressed => "compressed",
            Self::Disk => "disk",
            Self::Simulated => "simulated",
            Self::Rotating => "rotating",
        }
    }
}

#[cfg(pagefold_manycore)]
impl Device {
    /// Returns the machine with this device as its disk.
    pub(crate) fn in_machine(self, machine: manycore::Machine) -> manycore::Machine {
        let costs = match self {
            Self::Rotating => [("disk_latency", 0.0), ("disk_bandwidth", 0.2), ("disk_seek", 8e6)],
            _ => return machine,
        };
        let usual = machine.cost_table().clone();
        let table = costs.iter().try_fold(usual, |table, &(name, value)| table.with(name, value));
        table.and_then(|table| machine.costs(table)).expect("costs of a disk")
    }
}
