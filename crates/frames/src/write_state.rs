//! Whether a resident page differs from its file: one atomic of its frame's record.
//!
//! | state | meaning | next |
//! |---|---|---|
//! | `CLEAN` | the file has these bytes, and would after a power cut | writer: → `DIRTY` |
//! | `DIRTY` | the file doesn't have these bytes | flusher: → `HELD` |
//! | `HELD` (+ `REWRITTEN`) | the flusher writes the bytes to the file, or settles the outcome | holder: → any other; writer: + `REWRITTEN` |
//! | `UNSTABLE` | the file was given them, and may lose them still | writer: → `DIRTY`; after a sync: → `HELD` → `CLEAN`, or `DIRTY` if it failed |
//!
//! - S1. Only a `CLEAN` page is evicted, so the only copy of a page is never dropped. An evictor
//!   checks the state while it has the frame frozen, which keeps writers out.
//! - S2. The *holder* of a page is the flusher that made it `HELD`. It keeps the page in its frame,
//!   but keeps neither readers nor writers from it. If a writer came by meanwhile (`REWRITTEN`),
//!   the holder leaves the page `DIRTY`.
//! - S3. A writer changes the state *after* the bytes, always by a read-modify-write, even from
//!   `DIRTY` to `DIRTY` (except for pages that no file has, see
//!   [`written_unfiled`](WriteState::written_unfiled)). If its change comes before the change to
//!   `HELD`, the holder sees the bytes (Release to Acquire). If it comes after, the page is `DIRTY`
//!   again when the holder lets go. A writer in the middle of its bytes may find that the flusher
//!   has written its half-written page to the file and settled it. The writer has the frame frozen,
//!   so no evictor takes the page before the writer's change.
//! - S4. The flusher finds the frame by the page's word, and looks at the word again once it holds
//!   the page. If the frame went to another page meanwhile, it holds that one by mistake, and puts
//!   its state back. A thread that meets `HELD` therefore waits: it may be such a mistake, which
//!   ends within a few instructions.

use sync::atomic::{AtomicU32, Ordering};

const STATE: u32 = 0b11;
const CLEAN: u32 = 0;
const DIRTY: u32 = 1;
const UNSTABLE: u32 = 2;
const HELD: u32 = 3;
/// With `HELD`: a writer came by.
const REWRITTEN: u32 = 1 << 2;
/// The page was used since reclaim last looked: the referenced bit of a page that was written to.
const REFERENCED: u32 = 1 << 3;
/// The page was read ahead of its use, and not used since; with `MARKED`, its first user is to be
/// told.
const AHEAD: u32 = 1 << 4;
const MARKED: u32 = 1 << 5;
/// Reclaim has passed such a page over.
const SPARED: u32 = 1 << 6;
/// It was read ahead, and used for the first time since reclaim last looked.
const FIRST_USED: u32 = 1 << 7;

/// Whether a page was read ahead of its first use. Kept in its frame's record from the load until
/// that first use, which always goes the slower way, because the page isn't referenced yet: so the
/// hit path knows nothing of this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ahead {
    /// No, or it was used since.
    #[default]
    No,
    /// Yes.
    Yes,
    /// Yes, and its first user should start the next readahead.
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

/// What a page may be held in, and let go to.
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

/// What came of an attempt to hold a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Held,
    /// It isn't in the state wanted.
    Other,
    /// Another thread holds it, for a moment (S4).
    Busy,
}

/// The state.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct WriteState(AtomicU32);

impl WriteState {
    /// At the start of a stay. For the frame's owner.
    pub(crate) fn start(&self, dirty: bool, ahead: Ahead) {
        // Release pairs with the Acquire of `hold`: a flusher that took the frame for its last
        // page's then sees its mistake (S4).
        self.0.store(if dirty { DIRTY } else { CLEAN } | ahead.bits(), Ordering::Release);
    }

    /// After a writer's bytes (S3). Says whether the page was clean.
    pub(crate) fn written(&self) -> bool {
        let change = |now: u32| match now & STATE {
            // Transition: write state, held → rewritten.
            HELD => now | REWRITTEN,
            // Transition: write state, clean or unstable → dirty.
            _ => now & !STATE | DIRTY,
        };
        // Release pairs with the Acquire of `hold`.
        let before = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |now| Some(change(now)));
        before.is_ok_and(|before| before & STATE == CLEAN)
    }

    /// The same for a page that no file has. Changes the state only if the page isn't dirty yet: no
    /// flusher looks for such a page's bytes by its state, and one that holds it by mistake (S4)
    /// leaves it dirty.
    #[inline]
    pub(crate) fn written_unfiled(&self) {
        // Relaxed: the writer before this one, or the loader, made it dirty, and had the frame
        // frozen.
        if self.0.load(Ordering::Relaxed) & STATE != DIRTY {
            self.written();
        }
    }

    /// Whether the page may be evicted (S1).
    pub(crate) fn is_clean(&self) -> bool {
        // Acquire pairs with the Release of `end_hold`: whoever evicts comes after the device has
        // read the frame.
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
            // Acquire pairs with the Release of `written`. Relaxed on failure: we look again.
            match self.0.compare_exchange_weak(now, now | HELD, Ordering::Acquire, Ordering::Relaxed) {
                // Transition: write state, dirty or unstable → held.
                Ok(_) => return Hold::Held,
                Err(other) => now = other,
            }
        }
    }

    /// Lets go (S2). `to` is `None` for clean. False if the page was rewritten, and therefore is
    /// dirty.
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

    /// Whether a writer came by since the page is held. Relaxed: a hint.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REWRITTEN != 0
    }

    /// Makes the page clean without writing it, as it leaves its frame: truncated, or swapped out.
    /// For the thread that has the frame frozen. Returns `None` if a write-back leader holds the
    /// page, else whether it was dirty or unstable before.
    pub(crate) fn discard(&self) -> Option<bool> {
        // Acquire as in `is_clean`.
        let change = |now: u32| (now & STATE != HELD).then_some(now & !STATE);
        let before = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, change);
        before.ok().map(|before| before & STATE != CLEAN)
    }

    // ---- the referenced bit. Relaxed: it publishes nothing.

    /// Notes a use; a write only if it is the first.
    pub(crate) fn reference(&self) {
        if self.0.load(Ordering::Relaxed) & REFERENCED == 0 {
            self.0.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_referenced(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REFERENCED != 0
    }

    pub(crate) fn take_referenced(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REFERENCED != 0
            && self.0.fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }

    // ---- reading ahead. Relaxed as well: a reader that looks at the frame's next page by mistake
    // only takes that page's mark.

    /// Whether the page was read ahead of its first use.
    pub(crate) fn ahead(&self) -> Ahead {
        Ahead::of(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.0.load(Ordering::Relaxed) & AHEAD != 0
    }

    /// Whether the page is to be passed over because its use is still to come: once.
    pub(crate) fn spare_ahead(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (AHEAD | SPARED) == AHEAD
            && self.0.fetch_or(SPARED, Ordering::Relaxed) & (AHEAD | SPARED) == AHEAD
    }

    /// Notes the first use of a page that was read ahead.
    #[inline]
    pub(crate) fn take_ahead(&self) -> Ahead {
        if self.is_ahead() { self.take_mark() } else { Ahead::No }
    }

    fn take_mark(&self) -> Ahead {
        let change = |now: u32| (now & AHEAD != 0).then_some(now & !(AHEAD | MARKED) | FIRST_USED);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).map_or(Ahead::No, Ahead::of)
    }

    /// Whether the first use of a page that was read ahead is among those since this was last
    /// asked.
    pub(crate) fn take_first_use(&self) -> bool {
        self.0.load(Ordering::Relaxed) & FIRST_USED != 0
            && self.0.fetch_and(!FIRST_USED, Ordering::Relaxed) & FIRST_USED != 0
    }
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
            assert_eq!((state.spare_ahead(), state.spare_ahead()), (ahead != Ahead::No, false));
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
        state.reference();
        state.written();
        assert_eq!(state.hold(Unclean::Dirty), Hold::Held);
        state.written();
        state.end_hold(None);
        assert!(state.take_referenced() && !state.take_referenced());
        assert!(!state.is_clean());
    }
}
