//! A table of values by small numbers, into which many threads insert at once.
//!
//! Inserting, looking up and removing take constant time, inserting on average. Only removing needs
//! exclusive access. So evictions, which look up files and groups, go on while a file is opened or
//! a group is created.
//!
//! The table grows by parts, each twice as long as the part before, and never moves a value. The
//! thread that inserts the first value of a part initializes the part, which takes a few
//! milliseconds for a million values. Lookups go on meanwhile, but a removal waits, and lookups
//! that come after the removal wait for it.
//!
//! A number belongs to a value for as long as the value is in the table. Once the value is removed,
//! the number may be reused. The number that was freed last is reused first.

use sync::atomic::{AtomicU32, Ordering};
use sync::lock::{Mutex, OnceCell};

/// The length of the first part. Each further part is twice as long as the one before.
const FIRST: usize = 4;
/// Parts for all numbers of 32 bits.
const PARTS: usize = 31;

/// The table; see the module's head.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    parts: [OnceCell<Box<[OnceCell<T>]>>; PARTS],
    /// One more than the highest number ever given out.
    end: AtomicU32,
    /// The lower numbers that aren't in use.
    free: Mutex<Vec<u32>>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { parts: [const { OnceCell::new() }; PARTS], end: AtomicU32::new(0), free: Mutex::default() }
    }
}

/// Returns the part that contains `number`, and the index in that part.
fn at(number: u32) -> (usize, usize) {
    let number = number as usize;
    let part = (number / FIRST + 1).ilog2() as usize;
    (part, number - FIRST * ((1 << part) - 1))
}

/// Returns a part without values.
fn empty<T>(part: usize) -> Box<[OnceCell<T>]> {
    (0..FIRST << part).map(|_| OnceCell::new()).collect()
}

impl<T> Numbered<T> {
    /// Returns one more than the highest number ever given out.
    pub(crate) fn end(&self) -> u32 {
        // Relaxed: a thread learns of a number through an access that synchronizes with the thread
        // that inserted it, and that thread has raised `end` before.
        self.end.load(Ordering::Relaxed)
    }

    /// Returns the number of values.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Inserts the value that `make` returns for its number. Returns the number and the value.
    pub(crate) fn insert(&self, make: impl FnOnce(u32) -> T) -> (u32, &T) {
        let free = self.free.lock().pop();
        // A number that was never given out, or whose value was removed, is this thread's alone.
        let number = free.unwrap_or_else(|| self.end.fetch_add(1, Ordering::Relaxed));
        let (part, index) = at(number);
        (number, self.parts[part].get_or_init(|| empty(part))[index].get_or_init(|| make(number)))
    }

    /// Returns the value with this number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (part, index) = at(number);
        self.parts.get(part)?.get()?[index].get()
    }

    /// Removes and returns the value with this number, if there is one.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let (part, index) = at(number);
        let value = self.parts.get_mut(part)?.get_mut()?[index].take()?;
        self.free.lock().push(number);
        Some(value)
    }

    /// Returns all values, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let parts = self.parts.iter().filter_map(OnceCell::get);
        parts.flatten().filter_map(OnceCell::get)
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_used_again() {
        let mut table = Numbered::default();
        (0..1000).for_each(|number| assert_eq!(table.insert(|given| given * 3), (number, &(number * 3))));
        assert_eq!((table.len(), table.end()), (1000, 1000));
        for number in [0, 3, 4, 11, 12, 999] {
            assert_eq!((table.remove(number), table.remove(number), table.get(number)), (Some(number * 3), None, None));
        }
        assert_eq!((table.len(), table.end(), table.get(1000), table.get(u32::MAX)), (994, 1000, None, None));
        let again: Vec<_> = (0..7).map(|_| table.insert(|number| number).0).collect();
        assert_eq!(again, [999, 12, 11, 4, 3, 0, 1000]);
        assert_eq!(table.get(12), Some(&12));
        assert!(table.iter().copied().eq((0..1001).map(|number| *table.get(number).unwrap())));
    }

    /// Regression: an insertion that enlarged the table copied all of it, while every eviction
    /// waited.
    #[test]
    fn a_table_that_grows_moves_nothing() {
        let table = Numbered::default();
        let first: *const u32 = table.insert(|number| number).1;
        (1..100_000).for_each(|_| _ = table.insert(|number| number));
        assert!(std::ptr::eq(first, table.get(0).unwrap()));
    }

    #[test]
    fn threads_that_insert_at_once_get_numbers_of_their_own() {
        let mut table = Numbered::default();
        (0..100).for_each(|_| _ = table.insert(|number| number));
        (0..100).for_each(|number| _ = table.remove(number));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let (number, _) = table.insert(|number| number);
                        assert_eq!(table.get(number), Some(&number));
                    }
                });
            }
        });
        assert!(table.iter().copied().eq(0..2000));
        assert_eq!(table.end(), 2000);
    }
}
