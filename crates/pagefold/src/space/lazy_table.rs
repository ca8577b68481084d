//! A table that is mostly empty: looked up in two steps, without a lock.

use sync::lock::OnceBox;

/// Parts of a table.
const PARTS: usize = 256;

type Part<T, const LEN: usize> = [OnceBox<T>; LEN];

/// 256 times `LEN` places. What is in one stays there as long as the table, and so does the part of the table that it is in.
pub(super) struct LazyTable<T, const LEN: usize> {
    parts: [OnceBox<Part<T, LEN>>; PARTS],
}

fn empty<T, const N: usize>() -> [OnceBox<T>; N] {
    std::array::from_fn(|_| OnceBox::new())
}

impl<T, const LEN: usize> LazyTable<T, LEN> {
    /// Bytes that an empty table takes, and each part.
    pub(super) const BYTES: u64 = size_of::<Self>() as u64;
    pub(super) const PART_BYTES: u64 = size_of::<Part<T, LEN>>() as u64;

    pub(super) fn new() -> Self {
        Self { parts: empty() }
    }

    #[inline]
    pub(super) fn get(&self, place: u64) -> Option<&T> {
        self.parts.get(place as usize / LEN)?.get()?[place as usize % LEN].get()
    }

    /// Has a part with that place. Says whether it is new.
    ///
    /// # Panics
    /// If there is no such place.
    pub(super) fn prepare(&self, place: u64) -> bool {
        let part = &self.parts[place as usize / LEN];
        part.get().is_none() && part.set(Box::new(empty())).is_ok()
    }

    /// Fills a place, whose part is there. False if it is filled.
    pub(super) fn fill(&self, place: u64, value: T) -> bool {
        let part = self.parts[place as usize / LEN].get();
        part.is_some_and(|part| part[place as usize % LEN].set(Box::new(value)).is_ok())
    }

    /// What is there, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().filter_map(OnceBox::get).flatten().filter_map(OnceBox::get)
    }
}
