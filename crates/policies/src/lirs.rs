//! LIRS: S. Jiang and X. Zhang, *LIRS: An Efficient Low Inter-reference Recency Set Replacement
//! Policy to Improve Buffer Cache Performance*, SIGMETRICS 2002.
//!
//! A page's *inter-reference recency* (IRR) is the number of other pages between its last two
//! accesses. Pages with a low IRR (LIR pages) have 99 % of the cache. The other pages in the cache
//! are HIR pages. They are in a queue that has 1 % of the cache, and are evicted from the queue's
//! end. The *stack* has pages in the order of their last access, and ends with the oldest LIR page.
//! The stack may contain HIR pages that have been evicted. If a HIR page is used while it is in the
//! stack, it becomes a LIR page, and the LIR page at the bottom of the stack becomes a HIR page.
//!
//! The stack has at most twice as many pages as the cache. When it would have more, the evicted
//! page that left the cache first is removed from the stack.

use crate::lists::Lists;
use crate::replacement::Replacement;

pub(crate) struct Lirs {
    stack: Lists<1>,
    /// HIR pages in the cache.
    queue: Lists<1>,
    /// Pages of the stack that aren't in the cache, in the order in which they left it.
    gone: Lists<1>,
    is_lir: Vec<bool>,
    lirs: usize,
    room: usize,
    queue_room: usize,
}

impl Lirs {
    /// Creates an empty cache of `room` pages, two at least, for pages below `pages`.
    pub(crate) fn new(pages: usize, room: usize) -> Self {
        let [stack, queue, gone] = [(); 3].map(|()| Lists::new(pages));
        Self { stack, queue, gone, is_lir: vec![false; pages], lirs: 0, room, queue_room: (room / 100).max(1) }
    }

    /// Removes pages from the stack's bottom until a LIR page is there.
    fn prune(&mut self) {
        while let Some(page) = self.stack.oldest(0).filter(|&page| !self.is_lir[page as usize]) {
            self.stack.remove(page);
            self.gone.remove(page);
        }
    }

    /// Adds a page to the queue. If the queue is full, a page leaves the cache.
    fn enqueue(&mut self, page: u32) {
        if self.queue.len(0) == self.queue_room
            && let Some(leaves) = self.queue.pop(0)
            && self.stack.list_of(leaves).is_some()
        {
            self.gone.push(0, leaves);
        }
        self.queue.push(0, page);
    }

    /// Makes a page of the stack a LIR page. If there is no room for another LIR page, the one at
    /// the bottom of the stack becomes a HIR page.
    fn promote(&mut self, page: u32) {
        self.is_lir[page as usize] = true;
        if self.lirs == self.room - self.queue_room
            && let Some(bottom) = self.stack.pop(0)
        {
            self.is_lir[bottom as usize] = false;
            self.lirs -= 1;
            self.enqueue(bottom);
        }
        self.lirs += 1;
        self.prune();
    }
}

impl Replacement for Lirs {
    fn hits(&mut self, page: u32) -> bool {
        let is_lir = self.is_lir[page as usize];
        let hits = is_lir || self.queue.list_of(page).is_some();
        let is_in_stack = self.stack.list_of(page).is_some();
        self.gone.remove(page);
        self.stack.renew(0, page);
        if is_lir {
            self.prune();
        } else if is_in_stack {
            self.queue.remove(page);
            self.promote(page);
        } else if hits {
            self.queue.renew(0, page);
        } else if self.lirs < self.room - self.queue_room {
            self.promote(page);
        } else {
            self.enqueue(page);
        }
        while self.stack.len(0) > 2 * self.room
            && let Some(page) = self.gone.pop(0)
        {
            self.stack.remove(page);
        }
        hits
    }
}
