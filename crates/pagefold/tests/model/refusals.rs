//! Which errors are due.

use std::time::{Duration, Instant};

use pagefold::io::IoError;
use pagefold::{Error, Group, GroupStats};
use test_disks::FaultKind;

use crate::world::World;

/// If a call took at least this long before it was refused, it waited for a device or for other
/// threads.
const LONG: Duration = Duration::from_millis(100);
/// What a page may need in the budget beside a frame: a chunk of a page map, and the page of states
/// that belongs to the chunk.
const WORDS: u64 = 8 << 10;
/// At least what an open file and a handle need in the budget: a page for the file's length, a KiB
/// for the file, and a few hundred bytes for the handle.
const OPENING: u64 = 6 << 10;
/// What the copy of a page that is being changed needs.
const COPY: u64 = 4 << 10;
/// A group with fewer pages than this may get pages of any group. Two shares count as equal if they
/// differ by no more pages than this (R1 in `memory/ranking.rs`).
const FEW_PAGES: u64 = 32;

impl World {
    /// Makes a call that needs memory for `pages` pages of a group. If the call is refused,
    /// everything is synced, and the call is made again. A second refusal must have a reason that
    /// remains when nothing is dirty. Returns the last result.
    pub(crate) fn ask<T>(
        &mut self,
        group: &Group,
        pages: u64,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        match call() {
            Err(error) if is_refusal(&error) => self.ask_again(group, pages, start.elapsed(), &error, call),
            result => result,
        }
    }

    /// Judges a refusal. See [`ask`](Self::ask).
    pub(crate) fn ask_again<T>(
        &mut self,
        group: &Group,
        pages: u64,
        waited: Duration,
        refusal: &Error,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.seen.limit_reached += 1;
        let result = self.in_peace(|world| {
            world.sync_all();
            call()
        });
        match &result {
            Err(error) if is_refusal(error) => {
                self.is_due(error, group.name(), pages);
                self.seen.refusals_due += 1;
            }
            _ => self.is_excused(waited, refusal),
        }
        result
    }

    /// Fails unless the call may have waited for a device, or for a thread that got no CPU.
    pub(crate) fn is_excused(&self, waited: Duration, refusal: &Error) {
        assert!(self.rate > 0 || waited > LONG, "nothing stood in the way, after {waited:?}: {refusal}");
    }

    /// Fails if pages could be evicted for a call that needs `pages` pages at once: 2 if it needs a
    /// copy. At this point, nothing is dirty or being loaded.
    fn is_due(&self, error: &Error, group: &str, pages: u64) {
        let stats = self.mm.stats();
        let own = stats.groups.iter().find(|it| !it.dropped && it.name == group).expect("it has a handle");
        let (pinned, budget) = (self.pinned_pages(), stats.budget_bytes);
        // An extent without a pinned page could be given back, for metadata.
        let extents = (stats.used_bytes - stats.metadata_bytes) / self.extent_bytes;
        let kept_extents = self.pinned_extents();
        let lacks = |bytes| stats.budget_bytes - stats.used_bytes < bytes && kept_extents >= extents;
        let what =
            format!("{error}, for {pages} pages: {pinned} are pinned, in {kept_extents} extents of {extents}\n{stats}");
        let &Error::LimitReached { charged, .. } = error else {
            assert!(pages == 0 && lacks(OPENING) || pages == 2 && lacks(COPY), "{what}");
            return;
        };
        let at_limit = own.charged_bytes + pages * 4096 > own.max_bytes && clean_pages(own) <= pinned;
        let giving = stats.groups.iter().filter(|it| it.name == own.name || gives_to(own, charged.0, it, budget));
        // Each other group keeps its youngest page, except if the calling group has few pages.
        let kept = |it: &GroupStats| u64::from(it.name != own.name && !has_few(own)).min(clean_pages(it));
        let at_budget = giving.map(|it| clean_pages(it) - kept(it)).sum::<u64>() <= pinned
            && (stats.groups.len() > 1 || stats.free_bytes == 0);
        // A call that changes a page holds the copy's charge while it needs the words, and gives
        // the charge back when it fails.
        let words = [0, WORDS, COPY + WORDS][pages as usize];
        assert!(at_limit || at_budget || lacks(words), "{what}");
    }

    /// Accepts an error if a fault fired, or if the error is a refusal. Refusals were checked by
    /// [`ask`](Self::ask).
    pub(crate) fn tolerate(&mut self, error: &Error) {
        match error {
            Error::ReadFailed { error, .. } | Error::WriteFailed { error, .. } => self.was_made(*error),
            error => assert!(is_refusal(error), "{error}"),
        }
    }

    /// Fails unless the schedule has made the device return this error. Other errors can't occur:
    /// calls that are interrupted or short are continued, and no other process changes the files.
    /// `EAGAIN` can occur, because only reads and writes are retried after it. A transfer makes no
    /// progress if it is short again and again.
    pub(crate) fn was_made(&self, error: IoError) {
        let (kind, times) = match error {
            IoError::Os(5 | 28 | 12) => (FaultKind::Errno, 1),
            IoError::AGAIN => (FaultKind::Again, 1),
            IoError::NoProgress => (FaultKind::Short, 2),
            _ => panic!("{error}"),
        };
        assert!(self.faulty.fired(kind) >= times, "without a fault: {error}");
    }
}

pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::LimitReached { .. } | Error::BudgetBusy { .. })
}

fn clean_pages(group: &GroupStats) -> u64 {
    (group.charged_bytes - group.unclean_bytes) / 4096
}

/// Whether `group` must certainly give pages to `own` if the budget is short (R1). R1 counts
/// charges that CPUs have in stock, and a group's statistics don't. `charged` is what was charged
/// to `own` with its stocks. The share of `group` may be larger than it is here.
fn gives_to(own: &GroupStats, charged: u64, group: &GroupStats, budget: u64) -> bool {
    let share = |group: &GroupStats, pages: u64| pages as f64 / (group.max_bytes.min(budget) / 4096) as f64;
    let with_slack = || share(own, (charged / 4096).saturating_sub(FEW_PAGES));
    has_few(own) || group.dropped || share(group, group.charged_bytes / 4096) >= with_slack()
}

/// Whether the group has so few pages that any group must give it pages.
fn has_few(own: &GroupStats) -> bool {
    own.charged_bytes / 4096 < FEW_PAGES
}

/// Regression, seed 10029: a group had 33 pages, all of them pinned, and ten charges in stock. It
/// could get none of the seven pages of another group. The oracle left the stock out, and so
/// expected that the other group gave some.
#[test]
fn charges_in_stock_count_in_a_groups_share() {
    let group = |pages: u64, max: u64| {
        let mut group = GroupStats::default();
        (group.charged_bytes, group.max_bytes) = (pages * 4096, max * 4096);
        group
    };
    let (own, other) = (group(33, 105), group(7, 56));
    let gives = |charged: u64| gives_to(&own, charged * 4096, &other, 56 * 4096);
    assert!(gives(33) && !gives(43));
}
