//! The experiments, one a file.

pub(crate) mod atomics;
pub(crate) mod hit;
pub(crate) mod interleave;
pub(crate) mod miss;
pub(crate) mod miss_rate;
pub(crate) mod scan;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error for `steps` steps; nothing if that isn't a terminal.
fn progress(experiment: &'static str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:10} [{bar:30}] {pos}/{len} {msg} ({eta} left)")
        .expect("the template is a constant")
        .progress_chars("=> ");
    ProgressBar::new(steps as u64).with_style(style).with_prefix(experiment)
}

/// `1 thread`, `2 threads`.
fn threads_label(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// `part` of `whole` in percent; zero of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
