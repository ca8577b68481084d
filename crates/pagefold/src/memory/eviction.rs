//! Evicting a page, and what is counted when pages leave memory.

use arrayvec::ArrayVec;
use frames::{FrameId, IsolatedFrame, OwnedFrame, Refused};

use crate::group::state::GroupState;
use crate::lru::admission::ANONYMOUS;
use crate::lru::batch::{self, BATCH_MAX, Batch, Leftovers};
use crate::lru::clock::{Left, Now};
use crate::lru::interval::Interval;
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
        let (rank, is_in_vain) = (Rank::of(&self.frames, frame.id()), self.frames.is_unused_ahead(frame.id()));
        self.frames.evict(frame, group.shadow(rank, is_in_vain, now))
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

    /// Evicts pages of files, group by group, because the memory that they are in is to be given
    /// back.
    pub(crate) fn evict_of_files(&self, pages: Batch<BATCH_MAX>) {
        let group_of = |page: &IsolatedFrame| self.frames.group(page.id());
        batch::divide(pages, group_of, |number, own| {
            let Some(group) = self.groups.get(number) else { return };
            let own: Batch<BATCH_MAX> = own.into_iter().filter_map(|page| self.move_listed(&group, page)).collect();
            let ids: ArrayVec<FrameId, BATCH_MAX> = own.iter().map(IsolatedFrame::id).collect();
            group.lists.unlink(&self.frames, &ids);
            let (mut evicted, mut leftovers) = (ArrayVec::<_, BATCH_MAX>::new(), Leftovers::default());
            let now = group.fitted_now();
            for page in own {
                match self.evict(&group, page, now) {
                    Ok(frame) => evicted.push(frame),
                    Err(refused) => group.lists.put_back(&self.frames, refused.frame, &mut leftovers),
                }
            }
            self.count_evictions(&group, &evicted);
            self.release(&group, evicted);
            self.settle(&group, leftovers);
        });
    }

    /// Returns whether the page in a frame, if there is one, seems able to leave memory now. A
    /// hint: the page isn't isolated.
    pub(crate) fn may_leave(&self, frame: FrameId, slots_are_free: bool) -> bool {
        if !self.frames.is_in_use(frame) {
            return true;
        }
        let has_somewhere = match self.frames.owner(frame) {
            // An anonymous page with a kept slot counts as clean until it is written to.
            ANONYMOUS => slots_are_free || self.swaps() && self.frames.kept_slot(frame).is_some(),
            _ => !self.frames.has_unclean(frame),
        };
        has_somewhere && !self.frames.has_pinned(frame)
    }

    /// Returns whether the frame has a page that reclaim wouldn't evict next: a listed page that
    /// has a known interval, or that was used since reclaim last looked at it.
    pub(crate) fn is_worth_moving(&self, frame: FrameId) -> bool {
        let rank = Rank::of(&self.frames, frame);
        !rank.is_unlisted()
            && self.frames.is_in_use(frame)
            && (rank.interval() != Interval::UNKNOWN || self.frames.is_referenced(frame))
    }

    /// Moves a page into a free frame, unless the page is one that reclaim would evict next. So a
    /// drain doesn't cost a group the pages that the group uses. Returns the page if it isn't worth
    /// moving, or if there is no free frame. The caller may then evict it.
    fn move_listed(&self, group: &GroupState, page: IsolatedFrame) -> Option<IsolatedFrame> {
        if !self.is_worth_moving(page.id()) {
            return Some(page);
        }
        let Some(to) = self.frames.allocate() else { return Some(page) };
        let id = page.id();
        group.lists.unlink(&self.frames, &[id]);
        // Sometimes: a page moves to another frame.
        let mut leftovers = Leftovers::default();
        let moved = match self.frames.move_page(page, to) {
            Ok((page, _free)) => Ok(page),
            Err((page, _free)) => Err(page),
        };
        let (Ok(page) | Err(page)) = moved;
        // A page that couldn't be moved is in use, so it can't be evicted either.
        group.lists.put_back(&self.frames, page, &mut leftovers);
        self.settle(group, leftovers);
        None
    }
}
