//! Finding a page without a lock (Nick Piggin, "\[rfc\] lockless pagecache", 2005).
//!
//! A reader loads a slot, and then increments the count of the page that the slot names. In
//! between, the page may be removed from the file and used for another page. So the reader
//! increments the count only if it isn't zero, and then loads the slot again. If the slot still
//! names the page, the page has belonged to the file since before the increment, and the count
//! keeps it there.

use super::seam::Ordering;
use super::tree::{Page, Tree};

impl Tree {
    /// The page at `index`, with one user more.
    #[inline]
    pub(super) fn get_page(&self, index: u64) -> Option<&Page> {
        loop {
            let slot = self.slot(index)?;
            // Acquire pairs with the Release that published the page in the slot: the reader sees
            // the page's complete record and bytes.
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
