//! A table of values with numbered places. Each place is filled once. Lookups take no lock, and a
//! table with few filled places takes little memory.

use sync::lock::OnceBox;

/// Blocks of 1, 2, 4, … places.
const BLOCKS: usize = 24;

/// See the module's head. A value stays in its place as long as the table exists.
pub(super) struct Slots<T> {
    blocks: [OnceBox<Box<[OnceBox<T>]>>; BLOCKS],
}

fn locate(slot: u32) -> (usize, usize) {
    let block = (slot + 1).ilog2();
    (block as usize, (slot + 1 - (1 << block)) as usize)
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { blocks: std::array::from_fn(|_| OnceBox::new()) }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        let (block, at) = locate(slot);
        self.blocks.get(block)?.get()?[at].get()
    }

    /// Fills a place. The caller ensures that no other thread fills the same place.
    ///
    /// # Panics
    /// If there is no such place.
    pub(super) fn fill(&self, slot: u32, value: T) {
        let (block, at) = locate(slot);
        let places = self.blocks[block].get_or_init(|| Box::new((0..1 << block).map(|_| OnceBox::new()).collect()));
        let filled = places[at].set(Box::new(value));
        debug_assert!(filled.is_ok(), "the place is another's");
    }
}
