//! Where the time of each scheme goes on the most CPUs.

use std::fmt::Write;

use super::labels::cpus_label;
use super::results::Results;

/// A profile of each scheme on each workload.
pub(crate) fn text(results: &Results) -> String {
    let most = results.most();
    let mut text = String::new();
    for row in results.rows.iter().filter(|row| row.cpus == most) {
        if let Some(report) = row.report() {
            let _ = write!(text, "\n== {}, {} on {}\n{report}", row.workload, row.scheme, cpus_label(most));
        }
    }
    text
}
