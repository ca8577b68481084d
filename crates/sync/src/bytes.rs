//! Bytes that some threads read while another thread may be overwriting them.
//!
//! A reader copies a frame of a page cache without a lock. A writer may change the frame meanwhile,
//! so the copy may be torn; the reader detects a torn copy and discards it. In Rust these racing
//! accesses are undefined behavior unless all of them are atomic and have the same size. So the
//! bytes are a slice of `AtomicU64`, and only the code in this module accesses them. The
//! invariants:
//!
//! - B1. Rust code that runs while other threads may access the bytes uses `Relaxed` loads and
//!   stores of whole words. On x86-64, runs of words are copied in assembly, with wider or
//!   unaligned moves. In the abstract machine, each such move stands for a sequence of relaxed
//!   loads or stores of whole words. If a move reads only part of a word, the load of this word
//!   ignores the other bytes. If a move writes only part of a word, the store writes the word's
//!   other bytes back unchanged. This overwrites no store of another thread, because all functions
//!   that write require their caller to be the only writer.
//! - B2. The kernel and devices write through [`SharedBytes::as_ptr`]. Their writes are outside the
//!   abstract machine. They write to a frame only while the frame has a single owner; optimistic
//!   readers may still read the frame.
//! - B3. Only [`SharedBytes::as_slice`] creates a `&[u8]` over the bytes. The caller of `as_slice`
//!   excludes every writer for as long as the slice lives. Concurrent atomic loads don't conflict
//!   with the slice.
//!
//! The caller provides the ordering that makes a torn copy detectable: see `frames`' `page_map`.
//!
//! On a virtual machine (`manycore`), a copy is simulated in parts of up to 4 KiB, not word by
//! word. Each part takes virtual time, and all its bytes are copied at a single moment of that
//! time.

use core::ops::Range;

use crate::atomic::{AtomicU64, Ordering};
#[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
use crate::prefetch::lines_to_write;
use crate::prefetch::{LINE, prefetch};

/// The maximum number of cache lines to prefetch. Once a reader has read these in order, the CPU
/// prefetches the next lines itself.
const LINES_MAX: usize = 4;

/// Bytes in a word.
const WORD: usize = 8;

/// Returns the underlying word. On a virtual machine, an access to it takes no virtual time: the
/// copying code adds the time for the whole copy.
#[inline]
fn plain(word: &AtomicU64) -> &PlainWord {
    #[cfg(not(pagefold_manycore))]
    return word;
    #[cfg(pagefold_manycore)]
    // SAFETY: the pointer comes from a reference to a type of the same layout, and all accesses are
    // atomic.
    unsafe {
        PlainWord::from_ptr(word.as_ptr())
    }
}

#[cfg(not(pagefold_manycore))]
type PlainWord = AtomicU64;
#[cfg(pagefold_manycore)]
type PlainWord = core::sync::atomic::AtomicU64;

/// A run of whole words, shared between threads. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    words: &'a [AtomicU64],
}

impl<'a> SharedBytes<'a> {
    /// Creates a run of the bytes of `words`, in memory order.
    #[inline]
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Creates a run of bytes that the caller has exclusively. `None` if they aren't whole, aligned
    /// words.
    #[cfg(not(pagefold_loom))]
    #[must_use]
    pub fn of(bytes: &'a mut [u8]) -> Option<Self> {
        // SAFETY: `AtomicU64` has the layout of `u64`, of which every value is valid, and the
        // exclusive borrow lasts as long as the result.
        let (before, words, after) = unsafe { bytes.align_to_mut::<AtomicU64>() };
        (before.is_empty() && after.is_empty()).then_some(Self { words })
    }

    /// Returns the length in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() * WORD
    }

    /// Returns whether there are no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Calls `look` with the word that contains the byte at `offset`, if the run has that byte. For
    /// example, `look` may prefetch the word.
    #[inline]
    pub fn with_word(&self, offset: usize, look: impl FnOnce(&AtomicU64)) {
        if let Some(word) = self.words.get(offset / WORD) {
            look(word);
        }
    }

    /// Prefetches the first cache lines of the `len` bytes at `offset`, at most `LINES_MAX` lines.
    /// Does nothing on virtual CPUs, which simulate the caches of copied bytes separately.
    #[inline]
    pub fn prefetch(&self, offset: usize, len: usize) {
        if cfg!(pagefold_manycore) {
            return;
        }
        let first = offset / LINE * LINE;
        let end = (offset + len).min(first + LINES_MAX * LINE).min(self.len());
        for at in (first..end).step_by(LINE) {
            self.with_word(at, prefetch);
        }
    }

    /// Returns the first `len` bytes. `len` must be a multiple of 8 within the run.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        assert!(len.is_multiple_of(WORD), "length {len} ends within a word");
        Self { words: &self.words[..len / WORD] }
    }

    /// Returns the bytes from `offset` on. `offset` must be a multiple of 8 within the run.
    #[must_use]
    pub fn suffix(&self, offset: usize) -> Self {
        assert!(offset.is_multiple_of(WORD), "offset {offset} is within a word");
        Self { words: &self.words[offset / WORD..] }
    }

    /// Copies `into.len()` bytes from `offset` on, with `Relaxed` loads. The copied bytes may be of
    /// different ages, even within one word, because moves may overlap, and so load a word twice.
    ///
    /// # Panics
    /// If the range exceeds the run. That is a bug of the caller, which must check the user's range
    /// first.
    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        let end = offset.checked_add(into.len());
        assert!(end.is_some_and(|end| end <= self.len()), "range outside of the bytes");
        // SAFETY: checked.
        unsafe { self.copy_to_unchecked(offset, into) }
    }

    /// Copies `into.len()` bytes from `offset` on without checking the range. See also
    /// [`copy_to`](Self::copy_to).
    ///
    /// # Safety
    /// `offset + into.len() ≤ self.len()`.
    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub unsafe fn copy_to_unchecked(&self, offset: usize, into: &mut [u8]) {
        #[cfg(not(pagefold_manycore))]
        // SAFETY: the caller's.
        unsafe {
            self.copy_part_to(offset, into);
        }
        #[cfg(pagefold_manycore)]
        manycore::bytes::read(self.as_ptr().addr() + offset, into.len(), |part| {
            // SAFETY: the parts are within the caller's range.
            unsafe { self.copy_part_to(offset + part.start, &mut into[part]) }
        });
    }

    /// Copies one part of the range of [`copy_to_unchecked`](Self::copy_to_unchecked). On a virtual
    /// machine, a part is read at a single moment. Otherwise, the whole range is one part.
    ///
    /// # Safety
    /// `offset + into.len() ≤ self.len()`.
    #[inline(always)]
    unsafe fn copy_part_to(&self, offset: usize, into: &mut [u8]) {
        #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
        // SAFETY: the caller checked the range, `into` is exclusive, and B1 allows the accesses.
        unsafe {
            wide::copy(self.words.as_ptr().cast(), offset, into.as_mut_ptr(), into.len());
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri)))))]
        self.copy_words_to(offset, into);
    }

    /// Copies like [`copy_to`](Self::copy_to), word by word: for machines other than x86-64, and
    /// for loom, ThreadSanitizer and Miri.
    #[cfg_attr(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))), allow(dead_code))]
    fn copy_words_to(&self, offset: usize, into: &mut [u8]) {
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            // Relaxed: the caller's fence after the copy orders this load (module head).
            let word = plain(&self.words[at / WORD]).load(Ordering::Relaxed).to_ne_bytes();
            let part = &word[at % WORD..];
            let n = part.len().min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&part[..n]);
            at += n;
            rest = later;
        }
    }

    /// Overwrites the bytes from `offset` on with `from`. The caller is the only writer.
    ///
    /// # Panics
    /// If the range exceeds the run.
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn copy_from(&self, offset: usize, from: &[u8]) {
        #[cfg(not(pagefold_manycore))]
        self.copy_part_from(offset, from);
        #[cfg(pagefold_manycore)]
        manycore::bytes::write(self.as_ptr().addr() + offset, from.len(), |part| {
            self.copy_part_from(offset + part.start, &from[part]);
        });
    }

    /// Overwrites the bytes from `offset` on with `from`, on behalf of a simulated device. The
    /// caller is the only writer. On a virtual machine, [`copy_from`](Self::copy_from) charges the
    /// copy to the calling CPU; this function charges it to no CPU.
    ///
    /// # Panics
    /// If the range exceeds the run.
    pub fn copy_from_device(&self, offset: usize, from: &[u8]) {
        self.copy_part_from(offset, from);
        #[cfg(pagefold_manycore)]
        manycore::bytes::written_by_device(self.as_ptr().addr() + offset, from.len());
    }

    #[inline]
    fn copy_part_from(&self, offset: usize, from: &[u8]) {
        #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
        if from.len() >= wide::LIBRARY_STORE_MIN {
            assert!(offset.checked_add(from.len()).is_some_and(|end| end <= self.len()), "range outside of the bytes");
            // SAFETY: checked; the caller is the only writer, so B1 allows wide stores.
            unsafe { wide::store(from.as_ptr(), self.as_ptr().add(offset), from.len()) };
            return;
        }
        self.copy_words_from(offset, from);
    }

    fn copy_words_from(&self, offset: usize, from: &[u8]) {
        let mut at = offset;
        let mut rest = from;
        while !rest.is_empty() {
            let cell = plain(&self.words[at / WORD]);
            let start = at % WORD;
            let n = (WORD - start).min(rest.len());
            // Relaxed: the load returns a store of this thread, or of an earlier writer with which
            // the caller has synchronized. Readers don't rely on the order of these stores: they
            // check a page word or a version, which the writer publishes after them.
            let mut word = if n == WORD { [0; WORD] } else { cell.load(Ordering::Relaxed).to_ne_bytes() };
            word[start..start + n].copy_from_slice(&rest[..n]);
            cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            at += n;
            rest = &rest[n..];
        }
    }

    /// Overwrites all bytes with `from`, which must have the same length. The stores bypass the
    /// CPU's caches, so this function is for bytes that won't be read soon. The caller must be the
    /// only writer. The stores are complete when this function returns.
    ///
    /// # Panics
    /// If the lengths differ.
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn stream_from(&self, from: &[u8]) {
        assert!(from.len() == self.len(), "lengths differ");
        #[cfg(not(pagefold_manycore))]
        self.stream_all_from(from);
        #[cfg(pagefold_manycore)]
        manycore::bytes::stream(self.as_ptr().addr(), from.len(), |part| {
            if part.start == 0 {
                self.stream_all_from(from);
            }
        });
    }

    #[inline]
    fn stream_all_from(&self, from: &[u8]) {
        #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
        if wide::can_stream(self.as_ptr(), from.len()) {
            // SAFETY: `from` and these bytes have the same length. These bytes are aligned, and
            // consist of whole lines. The caller is the only writer, so B1 allows these wide
            // stores.
            unsafe { wide::stream(from.as_ptr(), self.as_ptr(), from.len()) };
            return;
        }
        self.copy_part_from(0, from);
    }

    /// Overwrites all bytes with `from`, which must have the same length. The bytes of `from` may
    /// change meanwhile. The caller is the only writer of the bytes that are overwritten.
    ///
    /// # Panics
    /// If the lengths differ.
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn copy_from_shared(&self, from: SharedBytes<'_>) {
        assert!(from.len() == self.len(), "lengths differ");
        #[cfg(not(pagefold_manycore))]
        self.copy_all_from(from);
        #[cfg(pagefold_manycore)]
        {
            manycore::bytes::read(from.as_ptr().addr(), from.len(), |_| ());
            manycore::bytes::write(self.as_ptr().addr(), self.len(), |part| self.copy_words_of(from, part));
        }
    }

    /// Overwrites everything with `from`, bypassing the CPU's caches. See also
    /// [`copy_from_shared`](Self::copy_from_shared) and [`stream_from`](Self::stream_from).
    ///
    /// # Panics
    /// If the lengths differ.
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn stream_from_shared(&self, from: SharedBytes<'_>) {
        assert!(from.len() == self.len(), "lengths differ");
        #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, pagefold_manycore, miri))))]
        if wide::can_stream(self.as_ptr(), from.len()) {
            // SAFETY: as in `stream_all_from`; the loads are of shared words (B1).
            unsafe { wide::stream(from.as_ptr(), self.as_ptr(), from.len()) };
            return;
        }
        #[cfg(not(pagefold_manycore))]
        self.copy_all_from(from);
        #[cfg(pagefold_manycore)]
        {
            manycore::bytes::read(from.as_ptr().addr(), from.len(), |_| ());
            manycore::bytes::stream(self.as_ptr().addr(), self.len(), |part| self.copy_words_of(from, part));
        }
    }

    #[cfg(not(pagefold_manycore))]
    fn copy_all_from(&self, from: SharedBytes<'_>) {
        #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
        // SAFETY: both have the same length, and B1 allows it. If they overlap, the bytes are
        // unspecified; that is the only effect.
        unsafe {
            wide::store(from.as_ptr(), self.as_ptr(), from.len());
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri)))))]
        self.copy_words_of(from, 0..from.len());
    }

    /// Copies the words of a range one by one: for machines other than x86-64, for the virtual
    /// machine, and for loom, ThreadSanitizer and Miri.
    #[cfg_attr(
        all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, pagefold_manycore, miri))),
        allow(dead_code)
    )]
    fn copy_words_of(&self, from: SharedBytes<'_>, range: Range<usize>) {
        let words = range.start / WORD..range.end / WORD;
        for (to, from) in self.words[words.clone()].iter().zip(&from.words[words]) {
            // Relaxed, both: as in `copy_words_to` and `copy_words_from`.
            plain(to).store(plain(from).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Zeroes all bytes. The caller is about to write to the bytes of `soon`, so their cache lines
    /// are prefetched, and arrive while the other lines are zeroed. The stores to the other lines
    /// bypass the CPU's caches. The caller must be the only writer. The stores are complete when
    /// this function returns.
    ///
    /// # Panics
    /// If `soon` exceeds the run.
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn stream_zeros(&self, soon: Range<usize>) {
        let lines = soon.start / LINE * LINE..soon.end.next_multiple_of(LINE).min(self.len());
        assert!(lines.start <= lines.end && soon.end <= self.len(), "range outside of the bytes");
        if lines.len() == self.len() {
            return self.zero_from(0);
        }
        #[cfg(not(pagefold_manycore))]
        self.stream_zeros_around(&lines);
        #[cfg(pagefold_manycore)]
        {
            manycore::bytes::stream(self.as_ptr().addr(), self.len() - lines.len(), |part| {
                if part.start == 0 {
                    self.stream_zeros_around(&lines);
                }
            });
            manycore::bytes::write(self.as_ptr().addr() + lines.start, lines.len(), |_| ());
        }
    }

    fn stream_zeros_around(&self, lines: &Range<usize>) {
        #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
        if wide::can_stream(self.as_ptr(), self.len()) {
            let to = self.as_ptr();
            lines_to_write(to.wrapping_add(lines.start), lines.len());
            // SAFETY: whole lines of the run, before and after the lines of `soon`. The caller is
            // the only writer, and B1 allows it.
            unsafe {
                wide::stream_zeros(to, lines.start);
                wide::stream_zeros(to.add(lines.end), self.len() - lines.end);
            }
            wide::stream_fence();
            self.zero_words(lines.clone());
            return;
        }
        let _ = lines;
        self.zero_all_from(0);
    }

    /// Zeroes everything from `offset` on. The caller is the only writer.
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn zero_from(&self, offset: usize) {
        #[cfg(not(pagefold_manycore))]
        self.zero_all_from(offset);
        #[cfg(pagefold_manycore)]
        manycore::bytes::write(self.as_ptr().addr() + offset, self.len().saturating_sub(offset), |part| {
            // The first part's turn zeroes everything.
            if part.start == 0 {
                self.zero_all_from(offset);
            }
        });
    }

    fn zero_all_from(&self, offset: usize) {
        let aligned = offset.next_multiple_of(WORD).min(self.len());
        let zeros = [0; WORD];
        self.copy_part_from(offset, &zeros[..aligned - offset.min(aligned)]);
        self.zero_words(aligned..self.len());
    }

    fn zero_words(&self, range: Range<usize>) {
        let words = &self.words[range.start / WORD..range.end / WORD];
        #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
        if words.len() > LINE / WORD {
            // SAFETY: the length is that of the words; the caller is the only writer, and B1 allows
            // it.
            unsafe { wide::zero(words.as_ptr().cast_mut().cast(), size_of_val(words)) };
            return;
        }
        for word in words {
            // Relaxed: as in `copy_from`.
            plain(word).store(0, Ordering::Relaxed);
        }
    }

    /// Returns the address of the bytes, for the kernel to write to (B2).
    #[cfg(not(pagefold_loom))]
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }

    /// Returns the bytes as a plain slice.
    ///
    /// # Safety
    /// No thread may write to the bytes while the slice lives (B3), and all earlier writes must
    /// happen before this call.
    #[cfg(not(pagefold_loom))]
    #[inline]
    #[must_use]
    pub unsafe fn as_slice(&self) -> &'a [u8] {
        // SAFETY: `AtomicU64` has the layout of `u64`, every byte of which is initialized; the
        // caller excludes writers.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), self.len()) }
    }
}

#[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
mod wide;

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
