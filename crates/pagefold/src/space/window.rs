//! Windows: which bytes of which page map are at the addresses of a mapped file. A hit needs to
//! know nothing else about the mapping.
//!
//! A window stays in its space's table as long as that table exists, and serves one mapping after
//! another. A reader that looks at a window holds nothing. So the mapping may go, another mapping
//! may take the window over, and the file may be closed. The reader looks at the page's entry again
//! when it has the bytes (S5 of `space`), and then finds the entry changed:
//! ```text
//!   reader                                        others
//!   entry = mapping 7                             entry = none, mapping 7 goes
//!   window of 7: map, delta       Acquire         mapping 8 comes: map, delta      Release
//!   word, bytes                                   or the file is closed, and its map's number another one's
//!   entry still mapping 7?                        word = resident                  Release
//! ```
//! The reader may have seen a store of the right column that comes after the column's first line: a
//! new field of the window, or a new page word. Then the first line, which changed the entry, came
//! before the reader's second look at the entry. The number of a mapping never comes back (M2 of
//! `mapped`), so the reader finds another entry. If the reader saw no such store, the window and
//! the page words that it used were those of mapping 7 and its file.

use frames::MapNumber;
use sync::atomic::{AtomicU64, Ordering};

/// See the module's head.
pub(super) struct Window {
    map: AtomicU64,
    /// Place of a byte in the file = its address + `delta`, modulo 2^64.
    delta: AtomicU64,
}

impl Window {
    /// Creates a window that shows no map in particular.
    pub(super) fn new() -> Self {
        Self { map: AtomicU64::new(0), delta: AtomicU64::new(0) }
    }

    /// Shows another map. Called before any entry has the number of the mapping.
    pub(super) fn show(&self, map: MapNumber, delta: u64) {
        // Release, here and below, pairs with the Acquire in `locate`.
        self.map.store(map.bits(), Ordering::Release);
        self.delta.store(delta, Ordering::Release);
    }

    /// Returns the page map, and the place in it, of the byte at an address.
    #[inline]
    pub(super) fn locate(&self, address: u64) -> (MapNumber, u64) {
        let map = MapNumber::from_bits(self.map.load(Ordering::Acquire));
        (map, address.wrapping_add(self.delta.load(Ordering::Acquire)))
    }
}
