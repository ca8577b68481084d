//! Where the target of a copy lies.
//!
//! Copying a page of 4 KiB within the first-level cache takes two to three times as long if the
//! target's address, modulo 4096, is a little above the source's. The core compares only the low
//! bits of addresses at first, and so mistakes a load for one of bytes that it has just stored. An
//! allocator may put a buffer anywhere, so a figure may depend on earlier allocations. Measurements
//! of copies therefore choose the place of their target.

/// Addresses that differ by a multiple of this look alike.
const PAGE: usize = 4096;

/// A buffer of at most a page, at a chosen offset from a page boundary.
pub(crate) struct Placed {
    bytes: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Placed {
    /// `len` zeros, at most a page of them, at an address that is `offset` modulo 4096.
    pub(crate) fn new(len: usize, offset: usize) -> Self {
        assert!(len <= PAGE && offset < PAGE, "more than a page");
        let bytes: Box<[u8]> = vec![0; 3 * PAGE].into();
        let start = bytes.as_ptr().addr().next_multiple_of(PAGE) - bytes.as_ptr().addr() + offset;
        Self { bytes, start, len }
    }

    /// As far from pages as can be.
    pub(crate) fn between_pages(len: usize) -> Self {
        Self::new(len, PAGE / 2)
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_where_it_was_put() {
        for offset in [0, 16, 2048, 4095] {
            let mut placed = Placed::new(PAGE, offset);
            assert_eq!((placed.bytes().as_ptr().addr() % PAGE, placed.bytes().len()), (offset, PAGE));
        }
    }
}
