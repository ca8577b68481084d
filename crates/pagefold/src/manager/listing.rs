//! Pages that enter their group's lists (`lru::admission`, `lru::entry_batches`), and frames that
//! leave them.

use arrayvec::ArrayVec;
use frames::{FrameId, IsolatedFrame, Loading, OwnedFrame, PinnedFrame};

use crate::group::state::GroupState;
use crate::lru::admission::Arrival;
use crate::lru::batch::{self, Gone, Leftovers};
use crate::lru::entry_batches::{BATCH_MAX, Batch};
use crate::lru::rank::Rank;
use crate::manager::Manager;

impl Manager {
    /// Admits a page to memory (`admission`): publishes it, and has its group list it, soon. Its
    /// frame is charged to the group, and holds its bytes.
    #[inline]
    pub(crate) fn admit<'a>(
        &self,
        group: &GroupState,
        loading: Loading<'a>,
        frame: OwnedFrame<'a>,
        arrival: Arrival,
        pin: bool,
    ) -> Option<PinnedFrame<'a>> {
        let (isolated, pin) = arrival.publish(loading, frame, pin);
        self.enter(group, isolated);
        pin
    }

    /// Puts a published page on its group's lists, soon.
    pub(crate) fn enter(&self, group: &GroupState, frame: IsolatedFrame) {
        if let Some(full) = self.entries.add(&self.frames, frame, || group.charged(), || group.max()) {
            self.enter_all(full);
        }
    }

    /// Puts pages that were loaded together on their group's lists: at once, if they would fill a
    /// batch anyway.
    pub(crate) fn enter_run<const N: usize>(&self, group: &GroupState, run: &mut ArrayVec<IsolatedFrame, N>) {
        if run.len() < BATCH_MAX / 4 {
            run.drain(..).for_each(|frame| self.enter(group, frame));
            return;
        }
        self.entries.pass(&self.frames, run);
        let mut leftovers = Leftovers::default();
        group.lists.enter(&self.frames, std::mem::take(run), &mut leftovers);
        self.settle(group, leftovers);
    }

    /// Puts all waiting pages on their lists.
    pub(crate) fn drain_entries(&self) {
        self.entries.drain().for_each(|batch| self.enter_all(batch));
    }

    /// Lists a batch, one splice for each group that has pages in it.
    fn enter_all(&self, mut batch: Batch) {
        let frames = &*self.frames;
        while let Some(first) = batch.first() {
            let number = frames.group(first.id());
            let (own, others) = batch.into_iter().partition::<Batch, _>(|frame| frames.group(frame.id()) == number);
            batch = others;
            let mut leftovers = Leftovers::default();
            let entered = self.groups.with(number, |group| {
                group.lists.enter(frames, own, &mut leftovers);
                group.uncharge(std::mem::take(&mut leftovers.orphans));
                self.count_wasted_of(&leftovers.wasted, group);
            });
            debug_assert!(entered.is_some(), "a page outlived its group");
            leftovers.misplaced.into_iter().for_each(|frame| self.return_isolated(frame));
        }
    }

    /// Ends what a group's lists left to their user.
    pub(crate) fn settle(&self, group: &GroupState, leftovers: Leftovers) {
        self.uncharge(group, leftovers.orphans);
        self.count_wasted_of(&leftovers.wasted, group);
        leftovers.misplaced.into_iter().for_each(|frame| self.return_isolated(frame));
    }

    /// Takes an isolated frame off its list, if it is on one.
    pub(crate) fn unlist(&self, isolated: &IsolatedFrame) {
        let id = isolated.id();
        if !Rank::of(&self.frames, id).is_unlisted()
            && let Some(group) = self.groups.get(self.frames.group(id))
        {
            group.lists.unlink(&self.frames, &[id]);
        }
    }

    /// Takes that back.
    pub(crate) fn list_again(&self, isolated: IsolatedFrame) {
        let id = isolated.id();
        match self.groups.get(self.frames.group(id)).filter(|_| !Rank::of(&self.frames, id).is_unlisted()) {
            Some(group) => {
                let mut leftovers = Leftovers::default();
                group.lists.put_back(&self.frames, isolated, &mut leftovers);
                self.settle(&group, leftovers);
            }
            None => self.return_isolated(isolated),
        }
    }

    /// Puts a frame back that was isolated and stayed where it was, be that on no list.
    pub(crate) fn return_isolated(&self, isolated: IsolatedFrame) {
        let id = isolated.id();
        let Err(orphan) = self.frames.put_back(isolated) else { return };
        // Its page was removed meanwhile, and no other thread will take the frame off its list.
        let Some(group) = self.groups.get(self.frames.group(id)) else { return };
        if Rank::of(&self.frames, id).is_unlisted() {
            self.release_anonymous(&group, [orphan]);
        } else {
            group.lists.unlink(&self.frames, &[id]);
            self.count_wasted(std::slice::from_ref(&orphan), &group);
            self.release(&group, [orphan]);
        }
    }

    /// Takes frames off their lists whose pages are gone, frees and uncharges them; neighbours of
    /// one group at once.
    pub(crate) fn free_gone<'a>(&'a self, mut gone: Gone<'a>) {
        while let Some(first) = gone.first() {
            let number = self.frames.group(first.id());
            let same = gone.iter().take_while(|it| self.frames.group(it.id()) == number).count();
            let others = gone.drain(same..).collect();
            let own = std::mem::replace(&mut gone, others);
            let ids: ArrayVec<FrameId, { batch::BATCH_MAX }> = own.iter().map(OwnedFrame::id).collect();
            let other = self.groups.with(number, |group| {
                group.lists.unlink(&self.frames, &ids);
                self.count_wasted(&own, group);
                self.stock_or_uncharge(group, self.frames.free_all(own) as u64)
            });
            self.give_back(other.flatten());
        }
    }

    /// The same for pages of spaces.
    pub(crate) fn release_anonymous<'a>(
        &'a self,
        group: &GroupState,
        gone: impl IntoIterator<Item = OwnedFrame<'a>>,
    ) -> usize {
        let count = self.release(group, gone);
        group.anonymous_gone(count as u64);
        count
    }

    /// Frees frames whose pages are gone, and uncharges them. Says how many.
    pub(crate) fn release<'a>(&'a self, group: &GroupState, gone: impl IntoIterator<Item = OwnedFrame<'a>>) -> usize {
        let count = self.frames.free_all(gone);
        if count > 0 {
            self.uncharge(group, count as u64);
        }
        count
    }
}
