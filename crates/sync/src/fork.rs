//! Memory of which a forked child finds zeros, and the mark by which a process knows that it is
//! such a child.
//!
//! The kernel sees to that (`MADV_WIPEONFORK`, Linux 4.14). Where it refuses, as older ones and
//! some sandboxes do, the child does it itself, in a handler that the C library runs before `fork`
//! returns there (`pthread_atfork`). A child that is made past the C library (`clone` as a system
//! call) isn't reached by that: it has the parent's bytes, and takes itself for the parent.
//!
//! # The list
//! What the handler wipes is a list of places, each for a range of memory: places are added and
//! used again, never freed. It has no lock, since a child would find it taken by a thread that it
//! doesn't have.
//!
//! - FORK-1. A place with a start has its length, and the range is mapped: the start is stored
//!   after the length, and taken away before the range is unmapped. A child has the list as it was
//!   at one moment of the fork, so it wipes what is its parent's of this list and nothing else.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::Once;

/// A mark that a forked child doesn't inherit: a page of the system's that is zeros there.
///
/// A plain word, not one of [`atomic`](crate::atomic)'s: it is written before another thread has
/// it, and then only read.
#[derive(Debug)]
pub struct ForkMark {
    page: NonNull<u8>,
    len: usize,
    wiped: Wiped,
}

// SAFETY: the page is the mark's own, and only read once it is made.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// The mark of this process.
    ///
    /// # Errors
    /// The system's, if it has no page to give.
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

    /// Whether this process was forked off the one that made the mark.
    #[inline]
    #[must_use]
    pub fn is_child(&self) -> bool {
        // SAFETY: mapped as long as `self` lives. Volatile, because it is the kernel, or a handler,
        // that changes it.
        unsafe { self.page.as_ptr().read_volatile() == 0 }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        self.wiped.end();
        // SAFETY: the mapping made in `new`, which is gone with `self`. It is mapped in a child
        // too.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.len) };
    }
}

/// That forked children find zeros in a range of memory. To be ended before the range goes.
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
    /// Has forked children find zeros there.
    ///
    /// # Safety
    /// Whole pages of private anonymous memory of the caller's, which stay mapped until
    /// [`end`](Self::end) or [`end_and_keep`](Self::end_and_keep), and which a child may find as
    /// zeros at any moment.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        // SAFETY: the caller's. Contents don't change in this process.
        let is_wiped = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_WIPEONFORK) } == 0;
        Self { start, len, place: if is_wiped { None } else { Some(Place::list(start, len)) } }
    }

    /// The memory is about to be unmapped.
    pub fn end(&mut self) {
        self.place.take().into_iter().for_each(|place| place.start.store(FREE, Ordering::Release)); // FORK-1
    }

    /// The memory goes back to its allocator: children may have what is there.
    pub fn end_and_keep(&mut self) {
        if self.place.is_none() {
            // SAFETY: still mapped, by `new`'s contract; contents don't change.
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_KEEPONFORK) };
        }
        self.end();
    }
}

/// Whether there is memory that children wipe themselves, since the system refuses to.
#[must_use]
pub fn is_wiped_by_children() -> bool {
    !PLACES.load(Ordering::Acquire).is_null()
}

/// A place in the list.
#[derive(Debug)]
struct Place {
    /// The address, or one of the two below.
    start: AtomicUsize,
    len: AtomicUsize,
    /// Never changes.
    next: *const Place,
}

// SAFETY: the link is never written once others know the place, which is never freed.
unsafe impl Sync for Place {}

/// No range has the place,
const FREE: usize = 0;
/// or one is about to: no page has this address.
const TAKEN: usize = 1;

static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

impl Place {
    /// The first place, and with the last one's link all of them.
    fn all() -> impl Iterator<Item = &'static Self> {
        // SAFETY: places are leaked boxes. Acquire pairs with the Release in `list`.
        let first = unsafe { PLACES.load(Ordering::Acquire).as_ref() };
        // SAFETY: as above; the link was there before the place was.
        std::iter::successors(first, |place| unsafe { place.next.as_ref() })
    }

    fn list(start: NonNull<u8>, len: usize) -> &'static Self {
        static HANDLER: Once = Once::new();
        // Without memory for the handler, children aren't wiped.
        // SAFETY: the handler is a function of this crate, which does what one may after a fork:
        // loads, and system calls.
        HANDLER.call_once(|| _ = unsafe { pthread_atfork(None, None, Some(wipe_all)) });
        let take =
            |place: &&Self| place.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let place = Self::all().find(take).unwrap_or_else(Self::add);
        place.len.store(len, Ordering::Relaxed);
        place.start.store(start.as_ptr().expose_provenance(), Ordering::Release); // FORK-1
        place
    }

    /// Another place, taken.
    fn add() -> &'static Self {
        let place = Box::new(Self { start: AtomicUsize::new(TAKEN), len: AtomicUsize::new(0), next: ptr::null() });
        let place = Box::leak(place);
        let mut first = PLACES.load(Ordering::Acquire);
        loop {
            place.next = first;
            // Release: a thread that finds the place finds its link.
            match PLACES.compare_exchange(first, place, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return place,
                Err(now) => first = now,
            }
        }
    }
}

/// In a child, before anything else runs there: wipes what is listed.
extern "C" fn wipe_all() {
    for place in Place::all() {
        let (start, len) = (place.start.load(Ordering::Acquire), place.len.load(Ordering::Relaxed));
        if start == FREE || start == TAKEN {
            continue;
        }
        let start = ptr::with_exposed_provenance_mut(start);
        // SAFETY: mapped (FORK-1), and of a user that may find zeros. What the parent had locked, a
        // child hasn't.
        unsafe {
            if libc::madvise(start, len, libc::MADV_DONTNEED) != 0 {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
                libc::mmap(start, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            }
        }
    }
}

unsafe extern "C" {
    /// The C library's. Not in `libc`.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}
