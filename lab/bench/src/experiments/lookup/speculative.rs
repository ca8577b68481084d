//! Finding a page without a lock (Nick Piggin, "\[rfc\] lockless pagecache", 2005).
//!
//! After a reader has loaded a slot, and before it has counted itself among the page's users, the
//! page may be taken out of the file and used for another one. So the reader raises the count only
//! if it isn't zero, and then loads the slot again. If the slot still holds the page, the page has
//! been the file's ever since it was counted.

use super::seam::Ordering;
use super::tree::{Page, Tree};

impl Tree {
    /// The page at `index`, with one user more.
    #[inline]
    pub(super) fn get_page(&self, index: u64) -> Option<&Page> {
        loop {
            let slot = self.slot(index)?;
            // Acquire pairs with the publication of the page: its record and its bytes are
            // complete.
            let value = slot.load(Ordering::Acquire);
            let page = self.page(value)?;
            if !page.get_unless_zero() {
                continue;
            }
            // Relaxed: the Acquire of the count orders it.
            if slot.load(Ordering::Relaxed) == value {
                return Some(page);
            }
            page.put();
        }
    }
}
