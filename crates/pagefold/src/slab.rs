//! A slab: a table of values by small numbers.
//!
//! Inserting, looking up and removing take constant time. The table grows by parts, each twice as
//! long as the part before, and never moves a value. Moving all values would take a long time, and
//! all evictions might have to wait for it, because the inserting thread may hold a lock that every
//! eviction takes.
//!
//! A number belongs to a value for as long as the value is in the table. Once the value is removed,
//! the number may be reused. The number that was freed last is reused first.

/// The length of the first part. Each further part is twice as long as the one before.
const FIRST: usize = 4;

/// The slab; see the module's head.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    parts: Vec<Vec<Place<T>>>,
    /// The first entry of the list of free entries.
    free: Option<u32>,
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    /// The next free entry.
    Free(Option<u32>),
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), free: None }
    }
}

/// Returns the part that contains `number`, and the index in that part.
fn at(number: usize) -> (usize, usize) {
    let part = (number / FIRST + 1).ilog2() as usize;
    (part, number - FIRST * ((1 << part) - 1))
}

fn part_len(part: usize) -> usize {
    FIRST << part
}

impl<T> Slab<T> {
    /// Returns the number that the next inserted value gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.free.unwrap_or(self.end())
    }

    /// Returns one more than the highest number ever given out.
    pub(crate) fn end(&self) -> u32 {
        let Some((last, before)) = self.parts.split_last() else { return 0 };
        (last.len() + before.iter().map(Vec::len).sum::<usize>()) as u32
    }

    /// Returns the number of values.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Inserts a value and returns its number.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        let number = self.next_number();
        let (part, place) = at(number as usize);
        if let Some(Place::Free(next)) = self.free.and_then(|_| self.parts[part].get(place)) {
            self.free = *next;
            self.parts[part][place] = Place::Taken(thing);
            return number;
        }
        if part == self.parts.len() {
            self.parts.push(Vec::with_capacity(part_len(part)));
        }
        self.parts[part].push(Place::Taken(thing));
        number
    }

    /// Returns the value with this number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (part, place) = at(number as usize);
        match self.parts.get(part)?.get(place)? {
            Place::Taken(thing) => Some(thing),
            Place::Free(_) => None,
        }
    }

    /// Removes and returns the value with this number, if there is one.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let (part, place) = at(number as usize);
        let place = self.parts.get_mut(part)?.get_mut(place)?;
        if matches!(place, Place::Free(_)) {
            return None;
        }
        let Place::Taken(thing) = std::mem::replace(place, Place::Free(self.free)) else { return None };
        self.free = Some(number);
        Some(thing)
    }

    /// Returns all values, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flatten().filter_map(|place| match place {
            Place::Taken(thing) => Some(thing),
            Place::Free(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_used_again() {
        let mut slab = Slab::default();
        for number in 0..1000 {
            assert_eq!(slab.next_number(), number);
            assert_eq!(slab.insert(number * 3), number);
        }
        assert_eq!((slab.len(), slab.end()), (1000, 1000));
        for number in [0, 3, 4, 11, 12, 999] {
            assert_eq!((slab.remove(number), slab.remove(number), slab.get(number)), (Some(number * 3), None, None));
        }
        assert_eq!((slab.len(), slab.end(), slab.get(1000)), (994, 1000, None));
        let again: Vec<_> = (0..7).map(|thing| slab.insert(thing)).collect();
        assert_eq!(again, [999, 12, 11, 4, 3, 0, 1000]);
        assert_eq!(slab.get(12), Some(&1));
        assert!(slab.iter().copied().eq((0..1001).map(|number| *slab.get(number).unwrap())));
    }

    /// Regression: an insertion that enlarged the table copied all of it, while every eviction
    /// waited.
    #[test]
    fn a_table_that_grows_moves_nothing() {
        let mut slab = Slab::default();
        slab.insert(0_u64);
        let first: *const u64 = slab.get(0).unwrap();
        (1..100_000).for_each(|thing| {
            slab.insert(thing);
        });
        assert!(std::ptr::eq(first, slab.get(0).unwrap()));
        assert!(slab.parts.iter().enumerate().all(|(part, places)| places.capacity() == part_len(part)));
    }
}
