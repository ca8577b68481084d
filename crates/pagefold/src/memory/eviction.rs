//! Evicting a page, and what is counted when pages leave memory.

use frames::{IsolatedFrame, OwnedFrame, Refused};

use crate::group::state::GroupState;
use crate::lru::admission::ANONYMOUS;
use crate::lru::clock::{Left, Now};
use crate::lru::rank::Rank;
use crate::memory::Memory;
use crate::stats::Counters;

impl Memory {
    /// Returns whether an isolated page is anonymous.
    pub(crate) fn is_anonymous(&self, frame: &IsolatedFrame) -> bool {
        self.frames.owner(frame.id()) == ANONYMOUS
    }

    /// Evicts an isolated page, and leaves its shadow in the page map.
    pub(crate) fn evict(&self, group: &GroupState, frame: IsolatedFrame, now: Now) -> Result<OwnedFrame<'_>, Refused> {
        let rank = Rank::of(&self.frames, frame.id());
        self.frames.evict(frame, group.shadow(rank, now))
    }

    /// Counts evictions for the group, and for the files that the pages belonged to.
    pub(crate) fn count_evictions(&self, group: &GroupState, evicted: &[OwnedFrame<'_>]) {
        for run in evicted.chunk_by(|a, b| self.frames.owner(a.id()) == self.frames.owner(b.id())) {
            self.owners.count(self.frames.owner(run[0].id()), |file| {
                file.evictions.add(run.len() as u64);
            });
        }
        self.count_wasted(evicted, group);
        self.count_left(group, evicted);
    }

    /// Counts evictions for the group alone.
    pub(crate) fn count_left(&self, group: &GroupState, evicted: &[OwnedFrame<'_>]) {
        let of_main = evicted.iter().filter(|it| Rank::of(&self.frames, it.id()).leaves() == Left::Main).count();
        group.evicted((evicted.len() - of_main) as u64, of_main as u64);
    }

    /// Counts the pages that were read ahead and never used, among pages that have just left
    /// memory.
    pub(crate) fn count_wasted(&self, gone: &[OwnedFrame<'_>], group: &GroupState) {
        for frame in gone.iter().filter(|frame| self.frames.is_unused_ahead(frame.id())) {
            self.count_wasted_of(&[self.frames.owner(frame.id())], group);
        }
    }

    /// Counts wasted readahead by the pages' owners: the numbers of files, or `ANONYMOUS`.
    pub(crate) fn count_wasted_of(&self, owners: &[u32], group: &GroupState) {
        for &owner in owners {
            self.owners.count(owner, |file| Counters::add(&file.read_ahead_wasted, 1));
            let along = &group.swapped.along_wasted;
            Counters::add(if owner == ANONYMOUS { along } else { &group.counters.read_ahead_wasted }, 1);
        }
    }
}
