//! A report as text: a summary, then tables with the most expensive entries.

use crate::report::{ChainShare, Latency, LineShare, LockShare, Report, Shares, WorkShare};
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Number of lines shown of each table.
        const SHOWN: usize = 12;
        let Shares { waiting, transferring, working, system } = self.shares;
        writeln!(
            f,
            "{}, {} CPUs, seed {}: {:.3} ms, {} operations ({:.3} M/s), {} events",
            self.machine,
            self.cpus,
            self.seed,
            self.elapsed_ns / 1e6,
            self.operations,
            self.operations_per_s / 1e6,
            self.events
        )?;
        writeln!(
            f,
            "CPU time {:.3} ms: {waiting:.2} % waiting, {transferring:.2} % transferring, {working:.2} % working, \
             {system:.2} % system; idle {:.3} ms",
            self.cpu_ns / 1e6,
            self.idle_ns / 1e6
        )?;
        writeln!(
            f,
            "per operation: {:.3} shared writes, {:.3} transfers; {} context switches, {} wake-ups",
            self.shared_writes_per_operation, self.transfers_per_operation, self.context_switches, self.wakeups
        )?;
        if let Some(Latency { p50_ns, p99_ns, p999_ns, max_ns }) = self.latency {
            writeln!(
                f,
                "an operation takes {p50_ns:.0} ns; 1 % take {p99_ns:.0} ns or more, 0.1 % {p999_ns:.0}, the longest \
                 {max_ns:.0}"
            )?;
        }
        if let Some(memory) = self.memory {
            writeln!(f, "memory moves {memory:.1} % of what it could")?;
        }
        if !self.chains.is_empty() {
            writeln!(f, "\nlost at locks, % of all CPU time:")?;
        }
        for ChainShare { chain, lost } in self.chains.iter().take(SHOWN) {
            writeln!(f, "{:<72}{lost:8.2}", format!("{chain}:"))?;
        }
        writeln!(f, "\nby lock, % of all CPU time:\n  waiting transfer  working   parked   contended  name")?;
        for lock in self.locks.iter().take(SHOWN) {
            let Shares { waiting, transferring, working, .. } = lock.shares;
            let times = format!("{}/{}", lock.contended, lock.taken);
            let LockShare { kind, name, parked, .. } = lock;
            writeln!(f, "{waiting:9.2}{transferring:9.2}{working:9.2}{parked:9.2}{times:>12}  {kind}.{name}")?;
        }
        writeln!(f, "\nby source line, % of all CPU time:\n  waiting transfer  working   system  shared writes  line")?;
        for line in self.lines.iter().take(SHOWN) {
            let Shares { waiting, transferring, working, system } = line.shares;
            let dot = if line.region.is_empty() { "" } else { "." };
            let LineShare { line, region, shared_writes, .. } = line;
            writeln!(
                f,
                "{waiting:9.2}{transferring:9.2}{working:9.2}{system:9.2}{shared_writes:15}  {line}{dot}{region}"
            )?;
        }
        if !self.works.is_empty() {
            writeln!(f, "\nby named work:\n  % of CPU       count          bytes     waited ms  name")?;
        }
        for WorkShare { name, count, bytes, waited_ns, share, .. } in &self.works {
            writeln!(f, "{share:10.2}{count:12}{bytes:15}{:14.3}  {name}", waited_ns / 1e6)?;
        }
        Ok(())
    }
}
