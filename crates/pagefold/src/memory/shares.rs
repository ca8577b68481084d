//! Which groups have to give pages before a certain group gets one, by the rules of `ranking`.

use crate::group::reserve::Shortage;
use crate::group::state::GroupState;
use crate::memory::Memory;
use crate::memory::ranking::{Candidate, For};

/// A group with fewer pages than this may take pages of any group, whatever else is charged to it
/// (R1).
const PAGES_MIN: u64 = 32;

/// Returns whether even pages that are in use have to be evicted, because reclaim has looked at all
/// of the group's pages and freed none.
#[inline]
fn is_stuck(group: &GroupState) -> bool {
    group.walk.insists(|| group.lists.len())
}

impl Memory {
    /// Returns whether the group must evict one of its own pages before it gets a frame (R4). Three
    /// conditions must hold: frames are short; reclaim has looked at all pages of the group and
    /// freed none; and no other group with as large a share can give any. In this situation the
    /// free frames were freed by other groups, for their own use.
    #[inline]
    pub(crate) fn has_to_give_first(&self, group: &GroupState) -> bool {
        // Most often `is_stuck` is false. The call then costs one load of a word that is seldom
        // written.
        is_stuck(group) && self.has_to_give_in_shortage(group)
    }

    #[cold]
    fn has_to_give_in_shortage(&self, group: &GroupState) -> bool {
        if self.groups.len() == 1 || self.shortage() == Shortage::None {
            return false;
        }
        let need = self.page_for(group);
        if matches!(need, For::First(_)) {
            // Sometimes: a group that has next to nothing needs a page in a shortage.
            return false; // It may take pages of any group.
        }
        let candidates = self.ranking.candidates(&self.groups, need, self.budget_pages());
        let gives = |it: &Candidate| {
            it.group != group.id && self.groups.with(it.group, |other| !is_stuck(other)).unwrap_or(false)
        };
        // If there are many groups, `candidates` has looked at only some of them.
        !candidates.iter().any(gives)
            && !self.ranking.all_candidates(&self.groups, need, self.budget_pages()).iter().any(gives)
    }

    /// Returns what reclaim is told if this group needs a page: [`For::First`] if the group has
    /// hardly any pages, otherwise [`For::Group`].
    pub(crate) fn page_for<'a>(&self, group: &'a GroupState) -> For<'a> {
        let few = |pages: u64| pages < PAGES_MIN;
        // Most often the group has enough pages on its lists. If not, the number of pages charged
        // to the group is checked as well, because pages that can't be evicted are on no list.
        if few(group.lists.len() as u64) && few(group.charged_for_pages().saturating_sub(self.charges.of(group.id))) {
            return For::First(group);
        }
        For::Group(group)
    }

    /// Returns whether the group rests: moments ago, all of its pages were looked at and none could
    /// be evicted.
    pub(crate) fn rests(&self, group: &GroupState) -> bool {
        group.walk.rests(|| group.lists.len(), || self.now_us())
    }
}
