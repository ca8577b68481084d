//! The budget and the groups' limits, which change meanwhile.

use std::time::{Duration, Instant};

use pagefold::{Error, Group};

use crate::support::{eventually, within_limit};
use crate::world::World;

/// How much room a lowered budget must have beside metadata, because page maps may grow while it is
/// being lowered.
pub(crate) const SPARE: u64 = 64 << 10;

/// A call that lowers a limit waits at least this long for pages that are unclean or being loaded.
const LANDING: Duration = Duration::from_millis(100);

/// How far a group may exceed a limit that was lowered: by the pages that were unclean or pinned at
/// that time.
#[derive(Default)]
pub(crate) struct Ceiling {
    /// This value only falls, as a group above its limit gets no further pages.
    bytes: u64,
    /// The group's number of misses when its last page stopped being unclean or pinned. At the
    /// group's next miss, it must shrink to its limit.
    misses: Option<u64>,
}

impl World {
    /// No group may exceed its limit at any time, and all groups together may not exceed the
    /// budget.
    pub(crate) fn check_limits(&mut self) {
        let pinned = self.pinned_pages();
        for (group, ceiling) in self.groups.iter().zip(&mut self.ceilings) {
            let (charged, stats) = (group.charged(), group.stats());
            assert!(charged <= group.max().max(ceiling.bytes), "{}: ceiling {}", describe(group), ceiling.bytes);
            ceiling.bytes = ceiling.bytes.min(charged);
            if pinned > 0 || self.rate > 0 && stats.unclean_bytes > 0 {
                ceiling.misses = None;
                continue;
            }
            let before = *ceiling.misses.get_or_insert(stats.misses);
            assert!(within_limit(group) || stats.misses == before, "{}", describe(group));
        }
        let stats = self.mm.stats();
        assert!(stats.used_bytes <= stats.budget_bytes, "{stats}");
    }

    pub(crate) fn set_max(&mut self) {
        let at = self.random.below(self.groups.len() as u64) as usize;
        let max = (16 + self.random.below(300)) * 4096;
        self.limit(at, max);
    }

    pub(crate) fn limit(&mut self, at: usize, max: u64) {
        let group = &self.groups[at];
        // It only falls meanwhile: no other thread writes.
        let unclean = if self.rate > 0 { group.stats().unclean_bytes } else { 0 };
        let stays = unclean + self.pinned_pages() * 4096;
        let is_kept = || {
            let start = Instant::now();
            group.set_max(max).unwrap();
            group.charged() <= max.max(stays) || start.elapsed() < LANDING && panic!("{}", describe(group))
        };
        // Pages that are being loaded when the call gives up can be evicted a moment later.
        eventually("a limit isn't kept", is_kept);
        self.ceilings[at] = Ceiling { bytes: stays, misses: None };
    }

    pub(crate) fn resize(&mut self) {
        let size = (64 + self.random.below(500)) * 4096 + (256 << 10);
        self.resize_to(size);
    }

    /// Changes the budget. If the new budget has room for the metadata, only pinned pages may make
    /// the call fail.
    pub(crate) fn resize_to(&mut self, size: u64) {
        let (before, start) = (self.mm.budget(), Instant::now());
        let refusal = match self.mm.resize(size) {
            Ok(()) => {
                self.seen.budgets_lowered += u64::from(size < before);
                return;
            }
            Err(error @ Error::BudgetBusy { .. }) => error,
            Err(error) => panic!("{error}"),
        };
        let waited = start.elapsed();
        assert_eq!(self.mm.budget(), before);
        let again = self.in_peace(|world| {
            world.sync_all();
            world.mm.resize(size)
        });
        if again.is_ok() {
            return self.is_excused(waited, &refusal);
        }
        let stats = self.mm.stats();
        let needed = stats.metadata_bytes + self.pinned_extents() * self.extent_bytes + SPARE;
        assert!(size < needed, "{refusal}, though {needed} would do\n{stats}");
        self.seen.budgets_refused += 1;
    }
}

fn describe(group: &Group) -> String {
    let (name, charged, max) = (group.name(), group.charged(), group.max());
    format!("{name} has {charged} of {max}, of which {} unclean", group.stats().unclean_bytes)
}
