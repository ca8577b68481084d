//! Memory that goes back to the system while its addresses stay, or is in no core dump; and the
//! system's refusing memory, on purpose.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

/// `mlock2`'s flag that has pages locked as they come into memory.
const MLOCK_ONFAULT: u32 = 1;

/// Gives whole system pages back to the system; they read as zeros afterwards. False, with nothing
/// changed, if the system refuses.
///
/// It refuses what is locked, as all memory is after `mlockall`: that is unlocked first, and locked
/// again as it comes back.
///
/// # Safety
/// Private anonymous memory of the caller's, all of whose values may become zeros at any moment.
pub unsafe fn discard(start: NonNull<u8>, bytes: usize) -> bool {
    if is_refused() {
        return false;
    }
    let start = start.as_ptr().cast();
    // SAFETY: the caller's.
    let discard = || unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) } == 0;
    if discard() {
        return true;
    }
    // SAFETY: changes how the kernel backs the memory, not its contents.
    let is_discarded = unsafe { libc::munlock(start, bytes) } == 0 && discard();
    // SAFETY: as above. Memory is locked as it comes back, as it was before, if the system can do
    // that.
    unsafe { libc::mlock2(start, bytes, MLOCK_ONFAULT) };
    is_discarded
}

/// Keeps whole system pages out of core dumps, if the system can do that: [`is_in_dumps`] tells.
///
/// # Safety
/// Memory of the caller's.
pub unsafe fn keep_out_of_dumps(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's; contents don't change.
    if unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTDUMP) } != 0 {
        IS_IN_DUMPS.store(true, Ordering::Relaxed); // For the log.
    }
}

/// Whether the system refused to keep some memory out of core dumps.
#[must_use]
pub fn is_in_dumps() -> bool {
    IS_IN_DUMPS.load(Ordering::Relaxed)
}

static IS_IN_DUMPS: AtomicBool = AtomicBool::new(false);

/// Whether a call by which memory is taken, opened or given back is to be as if the system had
/// refused it: asked before each such call. Always false without the feature `refusals`.
#[inline]
#[must_use]
pub fn is_refused() -> bool {
    #[cfg(feature = "refusals")]
    return refusals::is_next_refused();
    #[cfg(not(feature = "refusals"))]
    false
}

/// Refusals on purpose, for tests: of the whole process.
#[cfg(feature = "refusals")]
pub mod refusals {
    use std::ops::RangeInclusive;
    use std::sync::atomic::{AtomicU64, Ordering};

    // Relaxed, all: which thread's call is refused is chance where there are several.
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
    static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

    /// Refuses calls with these numbers, of which the next one has 1.
    pub fn refuse(numbers: RangeInclusive<u64>) {
        FIRST.store(u64::MAX, Ordering::Relaxed);
        CALLS.store(0, Ordering::Relaxed);
        LAST.store(*numbers.end(), Ordering::Relaxed);
        FIRST.store(*numbers.start(), Ordering::Relaxed);
    }

    /// Refuses nothing any more. Returns how many calls there were since [`refuse`].
    pub fn allow() -> u64 {
        FIRST.store(u64::MAX, Ordering::Relaxed);
        CALLS.load(Ordering::Relaxed)
    }

    pub(super) fn is_next_refused() -> bool {
        let number = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
        (FIRST.load(Ordering::Relaxed)..=LAST.load(Ordering::Relaxed)).contains(&number)
    }
}
