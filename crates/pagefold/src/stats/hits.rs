//! Counts hits where they happen: for each open handle, and for each place in a space's table of
//! mappings.

use std::fmt;
use std::ops::Deref;

use slab::Slab;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{Arc, CounterPlace, ThreadCounter};

use crate::size::ALLOCATION;
use crate::stats::Counters;

/// Counts the hits of one open handle, or of one place in a space's table of mappings. (Such a
/// place serves one mapping after another.)
///
/// Threads add hits to `counter`. At first all threads add to one shared number. Once the counter
/// has a [`CounterPlace`], each thread adds to its own number, so threads don't contend. A counter
/// that was created by `Hits::default` gets its `CounterPlace` after its first few hits. A counter
/// that was created by [`at_hand`](Self::at_hand) has one from the start, unless there are too many
/// such counters.
#[derive(Default)]
pub(crate) struct Hits {
    pub(crate) counter: ThreadCounter,
    /// How many hits were already added to the counters of the files and the group.
    settled: AtomicU64,
}

impl Hits {
    /// Creates a counter at zero, and returns its [`CounterPlace`]. The counter has the place from
    /// the start, unless there are too many such counters.
    pub(crate) fn at_hand() -> (Self, CounterPlace) {
        let (counter, place) = ThreadCounter::at_hand();
        (Self { counter, settled: AtomicU64::new(0) }, place)
    }

    fn unsettled(&self) -> u64 {
        self.counter.sum().saturating_sub(self.settled.load(Ordering::Relaxed))
    }
}

/// A list of [`Hits`] whose latest hits may not have been added to the counters of a group, or of a
/// file, yet. Each group and each file has its own list. So a thread that opens or closes a handle,
/// or reads one tenant's statistics, doesn't touch the handles of other tenants.
#[derive(Default)]
pub(crate) struct HitsList {
    lists: Mutex<Slab<Arc<Hits>>>,
}

impl HitsList {
    fn add(&self, hits: &Arc<Hits>) -> u32 {
        self.lists.lock().insert(Arc::clone(hits)) as u32
    }

    fn remove(&self, number: u32) {
        self.lists.lock().remove(number as usize);
    }

    /// Returns the number of hits that aren't settled yet (`HitCount::settle`). Hits of a handle
    /// that is just being closed are missing.
    pub(crate) fn unsettled(&self) -> u64 {
        self.lists.lock().iter().map(|(_, hits)| hits.unsettled()).sum()
    }
}

impl fmt::Debug for HitsList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HitsList").finish_non_exhaustive()
    }
}

/// The hits of an open handle, or of a place in a table of mappings. They are on the list of their
/// group, and on the list of one file. For a handle, this is the file that the handle was opened
/// for. For a place, it is the file that is mapped in the place at the moment. While no file is
/// mapped there, the place's hits are on no file's list.
pub(crate) struct HitCount {
    hits: Arc<Hits>,
    in_group: u32,
    /// Its number on the file's list, or [`NO_FILE`].
    in_file: AtomicU32,
}

const NO_FILE: u32 = u32::MAX;

impl HitCount {
    /// Returns the bytes that a `HitCount` allocates: its hits, and their entries on two lists. The
    /// counter's `CounterPlace` isn't included.
    pub(crate) fn bytes() -> u64 {
        size_of::<Hits>() as u64 + 4 * ALLOCATION
    }

    /// Enters the hits on their group's list, but on no file's list yet.
    pub(crate) fn enter(hits: Hits, group: &HitsList) -> Self {
        let hits = Arc::new(hits);
        Self { in_group: group.add(&hits), hits, in_file: AtomicU32::new(NO_FILE) }
    }

    /// Counts further hits for the file whose list is `file`. The caller must settle the hits of
    /// one file before it begins the next file.
    pub(crate) fn begin(&self, file: &HitsList) {
        self.in_file.store(file.add(&self.hits), Ordering::Relaxed);
    }

    /// Takes the hits off the file's list, and adds those not yet settled to the counters of the
    /// file and the group. Later hits are counted for the next file (`begin`).
    pub(crate) fn settle(&self, file: &HitsList, counters: [&Counters; 2]) {
        let number = self.in_file.swap(NO_FILE, Ordering::Relaxed);
        if number != NO_FILE {
            file.remove(number);
        }
        let all = self.counter.sum();
        let more = all.saturating_sub(self.settled.swap(all, Ordering::Relaxed));
        counters.into_iter().for_each(|counters| Counters::add(&counters.hits, more));
    }

    /// Takes the hits off the group's list. The owner calls this last, when its handle or its space
    /// is dropped. A `Drop` of this type can't do it: it would also run in a forked child, which
    /// must not take locks.
    pub(crate) fn leave(&self, group: &HitsList) {
        group.remove(self.in_group);
    }
}

impl Deref for HitCount {
    type Target = Hits;

    fn deref(&self) -> &Hits {
        &self.hits
    }
}
