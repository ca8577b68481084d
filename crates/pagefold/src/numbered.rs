//! A table of values by small numbers, into which many threads insert at once.
//!
//! A lookup or a removal takes constant time, and so does an insertion on average. Only a removal
//! needs exclusive access. Opening a file or creating a group inserts a value. Meanwhile evictions,
//! which look up files and groups, go on.
//!
//! The table grows by parts, each twice as long as the part before, and never moves a value. The
//! thread that inserts the first value of a part initializes the part, which takes a few
//! milliseconds for a million values. Lookups go on meanwhile. But a removal has to wait for this
//! insertion, and lookups that begin after the removal wait for the removal.
//!
//! A number belongs to a value until the last reference to the value is gone, even if the value was
//! removed from the table before. So while a thread holds a value, the value's number means this
//! value, and no later one. For example, while a thread holds a group, a page whose frame has the
//! group's number is a page of that group. The number that was freed last is reused first.
//!
//! No destructor frees a number, because a forked child runs destructors as well, and the table's
//! lock may be locked in the child for ever. Instead, each insertion and each removal looks at a
//! few values that were removed earlier.

use std::collections::VecDeque;

use sync::atomic::{AtomicU32, Ordering, fence};
use sync::lock::{Mutex, OnceCell};
use sync::{Arc, Weak};

/// The length of the first part. Each further part is twice as long as the one before.
const FIRST: usize = 4;
/// Parts for all numbers of 32 bits.
const PARTS: usize = 31;

/// The number of removed values that an insertion or a removal looks at. More than one: each
/// removal also adds a value to `leaving`, and the list must be able to shrink.
const LOOKS: usize = 2;

/// A part of the table.
type Part<T> = Box<[OnceCell<Arc<T>>]>;

/// The table; see the module's head.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    parts: [OnceCell<Part<T>>; PARTS],
    /// One more than the highest number ever given out.
    end: AtomicU32,
    unused: Mutex<Unused<T>>,
}

/// The numbers below `end` that no value in the table has.
#[derive(Debug)]
struct Unused<T> {
    /// The numbers that the next values get.
    free: Vec<u32>,
    /// The numbers of removed values to which there may still be references.
    leaving: VecDeque<(u32, Weak<T>)>,
}

impl<T> Unused<T> {
    /// Looks at a few removed values, and frees the numbers of values whose last reference is gone.
    fn free_some(&mut self) {
        for _ in 0..LOOKS.min(self.leaving.len()) {
            let Some((number, value)) = self.leaving.pop_front() else { return };
            if value.strong_count() == 0 {
                // Acquire: pairs with the Release with which `Arc` gives up a reference. So all
                // accesses to the value happen before the number is used again.
                fence(Ordering::Acquire);
                self.free.push(number);
            } else {
                self.leaving.push_back((number, value));
            }
        }
    }
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        let unused = Mutex::new(Unused { free: Vec::new(), leaving: VecDeque::new() });
        Self { parts: [const { OnceCell::new() }; PARTS], end: AtomicU32::new(0), unused }
    }
}

/// Returns the part that contains `number`, and the index in that part.
fn at(number: u32) -> (usize, usize) {
    let number = number as usize;
    let part = (number / FIRST + 1).ilog2() as usize;
    (part, number - FIRST * ((1 << part) - 1))
}

/// Returns a part without values.
fn empty<T>(part: usize) -> Part<T> {
    (0..FIRST << part).map(|_| OnceCell::new()).collect()
}

impl<T> Numbered<T> {
    /// Returns one more than the highest number ever given out.
    pub(crate) fn end(&self) -> u32 {
        // Relaxed: the inserting thread raises `end` before it inserts its value. A thread that
        // knows the value's number learned it through an access that synchronizes with the
        // insertion.
        self.end.load(Ordering::Relaxed)
    }

    /// Returns the number of values.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Inserts the value that `make` returns for its number. Returns the number and the value.
    pub(crate) fn insert(&self, make: impl FnOnce(u32) -> Arc<T>) -> (u32, &Arc<T>) {
        let free = {
            let mut unused = self.unused.lock();
            unused.free_some();
            unused.free.pop()
        };
        // A number that was never given out, or whose value is gone, is this thread's alone.
        let number = free.unwrap_or_else(|| self.end.fetch_add(1, Ordering::Relaxed));
        let (part, index) = at(number);
        (number, self.parts[part].get_or_init(|| empty(part))[index].get_or_init(|| make(number)))
    }

    /// Returns the value with this number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<T>> {
        let (part, index) = at(number);
        self.parts.get(part)?.get()?[index].get()
    }

    /// Removes and returns the value with this number, if there is one.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Arc<T>> {
        let (part, index) = at(number);
        let value = self.parts.get_mut(part)?.get_mut()?[index].take()?;
        let mut unused = self.unused.lock();
        unused.free_some();
        unused.leaving.push_back((number, Arc::downgrade(&value)));
        Some(value)
    }

    /// Returns all values, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
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
        (0..1000).for_each(|number| {
            assert_eq!(table.insert(|given| Arc::new(given * 3)), (number, &Arc::new(number * 3)));
        });
        assert_eq!((table.len(), table.end()), (1000, 1000));
        for number in [0, 3, 4, 11, 12, 999] {
            let removed = [table.remove(number), table.remove(number)];
            assert_eq!((removed, table.get(number)), ([Some(Arc::new(number * 3)), None], None));
        }
        assert_eq!((table.len(), table.end(), table.get(1000), table.get(u32::MAX)), (994, 1000, None, None));
        let again: Vec<_> = (0..7).map(|_| table.insert(Arc::new).0).collect();
        assert_eq!(again, [999, 12, 11, 4, 3, 0, 1000]);
        assert_eq!(table.get(12).map(|value| **value), Some(12));
        assert!(table.iter().eq((0..1001).map(|number| table.get(number).unwrap())));
    }

    /// Regression: a value was removed, and the next value got its number, while another thread
    /// still used the removed one. A thread that walked a list of a removed group mistook the pages
    /// of the next group for pages of the removed group.
    #[test]
    fn a_number_is_reused_only_after_the_last_reference_to_its_value_is_gone() {
        let mut table = Numbered::default();
        let [first, second] = [(); 2].map(|()| Arc::clone(table.insert(Arc::new).1));
        assert_eq!([table.remove(0), table.remove(1)].map(|value| value.map(|it| *it)), [Some(0), Some(1)]);
        let new: Vec<_> = (0..10).map(|_| table.insert(Arc::new).0).collect();
        assert_eq!(new, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11], "both values are in use");
        drop(second);
        assert_eq!([(); 2].map(|()| table.insert(Arc::new).0), [1, 12], "the first value is in use");
        drop(first);
        assert_eq!([(); 2].map(|()| table.insert(Arc::new).0), [0, 13]);
    }

    /// Regression: an insertion that enlarged the table copied all of it, while every eviction
    /// waited.
    #[test]
    fn a_table_that_grows_moves_nothing() {
        let table = Numbered::default();
        let first: *const Arc<u32> = table.insert(Arc::new).1;
        (1..100_000).for_each(|_| _ = table.insert(Arc::new));
        assert!(std::ptr::eq(first, table.get(0).unwrap()));
    }

    #[test]
    fn threads_that_insert_at_once_get_numbers_of_their_own() {
        let mut table = Numbered::default();
        (0..100).for_each(|_| _ = table.insert(Arc::new));
        (0..100).for_each(|number| _ = table.remove(number));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let (number, _) = table.insert(Arc::new);
                        assert_eq!(table.get(number), Some(&Arc::new(number)));
                    }
                });
            }
        });
        assert!(table.iter().map(|value| **value).eq(0..2000));
        assert_eq!(table.end(), 2000);
    }
}
