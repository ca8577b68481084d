//! Our own small vmcache: the number of a page determines its place in virtual memory, and a word
//! says whether the page is resident.
//!
//! After "Virtual-Memory Assisted Buffer Management" (Leis, Alhomssi, Ziegler, Loeck, Dietrich;
//! SIGMOD 2023), with clean pages only. A reader copies the bytes and then checks that the word
//! hasn't changed (`SHARED = false`), or takes a shared lock (`SHARED = true`). On a miss, the
//! thread takes the page's lock, and reads into the page's place by `pread`. If memory is short,
//! this thread first evicts a batch of pages, chosen by the clock algorithm, and gives their memory
//! back (`MADV_DONTNEED`) in one `process_madvise`. The paper calls `madvise` for each page. One
//! call for a batch interrupts other CPUs only once, so this baseline is the faster one.
//!
//! Invariants:
//! - V1. The bytes of a page are written, or the page given back, only by the holder of its
//!   exclusive lock.
//! - V2. Rust code reads the bytes only with [`SharedBytes`]. What it read counts only if the word
//!   says that no thread held the exclusive lock meanwhile (V1).
//! - V3. A page is in `resident`, and counted in `used`, while it is neither evicted nor being
//!   loaded.

mod page_state;
mod resident_set;

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::Result;
use sync::bytes::SharedBytes;

use self::page_state::{PageState, Seen};
use self::resident_set::ResidentSet;
use super::Plan;
use crate::peers::contents::PAGE;
use crate::peers::mapping::{Backing, Mapping};
use crate::peers::source::Source;
use crate::peers::subject::{Misses, Pages};

/// About how many pages a thread evicts at a time, and how many slots the clock hand passes at a
/// time.
const BATCH: usize = 64;

/// The pool.
pub(super) struct VmCache<const SHARED: bool> {
    memory: Mapping,
    states: Box<[PageState]>,
    resident: ResidentSet,
    used: AtomicU32,
    budget: u32,
    source: Source,
}

impl<const SHARED: bool> VmCache<SHARED> {
    /// An empty pool over all pages of the plan.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let pages = plan.pages();
        Ok(Self {
            memory: Mapping::anonymous(pages, Backing::Ordinary)?,
            states: (0..pages).map(|_| PageState::evicted()).collect(),
            // Has room for 64 pages more than the budget, for loads in flight.
            resident: ResidentSet::new(plan.budget_pages + 64),
            used: AtomicU32::new(0),
            budget: plan.budget_pages,
            source: plan.source()?,
        })
    }

    #[inline(always)]
    fn bytes(&self, page: u32) -> SharedBytes<'_> {
        let words = self.memory.page(page).cast::<AtomicU64>();
        // SAFETY: the page is inside of the mapping, and lives as long as the mapping; Rust code
        // only makes atomic accesses (V2).
        SharedBytes::new(unsafe { std::slice::from_raw_parts(words, PAGE / 8) })
    }

    /// Copies if the page is readable and stays so.
    #[inline(always)]
    fn try_read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<(), Seen> {
        let state = &self.states[page as usize];
        let seen = state.load();
        if SHARED {
            if !state.try_share(seen) {
                return Err(seen);
            }
            self.bytes(page).copy_to(offset, into);
            state.unshare();
            return Ok(());
        }
        if !seen.is_readable() {
            return Err(seen);
        }
        self.bytes(page).copy_to(offset, into);
        if state.still(seen) { Ok(()) } else { Err(seen) }
    }

    /// Does what `seen` asks for, so that the reader can try again.
    #[cold]
    fn resolve(&self, page: u32, seen: Seen) -> Result<()> {
        let state = &self.states[page as usize];
        if seen.is_marked() {
            state.try_unmark(seen);
        } else if seen.is_evicted() {
            if state.try_lock(seen) {
                return self.load(page);
            }
        } else {
            spin_loop();
        }
        Ok(())
    }

    /// Loads a page whose lock we have.
    fn load(&self, page: u32) -> Result<()> {
        let state = &self.states[page as usize];
        let loaded = self.make_room().and_then(|()| {
            // SAFETY: we hold the lock (V1), and the page is inside of the mapping.
            unsafe { self.source.load_raw(page, self.memory.page(page)) }
        });
        if loaded.is_ok() {
            self.resident.insert(page);
        } else {
            // Relaxed: see `make_room`.
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
        state.unlock(loaded.is_ok());
        loaded
    }

    /// Counts one page more and evicts until it fits.
    fn make_room(&self) -> Result<()> {
        // Relaxed: a count; what it counts is protected by the pages' words.
        self.used.fetch_add(1, Ordering::Relaxed);
        while self.used.load(Ordering::Relaxed) > self.budget {
            self.evict_batch()?;
        }
        Ok(())
    }

    /// Gives a batch of pages back to the kernel in one call.
    fn evict_batch(&self) -> Result<()> {
        let mut victims = Vec::with_capacity(2 * BATCH);
        // Two rounds suffice to find them, unless others do the same.
        for _ in 0..2 * self.resident.slots().div_ceil(BATCH) {
            self.choose(&mut victims);
            if victims.len() >= BATCH {
                break;
            }
        }
        // SAFETY: the mapping is anonymous and we hold the locks of all victims (V1).
        let dropped = unsafe { self.memory.discard(&victims) };
        for &page in &victims {
            self.states[page as usize].unlock(false);
        }
        // Relaxed: see `make_room`.
        self.used.fetch_sub(u32::try_from(victims.len())?, Ordering::Relaxed);
        dropped
    }

    /// Advances the clock hand over `BATCH` slots. Marks pages that are unlocked. Locks pages that
    /// are still marked since the last pass, and adds them to the victims.
    fn choose(&self, victims: &mut Vec<u32>) {
        for page in self.resident.advance(BATCH) {
            let state = &self.states[page as usize];
            let seen = state.load();
            if !seen.is_marked() {
                state.try_mark(seen);
            } else if state.try_lock(seen) {
                self.resident.remove(page);
                victims.push(page);
            }
        }
    }
}

impl<const SHARED: bool> Pages for VmCache<SHARED> {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        while let Err(seen) = self.try_read(page, offset, into) {
            self.resolve(page, seen)?;
        }
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.source.misses()
    }
}
