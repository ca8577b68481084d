//! Windows: which bytes of which page map are seen at the addresses of a mapped file. All that a
//! hit has to know of it.
//!
//! A window is in the table of its space as long as that is there, for one mapping after the other.
//! A reader that looks at a window holds nothing, so the mapping may go, another come, and the file
//! be closed. The reader looks at the page's entry again when it has the bytes (S5 of `space`), and
//! finds the entry changed then:
//! ```text
//!   reader                                        others
//!   entry = mapping 7                             entry = none, mapping 7 goes
//!   window of 7: map, delta       Acquire         mapping 8 comes: map, delta      Release
//!   word, bytes                                   or the file is closed, and its map's number another one's
//!   entry still mapping 7?                        word = resident                  Release
//! ```
//! If the reader saw anything on the right after the first line, be it a number of the window or
//! the word, that line came before the reader's second look at the entry. As the number of a
//! mapping never comes back (M2 of `mapped`), the entry isn't there any more. Otherwise the reader
//! saw the window as it was for mapping 7, and words of its file's map.

use frames::MapNumber;
use sync::atomic::{AtomicU64, Ordering};

/// See the module's head.
pub(super) struct Window {
    map: AtomicU64,
    /// What an address is plus this, modulo 2^64, is the byte's place in the file.
    delta: AtomicU64,
}

impl Window {
    /// Of no map in particular.
    pub(super) fn new() -> Self {
        Self { map: AtomicU64::new(0), delta: AtomicU64::new(0) }
    }

    /// Shows another map. Before an entry has the number of the mapping.
    pub(super) fn show(&self, map: MapNumber, delta: u64) {
        // Release, here and below, pairs with the Acquire in `locate`.
        self.map.store(map.bits(), Ordering::Release);
        self.delta.store(delta, Ordering::Release);
    }

    /// The page map, and the place in it, of the byte at an address.
    #[inline]
    pub(super) fn locate(&self, address: u64) -> (MapNumber, u64) {
        let map = MapNumber::from_bits(self.map.load(Ordering::Acquire));
        (map, address.wrapping_add(self.delta.load(Ordering::Acquire)))
    }
}
