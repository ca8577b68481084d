//! Where the target of a copy lies.
//!
//! Copying a page of 4 KiB that is in the first-level cache takes two to three times as long if the
//! target's address, modulo 4096, is a little behind the source's. The core then mistakes a load
//! for one of what it has just stored, because it compares the low bits of addresses first. An
//! allocator puts a buffer anywhere, so a figure may depend on what was allocated before. A
//! measurement of copies therefore chooses where their target is.

/// Addresses that differ by a multiple of this look alike.
const PAGE: usize = 4096;

/// A buffer of up to a page, at a chosen distance from where pages begin.
pub(crate) struct Placed {
    bytes: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Placed {
    /// `len` zeroes, up to a page of them, at an address that is `offset` modulo 4096.
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
