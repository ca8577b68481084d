//! W-TinyLFU: G. Einziger, R. Friedman and B. Manes, *TinyLFU: A Highly Efficient Cache Admission
//! Policy*, ACM Transactions on Storage 13 (4), 2017. The window has a fixed size, as in the paper.
//! Later versions adapt it.
//!
//! A new page enters the *window*, an LRU list of a hundredth of the cache. A page that leaves the
//! window is compared with the page that the main part would evict next. If the page from the
//! window was used more often lately, it replaces the other page; otherwise the page from the
//! window is evicted. The main part is a segmented LRU list: a page enters it on *probation*, and
//! becomes *protected* when it is used there.

use crate::counts::Counts;
use crate::lists::Lists;
use crate::replacement::Replacement;

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

pub(crate) struct WTinyLfu {
    lists: Lists<3>,
    counts: Counts,
    window_room: usize,
    main_room: usize,
    protected_room: usize,
}

impl WTinyLfu {
    /// Creates an empty cache of `room` pages, one at least, for pages below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        let window_room = (room / 100).max(1);
        let main_room = room - window_room;
        let protected_room = main_room - main_room / 5;
        Self { lists: Lists::new(pages), counts: Counts::new(room), window_room, main_room, protected_room }
    }

    /// Takes the oldest page off the window. Moves it to the main part, where it may replace
    /// another page, or evicts it.
    fn shorten_window(&mut self) {
        let Some(candidate) = self.lists.pop(WINDOW) else { return };
        let main = self.lists.len(PROBATION) + self.lists.len(PROTECTED);
        if main < self.main_room {
            self.lists.push(PROBATION, candidate);
            return;
        }
        let Some(victim) = self.lists.oldest(PROBATION).or_else(|| self.lists.oldest(PROTECTED)) else { return };
        if self.counts.of(candidate) > self.counts.of(victim) {
            self.lists.remove(victim);
            self.lists.push(PROBATION, candidate);
        }
    }
}

impl Replacement for WTinyLfu {
    fn hits(&mut self, page: u32) -> bool {
        self.counts.add(page);
        match self.lists.list_of(page) {
            None => {
                if self.lists.len(WINDOW) == self.window_room {
                    self.shorten_window();
                }
                self.lists.push(WINDOW, page);
                return false;
            }
            Some(WINDOW) => self.lists.renew(WINDOW, page),
            Some(_) => {
                self.lists.renew(PROTECTED, page);
                if self.lists.len(PROTECTED) > self.protected_room
                    && let Some(page) = self.lists.pop(PROTECTED)
                {
                    self.lists.push(PROBATION, page);
                }
            }
        }
        true
    }
}
