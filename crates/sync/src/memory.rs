//! Returns memory to the system without giving up its addresses, keeps memory out of core dumps,
//! allocates memory that the system may refuse, and simulates such refusals.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

/// `mlock2`'s flag that locks pages when they become resident.
const MLOCK_ONFAULT: u32 = 1;

/// Returns whole system pages to the system; they read as zeros afterwards. Returns false and
/// changes nothing if the system refuses.
///
/// The system refuses to take back locked memory, and after `mlockall` all memory is locked. So if
/// the system refuses, this function unlocks the memory and tries again. Afterwards it locks the
/// memory again, in a mode that makes no page resident: the kernel locks each page when it becomes
/// resident.
///
/// # Safety
/// The range must be private anonymous memory of the caller's. All of its values may become zeros
/// at any moment.
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
    // The system refuses locked memory with `EINVAL`. If it gives another error, the memory isn't
    // locked, and must stay unlocked.
    if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        return false;
    }
    // SAFETY: changes how the kernel backs the memory, not its contents.
    let is_discarded = unsafe { libc::munlock(start, bytes) } == 0 && discard();
    // SAFETY: as above. If the system supports it, the memory is locked again as it becomes
    // resident.
    unsafe { libc::mlock2(start, bytes, MLOCK_ONFAULT) };
    is_discarded
}

/// Keeps whole system pages out of core dumps, if the system can do that: see [`is_in_dumps`].
///
/// # Safety
/// The range must be memory of the caller's.
pub unsafe fn keep_out_of_dumps(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's; the contents don't change.
    if unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTDUMP) } != 0 {
        IS_IN_DUMPS.store(true, Ordering::Relaxed); // For the log.
    }
}

/// Returns whether the system has refused to keep some memory out of core dumps.
#[must_use]
pub fn is_in_dumps() -> bool {
    IS_IN_DUMPS.load(Ordering::Relaxed)
}

/// Collects values in one allocation. `None` if there is no memory for it.
#[must_use]
pub fn boxed<T>(values: impl ExactSizeIterator<Item = T>) -> Option<Box<[T]>> {
    if is_refused() {
        return None;
    }
    let mut all = Vec::new();
    all.try_reserve_exact(values.len()).ok()?;
    all.extend(values);
    Some(all.into_boxed_slice())
}

static IS_IN_DUMPS: AtomicBool = AtomicBool::new(false);

/// Returns whether the caller must behave as if the system had refused the caller's next system
/// call. Code checks this before each system call that allocates memory, makes memory writable, or
/// returns memory to the system. Always false without the feature `refusals`.
#[inline]
#[must_use]
pub fn is_refused() -> bool {
    #[cfg(feature = "refusals")]
    return refusals::is_next_refused();
    #[cfg(not(feature = "refusals"))]
    false
}

/// Simulated refusals for tests. They affect the whole process.
#[cfg(feature = "refusals")]
pub mod refusals {
    use std::ops::RangeInclusive;
    use std::sync::atomic::{AtomicU64, Ordering};

    // Relaxed, all: with several threads it is undetermined whose call is refused.
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
    static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

    /// Refuses the calls with these numbers. The next call has number 1.
    pub fn refuse(numbers: RangeInclusive<u64>) {
        FIRST.store(u64::MAX, Ordering::Relaxed);
        CALLS.store(0, Ordering::Relaxed);
        LAST.store(*numbers.end(), Ordering::Relaxed);
        FIRST.store(*numbers.start(), Ordering::Relaxed);
    }

    /// Stops refusing. Returns the number of calls since [`refuse`].
    pub fn allow() -> u64 {
        FIRST.store(u64::MAX, Ordering::Relaxed);
        CALLS.load(Ordering::Relaxed)
    }

    pub(super) fn is_next_refused() -> bool {
        let number = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
        (FIRST.load(Ordering::Relaxed)..=LAST.load(Ordering::Relaxed)).contains(&number)
    }
}
