//! Enters pages into their groups' lists (`lru::admission`, `lru::entry_batches`), and takes frames
//! off the lists.

use arrayvec::ArrayVec;
use frames::{FrameId, IsolatedFrame, Loading, OwnedFrame, PinnedFrame};
use sync::atomic::{Ordering, fence, fence_after_update};

use crate::group::state::GroupState;
use crate::lru::admission::{ANONYMOUS, Arrival, History};
use crate::lru::batch::{self, Gone, Leftovers};
use crate::lru::entry_batches::{BATCH_MAX, Batch, Patience};
use crate::lru::rank::Rank;
use crate::memory::Memory;

impl Memory {
    /// Admits a page to memory (`admission`): publishes the page, and queues its frame to be
    /// listed. The frame must be charged to the group and hold the page's bytes.
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

    /// Admits a page of a space. If there is no swap area, the page needn't be listed, because it
    /// can't leave memory.
    #[inline]
    pub(crate) fn admit_anonymous<'a>(
        &self,
        group: &GroupState,
        loading: Loading<'a>,
        frame: OwnedFrame<'a>,
        arrival: Arrival,
        is_listed: bool,
    ) {
        if is_listed {
            self.admit(group, loading, frame, arrival, false);
        } else {
            let id = frame.id();
            arrival.publish_unlisted(loading, frame);
            self.list_if_swapping(id);
        }
    }

    /// Adds a published page to the CPU's entry batch, which is listed when it is full.
    pub(crate) fn enter(&self, group: &GroupState, frame: IsolatedFrame) {
        let patience = || Patience::new(group.charged(), group.lists.grows());
        if let Some(full) = self.entries.add(&self.frames, frame, patience, group.max()) {
            self.enter_all(full);
        }
    }

    /// Lists pages that were loaded together: at once if they fill at least a quarter of an entry
    /// batch, otherwise through the CPU's entry batch.
    pub(crate) fn enter_run<const N: usize>(&self, group: &GroupState, run: &mut ArrayVec<IsolatedFrame, N>) {
        if run.len() < BATCH_MAX / 4 {
            run.drain(..).for_each(|frame| self.enter(group, frame));
            return;
        }
        self.entries.pass(&self.frames, run);
        let mut leftovers = Leftovers::default();
        group.lists.enter(&self.frames, std::mem::take(run), group.now(), &mut leftovers);
        self.settle(group, leftovers);
    }

    /// Lists the pages of all CPUs' entry batches.
    pub(crate) fn drain_entries(&self) {
        self.entries.drain().for_each(|batch| self.enter_all(batch));
    }

    /// Lists a batch: one splice for each group that has pages in it.
    fn enter_all(&self, batch: Batch) {
        let frames = &*self.frames;
        let group_of = |frame: &IsolatedFrame| frames.group(frame.id());
        batch::divide(batch, group_of, |number, own| {
            let mut leftovers = Leftovers::default();
            let entered = self.groups.with(number, |group| {
                group.lists.enter(frames, own, group.now(), &mut leftovers);
                self.count_wasted_of(&leftovers.wasted, group);
                group.uncharge(std::mem::take(&mut leftovers.orphans));
            });
            debug_assert!(entered.is_some(), "a page outlived its group");
            leftovers.misplaced.into_iter().for_each(|frame| self.return_isolated(frame));
        });
    }

    /// Handles the leftovers of an operation on a group's lists: counts wasted readahead, uncharges
    /// orphans, and puts misplaced frames back.
    pub(crate) fn settle(&self, group: &GroupState, leftovers: Leftovers) {
        self.count_wasted_of(&leftovers.wasted, group);
        self.uncharge(group, leftovers.orphans);
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

    /// Undoes [`unlist`](Self::unlist): lists the frame again if it was on a list, and ends its
    /// isolation.
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

    /// Ends the isolation of a frame that was not moved. A listed frame stays on its list. An
    /// unlisted frame is put on a list if the first swap area was added meanwhile.
    pub(crate) fn return_isolated(&self, isolated: IsolatedFrame) {
        let id = isolated.id();
        let is_unlisted = Rank::of(&self.frames, id).is_unlisted();
        let Err(orphan) = self.frames.put_back(isolated) else {
            if is_unlisted {
                self.list_if_swapping(id);
            }
            return;
        };
        // The page was removed while its frame was isolated. This thread has to take the frame off
        // its list.
        let Some(group) = self.groups.get(self.frames.group(id)) else { return };
        if is_unlisted {
            self.release_anonymous(&group, [orphan]);
        } else {
            group.lists.unlink(&self.frames, &[id]);
            self.count_wasted(std::slice::from_ref(&orphan), &group);
            self.release(&group, [orphan]);
        }
    }

    /// Unlinks, frees and uncharges frames whose pages are gone. Consecutive frames of one group
    /// are handled together.
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

    /// Frees the frames of spaces' pages that are gone, and uncharges them as anonymous pages.
    /// Returns their number.
    pub(crate) fn release_anonymous<'a>(
        &'a self,
        group: &GroupState,
        gone: impl IntoIterator<Item = OwnedFrame<'a>>,
    ) -> usize {
        let count = self.release(group, gone);
        group.anonymous_gone(count as u64);
        count
    }

    /// Frees frames whose pages are gone, and uncharges them. Returns their number.
    pub(crate) fn release<'a>(&'a self, group: &GroupState, gone: impl IntoIterator<Item = OwnedFrame<'a>>) -> usize {
        let count = self.frames.free_all(gone);
        if count > 0 {
            self.uncharge(group, count as u64);
        }
        count
    }

    /// Puts anonymous pages that are on no list on their groups' lists, so that reclaim can find
    /// them. These are the pages that were touched before there was a swap area. The caller has
    /// noted that there is a swap area ([`swaps`](Self::swaps)).
    ///
    /// Another thread may be about to publish such a page, or may have the page isolated. In that
    /// case this function doesn't find the page. But once the page can be found, the other thread
    /// checks whether there is a swap area ([`list_if_swapping`](Self::list_if_swapping)).
    pub(crate) fn list_anonymous(&self) {
        fence(Ordering::SeqCst); // Pairs with the fence in `list_if_swapping`.
        self.frames.populated().for_each(|frame| self.list_page(frame));
    }

    /// Puts an anonymous page on a list if there are swap areas by now. Just before, the caller has
    /// made an atomic update: it has published the page without listing it, or has ended the
    /// isolation of an unlisted page.
    #[inline]
    pub(crate) fn list_if_swapping(&self, frame: FrameId) {
        // Pairs with the fence in `list_anonymous`: either this thread sees that there is a swap
        // area, or `list_anonymous` finds the page.
        fence_after_update();
        if self.swaps() {
            self.list_page(frame);
        }
    }

    /// Puts a page on a list if the page is anonymous, is on no list, and isn't isolated by another
    /// thread.
    #[cold]
    fn list_page(&self, frame: FrameId) {
        let is_one = || self.frames.owner(frame) == ANONYMOUS && Rank::of(&self.frames, frame).is_unlisted();
        if !is_one() {
            return;
        }
        let Some(isolated) = self.frames.isolate(frame) else { return };
        match self.groups.get(self.frames.group(frame)).filter(|_| is_one()) {
            Some(group) => {
                group.becomes_listed();
                History::default().rank().give(&self.frames, &isolated);
                self.enter(&group, isolated);
            }
            None => self.return_isolated(isolated),
        }
    }
}
