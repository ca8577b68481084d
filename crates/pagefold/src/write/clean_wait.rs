//! Waiting for dirty pages to become clean, so that their frames can be given back.
//!
//! The caller asks the flusher, and waits for what the flusher does: for pages of the caller's own
//! group, or of any group, but not for long if nothing comes of it. So a device that doesn't answer
//! doesn't block calls that need memory. The caller holds no lock meanwhile that other tenants
//! need.

use std::time::Duration;

use sync::atomic::Ordering;
use sync::thread::sleep;
use sync::time::Instant;

use crate::group::state::GroupState;
use crate::manager::Manager;

/// How long nothing may become clean before the caller gives up,
const QUIET_MAX: Duration = Duration::from_secs(2);
/// and how long the caller may get nowhere with what becomes clean.
const IN_VAIN_MAX: Duration = Duration::from_secs(4);
/// How long it is waited at least between two attempts of the caller's: at first, and at most.
/// Attempts cost something.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How often the flusher is asked.
const LOOK: Duration = Duration::from_millis(2);

/// The waiting of one call.
pub(crate) struct CleanWait<'a> {
    manager: &'a Manager,
    /// Whose pages are waited for; `None` for those of any group.
    group: Option<&'a GroupState>,
    waited: bool,
    /// Pages that had become clean at the last look, and when that changed.
    cleaned: u64,
    quiet_since: Instant,
    in_vain_since: Instant,
    pause: Duration,
}

impl Manager {
    /// For a caller that may have to wait for pages to become clean: those of `group`, or any.
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
    /// The caller got something.
    pub(crate) fn progressed(&mut self) {
        self.in_vain_since = Instant::now();
        self.quiet_since = self.in_vain_since;
        self.pause = PAUSE_MIN;
    }

    /// Waits until pages have become clean. False if there is nothing to wait for, or if that has
    /// gone on for too long. The first time it is true at once if nothing is dirty, as that may
    /// have changed since the caller came upon it.
    pub(crate) fn wait(&mut self) -> bool {
        let start = Instant::now();
        if !self.waited {
            (self.quiet_since, self.in_vain_since) = (start, start);
            self.cleaned = self.cleaned_so_far();
        }
        let is_first = !std::mem::replace(&mut self.waited, true);
        let mut something = false;
        loop {
            let cleaned = self.cleaned_so_far();
            if cleaned != self.cleaned {
                (self.cleaned, self.quiet_since, something) = (cleaned, Instant::now(), true);
            }
            if !self.manager.ask_for_clean(self.group) {
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
        // Relaxed: a sign of life.
        self.group.map_or(&self.manager.cleaned, |group| &group.dirt.cleaned).load(Ordering::Relaxed)
    }
}
