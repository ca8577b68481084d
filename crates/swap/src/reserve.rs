//! Slots that are kept free for *exchanges*. When memory is full, one page must leave memory before
//! another can come in, and the page that leaves needs a slot. If all other slots are in use, this
//! page gets a slot of the reserve.
//!
//! A slot in the reserve is in state *freed*, like a slot in a CPU's batch. A freed slot is added
//! to the reserve if the reserve isn't full. An exchange takes a reserved slot for the page that
//! leaves, and then frees the slot of the page that was swapped in. So after the exchange the
//! reserve has as many slots as before.

use arrayvec::ArrayVec;
use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::Mutex;

/// The maximum number of slots in a reserve, and so of concurrent exchanges.
const SIZE_MAX: usize = 8;
/// One slot in `SHARE` is reserved.
const SHARE: u64 = 64;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    numbers: Mutex<ArrayVec<u32, SIZE_MAX>>,
    size: usize,
    /// The number of slots that the reserve lacks.
    missing: AtomicUsize,
}

impl Reserve {
    /// Returns the size of the reserve for an area of `slots` slots.
    pub(crate) fn size_for(slots: u64) -> usize {
        (slots / SHARE).min(SIZE_MAX as u64) as usize
    }

    /// Creates an empty reserve for `size` slots.
    pub(crate) fn missing(size: usize) -> Self {
        Self { numbers: Mutex::default(), size, missing: AtomicUsize::new(size) }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of slots in the reserve.
    pub(crate) fn len(&self) -> usize {
        self.numbers.lock().len()
    }

    /// Adds a freed slot if the reserve lacks one. Returns whether it did.
    pub(crate) fn fill(&self, number: u32) -> bool {
        // Relaxed, like the stores below: other threads may see a store late. At worst, one of
        // their freed slots doesn't go to the reserve, although the reserve lacks a slot.
        if self.missing.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut numbers = self.numbers.lock();
        let fits = numbers.len() < self.size;
        if fits {
            numbers.push(number);
        }
        self.missing.store(self.size - numbers.len(), Ordering::Relaxed);
        fits
    }

    /// Takes a slot out of the reserve. The slot is *freed*.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut numbers = self.numbers.lock();
        let number = numbers.pop();
        self.missing.store(self.size - numbers.len(), Ordering::Relaxed);
        number
    }
}
