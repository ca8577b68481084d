//! Pages on their way to their groups' lists.
//!
//! A page that was just loaded waits, isolated, in a small batch of the CPU that loaded it, so that
//! the head of a group's list goes to a CPU once for many pages. No thread depends on another CPU
//! to empty its batch: a thread that is short of pages drains the batches of all CPUs.

use arrayvec::ArrayVec;
use frames::{FrameId, IsolatedFrame, Loading, OwnedFrame, PinnedFrame};
use sync::PerCpu;
use sync::lock::Mutex;

use crate::file::drop_pages::Gone;
use crate::group::state::GroupState;
use crate::lru::admission::Arrival;
use crate::lru::batch::{self, Leftovers};
use crate::lru::list::Recent;
use crate::lru::rank::Rank;
use crate::manager::Manager;

/// Pages in a full batch.
const BATCH_MAX: usize = 32;
/// A page waits only if its group holds so many times as many pages as the batch.
const GROUP_SHARE: u64 = 64;

type Batch = ArrayVec<IsolatedFrame, BATCH_MAX>;

/// What one CPU has loaded.
#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    recent: Recent,
    /// Pages that may wait, as the group of the first of them was when that came: a group's charges
    /// are on a line that other CPUs write to.
    patience: usize,
}

/// A batch for each CPU.
#[derive(Debug)]
pub(crate) struct EntryBatches {
    batches: PerCpu<Mutex<Waiting>>,
}

impl EntryBatches {
    pub(crate) fn new() -> Self {
        Self { batches: PerCpu::new(Mutex::default) }
    }
}

impl Manager {
    /// Admits a page to memory (`admission`): publishes it, and has its group list it, soon. Its
    /// frame is charged to the group, and holds its bytes.
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
        let full = {
            let mut waiting = self.entries.batches.here().lock();
            let Waiting { batch, recent, patience } = &mut *waiting;
            recent.add(&self.frames, frame.id());
            if batch.is_empty() {
                *patience = (group.charged() / GROUP_SHARE) as usize;
            }
            batch.push(frame);
            // A small group has less.
            let patience = (*patience).min((group.max() / GROUP_SHARE) as usize);
            if !batch.is_full() && batch.len() < patience {
                return;
            }
            std::mem::take(batch)
        };
        self.enter_all(full);
    }

    /// Puts pages that were loaded together on their group's lists: at once, if they would fill a
    /// batch anyway.
    pub(crate) fn enter_run<const N: usize>(&self, group: &GroupState, run: &mut ArrayVec<IsolatedFrame, N>) {
        if run.len() < BATCH_MAX / 4 {
            run.drain(..).for_each(|frame| self.enter(group, frame));
            return;
        }
        {
            let recent = &mut self.entries.batches.here().lock().recent;
            run.iter().for_each(|frame| recent.add(&self.frames, frame.id()));
        }
        let mut leftovers = Leftovers::default();
        group.lists.enter(&self.frames, std::mem::take(run), &mut leftovers);
        self.settle(group, leftovers);
    }

    /// Puts all waiting pages on their lists.
    pub(crate) fn drain_entries(&self) {
        for waiting in self.entries.batches.iter() {
            let batch = std::mem::take(&mut waiting.lock().batch);
            self.enter_all(batch);
        }
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
