//! A table that is mostly empty: looked up in a few steps, without a lock.

use sync::lock::OnceBox;

/// The first places, which take no part of a table.
const FEW: usize = 4;
/// Parts of a table.
const PARTS: usize = 256;

type Part<T, const LEN: usize> = [OnceBox<T>; LEN];
type Parts<T, const LEN: usize> = [OnceBox<Part<T, LEN>>; PARTS];

/// 256 times `LEN` places. What is in one stays there as long as the table, and so does the part of
/// the table that it is in.
pub(super) struct LazyTable<T, const LEN: usize> {
    few: [OnceBox<T>; FEW],
    /// All others.
    parts: OnceBox<Parts<T, LEN>>,
}

fn empty<T, const N: usize>() -> [OnceBox<T>; N] {
    std::array::from_fn(|_| OnceBox::new())
}

impl<T, const LEN: usize> LazyTable<T, LEN> {
    pub(super) fn new() -> Self {
        Self { few: empty(), parts: OnceBox::new() }
    }

    #[inline]
    fn place(&self, place: u64) -> Option<&OnceBox<T>> {
        let place = place as usize;
        match self.few.get(place) {
            None => Some(&self.parts.get()?.get(place / LEN)?.get()?[place % LEN]),
            few => few,
        }
    }

    #[inline]
    pub(super) fn get(&self, place: u64) -> Option<&T> {
        self.place(place)?.get()
    }

    /// Bytes that [`prepare`](Self::prepare) takes for that place.
    pub(super) fn bytes_for(&self, place: u64) -> u64 {
        let parts = if self.parts.get().is_some() { 0 } else { size_of::<Parts<T, LEN>>() };
        let part = size_of::<Part<T, LEN>>();
        if self.place(place).is_some() { 0 } else { (parts + part) as u64 }
    }

    /// Has a part with that place.
    ///
    /// # Panics
    /// If there is no such place.
    pub(super) fn prepare(&self, place: u64) {
        if self.place(place).is_none() {
            let parts = self.parts.get_or_init(|| Box::new(empty()));
            parts[place as usize / LEN].get_or_init(|| Box::new(empty()));
        }
    }

    /// Fills a place, whose part is there. False if it is filled.
    pub(super) fn fill(&self, place: u64, value: T) -> bool {
        self.place(place).is_some_and(|place| place.set(Box::new(value)).is_ok())
    }

    /// What is there, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let parts = self.parts.get().into_iter().flatten().filter_map(OnceBox::get);
        self.few.iter().chain(parts.flatten()).filter_map(OnceBox::get)
    }
}
