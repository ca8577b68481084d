//! In place of `cold_codec` in builds without the feature `zstd`: no page is tightened.

use sync::SharedBytes;

/// What compresses no page.
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

/// What has no page to unpack.
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
