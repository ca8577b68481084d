//! The table of open files: one state for each file, however often it is open.
//!
//! A file is found by its [`Identity`]. On some file systems several files have the same identity.
//! Files of one identity are told apart by their [`Fingerprint`](crate::io::Fingerprint).
//!
//! Getting a fingerprint takes a system call, so fingerprints are compared without holding the
//! table's lock, and the table may change meanwhile. Therefore `add` checks, under the lock, that
//! the new file was compared with all files of the same identity that are in the table now. If one
//! of them was left out, the new file isn't added, and the caller compares again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sync::lock::Mutex;
use sync::{Arc, Weak};

use io::Identity;

/// The open files, by identity.
///
/// A file removes itself when it is dropped. So only calls that work on all files touch the entries
/// of other files.
pub(crate) struct FileTable<F> {
    open: Mutex<HashMap<Identity, Namesakes<F>>>,
}

/// The open files of one identity; usually one.
struct Namesakes<F> {
    first: Weak<F>,
    others: Vec<Weak<F>>,
}

impl<F> Namesakes<F> {
    fn all(&self) -> impl Iterator<Item = &Weak<F>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Removes a file, and dead entries. Returns whether no file is left.
    fn remove(&mut self, file: *const F) -> bool {
        let stays = |state: &Weak<F>| state.strong_count() > 0 && !std::ptr::eq(state.as_ptr(), file);
        self.others.retain(stays);
        if !stays(&self.first) {
            match self.others.pop() {
                Some(other) => self.first = other,
                None => return true,
            }
        }
        false
    }
}

impl<F> Default for FileTable<F> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<F> FileTable<F> {
    /// Removes a file that is being dropped.
    pub(crate) fn remove(&self, file: &F, identity: Identity) {
        let mut open = self.open.lock();
        // The file may have been opened again, with another state.
        if open.get_mut(&identity).is_some_and(|namesakes| namesakes.remove(file)) {
            open.remove(&identity);
        }
    }

    /// Returns the open files of this identity.
    pub(crate) fn namesakes(&self, identity: Identity) -> Vec<Arc<F>> {
        let open = self.open.lock();
        open.get(&identity).into_iter().flat_map(Namesakes::all).filter_map(Weak::upgrade).collect()
    }

    /// Adds a file, unless the table has a file of the same identity that isn't among `compared`.
    /// Returns whether the file was added.
    pub(crate) fn add(&self, file: &Arc<F>, identity: Identity, compared: &[Arc<F>]) -> bool {
        let added = Arc::downgrade(file);
        let is_compared = |state: &Weak<F>| compared.iter().any(|it| std::ptr::eq(state.as_ptr(), &raw const **it));
        match self.open.lock().entry(identity) {
            Entry::Vacant(place) => _ = place.insert(Namesakes { first: added, others: Vec::new() }),
            Entry::Occupied(mut place) => {
                let namesakes = place.get_mut();
                if namesakes.all().any(|state| state.strong_count() > 0 && !is_compared(state)) {
                    return false;
                }
                namesakes.others.push(added);
            }
        }
        true
    }

    /// Returns all open files.
    pub(crate) fn all(&self) -> Vec<Arc<F>> {
        self.open.lock().values().flat_map(Namesakes::all).filter_map(Weak::upgrade).collect()
    }

    /// Returns the number of identities.
    #[cfg(all(test, not(pagefold_loom)))]
    pub(crate) fn len(&self) -> usize {
        self.open.lock().len()
    }
}
