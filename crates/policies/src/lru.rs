//! LRU: the page that was used least recently leaves.

use crate::lists::Lists;
use crate::replacement::Replacement;

pub(crate) struct Lru {
    pages: Lists<1>,
    room: usize,
}

impl Lru {
    /// Creates an empty cache of `room` pages, one at least, for pages below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        Self { pages: Lists::new(pages), room }
    }
}

impl Replacement for Lru {
    fn hits(&mut self, page: u32) -> bool {
        let hits = self.pages.list_of(page).is_some();
        if !hits && self.pages.len(0) == self.room {
            self.pages.pop(0);
        }
        self.pages.renew(0, page);
        hits
    }
}
