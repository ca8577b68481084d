//! Shows progress during long operations, as bars and as the live line. They are drawn on standard
//! error, and only if it is a terminal.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagefold::{FileStats, GroupStats, Stats};

use crate::plan::Plan;
use crate::shared::Shared;
use crate::units;

/// How often lines are drawn at most, per second.
const DRAWS_PER_SECOND: u8 = 10;

/// The live line's rates are averages over at least this long.
const RATE_TIME: Duration = Duration::from_millis(500);

/// How often a line whose progress isn't known turns.
const SPIN_TIME: Duration = Duration::from_millis(100);

fn bar(quiet: bool, len: u64, template: &str) -> ProgressBar {
    let target =
        if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND) };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(len), target).with_style(style.progress_chars("━╸─"))
}

/// Creates a bar for work that is counted in bytes.
pub(crate) fn bytes_bar(quiet: bool, len: u64, what: &str) -> ProgressBar {
    let template = match len {
        // The length of a pipe isn't known.
        0 => "{msg}: {binary_bytes}",
        _ => "{msg} {bar:24} {binary_bytes} of {binary_total_bytes}, {eta} left",
    };
    let bar = bar(quiet, len, template);
    bar.set_message(what.to_owned());
    bar
}

/// Creates a bar for work that is counted.
pub(crate) fn count_bar(quiet: bool, len: u64, what: &str) -> ProgressBar {
    let bar = bar(quiet, len, "{msg} {bar:24} {percent} %, {eta} left");
    bar.set_message(what.to_owned());
    bar
}

/// Calls `body`, of whose progress nothing is known.
pub(crate) fn spin_during<T>(quiet: bool, what: &str, body: impl FnOnce() -> T) -> T {
    let bar = bar(quiet, 0, "{spinner} {msg}");
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(SPIN_TIME);
    let result = body();
    bar.finish_and_clear();
    result
}

/// The live line of a run.
pub(crate) struct Live {
    bar: ProgressBar,
    time: Option<Duration>,
    memory: u64,
    writes: bool,
    start: Instant,
    last: RefCell<Last>,
}

/// The counts at the last drawing, and the rates up to then.
struct Last {
    at: Instant,
    counts: Counts,
    rates: Rates,
}

/// Counts of the work done so far.
#[derive(Clone, Copy, Default)]
struct Counts {
    ops: u64,
    writes: u64,
    hits: u64,
    misses: u64,
    bytes_in: u64,
    bytes_out: u64,
    write_requests: u64,
}

/// Recent rates.
#[derive(Clone, Copy, Default)]
struct Rates {
    ops_per_s: f64,
    writes_per_s: f64,
    hit_rate: Option<f64>,
    bytes_in_per_s: f64,
    bytes_out_per_s: f64,
    requests_per_page: Option<f64>,
    worst_write_ns: u64,
}

impl Counts {
    fn now(shared: &Shared, stats: &Stats) -> Self {
        let (ops, writes) = shared.ops();
        let groups = |count: fn(&GroupStats) -> u64| stats.groups.iter().map(count).sum();
        let files = |count: fn(&FileStats) -> u64| stats.files.iter().map(count).sum();
        Self {
            ops,
            writes,
            hits: groups(|g| g.hits),
            misses: groups(|g| g.misses + g.waits),
            bytes_in: groups(|g| g.bytes_in),
            bytes_out: files(|f| f.bytes_out),
            write_requests: files(|f| f.write_requests),
        }
    }

    fn rates_since(&self, before: &Self, time: Duration, page_bytes: u64, worst_write_ns: u64) -> Rates {
        let more = |count: fn(&Self) -> u64| count(self).saturating_sub(count(before)) as f64;
        let per_s = |count: fn(&Self) -> u64| more(count) / time.as_secs_f64();
        let lookups = more(|c| c.hits + c.misses);
        let pages_out = more(|c| c.bytes_out) / page_bytes.max(1) as f64;
        Rates {
            ops_per_s: per_s(|c| c.ops),
            writes_per_s: per_s(|c| c.writes),
            hit_rate: (lookups > 0.0).then(|| more(|c| c.hits) / lookups),
            bytes_in_per_s: per_s(|c| c.bytes_in),
            bytes_out_per_s: per_s(|c| c.bytes_out),
            requests_per_page: (pages_out > 0.0).then(|| more(|c| c.write_requests) / pages_out),
            worst_write_ns,
        }
    }
}

impl Live {
    /// Creates the line of a run with a budget of `memory` bytes.
    pub(crate) fn start(quiet: bool, plan: &Plan, memory: u64) -> Self {
        let len = plan.time.map_or(plan.ops.unwrap_or(0), |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let start = Instant::now();
        let last = Last { at: start, counts: Counts::default(), rates: Rates::default() };
        let bar = bar(quiet, len, "{elapsed:>4} {bar:12} {wide_msg}");
        Self { bar, time: plan.time, memory, writes: plan.writes, start, last: RefCell::new(last) }
    }

    /// Draws the line anew.
    pub(crate) fn draw(&self, shared: &Shared, stats: &Stats) {
        if self.bar.is_hidden() {
            return;
        }
        let counts = Counts::now(shared, stats);
        let mut last = self.last.borrow_mut();
        let elapsed = last.at.elapsed();
        if elapsed >= RATE_TIME {
            let rates = counts.rates_since(&last.counts, elapsed, stats.page_bytes, shared.take_worst_write_ns());
            *last = Last { at: Instant::now(), counts, rates };
        }
        let position =
            self.time.map_or(counts.ops, |_| u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.bar.set_position(position);
        self.bar.set_message(if self.writes {
            self.writing_line(&last.rates, stats)
        } else {
            format!(
                "{} ops, {}/s, hits {}, memory {} of {}, disk {}/s",
                units::count(counts.ops as f64),
                units::count(last.rates.ops_per_s),
                units::percent(last.rates.hit_rate),
                units::bytes(stats.used_bytes),
                units::bytes(self.memory),
                units::bytes(last.rates.bytes_in_per_s as u64),
            )
        });
    }

    /// Returns the line of a run that writes. The most important figures come first, because a
    /// narrow terminal cuts the line off.
    fn writing_line(&self, rates: &Rates, stats: &Stats) -> String {
        let per_page =
            rates.requests_per_page.map_or_else(String::new, |requests| format!(" ({requests:.2} requests a page)"));
        format!(
            "{}/s, {} writes/s, worst {}, unclean {}, out {}/s{per_page}, in {}/s, hits {}",
            units::count(rates.ops_per_s),
            units::count(rates.writes_per_s),
            units::nanoseconds(rates.worst_write_ns),
            units::bytes(stats.files.iter().map(|file| file.unclean_bytes).sum()),
            units::bytes(rates.bytes_out_per_s as u64),
            units::bytes(rates.bytes_in_per_s as u64),
            units::percent(rates.hit_rate),
        )
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
