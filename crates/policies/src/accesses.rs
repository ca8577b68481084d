//! A trace: which pages are used, in order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

/// The pages that are used, in order. Takes four bytes for each access, and about 20 for each page.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    /// Pages are numbered in the order of their first access, without gaps.
    order: Vec<u32>,
    numbers: HashMap<u64, u32>,
}

/// A trace has more accesses than this crate can count: four thousand million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany(());

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} accesses", Accesses::LEN_MAX)
    }
}

impl std::error::Error for TooMany {}

impl Accesses {
    /// The maximum number of accesses.
    pub const LEN_MAX: usize = u32::MAX as usize - 1;

    /// Creates a trace of these pages, named by any numbers.
    ///
    /// # Errors
    /// More than [`LEN_MAX`](Self::LEN_MAX) accesses.
    pub fn of(pages: impl IntoIterator<Item = u64>) -> Result<Self, TooMany> {
        let mut accesses = Self::default();
        pages.into_iter().try_for_each(|page| accesses.push(page))?;
        Ok(accesses)
    }

    /// Adds an access to a page, named by any number.
    ///
    /// # Errors
    /// There are [`LEN_MAX`](Self::LEN_MAX) accesses already.
    pub fn push(&mut self, page: u64) -> Result<(), TooMany> {
        if self.order.len() == Self::LEN_MAX {
            return Err(TooMany(()));
        }
        // There are at most as many pages as accesses.
        let next = self.numbers.len() as u32;
        self.order.push(match self.numbers.entry(page) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(next),
        });
        Ok(())
    }

    /// Returns the number of accesses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether there are no accesses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns the number of different pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the pages in the order of their accesses, as numbers below [`pages`](Self::pages).
    pub(crate) fn order(&self) -> &[u32] {
        &self.order
    }
}
