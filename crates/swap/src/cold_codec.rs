//! Compression of pages that have stayed: Zstandard, by its reference implementation, which is in C.
//!
//! It takes four times as long as LZ4 in both directions, and makes most pages a good deal smaller: so it is for those that nobody
//! has wanted for long. One thread at a time compresses such pages; CPUs share what they need to unpack them, a few each.

use sync::lock::{Mutex, MutexGuard};
use sync::{CachePadded, SharedBytes};
use zstd_safe::{CCtx, CompressionLevel, DCtx, compress_bound};

/// More takes longer than it gains in a page.
const LEVEL: CompressionLevel = 3;
/// CPUs that share a context.
const CPUS_SHARING: usize = 8;
/// What unpacking takes, and compressing: besides so many bytes for each of a page, up to as many. Rounded up from what the library
/// says.
const UNPACKING_BYTES: usize = 96 << 10;
const COMPRESSING_BYTES: usize = 48 << 10;
const TABLES: usize = 16;
const TABLES_MAX: usize = 4 << 20;

pub(crate) struct ColdCodec {
    compressor: Mutex<Compressor>,
    decompressors: Box<[CachePadded<Mutex<DCtx<'static>>>]>,
}

struct Compressor {
    context: CCtx<'static>,
    page: Box<[u8]>,
    packed: Box<[u8]>,
}

impl ColdCodec {
    /// For pages of `page_size` bytes; `None` if there is no memory.
    pub(crate) fn new(page_size: usize) -> Option<Self> {
        let bytes = |len| vec![0; len].into_boxed_slice();
        let context = CCtx::try_create()?;
        let compressor = Compressor { context, page: bytes(page_size), packed: bytes(compress_bound(page_size)) };
        let decompressor = |_| Some(CachePadded::new(Mutex::new(DCtx::try_create()?)));
        let decompressors = (0..Self::decompressors()).map(decompressor).collect::<Option<_>>()?;
        Some(Self { compressor: Mutex::new(compressor), decompressors })
    }

    /// Memory that it takes.
    pub(crate) fn bytes(page_size: usize) -> u64 {
        let context = COMPRESSING_BYTES + (TABLES * page_size).min(TABLES_MAX);
        let compressor = context + page_size + compress_bound(page_size);
        (compressor + Self::decompressors() * UNPACKING_BYTES) as u64
    }

    fn decompressors() -> usize {
        sync::cpu::count().div_ceil(CPUS_SHARING)
    }

    /// Passes a page on, compressed; `None` if it takes more than `len_max` bytes so.
    pub(crate) fn compress<R>(&self, page: SharedBytes<'_>, len_max: usize, put: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let Compressor { context, page: copy, packed } = &mut *self.compressor.lock();
        page.copy_to(0, copy);
        let len = context.compress(&mut packed[..], copy, LEVEL).ok()?;
        (len <= len_max).then(|| put(&packed[..len]))
    }

    /// Makes a page of `packed`. False if that is none; `page` is unspecified then.
    pub(crate) fn decompress(&self, packed: &[u8], page: &mut [u8]) -> bool {
        let len = page.len();
        let unpacked = self.decompressor().decompress(page, packed);
        unpacked == Ok(len)
    }

    /// This CPU's, or another one if somebody has that just now.
    fn decompressor(&self) -> MutexGuard<'_, DCtx<'static>> {
        let (before, from_own) = self.decompressors.split_at(self.own());
        let free = from_own.iter().chain(before).find_map(|context| context.try_lock());
        free.unwrap_or_else(|| self.decompressors[self.own()].lock())
    }

    fn own(&self) -> usize {
        sync::cpu::current() / CPUS_SHARING % self.decompressors.len()
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use sync::atomic::AtomicU64;
    use sync::random::mix;

    #[test]
    fn it_takes_no_more_than_it_says() {
        for page_size in [4096, 16384, 65536, 1 << 21] {
            let codec = ColdCodec::new(page_size).unwrap();
            let words: Vec<_> = (0..page_size as u64 / 8).map(|at| AtomicU64::new(mix(at) & 0x1f1f_1f1f)).collect();
            let shared = SharedBytes::new(&words);
            let packed = codec.compress(shared, page_size, <[u8]>::to_vec).expect("it shrinks");
            let mut page = vec![0; page_size];
            assert!(codec.decompress(&packed, &mut page) && !codec.decompress(&packed[1..], &mut page));
            let compressor = codec.compressor.lock();
            let unpacking: usize = codec.decompressors.iter().map(|context| context.lock().sizeof()).sum();
            let buffers = compressor.page.len() + compressor.packed.len();
            let taken = compressor.context.sizeof() + unpacking + buffers;
            assert!(taken as u64 <= ColdCodec::bytes(page_size), "{taken} for pages of {page_size}");
        }
    }
}
