//! One word for each page: which threads hold it, and how often its contents have changed.
//!
//! The top byte is the state, the lower 56 bits are a version, as in "Virtual-Memory Assisted
//! Buffer Management" (Leis et al., SIGMOD 2023):
//!
//! | top byte | state | meaning |
//! |---|---|---|
//! | 0 | unlocked | resident; recently used, as far as the clock knows |
//! | 1..=252 | shared | resident; this many readers |
//! | 253 | locked | one thread loads or evicts it |
//! | 254 | marked | resident; not used since the clock passed |
//! | 255 | evicted | absent |
//!
//! The version is incremented whenever an exclusive lock is released. So if a reader finds the same
//! version before and after its copy, it has copied one state of the page.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The word.
pub(super) struct PageState(AtomicU64);

/// What the word held at some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen(u64);

const UNLOCKED: u64 = 0;
const SHARED_MAX: u64 = 252;
const LOCKED: u64 = 253;
const MARKED: u64 = 254;
const EVICTED: u64 = 255;

const VERSION_BITS: u32 = 56;
const VERSION: u64 = (1 << VERSION_BITS) - 1;

impl Seen {
    fn state(self) -> u64 {
        self.0 >> VERSION_BITS
    }

    fn with(self, state: u64) -> u64 {
        (self.0 & VERSION) | (state << VERSION_BITS)
    }

    #[inline(always)]
    pub(super) fn is_unlocked(self) -> bool {
        self.state() == UNLOCKED
    }

    pub(super) fn is_marked(self) -> bool {
        self.state() == MARKED
    }

    pub(super) fn is_evicted(self) -> bool {
        self.state() == EVICTED
    }

    /// Resident and not about to change.
    #[inline(always)]
    pub(super) fn is_readable(self) -> bool {
        self.state() <= SHARED_MAX
    }
}

impl PageState {
    pub(super) fn evicted() -> Self {
        Self(AtomicU64::new(EVICTED << VERSION_BITS))
    }

    /// The word. Acquire pairs with the Release in `unlock`: if the word is readable, the reader
    /// sees the page's contents.
    #[inline(always)]
    pub(super) fn load(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }

    /// Returns true if the bytes copied since `seen`, a readable word, are one state of the page.
    /// Readers and the clock may have changed the word meanwhile.
    #[inline(always)]
    pub(super) fn still(&self, seen: Seen) -> bool {
        // Keeps the copy's loads before the load of the word below. Pairs with the Acquire in
        // `try_lock`, after which the holder changes the bytes.
        fence(Ordering::Acquire);
        let now = Seen(self.0.load(Ordering::Relaxed));
        now == seen || self.still_slow(seen, now)
    }

    #[cold]
    fn still_slow(&self, seen: Seen, now: Seen) -> bool {
        let same_version = now.0 & VERSION == seen.0 & VERSION;
        same_version && (now.is_readable() || (now.is_marked() && self.exchange(now, UNLOCKED)))
    }

    /// Marked to unlocked: the page is used again.
    pub(super) fn try_unmark(&self, seen: Seen) -> bool {
        self.exchange(seen, UNLOCKED)
    }

    /// Unlocked to marked: the clock has passed.
    pub(super) fn try_mark(&self, seen: Seen) -> bool {
        seen.is_unlocked() && self.exchange(seen, MARKED)
    }

    /// Takes the page for one thread. `seen` has no holder.
    pub(super) fn try_lock(&self, seen: Seen) -> bool {
        self.exchange(seen, LOCKED)
    }

    /// Adds a reader, if no thread has the page exclusively.
    #[inline(always)]
    pub(super) fn try_share(&self, seen: Seen) -> bool {
        match seen.state() {
            readers @ 0..SHARED_MAX => self.exchange(seen, readers + 1),
            MARKED => self.exchange(seen, 1),
            _ => false,
        }
    }

    /// Takes a reader away.
    #[inline(always)]
    pub(super) fn unshare(&self) {
        // The top byte counts the readers. Release: the copy ends before the reader is counted out.
        self.0.fetch_sub(1 << VERSION_BITS, Ordering::Release);
    }

    /// Releases the exclusive lock; the page is then resident or evicted. Release publishes the
    /// changes of the page's bytes.
    pub(super) fn unlock(&self, resident: bool) {
        // Relaxed: only the holder changes a locked word.
        let locked = self.0.load(Ordering::Relaxed);
        let state = if resident { UNLOCKED } else { EVICTED };
        self.0.store(((locked + 1) & VERSION) | (state << VERSION_BITS), Ordering::Release);
    }

    #[inline(always)]
    fn exchange(&self, seen: Seen, state: u64) -> bool {
        // Acquire: see `load` and `still`.
        self.0.compare_exchange(seen.0, seen.with(state), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimistic_reader_notices_a_change_and_ignores_the_clock() {
        let state = PageState::evicted();
        assert!(state.load().is_evicted() && state.try_lock(state.load()));
        state.unlock(true);
        let seen = state.load();
        assert!(seen.is_unlocked() && state.still(seen));
        assert!(state.try_mark(seen) && state.still(seen), "the mark is taken back");
        assert!(state.load().is_unlocked());
        assert!(state.try_lock(state.load()) && !state.still(seen));
        state.unlock(true);
        assert!(!state.still(seen), "the version has grown");
    }

    #[test]
    fn readers_keep_writers_out() {
        let state = PageState::evicted();
        assert!(state.try_lock(state.load()));
        assert!(!state.try_share(state.load()));
        state.unlock(true);
        assert!(state.try_share(state.load()) && state.try_share(state.load()));
        assert!(!state.load().is_unlocked() && !state.try_mark(state.load()));
        state.unshare();
        state.unshare();
        assert!(state.load().is_unlocked());
    }
}
