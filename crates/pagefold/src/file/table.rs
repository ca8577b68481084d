//! All open files: one state for each, however often it is open.
//!
//! A file is found by its [`Identity`]. On some file systems several files have one; these are told
//! apart by what else they have ([`Fingerprint`](crate::io::Fingerprint)), without the table's
//! lock, since that asks the system. So a file is added only once all that have its identity have
//! been compared with it, and none has come meanwhile.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sync::lock::Mutex;
use sync::{Arc, Weak};

use io::Identity;

/// The open files, by identity.
///
/// A file takes itself out when it goes. So no call looks at other files than its own, but for
/// those that are to do something with all of them.
pub(crate) struct FileTable<F> {
    open: Mutex<HashMap<Identity, Namesakes<F>>>,
}

/// Open files of one identity: as a rule one.
struct Namesakes<F> {
    first: Weak<F>,
    others: Vec<Weak<F>>,
}

impl<F> Namesakes<F> {
    fn all(&self) -> impl Iterator<Item = &Weak<F>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Takes a file out, and those that are gone. Returns whether none is left.
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
    /// Takes a file that is going out of the table.
    pub(crate) fn remove(&self, file: &F, identity: Identity) {
        let mut open = self.open.lock();
        // The file may be open again by now, with a state of its own.
        if open.get_mut(&identity).is_some_and(|namesakes| namesakes.remove(file)) {
            open.remove(&identity);
        }
    }

    /// The open files of this identity.
    pub(crate) fn namesakes(&self, identity: Identity) -> Vec<Arc<F>> {
        let open = self.open.lock();
        open.get(&identity).into_iter().flat_map(Namesakes::all).filter_map(Weak::upgrade).collect()
    }

    /// Adds a file, unless there is one of its identity by now that isn't among `compared`.
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

    /// All open files.
    pub(crate) fn all(&self) -> Vec<Arc<F>> {
        self.open.lock().values().flat_map(Namesakes::all).filter_map(Weak::upgrade).collect()
    }

    /// How many identities there are.
    #[cfg(all(test, not(pagefold_loom)))]
    pub(crate) fn len(&self) -> usize {
        self.open.lock().len()
    }
}
