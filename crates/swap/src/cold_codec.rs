//! Compression of cold pages with Zstandard, by its reference implementation, which is in C.
//!
//! Zstandard takes four times as long as LZ4 in both directions, but compresses most pages much
//! further. So it is used for pages that haven't been used for a long time. Only one thread at a
//! time compresses: the thread that holds the [`Compressor`]. For decompression, eight CPUs share
//! one context.

use std::iter::repeat_n;

use sync::lock::{Mutex, MutexGuard};
use sync::memory::boxed;
use sync::{CachePadded, SharedBytes};
use zstd_safe::{CCtx, CompressionLevel, DCtx, compress_bound};

/// At higher levels, the gain in size isn't worth the time.
const LEVEL: CompressionLevel = 3;
/// CPUs that share a decompression context.
const CPUS_SHARING: usize = 8;
/// The size of a decompression context in bytes. A compression context takes at most
/// `COMPRESSING_BYTES + min(TABLES × page size, TABLES_MAX)`. These numbers are the sizes that the
/// library reports, rounded up.
const UNPACKING_BYTES: usize = 96 << 10;
const COMPRESSING_BYTES: usize = 48 << 10;
const TABLES: usize = 16;
const TABLES_MAX: usize = 4 << 20;

/// Compresses pages: a context and its buffers.
pub(crate) struct Compressor {
    context: CCtx<'static>,
    page: Box<[u8]>,
    packed: Box<[u8]>,
}

impl Compressor {
    /// Creates a compressor for pages of `page_size` bytes; `None` if there is no memory.
    pub(crate) fn new(page_size: usize) -> Option<Self> {
        let bytes = |len| boxed(repeat_n(0, len));
        let (page, packed) = (bytes(page_size)?, bytes(compress_bound(page_size))?);
        Some(Self { context: CCtx::try_create()?, page, packed })
    }

    /// Returns the bytes that a compressor takes.
    pub(crate) fn bytes(page_size: usize) -> u64 {
        let context = COMPRESSING_BYTES + (TABLES * page_size).min(TABLES_MAX);
        (context + page_size + compress_bound(page_size)) as u64
    }

    /// Compresses a page and passes the result to `put`; `None` if the result is longer than
    /// `len_max` bytes.
    pub(crate) fn compress<R>(
        &mut self,
        page: SharedBytes<'_>,
        len_max: usize,
        put: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        page.copy_to(0, &mut self.page);
        let len = self.context.compress(&mut self.packed[..], &self.page, LEVEL).ok()?;
        (len <= len_max).then(|| put(&self.packed[..len]))
    }
}

/// The contexts that decompress pages.
pub(crate) struct Decompressors {
    contexts: Box<[CachePadded<Mutex<DCtx<'static>>>]>,
}

impl Decompressors {
    /// Creates the contexts; `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        let context = |_| Some(CachePadded::new(Mutex::new(DCtx::try_create()?)));
        Some(Self { contexts: (0..Self::count()).map(context).collect::<Option<_>>()? })
    }

    /// Returns the bytes that the contexts take.
    pub(crate) fn bytes() -> u64 {
        (Self::count() * UNPACKING_BYTES) as u64
    }

    fn count() -> usize {
        sync::cpu::count().div_ceil(CPUS_SHARING)
    }

    /// Decompresses `packed` into `page`. Returns false, and leaves `page` unspecified, if `packed`
    /// doesn't decompress to a page.
    pub(crate) fn decompress(&self, packed: &[u8], page: &mut [u8]) -> bool {
        let len = page.len();
        let unpacked = self.context().decompress(page, packed);
        unpacked == Ok(len)
    }

    /// Locks this CPU's context, or another one if another thread has locked this CPU's. If all are
    /// locked, waits for this CPU's.
    fn context(&self) -> MutexGuard<'_, DCtx<'static>> {
        let own = sync::cpu::current() / CPUS_SHARING % self.contexts.len();
        let (before, from_own) = self.contexts.split_at(own);
        let free = from_own.iter().chain(before).find_map(|context| context.try_lock());
        free.unwrap_or_else(|| self.contexts[own].lock())
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
            let (mut compressor, decompressors) = (Compressor::new(page_size).unwrap(), Decompressors::new().unwrap());
            let words: Vec<_> = (0..page_size as u64 / 8).map(|at| AtomicU64::new(mix(at) & 0x1f1f_1f1f)).collect();
            let shared = SharedBytes::new(&words);
            let packed = compressor.compress(shared, page_size, <[u8]>::to_vec).expect("it shrinks");
            let mut page = vec![0; page_size];
            assert!(decompressors.decompress(&packed, &mut page) && !decompressors.decompress(&packed[1..], &mut page));
            let buffers = compressor.page.len() + compressor.packed.len();
            let compressing = compressor.context.sizeof() + buffers;
            assert!(compressing as u64 <= Compressor::bytes(page_size), "{compressing} for pages of {page_size}");
            let unpacking: usize = decompressors.contexts.iter().map(|context| context.lock().sizeof()).sum();
            assert!(unpacking as u64 <= Decompressors::bytes(), "{unpacking} for pages of {page_size}");
        }
    }

    #[test]
    fn nobody_waits_while_another_context_is_free() {
        let context = || CachePadded::new(Mutex::new(DCtx::try_create().unwrap()));
        let decompressors = Decompressors { contexts: (0..3).map(|_| context()).collect() };
        let _two = (decompressors.context(), decompressors.context());
        let free = decompressors.contexts.iter().filter(|context| context.try_lock().is_some()).count();
        assert_eq!(free, 1);
    }
}
