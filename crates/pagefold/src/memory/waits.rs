//! What a call that finds nothing to evict may wait for.
//!
//! - Pages in flight: a page that is being loaded, or that reclaim is looking at, is charged to its
//!   group, but is on no list. It can be evicted once it has *landed*.
//! - Another thread that is lowering the budget. It returns memory to the system extent by extent,
//!   and after each extent there is a little more room for metadata.

use std::time::Duration;

use sync::atomic::Ordering;
use sync::thread::sleep;

use crate::group::state::GroupState;
use crate::memory::Memory;

/// The most times that one caller waits for pages in flight (`await_landings`). Each wait takes a
/// millisecond; the caller's own attempts take additional time.
const LANDING_TURNS: u32 = 200;

/// While the budget is being lowered, a thread that needs room tries again and again to get it,
/// because another extent may have been given back. It tries at most `LOWERING_TURNS` times, and
/// sleeps `LOWERING_PAUSE` in between: for a second in all.
const LOWERING_PAUSE: Duration = Duration::from_micros(100);
const LOWERING_TURNS: u32 = 10_000;

/// The state of a call that may wait for pages in flight.
#[derive(Debug)]
pub(crate) struct Landings {
    turns: u32,
    /// Pages may have been in flight during the caller's last look.
    were: bool,
}

impl Default for Landings {
    fn default() -> Self {
        Self { turns: 0, were: true }
    }
}

impl Memory {
    /// Returns whether pages of `group`, or of any group, are being loaded, or are being looked at
    /// by reclaim. Such pages may become evictable without further action.
    pub(crate) fn in_flight(&self, group: Option<&GroupState>) -> bool {
        let some = |group: &GroupState| self.has_in_flight(group, 0);
        group.map_or_else(|| self.groups.any(some), some)
    }

    /// Like [`in_flight`](Self::in_flight), but doesn't count the pages that this thread itself has
    /// taken off their lists: `own.1` pages of the group `own.0`.
    pub(crate) fn in_flight_beside(&self, group: Option<&GroupState>, own: (&GroupState, u64)) -> bool {
        let some = |group: &GroupState| self.has_in_flight(group, if group.id == own.0.id { own.1 } else { 0 });
        group.map_or_else(|| self.groups.any(some), some)
    }

    fn has_in_flight(&self, group: &GroupState, beside: u64) -> bool {
        self.pages_of(group) > group.lists.len() as u64 + group.anonymous() + beside
    }

    /// Returns whether the caller, which has found no page to evict, should search again. It should
    /// in two cases:
    /// - Pages of `group`, or of any group, are in flight, so they can't be evicted yet. This
    ///   function then first waits for a millisecond, at most [`LANDING_TURNS`] times.
    /// - Pages were in flight at the previous call. They may have landed just after the caller's
    ///   search.
    pub(crate) fn await_landings(&self, group: Option<&GroupState>, landings: &mut Landings) -> bool {
        self.await_landings_if(landings, || self.in_flight(group))
    }

    /// Does the work of [`await_landings`](Self::await_landings). `are` returns whether pages are
    /// in flight.
    pub(crate) fn await_landings_if(&self, landings: &mut Landings, are: impl FnOnce() -> bool) -> bool {
        self.drain_entries();
        let are = landings.turns < LANDING_TURNS && are();
        if are {
            landings.turns += 1;
            sleep(Duration::from_millis(1));
        }
        std::mem::replace(&mut landings.were, are) || are
    }

    /// Returns whether a thread that lowers the budget is giving extents back now. Relaxed: a hint.
    pub(crate) fn lowers(&self) -> bool {
        self.lowering.drains.load(Ordering::Relaxed)
    }

    /// Waits, while another thread lowers the budget, until `is_made` returns true. `is_made` tries
    /// to make the room that the caller needs; each extent that the other thread gives back frees
    /// some room. Returns the last result of `is_made`.
    pub(crate) fn await_lowering(&self, is_made: &mut dyn FnMut() -> bool) -> bool {
        for _ in 0..LOWERING_TURNS {
            if is_made() {
                return true;
            }
            if !self.lowers() {
                break;
            }
            sleep(LOWERING_PAUSE);
        }
        false
    }
}
