//! Buffers that hold encrypted pages while a device reads them.

use sync::SharedBytes;
use sync::lock::{Condvar, Mutex};
use sync::time::{Duration, Instant};

use crate::slot_word::BATCH_MAX;

/// Direct I/O requires addresses that are a multiple of this.
const ALIGNMENT: usize = 4096;
/// Number of buffers of an area: one per CPU, within these bounds.
const COUNT_MIN: usize = 4;
const COUNT_MAX: usize = 16;
/// A small area has one buffer for this many slots.
const SLOTS_EACH: u64 = 1024;
/// A page of this size is decrypted on the stack, a page of another size on the heap.
const ON_STACK: usize = 4096;

/// The buffers of an area.
pub(super) struct Buffers {
    idle: Mutex<Vec<Box<[u8]>>>,
    given_back: Condvar,
    page_size: usize,
}

impl Buffers {
    fn count(slots: u64) -> usize {
        let wanted = sync::cpu::count().clamp(COUNT_MIN, COUNT_MAX);
        wanted.min(usize::try_from(slots.div_ceil(SLOTS_EACH)).unwrap_or(wanted)).max(1)
    }

    fn bytes_each(page_size: usize) -> usize {
        BATCH_MAX * page_size + ALIGNMENT
    }

    /// Returns the bytes that the buffers of an area of `slots` slots take.
    pub(super) fn bytes(slots: u64, page_size: usize) -> u64 {
        (Self::count(slots) * Self::bytes_each(page_size)) as u64
    }

    /// Creates the buffers; `None` if there is no memory for them.
    pub(super) fn new(slots: u64, page_size: usize) -> Option<Self> {
        let buffer = || {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(Self::bytes_each(page_size)).ok()?;
            bytes.resize(Self::bytes_each(page_size), 0);
            Some(bytes.into_boxed_slice())
        };
        let idle = (0..Self::count(slots)).map(|_| buffer()).collect::<Option<Vec<_>>>()?;
        Some(Self { idle: Mutex::new(idle), given_back: Condvar::new(), page_size })
    }

    /// Takes an idle buffer; `None` if no buffer becomes free within `patience`.
    pub(super) fn take(&self, patience: Duration) -> Option<Buffer<'_>> {
        let mut idle = self.idle.lock();
        let mut begun = None;
        loop {
            if let Some(bytes) = idle.pop() {
                return Some(Buffer { bytes, of: self });
            }
            let waited = begun.get_or_insert_with(Instant::now).elapsed();
            self.given_back.wait_for(&mut idle, patience.checked_sub(waited).filter(|left| !left.is_zero())?);
        }
    }
}

/// A buffer in use.
pub(super) struct Buffer<'a> {
    bytes: Box<[u8]>,
    of: &'a Buffers,
}

impl Buffer<'_> {
    fn aligned(&mut self) -> &mut [u8] {
        let start = self.bytes.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        &mut self.bytes[start..]
    }

    /// Returns page number `at` of the buffer.
    pub(super) fn page(&mut self, at: usize) -> &mut [u8] {
        let size = self.of.page_size;
        &mut self.aligned()[at * size..(at + 1) * size]
    }

    /// Returns the pages of the buffer, for a device to read.
    pub(super) fn pages(&mut self) -> impl Iterator<Item = SharedBytes<'_>> {
        let size = self.of.page_size;
        // Pages consist of whole words, and are aligned to words.
        self.aligned().chunks_exact_mut(size).filter_map(SharedBytes::of)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.of.idle.lock().push(std::mem::take(&mut self.bytes));
        self.of.given_back.notify_one();
    }
}

/// Applies `change` to a copy of `bytes`, and replaces `bytes` by the copy if `change` returns
/// true. Returns false, and leaves `bytes` unchanged, if `change` returns false or there is no
/// memory for the copy. No other thread may access `bytes` meanwhile.
pub(super) fn with_copy(bytes: SharedBytes<'_>, change: impl FnOnce(&mut [u8]) -> bool) -> bool {
    let work = |copy: &mut [u8]| {
        bytes.copy_to(0, copy);
        let is_good = change(copy);
        if is_good {
            bytes.copy_from(0, copy);
        }
        is_good
    };
    if bytes.len() == ON_STACK {
        return work(&mut [0; ON_STACK]);
    }
    let mut copy = Vec::new();
    if copy.try_reserve_exact(bytes.len()).is_err() {
        return false;
    }
    copy.resize(bytes.len(), 0);
    work(&mut copy)
}
