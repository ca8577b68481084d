//! Memory that a forked child finds zeroed, and a mark by which a process detects that it is a
//! forked child.
//!
//! On Linux 4.14 and later, the kernel zeroes the memory in the child (`MADV_WIPEONFORK`). Older
//! kernels and some sandboxes refuse this. Then the child zeroes the memory itself, in a handler
//! that the C library runs before `fork` returns in the child (`pthread_atfork`).
//!
//! A child that is created by a direct `clone` system call bypasses the C library, so the handler
//! doesn't run in that child. If the kernel has also refused to zero the memory, the child keeps
//! the parent's bytes and the parent's mark, and behaves as if it were the parent.
//!
//! # The list
//! The handler wipes a list of places, each for a range of memory. Places are added and reused,
//! never freed. The list has no lock, because a child might find the lock held by a thread that
//! doesn't exist in the child.
//!
//! - FORK-1. If a place holds the start of a range, the place also holds the length of that range,
//!   and the range is mapped. To ensure this, the start is stored after the length, and cleared
//!   before the range is unmapped. A child's list is a snapshot, taken at a single moment of the
//!   fork. So the child wipes exactly the ranges that its parent had listed at that moment.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A mark that a forked child doesn't inherit: a page of system memory that is zeroed in the child.
///
/// The mark is a plain byte, not one of [`atomic`](crate::atomic)'s types: it is written before
/// another thread can have the mark, and afterwards it is only read.
#[derive(Debug)]
pub struct ForkMark {
    page: NonNull<u8>,
    len: usize,
    wiped: Wiped,
}

// SAFETY: the page belongs to the mark, and is only read once the mark exists.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// Creates a mark for this process.
    ///
    /// # Errors
    /// The system's, if it can't allocate a page.
    pub fn new() -> std::io::Result<Self> {
        if crate::memory::is_refused() {
            return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
        }
        // SAFETY: no pointer is involved.
        let len = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let page = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let page = NonNull::new(page.cast()).filter(|_| page != libc::MAP_FAILED);
        let page = page.ok_or_else(std::io::Error::last_os_error)?;
        // SAFETY: the whole mapping made above, which `drop` unmaps.
        let wiped = unsafe { Wiped::new(page, len) };
        // SAFETY: mapped, writable, and not shared with another thread yet.
        unsafe { page.as_ptr().write(1) };
        Ok(Self { page, len, wiped })
    }

    /// Returns whether this process was forked from the one that created the mark.
    #[inline]
    #[must_use]
    pub fn is_child(&self) -> bool {
        // SAFETY: mapped as long as `self` lives. Volatile, because the kernel or a handler changes
        // it.
        unsafe { self.page.as_ptr().read_volatile() == 0 }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        self.wiped.end();
        // SAFETY: the mapping created in `new`, which isn't used after `self`. It is mapped in a
        // child too.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.len) };
    }
}

/// A promise that forked children find zeros in a range of memory. The owner must end it before the
/// range is unmapped.
#[derive(Debug)]
pub struct Wiped {
    start: NonNull<u8>,
    len: usize,
    place: Option<&'static Place>,
}

// SAFETY: the address is for the kernel alone.
unsafe impl Send for Wiped {}
// SAFETY: as above.
unsafe impl Sync for Wiped {}

impl Wiped {
    /// Makes forked children find zeros in the range.
    ///
    /// # Safety
    /// The range must be whole pages of the caller's private anonymous memory. They must stay
    /// mapped until [`end`](Self::end) or [`end_and_keep`](Self::end_and_keep). A child must be
    /// able to find zeros there at any moment.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        // SAFETY: the caller's. The contents don't change in this process.
        let is_wiped = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_WIPEONFORK) } == 0;
        Self { start, len, place: if is_wiped { None } else { Some(Place::list(start, len)) } }
    }

    /// Ends the promise, because the memory is about to be unmapped.
    pub fn end(&mut self) {
        self.place.take().into_iter().for_each(|place| place.start.store(FREE, Ordering::Release)); // FORK-1
    }

    /// Ends the promise, because the memory is about to be returned to its allocator. From then on,
    /// children may inherit the contents.
    pub fn end_and_keep(&mut self) {
        if self.place.is_none() {
            // SAFETY: still mapped, by `new`'s contract; contents don't change.
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_KEEPONFORK) };
        }
        self.end();
    }
}

/// Returns whether the system has ever refused to wipe memory in children, so that children wipe it
/// themselves.
#[must_use]
pub fn is_wiped_by_children() -> bool {
    !PLACES.load(Ordering::Acquire).is_null()
}

/// An entry of the list.
#[derive(Debug)]
struct Place {
    /// The address of the range, or `FREE` or `TAKEN`.
    start: AtomicUsize,
    len: AtomicUsize,
    /// Never changes.
    next: *const Place,
}

// SAFETY: the link is never written after other threads can see the place, and places are never
// freed.
unsafe impl Sync for Place {}

/// The start of a place without a range.
const FREE: usize = 0;
/// The start of a place that is about to get a range. No page has this address.
const TAKEN: usize = 1;

static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

impl Place {
    /// Returns all places.
    fn all() -> impl Iterator<Item = &'static Self> {
        // SAFETY: places are leaked boxes. Acquire pairs with the Release in `list`.
        let first = unsafe { PLACES.load(Ordering::Acquire).as_ref() };
        // SAFETY: as above; the link was stored before the place was published.
        std::iter::successors(first, |place| unsafe { place.next.as_ref() })
    }

    fn list(start: NonNull<u8>, len: usize) -> &'static Self {
        // This is a flag rather than a lock, because a child might find the lock held by a thread
        // that doesn't exist in the child. Two threads may find the flag clear, and so may a child;
        // then each registers the handler. Wiping twice does no harm. Relaxed: the flag publishes
        // nothing.
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.load(Ordering::Relaxed) {
            // If the handler can't be registered because there is no memory, children wipe nothing.
            // SAFETY: the handler is a function of this crate. It makes only loads and system
            // calls, which are permitted after a fork.
            unsafe { pthread_atfork(None, None, Some(wipe_all)) };
            REGISTERED.store(true, Ordering::Relaxed);
        }
        let take =
            |place: &&Self| place.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let place = Self::all().find(take).unwrap_or_else(Self::add);
        place.len.store(len, Ordering::Relaxed);
        place.start.store(start.as_ptr().expose_provenance(), Ordering::Release); // FORK-1
        place
    }

    /// Adds a place to the list, with `TAKEN` as its start.
    fn add() -> &'static Self {
        let place = Box::new(Self { start: AtomicUsize::new(TAKEN), len: AtomicUsize::new(0), next: ptr::null() });
        let place = Box::leak(place);
        let mut first = PLACES.load(Ordering::Acquire);
        loop {
            place.next = first;
            // Release: a thread that finds the place also sees its link.
            match PLACES.compare_exchange(first, place, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return place,
                Err(now) => first = now,
            }
        }
    }
}

/// Wipes all listed ranges, in a child, before any other code runs there.
extern "C" fn wipe_all() {
    for place in Place::all() {
        let (start, len) = (place.start.load(Ordering::Acquire), place.len.load(Ordering::Relaxed));
        if start == FREE || start == TAKEN {
            continue;
        }
        let start = ptr::with_exposed_provenance_mut(start);
        // SAFETY: mapped (FORK-1), and the owner permits zeros there. A child doesn't inherit the
        // parent's memory locks.
        unsafe {
            if libc::madvise(start, len, libc::MADV_DONTNEED) != 0 {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
                libc::mmap(start, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            }
        }
    }
}

unsafe extern "C" {
    /// From the C library; the `libc` crate doesn't declare it.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}
