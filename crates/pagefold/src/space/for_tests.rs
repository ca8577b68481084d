//! A tenant with a space, for the tests in this folder.

use frames::PageState;
use sync::random::mix;
use sync::time::{Duration, Instant};

use super::SpaceState;
use super::region::{REGION_PAGES, Region};
use crate::group::state::GroupState;
use crate::lru::rank::Rank;
use crate::manager::Manager;
use crate::memory::charges::ChargedFrame;
use crate::{Builder, Group, Pagefold, Protection, Space};

pub(super) const PAGE: u64 = 4096;
/// The first address of the tenant's memory.
pub(super) const BASE: u64 = 3 << 30;
/// How long a test waits for something that must happen.
const WATCHDOG: Duration = Duration::from_secs(120);
/// No thread gives up waiting for memory so soon.
const WAIT_MIN: Duration = Duration::from_secs(2);

/// See the module's head.
pub(super) struct Tenant {
    pub(super) mm: Pagefold,
    pub(super) group: Group,
    pub(super) space: Space,
}

impl Tenant {
    /// A tenant that may have `max` pages in memory, and whose space has `pages` pages of memory,
    /// none of which were written.
    pub(super) fn new(mm: Builder, max: u64, pages: u64) -> Self {
        let mm = mm.memory("8MiB").build().unwrap();
        let group = mm.group("tenant").max(max * PAGE).build().unwrap();
        let space = group.space().unwrap();
        space.map_at(BASE..BASE + pages * PAGE, Protection::ReadWrite).unwrap();
        Self { mm, group, space }
    }

    pub(super) fn state(&self) -> &SpaceState {
        &self.space.state
    }

    pub(super) fn manager(&self) -> &Manager {
        self.group.manager()
    }

    pub(super) fn group_state(&self) -> &GroupState {
        self.group.state()
    }

    pub(super) fn direct_reclaims(&self) -> u64 {
        self.group.stats().direct_reclaims
    }

    /// The address of a page.
    pub(super) fn at(page: u64) -> u64 {
        BASE + page * PAGE
    }

    /// Bytes of a page that aren't those of any other page.
    pub(super) fn contents(page: u64) -> Vec<u8> {
        (0..PAGE / 8).flat_map(|word| mix(mix(page) ^ word).to_le_bytes()).collect()
    }

    /// Writes all bytes of a page.
    pub(super) fn write(&self, page: u64) -> Result<(), crate::Error> {
        self.space.write_at(&Self::contents(page), Self::at(page))
    }

    /// The region of the tenant's memory.
    pub(super) fn region(&self) -> &Region {
        self.state().index.look(BASE / PAGE).1.expect("a page was written")
    }

    /// Where a page is.
    pub(super) fn page(&self, page: u64) -> PageState {
        self.region().map.state((BASE / PAGE + page) % REGION_PAGES)
    }

    /// Fails unless these pages are in memory, and on a list of their group.
    pub(super) fn check_listed(&self, pages: std::ops::Range<u64>) {
        for page in pages {
            let PageState::Resident { frame } = self.page(page) else { panic!("page {page} isn't in memory") };
            assert!(!Rank::of(&self.manager().memory.frames, frame).is_unlisted(), "page {page} is on no list");
        }
    }

    /// The first page from `from` on that is in swap.
    pub(super) fn swapped(&self, from: u64) -> u64 {
        (from..).find(|&page| matches!(self.page(page), PageState::Swapped { .. })).unwrap()
    }

    /// Takes all memory that the group can get, so the group's pages are evicted. To other threads,
    /// the returned frames look like pages in flight, so a thread that needs memory waits about
    /// four seconds for them.
    pub(super) fn take_all(&self) -> Vec<ChargedFrame<'_>> {
        let (manager, group, mut taken) = (self.manager(), self.group_state(), Vec::new());
        loop {
            if manager.memory.frames_of_reserve(group, 1, |frame| taken.push(frame)).is_err() {
                manager.memory.drain_entries();
                if manager.memory.drain_charges(Some(group.id)) == 0 && manager.reclaim_in_earnest(group, true, 1) == 0
                {
                    return taken;
                }
            }
        }
    }

    /// Runs `waiting`, which waits for memory. Once it waits, runs `meanwhile`. Returns the result
    /// of `waiting`, and whether `waiting` surely still waited when `meanwhile` ended. If that
    /// isn't sure, the reason is that this thread got no CPU for seconds.
    pub(super) fn while_it_waits<T: Send>(
        &self,
        waiting: impl FnOnce() -> T + Send,
        meanwhile: impl FnOnce(),
    ) -> (T, bool) {
        let (before, start) = (self.direct_reclaims(), Instant::now());
        std::thread::scope(|scope| {
            let thread = scope.spawn(waiting);
            while self.direct_reclaims() == before && !thread.is_finished() && start.elapsed() < WATCHDOG {
                std::thread::yield_now();
            }
            let has_waited = self.direct_reclaims() > before;
            meanwhile();
            let is_in_time = start.elapsed() < WAIT_MIN;
            let result = thread.join().unwrap();
            assert!(has_waited, "it didn't wait");
            (result, is_in_time)
        })
    }
}
