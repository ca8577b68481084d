//! Slots that are kept free, so that pages can be exchanged when all other slots are in use: one
//! page has to go before another comes.
//!
//! A slot in here is *freed*, as in a CPU's batch, and belongs to this reserve. The reserve is
//! filled first: the first slot that is given back after one was taken goes here. So a thread that
//! takes a slot, brings a page back and frees that page's slot, leaves as many slots as there were.

use arrayvec::ArrayVec;
use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::Mutex;

/// Slots of a reserve at most: pages that can change places at the same time.
const SIZE_MAX: usize = 8;
/// One slot in so many is kept.
const SHARE: u64 = 64;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    numbers: Mutex<ArrayVec<u32, SIZE_MAX>>,
    size: usize,
    /// Those that aren't there.
    missing: AtomicUsize,
}

impl Reserve {
    /// How many an area of so many slots is to have.
    pub(crate) fn size_for(slots: u64) -> usize {
        (slots / SHARE).min(SIZE_MAX as u64) as usize
    }

    /// Of so many slots, which are still missing.
    pub(crate) fn missing(size: usize) -> Self {
        Self { numbers: Mutex::default(), size, missing: AtomicUsize::new(size) }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Slots in it.
    pub(crate) fn len(&self) -> usize {
        self.numbers.lock().len()
    }

    /// Adds a freed slot, if one is missing.
    pub(crate) fn fill(&self, number: u32) -> bool {
        // Relaxed, as below: a thread that took a slot sees its own store, and others may be late.
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

    /// Takes a freed slot out.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut numbers = self.numbers.lock();
        let number = numbers.pop();
        self.missing.store(self.size - numbers.len(), Ordering::Relaxed);
        number
    }
}
