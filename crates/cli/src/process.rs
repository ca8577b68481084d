//! Figures that the kernel reports about this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of all threads.
pub(crate) fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Resets the peak of resident memory, so that the next reading is the peak since now. Best effort.
pub(crate) fn reset_peak_rss() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak of resident memory, in bytes.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    parse_peak_rss(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_peak_rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_rss_is_found() {
        assert_eq!(parse_peak_rss("VmPeak:\t 1 kB\nVmHWM:\t   123 kB\n"), Some(123 * 1024));
        assert_eq!(parse_peak_rss("nothing"), None);
        assert!(peak_rss_bytes().is_none_or(|bytes| bytes > 100_000));
    }
}
