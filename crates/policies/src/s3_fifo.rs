//! S3-FIFO: J. Yang, Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, *FIFO Queues are All You Need for
//! Cache Eviction*, SOSP 2023. The details are those of the authors' simulator, libCacheSim.
//!
//! A new page enters a small queue, which has a tenth of the cache. When the page reaches the end
//! of this queue, it enters the main queue if it was used at least twice meanwhile. Otherwise it is
//! evicted, and recorded in a *ghost* list. If a missed page is in the ghost list, it enters the
//! main queue. When a page reaches the end of the main queue, it enters the main queue again if it
//! was used meanwhile. Otherwise it is evicted.

use crate::lists::Lists;
use crate::replacement::Replacement;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
const GHOST: u8 = 2;

/// A page with at least this many uses in the small queue moves to the main queue.
const USES_TO_MAIN: u8 = 2;

/// Without further uses, a page enters the main queue again at most this many times.
const ROUNDS_MAX: u8 = 3;

pub(crate) struct S3Fifo {
    lists: Lists<3>,
    /// Uses of each page since it entered its queue. When a page enters the main queue again, its
    /// uses are limited to `ROUNDS_MAX`, and one is subtracted.
    uses: Vec<u8>,
    room: usize,
    small_room: usize,
    ghost_room: usize,
    /// No page has been evicted yet. Until then, new pages enter the main queue once the small
    /// queue is full.
    is_filling: bool,
}

impl S3Fifo {
    /// Creates an empty cache of `room` pages, one at least, for pages below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        let small_room = (room / 10).max(1);
        let (lists, uses) = (Lists::new(pages), vec![0; pages]);
        Self { lists, uses, room, small_room, ghost_room: (room as f64 * 0.9) as usize, is_filling: true }
    }

    /// Makes room for one page.
    fn make_room(&mut self) {
        self.is_filling = false;
        let mut is_full = true;
        while is_full {
            let main_is_long = self.lists.len(MAIN) > self.room - self.small_room;
            is_full = !(if main_is_long || self.lists.len(SMALL) == 0 { self.take_main() } else { self.take_small() });
        }
    }

    /// Takes pages off the end of the small queue until one is evicted. Returns whether one was.
    fn take_small(&mut self) -> bool {
        while let Some(page) = self.lists.pop(SMALL) {
            let uses = std::mem::take(&mut self.uses[page as usize]);
            if uses >= USES_TO_MAIN {
                self.lists.push(MAIN, page);
                continue;
            }
            if self.lists.len(GHOST) >= self.ghost_room {
                self.lists.pop(GHOST);
            }
            self.lists.push(GHOST, page);
            return true;
        }
        false
    }

    /// Takes pages off the end of the main queue until one is evicted. Returns whether one was.
    fn take_main(&mut self) -> bool {
        while let Some(page) = self.lists.pop(MAIN) {
            let uses = &mut self.uses[page as usize];
            if *uses == 0 {
                return true;
            }
            *uses = (*uses).min(ROUNDS_MAX) - 1;
            self.lists.push(MAIN, page);
        }
        false
    }
}

impl Replacement for S3Fifo {
    fn hits(&mut self, page: u32) -> bool {
        let list = self.lists.list_of(page);
        if let Some(SMALL | MAIN) = list {
            let uses = &mut self.uses[page as usize];
            *uses = uses.saturating_add(1);
            return true;
        }
        self.lists.remove(page);
        if self.lists.len(SMALL) + self.lists.len(MAIN) == self.room {
            self.make_room();
        }
        self.uses[page as usize] = 0;
        let fills_main = self.is_filling && self.lists.len(SMALL) >= self.small_room;
        self.lists.push(if list == Some(GHOST) || fills_main { MAIN } else { SMALL }, page);
        false
    }
}
