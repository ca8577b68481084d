//! Queries about pages: how many are in memory and in what state, and whether a page is held or
//! pinned.

use std::ops::Range;

use sync::atomic::Ordering;

use crate::frames::Frames;
use crate::page_map::{PageMap, PinnedFrame};
use crate::page_word::{PageState, PageWord};
use crate::writing::Writing;

/// The number of pages of a range in each state. Each page was in its state at some moment during
/// the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Swapped out.
    pub swapped: u64,
    /// In memory or being loaded.
    pub resident: u64,
    /// Resident pages that were used since reclaim last looked.
    pub referenced: u64,
    /// Resident pages that differ from their file.
    pub unclean: u64,
}

impl PageMap {
    /// Counts the pages of `range`.
    #[must_use]
    pub fn usage(&self, range: Range<u64>) -> Usage {
        let mut usage = Usage::default();
        for (_, word) in self.pages_in_memory(range).filter_map(|page| self.word(page)) {
            // Acquire, because `frame` requires it.
            let word = PageWord::from_bits(word.load(Ordering::Acquire));
            if let PageState::Swapped { .. } = word.state() {
                usage.swapped += 1;
                continue;
            }
            usage.resident += 1;
            let Some(frame) = word.frame() else { continue };
            let state = &self.shared.frames.table.record(frame).write_state;
            let is_referenced = word.is_hot() || state.is_used();
            usage.referenced += u64::from(is_referenced);
            usage.unclean += u64::from(word.is_written() && !state.is_clean());
        }
        usage
    }

    /// Returns whether a thread is loading the page, writing to it, or about to evict it.
    ///
    /// Guarantee: suppose that this thread makes a change, executes a fence, and then calls this
    /// function, which returns false. Suppose also that another thread begins to load, write or
    /// evict the page, and then executes a fence. Then either the other thread sees the change
    /// after its fence, or it has already finished with the page.
    #[must_use]
    pub fn is_held(&self, page: u64) -> bool {
        let Some((_, word)) = self.word(page) else { return false };
        // Acquire, here and in `is_frozen`: if this call sees that the other thread has finished,
        // it also sees what that thread did to the page.
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        match before.state() {
            PageState::Vacant { .. } | PageState::Swapped { .. } => false,
            PageState::Loading => true,
            PageState::Resident { frame } => {
                let frozen = self.shared.frames.table.is_frozen(frame);
                frozen && before.same_stay(PageWord::from_bits(word.load(Ordering::Relaxed)))
            }
        }
    }

    /// Returns whether the page is pinned.
    #[must_use]
    pub fn is_pinned(&self, page: u64) -> bool {
        let frame = self.word(page).and_then(|(_, word)| PageWord::from_bits(word.load(Ordering::Acquire)).frame());
        frame.is_some_and(|frame| self.shared.frames.table.is_pinned(frame))
    }
}

impl Frames {
    /// Returns the same pin, bound to a borrow of these frames instead of the map that it came
    /// from.
    ///
    /// # Panics
    /// If the pin is of other frames.
    pub fn adopt_pin(&self, pin: PinnedFrame<'_>) -> PinnedFrame<'_> {
        let frame = self.table.frame_of(pin.record()).expect("a frame of these");
        pin.give_up();
        PinnedFrame::new(self.table.record(frame), self.bytes(frame))
    }

    /// Returns the same [`Writing`], bound to a borrow of these frames instead of the map that it
    /// came from.
    ///
    /// # Panics
    /// If the page is in other frames.
    pub fn adopt_writing(&self, writing: Writing<'_>) -> Writing<'_> {
        writing.in_frames(self)
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::page_map::{BeginLoad, Labels};
    use crate::writing::BeginWrite;
    use crate::{Config, OwnedFrame};
    use sync::Arc;

    fn map() -> (Arc<Frames>, PageMap) {
        let config = Config { page_words_shift: Some(20), ..Config::new(4 << 20, 4096) };
        let frames = Arc::new(Frames::new(&config).unwrap());
        let map = PageMap::new(Arc::clone(&frames), 100).unwrap();
        (frames, map)
    }

    fn load(frames: &Frames, map: &PageMap, page: u64) {
        let frame: OwnedFrame<'_> = frames.allocate().unwrap();
        let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("it is vacant") };
        assert!(map.is_held(page));
        let (isolated, _) = loading.publish(frame, Labels::default(), false);
        assert!(frames.put_back(isolated).is_ok());
    }

    #[test]
    fn pages_are_counted_by_what_they_are() {
        let (frames, map) = map();
        (0..4).for_each(|page| load(&frames, &map, page));
        let BeginWrite::Begun(mut writing) = map.begin_write(1) else { panic!("it is there") };
        assert!(map.is_held(1) && !map.is_held(0) && !map.is_held(50));
        assert!(writing.write(0, &[1]));
        let elsewhere = frames.adopt_writing(writing);
        assert!(map.is_held(1));
        drop(elsewhere);
        assert!(!map.is_held(1));
        let usage = map.usage(0..100);
        assert_eq!((usage.resident, usage.unclean), (4, 1));
        assert_eq!(map.usage(1..2).resident, 1);
    }

    #[test]
    fn a_pin_can_outlive_its_map() {
        let (frames, map) = map();
        load(&frames, &map, 3);
        let pin = frames.adopt_pin(map.pin(3).unwrap().unwrap());
        assert!(map.is_pinned(3));
        assert_eq!(pin.bytes().len(), 4096);
        drop(pin);
        assert!(!map.is_pinned(3));
    }
}
