//! One list of frames, and its length. Frames leave in the order in which they entered, except
//! those that are taken from the middle.
//!
//! There is no lock: the links are those of `smp_list`, and a thread must isolate a frame before it
//! unlinks the frame. A frame's group and rank tell which list it is on. They change only while the
//! frame is isolated, and only the isolating thread changes them. So a walk that reaches a frame
//! through an outdated link isolates the frame, finds that the frame is on another list, and puts
//! it back. The walking thread holds the list's group, so no other group gets the group's number
//! meanwhile (`group::table`).

use arrayvec::ArrayVec;
use frames::{FrameId, Frames, IsolatedFrame};
use smp_list::{Claim, LocalList, SmpList};
use sync::atomic::{AtomicUsize, Ordering};

use crate::lru::batch::{Batch, Leftovers};
use crate::lru::rank::{Place, Rank};

/// On a cache line of its own, because CPUs contend for the list's ends.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct LruList {
    list: SmpList,
    len: AtomicUsize,
    group: u32,
    place: Place,
}

impl LruList {
    /// Creates the empty list at `place` of the group numbered `group`.
    pub(crate) fn new(group: u32, place: Place) -> Self {
        Self { list: SmpList::new(place.list_number(group)), len: AtomicUsize::new(0), group, place }
    }

    /// Returns the number of frames on the list. Exact only while no thread changes the list;
    /// otherwise it may be too high, never too low.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: only policy depends on it.
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether an isolated frame is on this list. A walk may reach a frame of another list,
    /// or of none, if a frame on its way was freed and used again.
    fn has(&self, frames: &Frames, frame: FrameId) -> bool {
        let rank = Rank::of(frames, frame);
        !rank.is_unlisted() && frames.group(frame) == self.group && rank.place() == self.place
    }

    /// Links isolated frames at the hot end. The caller may end the frames' isolation only after
    /// this call.
    pub(crate) fn splice_head(&self, frames: &Frames, local: LocalList) {
        if !local.is_empty() {
            self.len.fetch_add(local.len(), Ordering::Relaxed);
            self.list.splice_head(frames, local);
        }
    }

    /// Links isolated frames at the cold end.
    pub(crate) fn splice_tail(&self, frames: &Frames, local: LocalList) {
        if !local.is_empty() {
            self.len.fetch_add(local.len(), Ordering::Relaxed);
            self.list.splice_tail(frames, local);
        }
    }

    /// Unlinks frames of this list that the caller has isolated or detached. Unlinking a run of
    /// neighbours costs as much as unlinking one frame.
    pub(crate) fn unlink(&self, frames: &Frames, claimed: impl ExactSizeIterator<Item = FrameId>) {
        let count = claimed.len();
        self.list.del_all(frames, claimed.map(FrameId::number));
        self.len.fetch_sub(count, Ordering::Relaxed);
    }

    /// Isolates up to `wanted` frames from the cold end and unlinks them. Skips frames that another
    /// thread has claimed: that thread unlinks them.
    pub(crate) fn cut<const N: usize>(
        &self,
        frames: &Frames,
        wanted: usize,
        into: &mut Batch<N>,
        leftovers: &mut Leftovers,
    ) {
        let wanted = wanted.min(into.remaining_capacity());
        if wanted == 0 || self.len() == 0 || leftovers.misplaced.is_full() {
            return;
        }
        let taken = self.list.take_tail(frames, wanted, |number| {
            let Some(isolated) = frames.isolate(FrameId::new(number)) else { return Claim::Lost };
            if self.has(frames, isolated.id()) {
                into.push(isolated);
                return Claim::Won;
            }
            leftovers.misplaced.push(isolated);
            if leftovers.misplaced.is_full() { Claim::Stop } else { Claim::Lost }
        });
        self.len.fetch_sub(taken, Ordering::Relaxed);
    }
}

/// How many records a walk prefetches ahead: enough to hide the latency of memory.
const AHEAD: usize = 8;

/// The last `AHEAD` frames that were added. When a frame is added, its number is recorded in the
/// frame that was added `AHEAD` frames earlier, so that a walk can prefetch it
/// (`Frames::set_ahead`).
#[derive(Debug, Default)]
pub(crate) struct Recent {
    ring: ArrayVec<FrameId, AHEAD>,
    turn: usize,
}

impl Recent {
    pub(crate) fn add(&mut self, frames: &Frames, frame: FrameId) {
        if let Err(full) = self.ring.try_push(frame) {
            let earlier = std::mem::replace(&mut self.ring[self.turn], full.element());
            frames.set_ahead(earlier, frame);
            self.turn = (self.turn + 1) % AHEAD;
        }
    }
}

/// Links isolated frames in order, for any list. A walk from the cold end meets the first frame of
/// `isolated` first.
pub(crate) fn line_up<'a>(frames: &Frames, isolated: impl IntoIterator<Item = &'a IsolatedFrame>) -> LocalList {
    let mut local = LocalList::new();
    isolated.into_iter().for_each(|frame| local.push_front(frames, frame.id().number()));
    local
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use frames::{BeginLoad, Config, Labels, PageMap};
    use sync::Arc;

    use super::*;
    use crate::lru::interval::Interval;
    use crate::lru::rank::{Kind, Origin};

    /// Regression: a walk along the main list had reached a frame. Then another thread freed the
    /// frame, and used it for a page that is on no list. The walk mistook the frame for a frame of
    /// main. It tried to unlink the frame, and never ended. It should have skipped the frame.
    #[test]
    fn a_page_on_no_list_is_on_none() {
        let frames = Arc::new(Frames::new(&Config::new(1 << 20, 4096)).unwrap());
        let map = PageMap::new(Arc::clone(&frames), 10).unwrap();
        let load = |page, rank: Rank| {
            let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("nobody else loads it") };
            let labels = Labels { group: 7, rank: rank.bits(), ..Labels::default() };
            loading.publish(frames.allocate().unwrap(), labels, false).0
        };
        let main = Kind::Main;
        let list = LruList::new(7, Place { stripe: 0, kind: main });
        let (listed, unlisted) =
            (load(0, Rank::young(Origin::New, Interval::UNKNOWN).on(main)), load(1, Rank::unlisted()));
        assert!(list.has(&frames, listed.id()) && !list.has(&frames, unlisted.id()));
        assert!(!LruList::new(6, Place { stripe: 0, kind: main }).has(&frames, listed.id()), "another group's");
    }
}
