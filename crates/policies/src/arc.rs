//! ARC: N. Megiddo and D. S. Modha, *ARC: A Self-Tuning, Low Overhead Replacement Cache*, FAST
//! 2003.
//!
//! The cache has two lists: one of pages that were used once lately, and one of pages that were
//! used more often. Each list has a *ghost*, which records the pages that were evicted last from
//! the list. If a missed page is in a ghost, the ghost's list gets a larger share of the cache.

use crate::lists::Lists;
use crate::replacement::Replacement;

/// The paper's T1, T2, B1 and B2.
const RECENT: u8 = 0;
const FREQUENT: u8 = 1;
const RECENT_GHOST: u8 = 2;
const FREQUENT_GHOST: u8 = 3;

pub(crate) struct Arc {
    lists: Lists<4>,
    room: usize,
    /// The share of `RECENT`, in pages: the paper's p.
    target: f64,
}

impl Arc {
    /// Creates an empty cache of `room` pages, one at least, for pages below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        Self { lists: Lists::new(pages), room, target: 0.0 }
    }

    /// Evicts the oldest page of `RECENT` or `FREQUENT`, and adds it to that list's ghost.
    /// `of_frequent_ghost`: the missed page is in `FREQUENT_GHOST`.
    fn replace(&mut self, of_frequent_ghost: bool) {
        let recent = self.lists.len(RECENT) as f64;
        let is_above = recent > self.target || of_frequent_ghost && recent == self.target;
        let from = if recent > 0.0 && is_above || self.lists.len(FREQUENT) == 0 { RECENT } else { FREQUENT };
        if let Some(page) = self.lists.pop(from) {
            self.lists.push(if from == RECENT { RECENT_GHOST } else { FREQUENT_GHOST }, page);
        }
    }

    /// Makes room for a page that no list has.
    fn make_room(&mut self) {
        let [recent, frequent, recent_ghost, frequent_ghost] =
            [RECENT, FREQUENT, RECENT_GHOST, FREQUENT_GHOST].map(|list| self.lists.len(list));
        let all = recent + frequent + recent_ghost + frequent_ghost;
        if recent == self.room {
            self.lists.pop(RECENT);
        } else if recent + recent_ghost == self.room {
            self.lists.pop(RECENT_GHOST);
            self.replace(false);
        } else if all >= self.room {
            if all == 2 * self.room {
                self.lists.pop(FREQUENT_GHOST);
            }
            self.replace(false);
        }
    }
}

impl Replacement for Arc {
    fn hits(&mut self, page: u32) -> bool {
        let ghosts = [RECENT_GHOST, FREQUENT_GHOST].map(|list| self.lists.len(list) as f64);
        let list = self.lists.list_of(page);
        match list {
            Some(RECENT | FREQUENT) => {
                self.lists.renew(FREQUENT, page);
                return true;
            }
            Some(RECENT_GHOST) => {
                self.target = (self.target + (ghosts[1] / ghosts[0]).max(1.0)).min(self.room as f64);
            }
            Some(_) => self.target = (self.target - (ghosts[0] / ghosts[1]).max(1.0)).max(0.0),
            None => {
                self.make_room();
                self.lists.push(RECENT, page);
                return false;
            }
        }
        self.replace(list == Some(FREQUENT_GHOST));
        self.lists.renew(FREQUENT, page);
        false
    }
}
