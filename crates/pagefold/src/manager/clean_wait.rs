//! Waiting for dirty pages to become clean, so that their frames can be given back.
//!
//! The caller asks the flusher to write, then waits until pages of one group, or of any group, have
//! become clean. The caller gives up after two seconds in which no page became clean, so that a
//! device that doesn't answer doesn't block calls that need memory. It also gives up after four
//! seconds in which pages became clean but the caller made no progress.
//!
//! While the caller waits, it must hold no lock that other tenants need.

use std::time::Duration;

use sync::atomic::Ordering;
use sync::thread::sleep;
use sync::time::Instant;

use crate::group::state::GroupState;
use crate::manager::Manager;

/// The caller gives up after this time in which no page has become clean.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// The caller also gives up if it has made no progress for this long although pages became clean.
const IN_VAIN_MAX: Duration = Duration::from_secs(4);
/// The shortest time between two attempts of the caller, because attempts are costly. It starts at
/// `PAUSE_MIN`, and doubles after each wait in which a page became clean, up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// The time between two requests to the flusher.
const LOOK: Duration = Duration::from_millis(2);

/// The wait of one call.
pub(crate) struct CleanWait<'a> {
    manager: &'a Manager,
    /// The group whose pages are waited for; `None` for any group.
    group: Option<&'a GroupState>,
    waited: bool,
    /// The number of pages that had become clean at the last look, and when it last changed.
    cleaned: u64,
    quiet_since: Instant,
    in_vain_since: Instant,
    pause: Duration,
}

impl Manager {
    /// Asks the flusher to write dirty pages because memory is needed: those of `group`, or of any
    /// group. Returns whether there are such dirty pages.
    pub(crate) fn ask_for_clean(&self, group: Option<&GroupState>) -> bool {
        match group {
            Some(group) if group.unclean.get() > 0 => {
                group.dirt.short(self.memory.now_ms());
                group.dirt.ring();
                true
            }
            None if self.file_io.unclean.get() > 0 => {
                self.file_io.flusher.ring_for_frames(self.memory.now_ms());
                true
            }
            _ => false,
        }
    }

    /// Prepares a caller to wait for pages to become clean: those of `group`, or of any group.
    pub(crate) fn clean_wait<'a>(&'a self, group: Option<&'a GroupState>) -> CleanWait<'a> {
        let now = Instant::now();
        CleanWait {
            manager: self,
            group,
            waited: false,
            cleaned: 0,
            quiet_since: now,
            in_vain_since: now,
            pause: PAUSE_MIN,
        }
    }
}

impl CleanWait<'_> {
    /// Notes that the caller made progress, which restarts all time limits.
    pub(crate) fn progressed(&mut self) {
        self.in_vain_since = Instant::now();
        self.quiet_since = self.in_vain_since;
        self.pause = PAUSE_MIN;
    }

    /// Waits until pages have become clean, and returns true. Returns false if no page is dirty, or
    /// if the wait has taken too long. But the first call returns true even if no page is dirty:
    /// the last dirty page may have become clean after the caller's attempt failed, so another
    /// attempt may succeed.
    pub(crate) fn wait(&mut self) -> bool {
        let (manager, group) = (self.manager, self.group);
        self.wait_asking(|| manager.ask_for_clean(group))
    }

    /// Does the work of [`wait`](Self::wait). `ask` asks the flusher to write, and returns whether
    /// any page is dirty.
    fn wait_asking(&mut self, ask: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        if !self.waited {
            (self.quiet_since, self.in_vain_since) = (start, start);
            self.cleaned = self.cleaned_so_far();
        }
        let is_first = !std::mem::replace(&mut self.waited, true);
        let mut something = false;
        loop {
            let is_dirty = ask();
            // A thread that makes a page clean raises `cleaned` before it lowers the count of dirty
            // pages. So if `ask` has just found no dirty page, this thread sees here that the last
            // one has become clean.
            let cleaned = self.cleaned_so_far();
            if cleaned != self.cleaned {
                (self.cleaned, self.quiet_since, something) = (cleaned, Instant::now(), true);
            }
            if !is_dirty {
                return something || is_first;
            }
            if something && start.elapsed() >= self.pause {
                self.pause = (2 * self.pause).min(PAUSE_MAX);
                return true;
            }
            if self.quiet_since.elapsed() > QUIET_MAX || self.in_vain_since.elapsed() > IN_VAIN_MAX {
                return false;
            }
            sleep(LOOK);
        }
    }

    fn cleaned_so_far(&self) -> u64 {
        // Relaxed: ordered by the Release and the Acquire of `UncleanCount`.
        self.group.map_or(&self.manager.file_io.cleaned, |group| &group.dirt.cleaned).load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use test_disks::SimulatedDisk;

    /// Regression: the last dirty page became clean after the caller had read the number of pages
    /// that had become clean, and before it asked whether any page was dirty. The caller gave up,
    /// although it could have had the page's frame.
    #[test]
    fn a_last_page_that_becomes_clean_meanwhile_is_seen() {
        let mm = Pagefold::builder().memory("4MiB").backend(SimulatedDisk::default()).build().unwrap();
        let manager = mm.manager();
        let mut clean = manager.clean_wait(None);
        assert!(clean.wait(), "the first call");
        assert!(!clean.wait(), "no page is dirty");
        let becomes_clean = || {
            manager.file_io.cleaned.fetch_add(1, Ordering::Relaxed);
            false
        };
        assert!(clean.wait_asking(becomes_clean));
    }
}
