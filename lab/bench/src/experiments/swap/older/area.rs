//! A swap area on a device that is memory.

use std::sync::OnceLock;

use sync::SharedBytes;
use sync::atomic::AtomicU64;
use sync::random::Random;

use super::PAGE;

/// Slots in an area: 16 GiB.
pub(super) const SLOTS: usize = 1 << 22;
const WORDS: usize = PAGE as usize / 8;
/// Slots whose bytes are allocated together, when the first of them is used.
const CHUNK: usize = 64;

/// Allocates slots, and is the swap cache: it knows which pages are being written. A page that is
/// read from a device without a queue doesn't enter the swap cache (`SWP_SYNCHRONOUS_IO`).
pub(super) trait Slots: Send + Sync {
    /// An area of which half of the slots, chosen at random, are in use.
    fn new(tasks: usize) -> Self;
    /// Allocates a slot for a page. The page is in the swap cache until `written`.
    fn take(&self, task: usize) -> usize;
    /// The page was written: takes it out of the swap cache.
    fn written(&self, task: usize, slot: usize);
    /// Whether the slot's page is being written.
    fn is_cached(&self, slot: usize) -> bool;
    /// Frees a slot.
    fn free(&self, task: usize, slot: usize);
}

/// Which slots are in use at the beginning: drawn once, and the same for all areas of all runs.
/// Slot 0 is the header.
pub(super) fn half_of_them() -> &'static [bool] {
    static USED: OnceLock<Box<[bool]>> = OnceLock::new();
    USED.get_or_init(|| {
        let mut random = Random::seeded(7);
        (0..SLOTS).map(|slot| slot == 0 || random.one_in(2)).collect()
    })
}

pub(super) struct Area<S> {
    pub(super) slots: S,
    /// `std`'s cells: the memory of a real device is there from the start.
    chunks: Box<[OnceLock<Box<[Block]>>]>,
}

#[repr(align(4096))]
struct Block([AtomicU64; WORDS]);

impl<S: Slots> Area<S> {
    pub(super) fn new(tasks: usize) -> Self {
        Self { slots: S::new(tasks), chunks: (0..SLOTS / CHUNK).map(|_| OnceLock::new()).collect() }
    }

    /// The bytes of a slot.
    pub(super) fn bytes(&self, slot: usize) -> SharedBytes<'_> {
        let zeros = || Block(std::array::from_fn(|_| AtomicU64::new(0)));
        let chunk = self.chunks[slot / CHUNK].get_or_init(|| (0..CHUNK).map(|_| zeros()).collect());
        SharedBytes::new(&chunk[slot % CHUNK].0)
    }
}
