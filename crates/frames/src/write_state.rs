//! Tracks whether a resident page differs from its file, in one atomic of the frame's record.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | `CLEAN` | the file has these bytes durably | writer: → `DIRTY` |
//! | `DIRTY` | the file doesn't have these bytes | flusher: → `HELD` |
//! | `HELD` (+ `REWRITTEN`) | the flusher writes the bytes to the file, or settles the outcome | holder: → any other; writer: + `REWRITTEN` |
//! | `UNSTABLE` | written to the file, which may lose the bytes in a power cut | writer: → `DIRTY`; after a sync: → `HELD` → `CLEAN`, or `DIRTY` if it failed |
//!
//! - S1. Only a `CLEAN` page is evicted, so the only copy of a page is never dropped. An evictor
//!   checks the state while it has the frame frozen, which keeps writers out.
//! - S2. The *holder* of a page is the flusher that made it `HELD`. A held page stays in its frame,
//!   but readers and writers can still use it. If a writer has changed the page meanwhile
//!   (`REWRITTEN`), the page becomes `DIRTY` when the holder releases it.
//! - S3. A writer changes the bytes first, and the state *afterwards*. It always changes the state
//!   by a read-modify-write, even from `DIRTY` to `DIRTY` (except for pages that belong to no file,
//!   see [`written_unfiled`](WriteState::written_unfiled)). If this change comes before the
//!   flusher's change to `HELD`, the flusher sees the writer's bytes (Release to Acquire). If it
//!   comes after, the page becomes `DIRTY` again when the flusher releases it.
//!
//!   While the writer is still changing the bytes, the flusher may write the half-written page to
//!   the file and mark it `CLEAN`. Even then no evictor takes the page before the writer has made
//!   it `DIRTY`, because the writer has the frame frozen.
//! - S4. The flusher finds the frame through the page's word, holds the page in the frame, and then
//!   loads the word again. If the frame went to another page in between, the flusher holds the
//!   other page by mistake. It then releases that page in the same state as before. A hold by
//!   mistake ends within a few instructions, so a thread that finds `HELD` waits and tries again.

use sync::atomic::{AtomicU32, Ordering};

const STATE: u32 = 0b11;
const CLEAN: u32 = 0;
const DIRTY: u32 = 1;
const UNSTABLE: u32 = 2;
const HELD: u32 = 3;
/// With `HELD`: a writer has changed the page since the hold began.
const REWRITTEN: u32 = 1 << 2;
/// The page was used [`USES_MAX`] times or more since reclaim last looked: the hot bit of a page
/// that was written to. A page that wasn't written to has this bit in its word.
const HOT: u32 = 1 << 3;
/// The page was read ahead of its use, and not used since. With `MARKED`, its first user starts the
/// next readahead.
const AHEAD: u32 = 1 << 4;
const MARKED: u32 = 1 << 5;
/// The page was read ahead, and was first used after reclaim last looked at the page.
const FIRST_USED: u32 = 1 << 6;
/// How often the page was used since reclaim last looked. Counts to `USES_MAX - 1`; the next use
/// makes the page hot.
const USE: u32 = 1 << 7;
const USES: u32 = 0b11 * USE;

/// Uses are counted up to this number.
pub const USES_MAX: u32 = 3;

const _: () = assert!((USES_MAX - 1) * USE <= USES, "the count has room for all uses but the last");

/// Tells whether a page was read ahead and not used since. The frame's record keeps this
/// information from the load until the first use. The first use takes a slower path anyway, because
/// the page isn't hot yet. So only the slower path checks for readahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ahead {
    /// The page wasn't read ahead, or was used since.
    #[default]
    No,
    /// The page was read ahead.
    Yes,
    /// The page was read ahead, and its first user should start the next readahead.
    Marked,
}

impl Ahead {
    fn bits(self) -> u32 {
        match self {
            Self::No => 0,
            Self::Yes => AHEAD,
            Self::Marked => AHEAD | MARKED,
        }
    }

    fn of(bits: u32) -> Self {
        match (bits & AHEAD != 0, bits & MARKED != 0) {
            (false, _) => Self::No,
            (true, false) => Self::Yes,
            (true, true) => Self::Marked,
        }
    }
}

/// A state that isn't clean. Only a page in such a state can be held, and it may be in such a state
/// again when the hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclean {
    /// The file doesn't have the bytes.
    Dirty,
    /// The file was given the bytes, but not synced.
    Unstable,
}

impl Unclean {
    fn bits(self) -> u32 {
        match self {
            Self::Dirty => DIRTY,
            Self::Unstable => UNSTABLE,
        }
    }
}

/// The result of an attempt to hold a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Held,
    /// The page isn't in the expected state.
    Other,
    /// Another thread holds the page for a moment (S4).
    Busy,
}

/// The write state of a frame's page.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct WriteState(AtomicU32);

impl WriteState {
    /// Takes over what is known of a clean page that moves here from another frame: whether it was
    /// read ahead, and its uses. Only for the frame's owner.
    pub(crate) fn start_moved(&self, from: &Self) {
        let kept = from.0.load(Ordering::Relaxed) & (AHEAD | MARKED | FIRST_USED | USES);
        // Release, as in `start`.
        self.0.store(CLEAN | kept, Ordering::Release);
    }

    /// Sets the state at the start of a stay. Only for the frame's owner.
    pub(crate) fn start(&self, dirty: bool, ahead: Ahead) {
        // Release pairs with the Acquire of `hold`: if a flusher holds the frame but expects the
        // frame's previous page, it sees its mistake (S4).
        self.0.store(if dirty { DIRTY } else { CLEAN } | ahead.bits(), Ordering::Release);
    }

    /// Marks the page as dirty after a writer has changed its bytes (S3), and counts this as a use.
    /// Returns whether the page was clean.
    pub(crate) fn written(&self) -> bool {
        let change = |now: u32| match now & STATE {
            // Transition: write state, held → rewritten.
            HELD => with_use(now) | REWRITTEN,
            // Transition: write state, clean or unstable → dirty.
            _ => with_use(now) & !STATE | DIRTY,
        };
        // Release pairs with the Acquire of `hold`.
        let before = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |now| Some(change(now)));
        before.is_ok_and(|before| before & STATE == CLEAN)
    }

    /// Marks a page that belongs to no file as dirty, after a writer has changed its bytes. If the
    /// page is already dirty and hot, changes nothing, although S3 requires a read-modify-write for
    /// pages of files even then. A page without a file doesn't need it: no flusher writes these
    /// bytes to a file, and a flusher that holds the page by mistake (S4) makes it dirty again.
    #[inline]
    pub(crate) fn written_unfiled(&self) {
        // Relaxed: the previous writer, or the loader, made the page dirty before it unfroze the
        // frame. The Release of `unfreeze` pairs with the Acquire of this writer's `freeze`.
        if self.0.load(Ordering::Relaxed) & (STATE | HOT) != DIRTY | HOT {
            self.written();
        }
    }

    /// Returns whether the page may be evicted (S1).
    pub(crate) fn is_clean(&self) -> bool {
        // Acquire pairs with the Release of `end_hold`: the device has read the frame before the
        // evictor reuses it.
        self.0.load(Ordering::Acquire) & STATE == CLEAN
    }

    pub(crate) fn hold(&self, from: Unclean) -> Hold {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & STATE == HELD {
                // Sometimes: two threads want to hold a page.
                return Hold::Busy;
            }
            if now & STATE != from.bits() {
                return Hold::Other;
            }
            // Acquire pairs with the Release of `written`. Relaxed on failure: the loop checks
            // again.
            match self.0.compare_exchange_weak(now, now | HELD, Ordering::Acquire, Ordering::Relaxed) {
                // Transition: write state, dirty or unstable → held.
                Ok(_) => return Hold::Held,
                Err(other) => now = other,
            }
        }
    }

    /// Releases a held page (S2). The page becomes `to`; `None` means clean. Returns false if the
    /// page was rewritten and is dirty now.
    pub(crate) fn end_hold(&self, to: Option<Unclean>) -> bool {
        let to = to.map_or(CLEAN, Unclean::bits);
        let change = |now: u32| {
            debug_assert!(now & STATE == HELD, "let go without holding");
            let next = if now & REWRITTEN == 0 { to } else { DIRTY };
            now & !(STATE | REWRITTEN) | next
        };
        // Release pairs with the Acquire of `is_clean` and of the next `hold`.
        let before = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |now| Some(change(now)));
        before.is_ok_and(|before| before & REWRITTEN == 0)
    }

    /// Returns whether a writer has changed the page since it was held. Relaxed: a hint.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REWRITTEN != 0
    }

    /// Makes the page clean without writing it, because it is truncated or swapped out and leaves
    /// its frame. The caller must have the frame frozen. Returns `None` if a flusher holds the
    /// page, else whether the page was dirty or unstable before.
    pub(crate) fn discard(&self) -> Option<bool> {
        // Acquire as in `is_clean`.
        let change = |now: u32| (now & STATE != HELD).then_some(now & !STATE);
        let before = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, change);
        before.ok().map(|before| before & STATE != CLEAN)
    }

    // ---- uses. Relaxed: they publish nothing.

    /// Counts a use of a page that was written to. Writes to memory only if the page isn't hot yet.
    /// Of several uses at the same moment, perhaps only one is counted.
    pub(crate) fn count_use(&self) {
        let now = self.0.load(Ordering::Relaxed);
        if now & HOT == 0 {
            let _ = self.0.compare_exchange(now, with_use(now), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Counts a use of a page that wasn't written to and isn't hot. The hot bit of such a page is
    /// in its word: if this use makes the page hot, returns true, and the caller sets the bit.
    pub(crate) fn count_use_of_clean(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        let next = with_use(now);
        if next & HOT != 0 {
            return true;
        }
        let _ = self.0.compare_exchange(now, next, Ordering::Relaxed, Ordering::Relaxed);
        false
    }

    #[inline]
    pub(crate) fn is_hot(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HOT != 0
    }

    pub(crate) fn set_hot(&self) {
        self.0.fetch_or(HOT, Ordering::Relaxed);
    }

    /// Clears the hot bit. Returns whether it was set.
    pub(crate) fn take_hot(&self) -> bool {
        self.is_hot() && self.0.fetch_and(!HOT, Ordering::Relaxed) & HOT != 0
    }

    /// Returns whether a use was counted here.
    pub(crate) fn is_used(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (HOT | USES) != 0
    }

    /// Returns the number of uses that were counted here, and resets the count.
    pub(crate) fn take_uses(&self) -> u32 {
        if !self.is_used() {
            return 0;
        }
        let before = self.0.fetch_and(!(HOT | USES), Ordering::Relaxed);
        if before & HOT != 0 { USES_MAX } else { (before & USES) / USE }
    }

    // ---- readahead. Relaxed as well: a reader may use the record after the frame went to another
    // page, but the worst that it can do is to take that page's mark for readahead.

    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.0.load(Ordering::Relaxed) & AHEAD != 0
    }

    /// Records the first use of a page that was read ahead. Returns the [`Ahead`] from before.
    #[inline]
    pub(crate) fn take_ahead(&self) -> Ahead {
        if self.is_ahead() { self.take_mark() } else { Ahead::No }
    }

    fn take_mark(&self) -> Ahead {
        let change = |now: u32| (now & AHEAD != 0).then_some(now & !(AHEAD | MARKED) | FIRST_USED);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).map_or(Ahead::No, Ahead::of)
    }

    /// Returns whether a page that was read ahead was used for the first time since the last call.
    pub(crate) fn take_first_use(&self) -> bool {
        self.0.load(Ordering::Relaxed) & FIRST_USED != 0
            && self.0.fetch_and(!FIRST_USED, Ordering::Relaxed) & FIRST_USED != 0
    }
}

/// Returns a state with one more use counted. Use number [`USES_MAX`] sets the hot bit.
fn with_use(now: u32) -> u32 {
    if now & USES < (USES_MAX - 1) * USE { now + USE } else { now | HOT }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_round() {
        let state = WriteState::default();
        state.start(false, Ahead::No);
        assert!(state.is_clean() && state.written() && !state.written() && !state.is_clean());
        assert_eq!(state.hold(Unclean::Unstable), Hold::Other);
        assert_eq!((state.hold(Unclean::Dirty), state.hold(Unclean::Dirty)), (Hold::Held, Hold::Busy));
        assert_eq!(state.discard(), None, "the device may be reading the bytes");
        assert!(state.end_hold(Some(Unclean::Unstable)) && !state.is_clean());
        assert_eq!(state.hold(Unclean::Unstable), Hold::Held);
        assert!(state.end_hold(None) && state.is_clean());
    }

    #[test]
    fn what_is_rewritten_while_held_is_dirty() {
        let state = WriteState::default();
        state.start(true, Ahead::No);
        for to in [None, Some(Unclean::Unstable), Some(Unclean::Dirty)] {
            assert_eq!(state.hold(Unclean::Dirty), Hold::Held);
            assert!(!state.written(), "it wasn't clean");
            assert!(!state.end_hold(to) && !state.is_clean());
        }
        assert_eq!((state.discard(), state.discard()), (Some(true), Some(false)));
        assert!(state.is_clean());
    }

    #[test]
    fn the_first_use_of_a_page_read_ahead_is_told_once() {
        let state = WriteState::default();
        for ahead in [Ahead::No, Ahead::Yes, Ahead::Marked] {
            state.start(false, ahead);
            assert_eq!(state.is_ahead(), ahead != Ahead::No);
            state.written();
            assert!(!state.take_first_use());
            assert_eq!((state.take_ahead(), state.take_ahead()), (ahead, Ahead::No));
            assert_eq!((state.take_first_use(), state.take_first_use()), (ahead != Ahead::No, false));
            assert!(!state.is_ahead() && !state.is_clean());
        }
    }

    #[test]
    fn uses_survive_all_changes() {
        let state = WriteState::default();
        assert!(!state.is_used());
        state.count_use();
        assert!(state.is_used() && !state.is_hot());
        state.written();
        assert_eq!(state.hold(Unclean::Dirty), Hold::Held);
        state.end_hold(None);
        assert_eq!((state.take_uses(), state.take_uses()), (2, 0), "a write is a use");
        (0..5).for_each(|_| state.count_use());
        assert!(state.is_hot() && state.is_clean());
        assert_eq!((state.take_uses(), state.take_uses()), (USES_MAX, 0));
        assert_eq!([(); 4].map(|()| state.count_use_of_clean()), [false, false, true, true]);
        assert_eq!((state.is_hot(), state.take_uses()), (false, USES_MAX - 1), "the word has the last one");
    }
}
