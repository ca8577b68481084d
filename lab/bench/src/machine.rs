//! What the figures were measured on.

use std::fs;
use std::thread;

/// A machine in one line, and its size.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Processor, memory, kernel: `AMD EPYC, 2 CPUs, 24 GiB, Linux 6.18.1`.
    pub(crate) description: String,
    /// CPUs that this process may run on.
    pub(crate) cpus: u32,
}

impl Machine {
    /// The one we are on.
    pub(crate) fn here() -> Self {
        let cpus = thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        let kernel = rustix::system::uname();
        let description = format!(
            "{}, {cpus} CPUs, {:.0} GiB, {} {}",
            processor().unwrap_or_else(|| "unknown processor".to_owned()),
            memory_gib(),
            kernel.sysname().to_string_lossy(),
            kernel.release().to_string_lossy(),
        );
        Self { description, cpus }
    }
}

fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_gib() -> f64 {
    let info = rustix::system::sysinfo();
    info.totalram as f64 * f64::from(info.mem_unit) / f64::from(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cpus_and_a_kernel() {
        let machine = Machine::here();
        assert!(machine.cpus >= 1);
        assert!(machine.description.contains("CPUs"), "{}", machine.description);
    }
}
