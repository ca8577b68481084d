//! What known policies would have missed in a run (`--policy-report`).

use policies::{Policy, misses_until};
use serde::Serialize;

use crate::failure::Failure;
use crate::live;
use crate::page_order::{self, Done};
use crate::plan::Plan;
use crate::room::Room;
use crate::signals;

/// The name of Pagefold's own row.
pub(crate) const PAGEFOLD: &str = "pagefold";

/// A run, as far as the policies are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) done: &'a Done,
    pub(crate) room: Room,
    pub(crate) page_bytes: u64,
    /// The maximum number of operations that a thread had in flight.
    pub(crate) depth: usize,
    pub(crate) quiet: bool,
}

/// The policies beside a run of Pagefold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyReport {
    /// The number of pages that each policy had room for.
    pub(crate) room_pages: u64,
    /// Pages touched: an operation on three pages makes three.
    pub(crate) accesses: u64,
    /// Different pages among them.
    pub(crate) pages: u64,
    /// The pages that Pagefold read ahead. They count as its misses.
    pub(crate) read_ahead: u64,
    /// The accesses are in the order of the run, rather than of the plan.
    pub(crate) exact_order: bool,
    /// The policies, OPT after the others, and at last Pagefold.
    pub(crate) rows: Vec<PolicyRow>,
}

/// One policy, or Pagefold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyRow {
    pub(crate) policy: &'static str,
    /// Pages that weren't in memory when they were used. For Pagefold, its misses and the pages
    /// that it read ahead.
    pub(crate) misses: u64,
    /// The misses for each access; `null` if there were none.
    pub(crate) miss_rate: Option<f64>,
    /// This row's misses divided by those of the best policy except OPT; `null` if that policy had
    /// no misses.
    pub(crate) over_best: Option<f64>,
}

impl PolicyReport {
    /// Simulates the policies on the accesses of a run, and counts their misses. In this run
    /// Pagefold had `misses` misses, and read `read_ahead` pages ahead. Shows progress.
    ///
    /// # Errors
    /// A signal; more accesses than can be counted.
    pub(crate) fn new(run: &Replayed<'_>, misses: u64, read_ahead: u64) -> Result<Self, Failure> {
        // A group's limit is cut to whole pages.
        let pages = run.plan.limits(run.room.shared, run.page_bytes).map(|limit| limit / run.page_bytes);
        let room_pages = pages.fold(0, u64::saturating_add).min(run.room.shared / run.page_bytes);
        let bar = live::count_bar(run.quiet, run.done.ops.iter().sum(), "planning the operations once more");
        let accesses = page_order::pages(run.plan, run.done, run.page_bytes, |ops| {
            bar.set_position(ops);
            signals::check()
        });
        bar.finish_and_clear();
        let accesses = accesses?;
        let len = accesses.len() as u64;
        let bar = live::count_bar(run.quiet, len * Policy::ALL.len() as u64, "counting what policies miss");
        let mut counted = Vec::new();
        for (number, policy) in Policy::ALL.into_iter().enumerate() {
            let room = usize::try_from(room_pages).unwrap_or(usize::MAX);
            let misses = misses_until(policy, &accesses, room, |done| {
                bar.set_position(len * number as u64 + done as u64);
                signals::check()
            });
            counted.push((policy.name(), misses.inspect_err(|_| bar.finish_and_clear())?));
        }
        bar.finish_and_clear();
        let known = counted.iter().filter(|(name, _)| *name != Policy::Opt.name());
        let best = known.map(|(_, misses)| *misses).min().unwrap_or(0);
        counted.push((PAGEFOLD, misses + read_ahead));
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let row = |(policy, misses)| PolicyRow {
            policy,
            misses,
            miss_rate: ratio(misses, len),
            over_best: ratio(misses, best),
        };
        Ok(Self {
            room_pages,
            accesses: len,
            pages: accesses.pages() as u64,
            read_ahead,
            exact_order: run.depth == 1 && run.plan.threads() == 1,
            rows: counted.into_iter().map(row).collect(),
        })
    }
}
