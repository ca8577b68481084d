//! Compression of pages: LZ4, in the safe Rust of `lz4_flex`.
//!
//! Each CPU has a scratch place for it. That is needed anyway: the bytes of a page in memory are
//! shared, so they are copied before they are looked at twice.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use sync::lock::{Mutex, MutexGuard};
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
    pub(crate) fn new(page_size: usize) -> Self {
        let bytes = |len| vec![0; len].into_boxed_slice();
        let scratch = || Scratch {
            page: bytes(page_size),
            packed: bytes(get_maximum_output_size(page_size)),
            table: CompressTable::default(),
        };
        Self { scratch: PerCpu::new(|| Mutex::new(scratch())) }
    }

    /// Memory that it takes.
    pub(crate) fn bytes(page_size: usize) -> u64 {
        let entry = if page_size < usize::from(u16::MAX) { 2 } else { 4 };
        let scratch = page_size + get_maximum_output_size(page_size) + 4096 * entry;
        (sync::cpu::count() * scratch) as u64
    }

    /// Passes a page on, compressed; `None` if it takes more than `len_max` bytes so.
    pub(crate) fn compress<R>(&self, page: SharedBytes<'_>, len_max: usize, put: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let Scratch { page: copy, packed, table } = &mut *self.scratch();
        page.copy_to(0, copy);
        let len = compress_into_with_table(copy, packed, table).ok()?;
        (len <= len_max).then(|| put(&packed[..len]))
    }

    /// Makes a page of the `len` bytes that `get` puts there, which `unpack` unpacks. False, and
    /// `into` is as it was, if they are none.
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

    /// Unpacks what [`compress`](Self::compress) made.
    pub(crate) fn unpack(packed: &[u8], page: &mut [u8]) -> bool {
        decompress_into(packed, page).is_ok_and(|len| len == page.len())
    }

    /// This CPU's, or another one if that is locked just now.
    fn scratch(&self) -> MutexGuard<'_, Scratch> {
        let free = self.scratch.from(sync::cpu::current()).find_map(Mutex::try_lock);
        free.unwrap_or_else(|| self.scratch.here().lock())
    }
}
