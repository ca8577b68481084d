//! A table for few values, with room for many. A lookup takes a few steps and no lock.

use sync::lock::OnceBox;

/// The first places, which are in the table itself, and need no part.
const FEW: usize = 4;
/// Parts of a table, each made when it is first needed.
const PARTS: usize = 256;

type Part<T, const LEN: usize> = [OnceBox<T>; LEN];
type Parts<T, const LEN: usize> = [OnceBox<Part<T, LEN>>; PARTS];

/// A table of 256 × `LEN` places. A value stays in its place, and a part stays allocated, as long
/// as the table exists.
pub(super) struct LazyTable<T, const LEN: usize> {
    few: [OnceBox<T>; FEW],
    /// All other places.
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

    /// Returns the bytes that [`prepare`](Self::prepare) will allocate for that place.
    pub(super) fn bytes_for(&self, place: u64) -> u64 {
        let parts = if self.parts.get().is_some() { 0 } else { size_of::<Parts<T, LEN>>() };
        let part = size_of::<Part<T, LEN>>();
        if self.place(place).is_some() { 0 } else { (parts + part) as u64 }
    }

    /// Allocates the part that has that place, unless it is there.
    ///
    /// # Panics
    /// If there is no such place.
    pub(super) fn prepare(&self, place: u64) {
        if self.place(place).is_none() {
            let parts = self.parts.get_or_init(|| Box::new(empty()));
            parts[place as usize / LEN].get_or_init(|| Box::new(empty()));
        }
    }

    /// Fills a place, whose part must exist. Returns false if the place was filled already.
    pub(super) fn fill(&self, place: u64, value: T) -> bool {
        self.place(place).is_some_and(|place| place.set(Box::new(value)).is_ok())
    }

    /// Returns all values, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let parts = self.parts.get().into_iter().flatten().filter_map(OnceBox::get);
        self.few.iter().chain(parts.flatten()).filter_map(OnceBox::get)
    }
}
