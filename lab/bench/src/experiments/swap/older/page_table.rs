//! Page tables, as flat as Pagefold's page maps: a word for each page, and a spinlock for each 512
//! words.

use sync::atomic::{AtomicU64, Ordering};

use crate::experiments::older::spin_lock::SpinLock;

/// Words with a lock in common: a page of them.
const WORDS_OF_LOCK: usize = 512;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A CPU sets it in a present entry when it uses the page.
const ACCESSED: u64 = 1 << 61;
const NUMBER: u64 = ACCESSED - 1;

/// What a word says of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    None,
    /// In memory, there.
    Present(u32),
    /// In this slot.
    Swapped(u64),
}

impl Entry {
    fn of(word: u64) -> Self {
        match word {
            _ if word & PRESENT != 0 => Self::Present((word & NUMBER) as u32),
            _ if word & SWAPPED != 0 => Self::Swapped(word & NUMBER),
            _ => Self::None,
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Present(page) => PRESENT | u64::from(page),
            Self::Swapped(slot) => SWAPPED | slot,
        }
    }
}

/// The tables of all spaces.
pub(super) struct PageTable {
    words: Box<[AtomicU64]>,
    locks: Box<[SpinLock]>,
}

impl PageTable {
    pub(super) fn new(pages: usize) -> Self {
        Self {
            words: (0..pages).map(|_| AtomicU64::new(0)).collect(),
            locks: (0..pages.div_ceil(WORDS_OF_LOCK)).map(|_| SpinLock::default()).collect(),
        }
    }

    pub(super) fn get(&self, at: usize) -> Entry {
        // Acquire pairs with the Release in `replace`.
        Entry::of(self.words[at].load(Ordering::Acquire))
    }

    /// Does what a CPU does when it uses a page: sets the accessed bit if it is clear.
    pub(super) fn use_page(&self, at: usize) -> Entry {
        let word = self.words[at].load(Ordering::Acquire);
        if word & PRESENT != 0 && word & ACCESSED == 0 {
            // Relaxed: a hint. It fails if the page has just gone.
            let _ = self.words[at].compare_exchange(word, word | ACCESSED, Ordering::Relaxed, Ordering::Relaxed);
        }
        Entry::of(word)
    }

    /// Whether the page was used since the last look.
    pub(super) fn take_accessed(&self, at: usize) -> bool {
        let is_set = self.words[at].load(Ordering::Relaxed) & ACCESSED != 0;
        is_set && self.words[at].fetch_and(!ACCESSED, Ordering::Relaxed) & ACCESSED != 0
    }

    /// Replaces an entry, unless it isn't `from` any more.
    pub(super) fn replace(&self, at: usize, from: Entry, to: Entry) -> bool {
        self.locks[at / WORDS_OF_LOCK].with(|| {
            let mut word = self.words[at].load(Ordering::Relaxed);
            while word & !ACCESSED == from.word() {
                // Release: a thread that sees the entry sees the page's bytes. The exchange fails
                // if a CPU has set the accessed bit meanwhile; the loop then retries.
                match self.words[at].compare_exchange(word, to.word(), Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return true,
                    Err(now) => word = now,
                }
            }
            false
        })
    }
}
