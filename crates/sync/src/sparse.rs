//! A long array of words that takes the system's memory where it is written, a page at a time, and
//! gives it back in parts.
//!
//! The words hold users' bytes: they are in no core dump, and a forked child finds zeros, so that
//! it neither has the bytes nor makes the system copy them. The allocator may use the memory again
//! later, so both end when the array is dropped.

use core::ptr::NonNull;
use std::ops::Range;

use crate::atomic::AtomicU64;
use crate::fork::Wiped;
use crate::memory;
use crate::zeroed::zeroed;

/// Bytes that parts begin and end at so that all of their memory can be given back: any system's
/// page is a part of that.
const ALIGNMENT: usize = if cfg!(pagefold_loom) { WORD } else { 64 << 10 };
const WORD: usize = size_of::<u64>();

/// Words that begin at zero.
#[derive(Debug)]
pub struct SparseWords {
    words: Box<[AtomicU64]>,
    /// The first one at a multiple of [`ALIGNMENT`].
    first: usize,
    len: usize,
    wiped: Option<Wiped>,
}

impl SparseWords {
    /// So many zeros; `None` if there is no room for them.
    #[must_use]
    pub fn new(len: usize) -> Option<Self> {
        let sparse = Self::dense(len)?;
        // A huge page would take more than was written to.
        sparse.advise(0..len, libc::MADV_NOHUGEPAGE);
        // An allocator that uses memory again has zeroed it by writing, and then all of it is
        // there. Refused: it stays.
        let _ = sparse.discard(0..len);
        Some(sparse)
    }

    /// The same for words most of which will be written: the system may use huge pages.
    #[must_use]
    pub fn dense(len: usize) -> Option<Self> {
        let words = zeroed::<AtomicU64>(len.checked_add(ALIGNMENT / WORD)?)?;
        let first = words.as_ptr().addr().next_multiple_of(ALIGNMENT) - words.as_ptr().addr();
        let mut sparse = Self { words, first: first / WORD, len, wiped: None };
        if let Some(pages) = sparse.whole_pages(0..len) {
            let (start, bytes) = (NonNull::from(pages).cast(), size_of_val(pages));
            // SAFETY: whole pages within an allocation of ours, of atomics, of which all values are
            // valid. `drop` ends it.
            sparse.wiped = Some(unsafe {
                memory::keep_out_of_dumps(start, bytes);
                Wiped::new(start, bytes)
            });
        }
        Some(sparse)
    }

    /// How many.
    #[expect(clippy::len_without_is_empty, reason = "none is as good as any")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
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

    /// Gives the memory of those words back to the system, as far as they are whole pages of it.
    /// Their values are unspecified afterwards. False if the system refuses: the memory stays.
    #[must_use]
    pub fn discard(&self, range: Range<usize>) -> bool {
        let Some(pages) = self.whole_pages(range) else { return true };
        // SAFETY: atomics of ours, which may change at any time and of which every value is valid.
        unsafe { memory::discard(NonNull::from(pages).cast(), size_of_val(pages)) }
    }

    fn advise(&self, range: Range<usize>, advice: i32) {
        if let Some(pages) = self.whole_pages(range) {
            // SAFETY: whole pages within an allocation of ours; their contents don't change. Where
            // it is refused, they stay as they are.
            unsafe { libc::madvise(pages.as_ptr().cast_mut().cast(), size_of_val(pages), advice) };
        }
    }

    /// The words of the system's pages that lie in `range` as a whole.
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
        // Memory that was written to, which an allocator that has got so much back once hands out
        // again.
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
        // As all memory is after `mlockall`. It was uncharged, and stayed.
        words.part(part.clone()).iter().for_each(|word| word.store(7, Ordering::Relaxed));
        let locked = words.part(part.clone());
        // SAFETY: changes how the kernel backs memory of ours.
        if unsafe { libc::mlock(locked.as_ptr().cast(), size_of_val(locked)) } != 0 {
            return println!("not here: locked memory");
        }
        assert!(words.discard(part));
        assert_eq!(resident(all), 0);
    }

    /// The flags of the mapping that an address is in, as the system tells them.
    fn flags_at(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let range = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        };
        let mut lines = maps.lines().skip_while(|line| !range(line).is_some_and(|range| range.contains(&address)));
        lines.find(|line| line.starts_with("VmFlags")).unwrap_or_default().to_owned()
    }

    /// A crash reporter stored a core dump of a server, and all of its tenants' compressed pages
    /// were in it. A forked worker had them, too, and each page that was swapped out afterwards
    /// took memory twice.
    #[test]
    fn words_are_in_no_dump_and_in_no_child_while_they_are_used() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let done =
            child.args(["--exact", "sparse::tests::flags_of_words", "--ignored", "--nocapture"]).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success() && said.contains("1 passed"), "{}\n{said}", done.status);
    }

    /// Where other tests would take the addresses that are given back.
    #[test]
    #[ignore = "for a process of its own"]
    fn flags_of_words() {
        for words in [SparseWords::new(1 << 20).unwrap(), SparseWords::dense(1 << 20).unwrap()] {
            let address = words.part(0..1).as_ptr().addr();
            let flags = flags_at(address);
            assert!(flags.contains(" wf") && flags.contains(" dd"), "{flags}");
            drop(words);
            // It may be unmapped by now.
            let flags = flags_at(address);
            assert!(!flags.contains(" wf") && !flags.contains(" dd"), "{flags}");
        }
    }
}
