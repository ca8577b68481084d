//! What the user sees while something takes its time: bars and the live line, on a terminal only, on standard error.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagefold::Pagefold;

use crate::plan::Plan;
use crate::units;
use crate::worker::Shared;

/// How often lines are drawn at most, per second.
const DRAWS_PER_SECOND: u8 = 10;

/// The live line's rates are averages over at least this long.
const RATE_TIME: Duration = Duration::from_millis(500);

fn bar(quiet: bool, len: u64, template: &str) -> ProgressBar {
    let target =
        if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND) };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(len), target).with_style(style.progress_chars("━╸─"))
}

/// A bar for work that is counted in bytes.
pub(crate) fn bytes_bar(quiet: bool, len: u64, what: &str) -> ProgressBar {
    let template = match len {
        // Nobody knows how much a pipe brings.
        0 => "{msg}: {binary_bytes}",
        _ => "{msg} {bar:24} {binary_bytes} of {binary_total_bytes}, {eta} left",
    };
    let bar = bar(quiet, len, template);
    bar.set_message(what.to_owned());
    bar
}

/// The live line of a run.
pub(crate) struct Live {
    bar: ProgressBar,
    time: Option<Duration>,
    memory: u64,
    start: Instant,
    last: RefCell<Sample>,
}

/// Counts at some moment, and the rates up to then.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    ops: u64,
    bytes_in: u64,
    hits: u64,
    misses: u64,
    ops_per_s: f64,
    bytes_in_per_s: f64,
    hit_rate: Option<f64>,
}

impl Live {
    /// Begins the line of a run in `memory` bytes.
    pub(crate) fn start(quiet: bool, plan: &Plan, memory: u64) -> Self {
        let len = plan.time.map_or(plan.ops.unwrap_or(0), |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let start = Instant::now();
        let zero = Sample {
            at: start,
            ops: 0,
            bytes_in: 0,
            hits: 0,
            misses: 0,
            ops_per_s: 0.0,
            bytes_in_per_s: 0.0,
            hit_rate: None,
        };
        let bar = bar(quiet, len, "{elapsed:>4} {bar:12} {wide_msg}");
        Self { bar, time: plan.time, memory, start, last: RefCell::new(zero) }
    }

    /// Draws the line anew.
    pub(crate) fn draw(&self, shared: &Shared, pagefold: &Pagefold) {
        if self.bar.is_hidden() {
            return;
        }
        let (ops, stats) = (shared.ops(), pagefold.stats());
        let mut last = self.last.borrow_mut();
        let elapsed = last.at.elapsed();
        if elapsed >= RATE_TIME {
            let sum = |count: fn(&pagefold::GroupStats) -> u64| stats.groups.iter().map(count).sum::<u64>();
            let (hits, misses, bytes_in) = (sum(|g| g.hits), sum(|g| g.misses + g.waits), sum(|g| g.bytes_in));
            let (new_hits, new_misses) = (hits.saturating_sub(last.hits), misses.saturating_sub(last.misses));
            *last = Sample {
                at: Instant::now(),
                ops,
                bytes_in,
                hits,
                misses,
                ops_per_s: ops.saturating_sub(last.ops) as f64 / elapsed.as_secs_f64(),
                bytes_in_per_s: bytes_in.saturating_sub(last.bytes_in) as f64 / elapsed.as_secs_f64(),
                hit_rate: (new_hits + new_misses > 0).then(|| new_hits as f64 / (new_hits + new_misses) as f64),
            };
        }
        let position = self.time.map_or(ops, |_| u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.bar.set_position(position);
        self.bar.set_message(format!(
            "{} ops, {}/s, hits {}, memory {} of {}, disk {}/s",
            units::count(ops as f64),
            units::count(last.ops_per_s),
            units::percent(last.hit_rate),
            units::bytes(stats.used_bytes),
            units::bytes(self.memory),
            units::bytes(last.bytes_in_per_s as u64),
        ));
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
