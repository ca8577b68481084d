//! Windows. A window tells what a mapping shows: the page map of the mapped file, and which byte of
//! the file is at each address. A hit needs to know nothing else about the mapping.
//!
//! A window stays in its space's table as long as the table exists, and serves one mapping after
//! another. A reader uses a window without a lock or a reference. So while it reads, the mapping
//! may be removed, the window may be reused for another mapping, and the file may be closed.
//! Therefore the reader looks at the page's entry again after it has copied the bytes (S5 of
//! `space`). If the mapping was removed, the entry has changed by then:
//! ```text
//!   reader                                        others
//!   entry = mapping 7                             entry = none, mapping 7 goes
//!   window of 7: map, delta       Acquire         mapping 8 comes: map, delta      Release
//!   word, bytes                                   or the file is closed, and its map's number another one's
//!   entry still mapping 7?                        word = resident                  Release
//! ```
//! Suppose that the reader has seen one of the later stores of the right column: a new field of the
//! window, or a new page word. These stores are Release, and the reader's loads are Acquire. So the
//! reader's second look at the entry sees the first store of the column, which changed the entry.
//! The number of a mapping is never reused (M2 of `mapped`), so the reader finds that the entry
//! differs from the one that it found at first.
//!
//! If the reader has seen no such store, the window and the page words that it used were those of
//! mapping 7 and its file.

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
