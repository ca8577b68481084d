//! Charges pages to another group: isolate, recharge, put back.
//!
//! Room in the new group is made once, before the first page moves. If room were made for each
//! page, reclaim might evict pages that have just moved. For each page, the new group is charged
//! first and the old group is uncharged last, so neither group exceeds its limit. In between, the
//! page's frame is
//! - *isolated*, so that no other thread unlinks the frame from a list of the group that its record
//!   names, or links it into such a list;
//! - *frozen* while the group in its record changes, so that no other thread pins, writes or
//!   removes the page under the old group;
//! - *clean*. A dirty page isn't moved: it is counted in its group until it is written back.
//!
//! A thread that walks the old group's list may reach the frame through an outdated link. That
//! thread isolates the frame, finds that the frame is on another list, and puts it back
//! (`lru::list`).

use std::ops::Range;

use frames::{FrameId, PageState};

use crate::error::Error;
use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::lru::admission::History;
use crate::lru::batch::{Batch, Leftovers};
use crate::lru::rank::Rank;
use crate::manager::Manager;
use crate::memory::charges::Charge;
use crate::memory::waits::Landings;

/// What became of a page that should change its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recharge {
    Moved,
    /// The page is dirty or in use, has moved already, or has left memory.
    Stays,
    /// Another thread has the page isolated.
    Held,
}

/// Makes room for `pages` pages in `to` by evicting pages of `to`. The caller must do this before
/// it moves the first page. Otherwise a page that has just moved might be evicted to make room for
/// the next page. Evicts nothing if `pages` exceeds the whole limit of `to`.
pub(crate) fn make_place(manager: &Manager, to: &GroupState, pages: u64) {
    manager.memory.drain_entries();
    let left = || to.max().saturating_sub(to.charged());
    if left() < pages {
        manager.memory.drain_charges(Some(to.id)); // Charges in stock are used first.
    }
    let missing = pages.saturating_sub(left());
    if missing > 0 && pages <= to.max() {
        to.walk.forget();
        manager.reclaim_group(to, missing as usize);
    }
}

/// Returns how many of a file's `pages` [`recharge`] would move at most.
pub(crate) fn movable(
    manager: &Manager,
    file: &FileState,
    pages: Range<u64>,
    from: Option<u32>,
    to: &GroupState,
) -> u64 {
    let is_movable = |&page: &u64| match file.map.state(page) {
        PageState::Resident { frame } => {
            let group = manager.memory.frames.group(frame);
            from.map_or(group != to.id, |from| group == from)
        }
        _ => false,
    };
    file.map.pages_in_memory(pages).filter(is_movable).count() as u64
}

/// Moves the charges of a file's `pages` to the group `to`. Moves only pages that are in memory
/// and, if `from` is set, only pages that are charged to that group. Skips pages that are dirty or
/// in use. Reclaims nothing: the caller makes room first ([`make_place`]). Returns the number of
/// pages that moved.
///
/// # Errors
/// [`Error::LimitReached`]; the pages that moved before the error stay charged to `to`.
pub(crate) fn recharge(
    manager: &Manager,
    file: &FileState,
    pages: Range<u64>,
    from: Option<u32>,
    to: &GroupState,
) -> Result<u64, Error> {
    let mut landings = Landings::default();
    recharge_pausing(manager, file, pages, from, to, &mut |group| {
        manager.memory.await_landings(Some(group), &mut landings)
    })
}

/// Does the work of [`recharge`]. `pause` waits a moment for pages of a group that other threads
/// have isolated, and returns whether to try again.
fn recharge_pausing(
    manager: &Manager,
    file: &FileState,
    pages: Range<u64>,
    from: Option<u32>,
    to: &GroupState,
    pause: &mut dyn FnMut(&GroupState) -> bool,
) -> Result<u64, Error> {
    let mut recharged = 0;
    loop {
        manager.memory.drain_entries();
        let mut held = None;
        for page in file.map.pages_in_memory(pages.clone()) {
            let PageState::Resident { frame } = file.map.state(page) else { continue };
            let group = manager.memory.frames.group(frame);
            if group == to.id || from.is_some_and(|from| from != group) {
                continue;
            }
            let charge = charge_one(manager, to)?;
            match recharge_page(manager, file, page, frame, to) {
                Recharge::Moved => {
                    charge.hand_over();
                    recharged += 1;
                }
                Recharge::Stays => {}
                Recharge::Held => held = Some(group),
            }
        }
        // A page is `Held` if another thread has isolated it, but only for a moment: either the
        // thread that has just loaded the page is about to list it, or reclaim is examining it. So
        // this thread waits, and tries again.
        let Some(group) = held.and_then(|group| manager.memory.groups.get(group)) else { return Ok(recharged) };
        if !pause(&group) {
            return Ok(recharged);
        }
    }
}

fn charge_one<'a>(manager: &'a Manager, group: &'a GroupState) -> Result<Charge<'a>, Error> {
    let is_charged = || manager.memory.charge(group, 1) == 1;
    if is_charged() || manager.memory.drain_charges(Some(group.id)) > 0 && is_charged() {
        return Ok(Charge::new(&manager.memory, group));
    }
    Err(manager.limit_reached(group))
}

/// Moves a page to `to`, which the caller has charged for it.
pub(crate) fn recharge_page(
    manager: &Manager,
    file: &FileState,
    page: u64,
    frame: FrameId,
    to: &GroupState,
) -> Recharge {
    let Some(isolated) = manager.memory.frames.isolate(frame) else { return Recharge::Held };
    let mut leftovers = Leftovers::default();
    // Before this thread isolated the frame, the frame may have gone to another page or group.
    // Now it can't.
    let is_it = file.map.state(page) == PageState::Resident { frame };
    let from = manager.memory.groups.get(manager.memory.frames.group(frame)).filter(|from| is_it && from.id != to.id);
    let Some(from) = from else {
        leftovers.misplaced.push(isolated);
        manager.memory.settle(to, leftovers);
        return Recharge::Stays;
    };
    from.lists.unlink(&manager.memory.frames, &[frame]);
    let moved = manager.memory.frames.set_group(&isolated, to.id);
    if moved {
        History::of_moved(Rank::of(&manager.memory.frames, frame)).rank().give(&manager.memory.frames, &isolated);
        to.lists.enter(&manager.memory.frames, Batch::<1>::from([isolated]), to.now(), &mut leftovers);
        manager.memory.settle(to, leftovers);
        manager.memory.uncharge(&from, 1);
    } else {
        from.lists.put_back(&manager.memory.frames, isolated, &mut leftovers);
        manager.memory.settle(&from, leftovers);
    }
    if moved { Recharge::Moved } else { Recharge::Stays }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use test_disks::SimulatedDisk;

    /// Regression: `charge_to`, called right after a read, moved no page, because the thread that
    /// had loaded the pages still had them isolated. The call must wait for such pages, and move
    /// them.
    #[test]
    fn a_page_that_is_held_for_a_moment_moves_too() {
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 1 << 20);
        let mm = Pagefold::builder().memory("16MiB").backend(disk).build().unwrap();
        let [a, b] = ["a", "b"].map(|name| mm.group(name).build().unwrap());
        let file = a.open("file").unwrap();
        file.read_at(&mut [0; 8], 0).unwrap();
        let manager = mm.manager();
        manager.memory.drain_entries();
        let PageState::Resident { frame } = file.map().state(0) else { panic!("it was just read") };
        let mut held = Some(manager.memory.frames.isolate(frame).unwrap());
        a.state().lists.unlink(&manager.memory.frames, &[frame]);
        let (mut pauses, mut landings) = (0, Landings::default());
        let moved = recharge_pausing(manager, &file.handle().file, 0..1, None, b.state(), &mut |group| {
            pauses += 1;
            if let Some(held) = held.take_if(|_| pauses == 3) {
                let mut leftovers = Leftovers::default();
                group.lists.put_back(&manager.memory.frames, held, &mut leftovers);
                manager.memory.settle(group, leftovers);
            }
            manager.memory.await_landings(Some(group), &mut landings)
        });
        assert_eq!((moved.unwrap(), pauses), (1, 3));
    }
}
