//! Which page has to go: the lists of one memory group.
//!
//! Four kinds of list, each first in, first out. Nothing moves on a hit; a hit sets the page's referenced bit, and
//! reclaim looks at it when the page comes to the end of its list.
//! ```text
//!   load ──▶ young ──▶ cold ──┬─ never used again, level 0 ─────────────▶ evicted
//!            1/256     1/128  ├─ main has room ─────────▶ main[level]
//!                             └─ else a duel with the tail of main: the lower level is evicted
//!
//!   main[0], main[1], main[2]: referenced at the tail? up a level. Lost a duel for it? The longest upper list ages.
//! ```
//! - **young** swallows references that come in one burst with the load, such as small reads of one page in a row: the
//!   bit is cleared when a page moves on to cold. A scan therefore never looks like use.
//! - **cold** is where one honest second use earns a page its level 1, and where pages wait to be evicted.
//! - **main** is everything else. Only a page of a higher level takes a place there once it is full.
//! - **level** (0 to 2) is how often a page proved itself. It outlives the page in the shadow that an eviction leaves
//!   in its word: a page that comes back before the group has evicted twice as many pages as it holds enters one
//!   level up. So the history is as long as the page maps, and costs nothing.
//!
//! It is a frequency policy in the manner of TinyLFU (Einziger, Friedman, Manes, ACM ToS 2017), whose sketch the
//! shadows replace, with the delay line of S3-FIFO (Yang et al., SOSP 2023) and the refault distance of Linux's
//! `mm/workingset.c`. Sizes and bounds were chosen by simulation on traces that are not those of the benchmarks alone;
//! on zipf 0.99 with a quarter of the pages in memory it missed 12.1 % there, perfect counting 12.0 %, LRU 14.5 %. (The
//! library misses a little more, because metadata and the reserve take their part of the budget.)
//!
//! **Locks.** The lists of a group lie under one lock, which protects the links and nothing else. Reclaim holds it to
//! cut a batch off, looks at the batch without it, and takes it again to put back what stays. A frame is on a list, or
//! isolated by somebody (`frames`): whoever isolates a listed frame has to unlink it, from the list that its rank names
//! then. So a frame may move from list to list under the lock alone, isolated meanwhile or not.

use arrayvec::ArrayVec;
use frames::{FrameId, Frames, IsolatedFrame, OwnedFrame};

use crate::lru_list::LruList;
use crate::shadow::Level;

/// Frames that reclaim cuts off in one go, at most.
pub(crate) const BATCH_MAX: usize = 64;

/// Which list a frame is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Young,
    Cold,
    Main,
}

/// A frame's list and level, as the frame table keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    place: Place,
    pub(crate) level: Level,
}

impl Rank {
    const LEVEL_SHIFT: u32 = 2;

    pub(crate) fn young(level: Level) -> Self {
        Self { place: Place::Young, level }
    }

    pub(crate) fn bits(self) -> u32 {
        self.place as u32 | u32::from(self.level.0) << Self::LEVEL_SHIFT
    }

    /// The main list's place for a page of `level`.
    pub(crate) fn main(level: Level) -> Self {
        Self { place: Place::Main, level }
    }

    /// Cold's place for it.
    pub(crate) fn cold(level: Level) -> Self {
        Self { place: Place::Cold, level }
    }

    /// Changes the rank of a frame that the caller has isolated.
    pub(crate) fn give(self, frames: &Frames, frame: &IsolatedFrame) {
        frames.set_rank(frame.id(), self.bits());
    }

    pub(crate) fn of(frames: &Frames, frame: FrameId) -> Self {
        let bits = frames.rank(frame);
        let place = match bits & ((1 << Self::LEVEL_SHIFT) - 1) {
            0 => Place::Young,
            1 => Place::Cold,
            _ => Place::Main,
        };
        Self { place, level: Level((bits >> Self::LEVEL_SHIFT) as u8) }
    }
}

/// How long lists may get in a group that holds `len` pages now.
#[derive(Clone, Copy, Debug)]
struct Shares {
    batch: usize,
    young: usize,
    cold: usize,
}

impl Shares {
    fn of(len: usize) -> Self {
        let batch = (len / 16).clamp(1, BATCH_MAX);
        Self { batch, young: (len / 256).max(batch), cold: (len / 128).max(batch) }
    }
}

/// The lists.
#[derive(Debug, Default)]
pub(crate) struct GroupLists {
    young: LruList,
    cold: LruList,
    main: [LruList; Level::COUNT],
}

/// Isolated frames on their way through reclaim.
pub(crate) type Batch<const N: usize> = ArrayVec<IsolatedFrame, N>;

/// Frames whose page was removed while they were isolated. They are freed at once, which takes locks below the lists',
/// and have to be uncharged.
#[derive(Debug, Default)]
#[must_use = "they are still charged"]
pub(crate) struct Orphans {
    pub(crate) count: u64,
}

impl Orphans {
    fn free(&mut self, orphan: OwnedFrame<'_>) {
        drop(orphan);
        self.count += 1;
    }
}

/// What reclaim cuts off the lists to look at.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// From the end of cold.
    pub(crate) cold: Batch<BATCH_MAX>,
    /// From main, where main is longer than its share or there is nothing else.
    pub(crate) surplus: Batch<BATCH_MAX>,
    /// From main's longest upper level: they age.
    pub(crate) ageing: Batch<BATCH_MAX>,
    /// Pages that main has room for.
    pub(crate) main_room: usize,
}

impl GroupLists {
    /// Pages on the lists.
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.cold.len() + self.main_len()
    }

    fn main_len(&self) -> usize {
        self.main.iter().map(LruList::len).sum()
    }

    fn list(&mut self, rank: Rank) -> &mut LruList {
        match rank.place {
            Place::Young => &mut self.young,
            Place::Cold => &mut self.cold,
            Place::Main => &mut self.main[rank.level.index()],
        }
    }

    /// Takes a frame that the caller has isolated, or detached, off its list.
    pub(crate) fn unlink(&mut self, frames: &Frames, frame: FrameId) {
        self.list(Rank::of(frames, frame)).unlink(frames, frame);
    }

    /// Puts an isolated frame at the hot end of the list that its rank says.
    pub(crate) fn put_back(&mut self, frames: &Frames, frame: IsolatedFrame, orphans: &mut Orphans) {
        let id = frame.id();
        let list = self.list(Rank::of(frames, id));
        list.push_head(frames, id);
        if let Err(orphan) = frames.put_back(frame) {
            list.unlink(frames, id);
            orphans.free(orphan);
        }
    }

    /// Moves pages that are young no more on to cold, their references forgotten: all beyond the share of young.
    pub(crate) fn ripen(&mut self, frames: &Frames) {
        let young_max = Shares::of(self.len()).young;
        self.ripen_to(frames, young_max);
    }

    fn ripen_to(&mut self, frames: &Frames, young_max: usize) {
        while self.young.len() > young_max
            && let Some(frame) = self.young.tail()
        {
            frames.prefetch_ahead(frame);
            self.young.unlink(frames, frame);
            let _ = frames.take_referenced(frame);
            let ripe = Rank { place: Place::Cold, ..Rank::of(frames, frame) };
            frames.set_rank(frame, ripe.bits());
            self.cold.push_head(frames, frame);
        }
    }

    /// Cuts off what reclaim should look at to free up to `wanted` pages, and `ageing` pages that are to age.
    pub(crate) fn cut(&mut self, frames: &Frames, wanted: usize, ageing: usize) -> Cut {
        let mut result = Cut::default();
        let len = self.len();
        let shares = Shares::of(len);
        let wanted = wanted.min(shares.batch);
        self.ripen(frames);
        if self.cold.len() == 0 {
            self.ripen_to(frames, 0);
        }
        cut(frames, &mut self.cold, wanted, &mut result.cold);
        // Relative to what is left after this pass, or cold would be drained by the reserve that reclaim keeps free.
        let main_max = len.saturating_sub(wanted + shares.young + shares.cold);
        result.main_room = main_max.saturating_sub(self.main_len());
        let surplus = self.main_len().saturating_sub(main_max).min(wanted);
        let surplus = if result.cold.is_empty() { wanted } else { surplus };
        self.cut_main(frames, surplus, &mut result.surplus);
        if let Some(longest) = self.main[1..].iter_mut().max_by_key(|list| list.len()) {
            cut(frames, longest, ageing.min(BATCH_MAX), &mut result.ageing);
        }
        result
    }

    /// Cuts up to `wanted` pages off the cold end of main, the lowest level first.
    pub(crate) fn cut_main<const N: usize>(&mut self, frames: &Frames, wanted: usize, into: &mut Batch<N>) {
        for list in &mut self.main {
            let missing = wanted.min(N).saturating_sub(into.len());
            cut(frames, list, missing, into);
        }
    }

    /// Puts back at the cold end of main what [`cut_main`](Self::cut_main) took and nobody looked at; the page cut last
    /// goes first.
    pub(crate) fn return_main(&mut self, frames: &Frames, frame: IsolatedFrame, orphans: &mut Orphans) {
        let id = frame.id();
        let list = self.list(Rank::of(frames, id));
        list.push_tail(frames, id);
        if let Err(orphan) = frames.put_back(frame) {
            list.unlink(frames, id);
            orphans.free(orphan);
        }
    }
}

/// Isolates up to `wanted` frames from the cold end of a list. Frames that somebody else has claimed stay where they
/// are: the claimant takes them off.
fn cut<const N: usize>(frames: &Frames, list: &mut LruList, wanted: usize, into: &mut Batch<N>) {
    let mut next = list.tail();
    let full = (into.len() + wanted).min(N);
    while let Some(frame) = next
        && into.len() < full
    {
        next = frames.prev(frame);
        frames.prefetch_ahead(frame);
        if let Some(isolated) = frames.isolate(frame) {
            list.unlink(frames, frame);
            into.push(isolated);
        }
    }
}
