//! A long array of words that takes the system's memory where it is written, a page at a time, and gives it back in parts.

use std::ops::Range;

use crate::atomic::AtomicU64;
use crate::zeroed::zeroed;

/// Bytes that parts begin and end at so that all of their memory can be given back: any system's page is a part of that.
const ALIGNMENT: usize = if cfg!(pagefold_loom) { WORD } else { 64 << 10 };
const WORD: usize = size_of::<u64>();

/// Words that begin at zero.
#[derive(Debug)]
pub struct SparseWords {
    words: Box<[AtomicU64]>,
    /// The first one at a multiple of [`ALIGNMENT`].
    first: usize,
    len: usize,
}

impl SparseWords {
    /// So many zeros; `None` if there is no room for them.
    #[must_use]
    pub fn new(len: usize) -> Option<Self> {
        let words = zeroed::<AtomicU64>(len.checked_add(ALIGNMENT / WORD)?)?;
        let first = words.as_ptr().addr().next_multiple_of(ALIGNMENT) - words.as_ptr().addr();
        let sparse = Self { words, first: first / WORD, len };
        // A huge page would take more than was written to.
        sparse.advise(0..len, libc::MADV_NOHUGEPAGE);
        Some(sparse)
    }

    /// Some of the words.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> &[AtomicU64] {
        assert!(range.end <= self.len, "{range:?} of {} words", self.len);
        &self.words[self.first + range.start..self.first + range.end]
    }

    /// Gives the memory of those words back to the system, as far as they are whole pages of it. Their values are
    /// unspecified afterwards.
    pub fn discard(&self, range: Range<usize>) {
        self.advise(range, libc::MADV_DONTNEED);
    }

    fn advise(&self, range: Range<usize>, advice: i32) {
        let start = (range.start * WORD).next_multiple_of(system_page());
        let end = range.end * WORD / system_page() * system_page();
        if cfg!(pagefold_loom) || start >= end {
            return;
        }
        let words = self.part(start / WORD..end / WORD);
        // SAFETY: whole pages within an allocation of ours, of atomics, which may change at any time and of which every value is
        // valid. Where it is refused, the memory stays.
        unsafe { libc::madvise(words.as_ptr().cast_mut().cast(), end - start, advice) };
    }
}

fn system_page() -> usize {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(ALIGNMENT).clamp(1, ALIGNMENT)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::atomic::Ordering;

    /// Pages of the system's that a part has.
    fn resident(words: &[AtomicU64]) -> usize {
        let mut pages = vec![0_u8; words.len() * WORD / system_page()];
        // SAFETY: the range is whole pages of an allocation, and there is a byte for each.
        let answer = unsafe { libc::mincore(words.as_ptr().cast_mut().cast(), words.len() * WORD, pages.as_mut_ptr()) };
        assert_eq!(answer, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn memory_comes_where_words_are_written_and_goes_again() {
        let words = SparseWords::new(1 << 20).unwrap();
        let all = words.part(0..1 << 20);
        assert_eq!(resident(all), 0);
        let part = 16 << 10..32 << 10;
        words.part(part.clone()).iter().for_each(|word| word.store(7, Ordering::Relaxed));
        assert_eq!(resident(all), (128 << 10) / system_page());
        words.discard(part.clone());
        assert_eq!(resident(all), 0);
        assert!(words.part(part).iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(SparseWords::new(usize::MAX / 8).is_none());
    }
}
