//! Charges parts of page maps (chunks of `frames`) to groups. All parts are charged to the budget.
//! A part that holds page words of a space is also charged to the space's group, which counts it as
//! metadata (`charge_pages`).
//!
//! | | |
//! |---|---|
//! | a fault needs a part that isn't there | the part is charged to the group first, without a page word in *loading* (S2 of `space`); the load then makes the part and uses up the charge |
//! | the part is given back, by any thread | that thread finds the group by the part's first word (`page_owners`), and uncharges the part |
//! | the part becomes idle | the thread that freed its pages notes the page map (`group::parts`), and a thread of the group that needs a charge gives the part back |
//! | the space is dropped | its parts are given back before its page maps are dropped, except a part with a page that a leaked guard holds: that part stays charged |
//!
//! Two kinds of memory that go with the parts are charged to the budget alone, because spaces of
//! several groups share them: the system pages that hold the states of parts (`chunks` of
//! `frames`), and the places of regions (`page_owners`).
//!
//! - P1. A group's count of parts (`group::parts`) includes each part that is paid for
//!   (`frames::Payment`), and each charge that a thread holds for a part that it is about to make.
//!   So a group that has a part isn't forgotten, and the group's number isn't reused.
//! - P2. For its parts, a group is charged ⌈count × size of a part / size of a page⌉ pages. So if a
//!   page is larger than a part, several parts share a page. A thread charges the page before it
//!   raises the count, and uncharges it after it has lowered the count.
//!
//! Giving idle parts back is the work of `manager::parts` (P3).

use frames::{BeginLoad, PageMap, Payment, Unpaid};

use crate::group::state::GroupState;
use crate::memory::Memory;

/// A charge for a part of a page map, made before the part exists. If it is dropped, it is
/// uncharged.
pub(crate) struct PartCharge<'a> {
    memory: &'a Memory,
    group: &'a GroupState,
}

impl Drop for PartCharge<'_> {
    fn drop(&mut self) {
        self.memory.uncharge_part(self.group);
    }
}

impl Memory {
    /// Begins to load a page of a space of `group`, and makes the page's part of the page map if
    /// the part is missing. Pays for the part with `charge` or, if `charge` is `None`, charges the
    /// part to the group without reclaim.
    ///
    /// # Errors
    /// If the part can't be charged without reclaim. The caller then charges a part by other means,
    /// and tries again.
    #[cold]
    pub(crate) fn begin_load_and_pay<'a, 'm>(
        &'a self,
        group: &'a GroupState,
        map: &'m PageMap,
        page: u64,
        charge: &mut Option<PartCharge<'a>>,
    ) -> Result<BeginLoad<'m>, Unpaid> {
        loop {
            let mut payment = if charge.is_some() { Payment::Made } else { Payment::Due };
            let begun = map.begin_paid_load(page, &mut payment);
            if payment == Payment::Due {
                charge.take().into_iter().for_each(std::mem::forget);
            }
            if begun.is_ok() {
                return begun;
            }
            *charge = Some(self.try_charge_part(group).ok_or(Unpaid)?);
        }
    }

    pub(crate) fn try_charge_part<'a>(&'a self, group: &'a GroupState) -> Option<PartCharge<'a>> {
        self.charge_part_by(group, |pages| self.try_charge_pages(group, pages).then_some(()).ok_or(())).ok()
    }

    /// Charges a part. Calls `charge` to charge the pages that the part needs beyond those that are
    /// charged for the group's other parts.
    pub(crate) fn charge_part_by<'a, E>(
        &'a self,
        group: &'a GroupState,
        mut charge: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<PartCharge<'a>, E> {
        let mut pages = 0;
        loop {
            let parts = group.parts.charged();
            let needed = self.pages_beside(parts, 1);
            if needed > pages {
                match charge(needed - pages) {
                    Ok(()) => {
                        group.add_metadata(needed - pages);
                        pages = needed;
                    }
                    // Fails, unless another thread has charged a page that has room for this part.
                    Err(error) if self.pages_for_parts(group, 1) > pages => {
                        self.uncharge_pages_of_parts(group, pages);
                        return Err(error);
                    }
                    Err(_) => {}
                }
                continue; // That may have taken long.
            }
            if group.parts.change(parts, parts + 1) {
                self.uncharge_pages_of_parts(group, pages - needed);
                return Ok(PartCharge { memory: self, group });
            }
        }
    }

    /// Uncharges a part. Returns how many pages this uncharges.
    pub(crate) fn uncharge_part(&self, group: &GroupState) -> u64 {
        loop {
            let parts = group.parts.charged();
            if group.parts.change(parts, parts - 1) {
                let pages = self.pages_beside(parts - 1, 1);
                self.uncharge_pages_of_parts(group, pages);
                return pages;
            }
        }
    }

    fn uncharge_pages_of_parts(&self, group: &GroupState, pages: u64) {
        if pages > 0 {
            group.subtract_metadata(pages);
            self.uncharge_pages(group, pages);
        }
    }

    /// Returns how many pages have to be charged to a group for `more` parts beside those that it
    /// has.
    pub(crate) fn pages_for_parts(&self, group: &GroupState, more: u64) -> u64 {
        self.pages_beside(group.parts.charged(), more)
    }

    fn pages_beside(&self, parts: u64, more: u64) -> u64 {
        let pages = |parts: u64| (parts * self.frames.map_part_bytes()).div_ceil(self.frames.page_size() as u64);
        pages(parts + more) - pages(parts)
    }
}
