//! Replaces `cold_codec` in builds without the feature `zstd`: no page is recompressed.

use sync::SharedBytes;

/// A compressor that compresses no page.
pub(crate) struct Compressor;

impl Compressor {
    pub(crate) fn new(_: usize) -> Option<Self> {
        Some(Self)
    }

    pub(crate) fn bytes(_: usize) -> u64 {
        0
    }

    pub(crate) fn compress<R>(&mut self, _: SharedBytes<'_>, _: usize, _: impl FnOnce(&[u8]) -> R) -> Option<R> {
        None
    }
}

/// Decompressors that never get a page, because no page is compressed this way.
pub(crate) struct Decompressors;

impl Decompressors {
    pub(crate) fn new() -> Option<Self> {
        Some(Self)
    }

    pub(crate) fn bytes() -> u64 {
        0
    }

    pub(crate) fn decompress(&self, _: &[u8], _: &mut [u8]) -> bool {
        false
    }
}
