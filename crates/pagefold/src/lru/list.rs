//! One list of frames, first in, first out but for those taken from the middle, and how long it is.
//!
//! There is no lock: the links are `smp_list`'s, and a thread isolates a frame before it takes the
//! frame off the list. A frame's group and rank name its list, and don't change while the frame is
//! isolated. A walk may come upon a frame by an old link: once the walk has isolated the frame, it
//! finds that the frame is on another list, and gives it back.

use arrayvec::ArrayVec;
use frames::{FrameId, Frames, IsolatedFrame};
use smp_list::{Claim, LocalList, SmpList};
use sync::atomic::{AtomicUsize, Ordering};

use crate::lru::batch::{Batch, Leftovers};
use crate::lru::rank::{Place, Rank};

/// On a line of its own, as its ends are what CPUs meet at.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct LruList {
    list: SmpList,
    len: AtomicUsize,
    group: u32,
    place: Place,
}

impl LruList {
    /// An empty list, the one at `place` in the group numbered `group`.
    pub(crate) fn new(group: u32, place: Place) -> Self {
        Self { list: SmpList::new(place.list_number(group)), len: AtomicUsize::new(0), group, place }
    }

    /// How many frames are on it. Exact only while no thread changes the list; a list is never
    /// taken for shorter than it is.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: only policy relies on it.
        self.len.load(Ordering::Relaxed)
    }

    /// Whether an isolated frame is on this list. A walk may come upon any: those that it stood on
    /// may have gone and come back.
    fn has(&self, frames: &Frames, frame: FrameId) -> bool {
        let rank = Rank::of(frames, frame);
        !rank.is_unlisted() && frames.group(frame) == self.group && rank.place() == self.place
    }

    /// Links isolated frames before the hottest. They can be put back then.
    pub(crate) fn splice_head(&self, frames: &Frames, local: LocalList) {
        if !local.is_empty() {
            self.len.fetch_add(local.len(), Ordering::Relaxed);
            self.list.splice_head(frames, local);
        }
    }

    /// Links isolated frames behind the coldest.
    pub(crate) fn splice_tail(&self, frames: &Frames, local: LocalList) {
        if !local.is_empty() {
            self.len.fetch_add(local.len(), Ordering::Relaxed);
            self.list.splice_tail(frames, local);
        }
    }

    /// Unlinks frames of this list that the caller has isolated, or detached. Neighbours go at the
    /// price of one.
    pub(crate) fn unlink(&self, frames: &Frames, claimed: impl ExactSizeIterator<Item = FrameId>) {
        let count = claimed.len();
        self.list.del_all(frames, claimed.map(FrameId::number));
        self.len.fetch_sub(count, Ordering::Relaxed);
    }

    /// Isolates up to `wanted` frames from the cold end and unlinks them. Frames that another
    /// thread has claimed stay where they are: that thread takes them off.
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

/// How far ahead a walk has records fetched: enough of them at a time to hide what memory takes.
const AHEAD: usize = 8;

/// The frames that were lined up last: each learns which frame comes so many steps after it.
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

/// Isolated frames, in line for some list: the first to come is the first to be met from the cold
/// end.
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
    use crate::lru::rank::Kind;
    use crate::lru::shadow::Level;

    /// The story: a frame that was freed while a walk stood on it came back as a page on no list,
    /// which passed for one of main's, and unlinking it would never have ended.
    #[test]
    fn a_page_on_no_list_is_on_none() {
        let frames = Arc::new(Frames::new(&Config::new(1 << 20, 4096)).unwrap());
        let map = PageMap::new(Arc::clone(&frames), 10).unwrap();
        let load = |page, rank: Rank| {
            let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("nobody else loads it") };
            let labels = Labels { group: 7, rank: rank.bits(), ..Labels::default() };
            loading.publish(frames.allocate().unwrap(), labels, false).0
        };
        let main = Kind::Main(Level::default());
        let list = LruList::new(7, Place { stripe: 0, kind: main });
        let (listed, unlisted) =
            (load(0, Rank::young(Level::default()).main(Level::default())), load(1, Rank::unlisted()));
        assert!(list.has(&frames, listed.id()) && !list.has(&frames, unlisted.id()));
        assert!(!LruList::new(6, Place { stripe: 0, kind: main }).has(&frames, listed.id()), "another group's");
    }
}
