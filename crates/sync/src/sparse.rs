//! A long array of words. The system allocates its memory page by page, when words are written, and
//! the array can return parts of the memory.
//!
//! The words hold users' bytes, so the array is excluded from core dumps, and a forked child finds
//! zeros in the array. Because the child doesn't get the bytes, the system needn't copy pages that
//! the parent writes to after the fork. Both measures end when the array is dropped, because the
//! allocator may reuse the memory.

use core::ptr::NonNull;
use std::ops::Range;

use crate::atomic::AtomicU64;
use crate::fork::Wiped;
use crate::memory;
use crate::zeroed::zeroed;

/// If a part of the array begins and ends at multiples of this many bytes, all of the part's memory
/// can be returned to the system. This is a multiple of every system's page size.
const ALIGNMENT: usize = if cfg!(pagefold_loom) { WORD } else { 64 << 10 };
const WORD: usize = size_of::<u64>();

/// An array of words, initially zero.
#[derive(Debug)]
pub struct SparseWords {
    words: Box<[AtomicU64]>,
    /// The index of the first word at a multiple of [`ALIGNMENT`].
    first: usize,
    len: usize,
    wiped: Option<Wiped>,
}

impl SparseWords {
    /// Creates an array of `len` zeros. `None` if there is no memory for it.
    #[must_use]
    pub fn new(len: usize) -> Option<Self> {
        let sparse = Self::dense(len)?;
        // A huge page would take more memory than was written.
        sparse.advise(0..len, libc::MADV_NOHUGEPAGE);
        // An allocator that reuses memory writes zeros to it, which makes all of the memory
        // resident. So the memory is returned to the system here. If the system refuses, the memory
        // stays resident.
        let _ = sparse.discard(0..len);
        Some(sparse)
    }

    /// Creates an array of `len` zeros for a caller that will write most of them. The system may
    /// use huge pages for it, unlike for an array from [`new`](Self::new).
    #[must_use]
    pub fn dense(len: usize) -> Option<Self> {
        let words = zeroed::<AtomicU64>(len.checked_add(ALIGNMENT / WORD)?)?;
        let first = words.as_ptr().addr().next_multiple_of(ALIGNMENT) - words.as_ptr().addr();
        let mut sparse = Self { words, first: first / WORD, len, wiped: None };
        if let Some(pages) = sparse.whole_pages(0..len) {
            let (start, bytes) = (NonNull::from(pages).cast(), size_of_val(pages));
            // SAFETY: the range consists of whole pages within an allocation of ours. The pages
            // contain only atomics, for which all values are valid. `drop` ends the promise.
            sparse.wiped = Some(unsafe {
                memory::keep_out_of_dumps(start, bytes);
                Wiped::new(start, bytes)
            });
        }
        Some(sparse)
    }

    /// Returns the number of words.
    #[expect(clippy::len_without_is_empty, reason = "none is as good as any")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns some of the words.
    ///
    /// # Panics
    /// If the range exceeds the array.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> &[AtomicU64] {
        assert!(range.end <= self.len, "{range:?} of {} words", self.len);
        &self.words[self.first + range.start..self.first + range.end]
    }

    /// Returns the memory of the words in `range` to the system, except in system pages that are
    /// only partly in the range. Afterwards the values of the words are unspecified. Returns false
    /// if the system refuses; then the memory stays resident.
    #[must_use]
    pub fn discard(&self, range: Range<usize>) -> bool {
        let Some(pages) = self.whole_pages(range) else { return true };
        // SAFETY: atomics of ours, which may change at any time and of which every value is valid.
        unsafe { memory::discard(NonNull::from(pages).cast(), size_of_val(pages)) }
    }

    fn advise(&self, range: Range<usize>, advice: i32) {
        if let Some(pages) = self.whole_pages(range) {
            // SAFETY: whole pages within an allocation of ours; their contents don't change. If the
            // system refuses, nothing happens.
            unsafe { libc::madvise(pages.as_ptr().cast_mut().cast(), size_of_val(pages), advice) };
        }
    }

    /// Returns the words of the system pages that lie completely in `range`.
    fn whole_pages(&self, range: Range<usize>) -> Option<&[AtomicU64]> {
        let start = (range.start * WORD).next_multiple_of(system_page());
        let end = range.end * WORD / system_page() * system_page();
        (!cfg!(pagefold_loom) && start < end).then(|| self.part(start / WORD..end / WORD))
    }
}

impl Drop for SparseWords {
    fn drop(&mut self) {
        self.wiped.iter_mut().for_each(Wiped::end_and_keep);
        self.advise(0..self.len, libc::MADV_DODUMP);
    }
}

fn system_page() -> usize {
    // SAFETY: only queries a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(ALIGNMENT).clamp(1, ALIGNMENT)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::atomic::Ordering;

    /// Returns the number of a part's system pages that are resident.
    fn resident(words: &[AtomicU64]) -> usize {
        let mut pages = vec![0_u8; words.len() * WORD / system_page()];
        // SAFETY: the range is whole pages of an allocation, and there is a byte for each.
        let answer = unsafe { libc::mincore(words.as_ptr().cast_mut().cast(), words.len() * WORD, pages.as_mut_ptr()) };
        assert_eq!(answer, 0);
        pages.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn memory_comes_where_words_are_written_and_goes_again() {
        // Writes memory and frees it. Once a block of this size has been freed, the allocator keeps
        // freed blocks of up to this size, and hands them out again.
        let bytes = |len| std::hint::black_box(vec![1_u8; len]);
        drop(bytes(16 << 20));
        let (before, _behind) = (bytes(12 << 20), bytes(1 << 20));
        drop(before);
        let words = SparseWords::new(1 << 20).unwrap();
        let all = words.part(0..1 << 20);
        assert_eq!(resident(all), 0);
        let part = 16 << 10..32 << 10;
        words.part(part.clone()).iter().for_each(|word| word.store(7, Ordering::Relaxed));
        assert_eq!(resident(all), (128 << 10) / system_page());
        assert!(words.discard(part.clone()));
        assert_eq!(resident(all), 0);
        assert!(words.part(part.clone()).iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(SparseWords::new(usize::MAX / 8).is_none());
        // Regression: after `mlockall`, all memory is locked, and the system refuses to take locked
        // memory back. Such memory was uncharged, but stayed resident. Now it is unlocked first.
        words.part(part.clone()).iter().for_each(|word| word.store(7, Ordering::Relaxed));
        let locked = words.part(part.clone());
        // SAFETY: changes how the kernel backs memory of ours.
        if unsafe { libc::mlock(locked.as_ptr().cast(), size_of_val(locked)) } != 0 {
            return println!("not here: locked memory");
        }
        assert!(words.discard(part));
        assert_eq!(resident(all), 0);
    }

    /// Returns the flags of the mapping that contains an address, as the system reports them.
    fn flags_at(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let range = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        };
        let mut lines = maps.lines().skip_while(|line| !range(line).is_some_and(|range| range.contains(&address)));
        lines.find(|line| line.starts_with("VmFlags")).unwrap_or_default().to_owned()
    }

    /// Regression: a crash reporter stored a core dump of a server, which contained all of its
    /// tenants' compressed pages. A forked worker inherited these pages, too. So each page that the
    /// server swapped out after the fork took memory twice: the server wrote to a copy of the
    /// memory, and the worker kept the original.
    #[test]
    fn words_are_in_no_dump_and_in_no_child_while_they_are_used() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let done =
            child.args(["--exact", "sparse::tests::flags_of_words", "--ignored", "--nocapture"]).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success() && said.contains("1 passed"), "{}\n{said}", done.status);
    }

    /// Runs in a process of its own, because other tests could reuse the addresses that this test
    /// frees.
    #[test]
    #[ignore = "for a process of its own"]
    fn flags_of_words() {
        for words in [SparseWords::new(1 << 20).unwrap(), SparseWords::dense(1 << 20).unwrap()] {
            let address = words.part(0..1).as_ptr().addr();
            let flags = flags_at(address);
            assert!(flags.contains(" wf") && flags.contains(" dd"), "{flags}");
            drop(words);
            // The memory may be unmapped by now.
            let flags = flags_at(address);
            assert!(!flags.contains(" wf") && !flags.contains(" dd"), "{flags}");
        }
    }
}
