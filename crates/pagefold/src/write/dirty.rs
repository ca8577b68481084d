//! Limits the number of dirty pages, and throttles writers before the limit is reached.
//!
//! A dirty page can't be evicted, so at most seven eighths of the pages that a group may have in
//! memory should be dirty. Below, this number is called the *mark*. The flusher begins to write
//! when a third of the mark is reached (`flusher`).
//!
//! Writers are throttled from three quarters of the mark on. Each page that a writer makes dirty
//! costs the writer some time, which it sleeps off a few milliseconds at a time. This cost is the
//! time that the file's device lately took to write back a page, times a factor that grows with the
//! number of dirty pages. As a result, the number of dirty pages settles somewhere between three
//! quarters of the mark and the mark: at the number at which writers are as fast as the disk.
//! (Linux's `balance_dirty_pages` does the same, with more elaborate estimates.)
//!
//! Many dirty pages mean fewer write requests. A page that is written to again while it waits is
//! written back only once, and neighbouring pages are written in one request.
//!
//! # Groups
//! A page is charged to the group that makes it dirty (`Handle::adopt`), and counted there. A
//! writer is throttled for its own group's dirty pages alone, by two rules:
//! - *The group's limit*: seven eighths of the limit, as above.
//! - *The group's part of the budget*. Suppose that `M` pages may be dirty in all groups together,
//!   and `D` pages are dirty. Then `M - D` more pages may become dirty. A group is throttled from
//!   `3 (M - D)` dirty pages on, and stopped at `15 (M - D)` ([`PARTS_MAX`]). (These are the
//!   dynamic thresholds of shared-memory switches; Choudhury and Hahne, 1998.)
//!
//!   So a group that writes alone is stopped at 15/16 of `M`. If `n` groups write as much as they
//!   can, each of them is stopped at `15 / (15 n + 1)` of `M`. The groups get equal parts, although
//!   no group knows how many others there are.

use std::time::Duration;

use sync::atomic::Ordering;
use sync::thread::sleep;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::group::state::GroupState;
use crate::manager::Manager;

/// Of a limit of `L` pages, `min(max(L / CLEAN_SHARE, CLEAN_MIN), ⌈L / 4⌉)` pages have to stay
/// clean.
const CLEAN_SHARE: u64 = 8;
const CLEAN_MIN: u64 = 64;
/// If `max` pages of a limit may be dirty, the flusher writes from `max / WRITTEN_FROM` dirty pages
/// on.
const WRITTEN_FROM: u64 = 3;
/// Writers are throttled from `max * SLOWED_FROM` dirty pages on.
const SLOWED_FROM: f64 = 3.0 / 4.0;
/// The next three constants apply to a group's part of the budget. `left` is how many more pages
/// may become dirty. Once the dirty pages of all groups reach a third of their limit, the flusher
/// writes pages of each group that has at least `left / PARTS_WRITTEN` dirty pages.
const PARTS_WRITTEN: u64 = 8;
/// Writers are throttled when their group has more than `left * PARTS_SLOWED` dirty pages.
const PARTS_SLOWED: f64 = 3.0;
/// They are stopped at `left * PARTS_MAX` dirty pages.
const PARTS_MAX: f64 = 15.0;
/// `left` never falls below `M / LEFT_MIN`, where `M` pages may be dirty in all groups together. So
/// a group with few dirty pages isn't stopped, however many dirty pages other groups have.
const LEFT_MIN: u64 = 256;
/// A writer sleeps once it owes this much time.
const DEBT_MIN: Duration = Duration::from_millis(4);
/// A writer sleeps at most this long at a time.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How often a writer waits for pages to become clean. After these waits it writes, even if there
/// are still too many dirty pages. So the mark isn't a hard limit.
const WAITS_MAX: u32 = 100;
/// How near a group is to being throttled and stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pressure {
    /// The number of the group's dirty pages.
    dirty: u64,
    /// The number of pages that may be dirty under the group's own limit.
    own_max: u64,
    /// How many more pages may become dirty in all groups together, but at least `M / LEFT_MIN`.
    left: u64,
}

impl Pressure {
    /// Returns the pressure on a group. `dirty` is the number of the group's dirty pages, and `max`
    /// is its limit. `all` is the number of dirty pages of all groups together, and `capacity` is
    /// the budget. All are numbers of pages.
    fn of(dirty: u64, max: u64, all: u64, capacity: u64) -> Self {
        let all_max = dirty_max(capacity);
        let left = all_max.saturating_sub(all).max(all_max / LEFT_MIN).max(1);
        Self { dirty, own_max: dirty_max(max.min(capacity)), left }
    }

    /// Returns whether the group is so far from its own limit that the flusher needn't write.
    fn is_low_of_its_own(self) -> bool {
        self.dirty.saturating_mul(WRITTEN_FROM) < self.own_max
    }

    /// Returns whether the group is so far from its part of the budget that the flusher needn't
    /// write.
    fn is_low_of_all(self) -> bool {
        self.dirty.saturating_mul(PARTS_WRITTEN) < self.left
    }

    /// Returns the dirty pages as a share of those that the limit allows.
    fn own(self) -> f64 {
        self.dirty as f64 / self.own_max as f64
    }

    /// Returns the number of dirty pages as a multiple of `left`.
    fn parts(self) -> f64 {
        self.dirty as f64 / self.left as f64
    }

    /// Returns how far the writers of the group are throttled: not at all if ≤ 0, stopped if ≥ 1.
    fn slowed(self) -> f64 {
        let own = (self.own() - SLOWED_FROM) / (1.0 - SLOWED_FROM);
        own.max((self.parts() - PARTS_SLOWED) / (PARTS_MAX - PARTS_SLOWED))
    }
}

/// Returns the pressure on a group if `dirty` of its pages are dirty.
fn pressure(manager: &Manager, group: &GroupState, dirty: u64) -> Pressure {
    Pressure::of(dirty, group.max(), manager.file_io.unclean.get(), manager.memory.frames.capacity() as u64)
}

/// Returns whether a group has so few dirty pages that its writers needn't
/// [wait](wait_for_clean) or be [throttled](pace), and the flusher needn't write.
pub(crate) fn has_few_dirty(manager: &Manager, group: &GroupState) -> bool {
    let pressure = pressure(manager, group, group.unclean.get());
    pressure.is_low_of_its_own() && pressure.is_low_of_all()
}

/// Returns whether a group has so many dirty pages that its writers have to
/// [wait](wait_for_clean).
pub(crate) fn has_too_many_dirty(manager: &Manager, group: &GroupState) -> bool {
    pressure(manager, group, group.unclean.get()).slowed() >= 1.0
}

/// Waits while the writer's group has too many dirty pages. Called before a page is made dirty.
/// Pages that can't be written now don't count, unless the device of the writer's own file is
/// stalled.
///
/// # Errors
/// [`Error::WriteFailed`] if there are too many dirty pages, and this file can't be written;
/// [`Error::DeviceTimeout`].
pub(crate) fn wait_for_clean(manager: &Manager, handle: &Handle) -> Result<(), Error> {
    let group = handle.group.state();
    for _ in 0..WAITS_MAX {
        let dirty = group.unclean.get();
        if pressure(manager, group, dirty).slowed() < 1.0 {
            return Ok(());
        }
        if let Some(error) = handle.file.latch.failing() {
            return Err(Error::WriteFailed { path: handle.file.path.clone(), error });
        }
        let live = dirty.saturating_sub(group.dirt.count_stuck());
        if pressure(manager, group, live).slowed() < 1.0 && !handle.file.is_stalled() {
            return Ok(());
        }
        handle.file.check_write_back()?;
        group.dirt.ring();
        sleep(PAUSE_MAX / 4);
    }
    Ok(())
}

/// Throttles the writer, after it made a page dirty, if its group has many dirty pages.
pub(crate) fn pace(manager: &Manager, handle: &Handle) {
    let group = handle.group.state();
    // Cheaper than `wants_writing`: with so few dirty pages, the writer isn't throttled, and the
    // flusher needn't write.
    if has_few_dirty(manager, group) {
        return;
    }
    let pressure = pressure(manager, group, group.unclean.get());
    let Some(device) = handle.file.device() else { return };
    if wants_writing(manager, group).is_some() {
        manager.file_io.flusher.ring(device);
    }
    let slowed = pressure.slowed();
    if slowed <= 0.0 {
        return;
    }
    // The cost of a page rises linearly with the pressure. Where throttling begins, the cost is
    // zero. Where writers are stopped, it is twice the time in which the disk writes a page.
    // Halfway, the cost equals the disk's time, so a single writer settles there.
    let ns = (device.rate.page_ns() * slowed * 2.0).min(PAUSE_MAX.as_nanos() as f64) as u64;
    let debt = handle.debt_ns.fetch_add(ns, Ordering::Relaxed).saturating_add(ns);
    if debt >= DEBT_MIN.as_nanos() as u64 {
        // Several threads may find that the handle's debt has reached the minimum. One of them
        // takes the whole debt, and sleeps that time. Each of the others takes only what was
        // added since.
        let taken = handle.debt_ns.swap(0, Ordering::Relaxed);
        sleep(Duration::from_nanos(taken).min(PAUSE_MAX));
    }
}

/// Returns how urgently the flusher should write dirty pages of the group, or `None` if the
/// group doesn't have many. Pages that can't be written now don't count.
pub(crate) fn wants_writing(manager: &Manager, group: &GroupState) -> Option<f64> {
    let live = group.unclean.get().saturating_sub(group.dirt.stuck());
    let pressure = pressure(manager, group, live);
    let many_in_all = || {
        manager.file_io.unclean.get().saturating_mul(WRITTEN_FROM) >= dirty_max(manager.memory.frames.capacity() as u64)
    };
    let wants = !pressure.is_low_of_its_own() || !pressure.is_low_of_all() && many_in_all();
    wants.then(|| pressure.own().max(pressure.parts() / PARTS_MAX))
}

/// Returns how many pages of a limit of `pages` may be dirty.
fn dirty_max(pages: u64) -> u64 {
    let clean = (pages / CLEAN_SHARE).max(CLEAN_MIN).min(pages.div_ceil(4));
    (pages - clean).max(1)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    const CAPACITY: u64 = 80_000;
    const DIRTY_MAX: u64 = 70_000;

    /// If `groups` groups without a limit write as much as they can, each is stopped at some number
    /// of dirty pages. Returns this number.
    fn stops_at(groups: u64) -> u64 {
        (0..)
            .step_by(10)
            .find(|&dirty| Pressure::of(dirty, CAPACITY, dirty * groups, CAPACITY).slowed() >= 1.0)
            .unwrap()
    }

    #[test]
    fn groups_that_write_as_much_as_they_can_get_equal_parts_of_the_budget() {
        assert_eq!(stops_at(1), 65_630, "15/16");
        assert_eq!(stops_at(2), 33_880, "15/31");
        assert_eq!(stops_at(10), 6_960, "15/151");
    }

    #[test]
    fn a_group_with_few_dirty_pages_is_not_slowed_down_by_others() {
        let few = |all| Pressure::of(200, CAPACITY, all, CAPACITY).slowed();
        assert!(few(200) < 0.0 && few(stops_at(1) + 200) < 0.0 && few(10 * stops_at(10)) < 0.0);
        assert!(few(DIRTY_MAX + 1_000) < 0.0, "whatever others did");
    }

    #[test]
    fn a_limit_stops_its_group() {
        let slowed = |dirty| Pressure::of(dirty, 800, dirty, CAPACITY).slowed();
        assert_eq!((slowed(525), slowed(700)), (0.0, 1.0));
        assert!((slowed(612) - 0.5).abs() < 0.01);
    }
}
