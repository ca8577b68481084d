//! Compression of pages with LZ4, in the safe Rust of `lz4_flex`.
//!
//! Each CPU has scratch buffers, into which a page is copied before it is compressed. The copy
//! can't be avoided: a compressor reads bytes more than once, and other threads may change the
//! page's bytes in memory in between.

use std::iter::repeat_n;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use sync::lock::{Mutex, MutexGuard};
use sync::memory::boxed;
use sync::{PerCpu, SharedBytes};

pub(crate) struct Codec {
    scratch: PerCpu<Mutex<Scratch>>,
}

struct Scratch {
    page: Box<[u8]>,
    packed: Box<[u8]>,
    table: CompressTable,
}

impl Codec {
    /// Creates the scratch buffers; `None` if there is no memory for them.
    pub(crate) fn new(page_size: usize) -> Option<Self> {
        let bytes = |len| boxed(repeat_n(0, len));
        let scratch = || {
            let (page, packed) = (bytes(page_size)?, bytes(get_maximum_output_size(page_size))?);
            Some(Mutex::new(Scratch { page, packed, table: CompressTable::default() }))
        };
        Some(Self { scratch: PerCpu::try_new(scratch)? })
    }

    /// Returns the bytes that the scratch buffers take.
    pub(crate) fn bytes(page_size: usize) -> u64 {
        let entry = if page_size < usize::from(u16::MAX) { 2 } else { 4 };
        let scratch = page_size + get_maximum_output_size(page_size) + 4096 * entry;
        (sync::cpu::count() * scratch) as u64
    }

    /// Compresses a page and passes the result to `put`; `None` if the result is longer than
    /// `len_max` bytes.
    pub(crate) fn compress<R>(&self, page: SharedBytes<'_>, len_max: usize, put: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let Scratch { page: copy, packed, table } = &mut *self.scratch();
        page.copy_to(0, copy);
        let len = compress_into_with_table(copy, packed, table).ok()?;
        (len <= len_max).then(|| put(&packed[..len]))
    }

    /// Reads `len` bytes with `get`, decompresses them with `unpack`, and copies the page to
    /// `into`. Returns false, and leaves `into` unchanged, if the bytes don't decompress to a page.
    pub(crate) fn decompress(
        &self,
        len: usize,
        get: impl FnOnce(&mut [u8]),
        unpack: impl FnOnce(&[u8], &mut [u8]) -> bool,
        into: SharedBytes<'_>,
    ) -> bool {
        let Scratch { page, packed, .. } = &mut *self.scratch();
        let Some(packed) = packed.get_mut(..len) else { return false };
        get(packed);
        let is_page = unpack(packed, page);
        if is_page {
            into.copy_from(0, page);
        }
        is_page
    }

    /// Decompresses the result of [`compress`](Self::compress).
    pub(crate) fn unpack(packed: &[u8], page: &mut [u8]) -> bool {
        decompress_into(packed, page).is_ok_and(|len| len == page.len())
    }

    /// Locks this CPU's scratch buffers, or another CPU's if these are locked by another thread. If
    /// all are locked, waits for this CPU's.
    fn scratch(&self) -> MutexGuard<'_, Scratch> {
        let free = self.scratch.from(sync::cpu::current()).find_map(Mutex::try_lock);
        free.unwrap_or_else(|| self.scratch.here().lock())
    }
}
