//! A table of things by small numbers.
//!
//! Inserting, looking up and removing take the same time however many things there are. The table
//! grows by parts, each as long as all before it, and never moves a thing: the thread that inserts
//! may hold a lock that every eviction takes. A number is a thing's as long as the thing is in the
//! table, and may be another thing's afterwards; the number freed last is given first.

/// Numbers in the first part; the next part has as many, and every further one twice as many as the
/// one before.
const FIRST: usize = 4;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    parts: Vec<Vec<Place<T>>>,
    /// The head of the list of free places.
    free: Option<u32>,
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    /// The next free place.
    Free(Option<u32>),
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), free: None }
    }
}

/// The part that a number is in, and where in it.
fn at(number: usize) -> (usize, usize) {
    let part = (number / FIRST + 1).ilog2() as usize;
    (part, number - FIRST * ((1 << part) - 1))
}

fn part_len(part: usize) -> usize {
    FIRST << part
}

impl<T> Slab<T> {
    /// The number that the next thing gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.free.unwrap_or(self.end())
    }

    /// One more than the highest number that was ever given.
    pub(crate) fn end(&self) -> u32 {
        let Some((last, before)) = self.parts.split_last() else { return 0 };
        (last.len() + before.iter().map(Vec::len).sum::<usize>()) as u32
    }

    /// Things in the table.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Puts a thing into the table and returns its number.
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

    /// The thing with that number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (part, place) = at(number as usize);
        match self.parts.get(part)?.get(place)? {
            Place::Taken(thing) => Some(thing),
            Place::Free(_) => None,
        }
    }

    /// Takes out the thing with that number, if there is one.
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

    /// All things, in the order of their numbers.
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

    /// The insertion that enlarged the table copied all of it, with every eviction waiting.
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
