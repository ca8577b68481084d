//! Hits, counted where they happen: by open handle, and by place that files are mapped at.

use std::fmt;
use std::ops::Deref;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{Arc, CounterPlace, ThreadCounter};

use crate::size::ALLOCATION;
use crate::slab::Slab;
use crate::stats::Counters;

/// Where hits are counted: those of one open handle, or of a place that files are mapped at one
/// after the other. By default the counter has no place as long as there are few of them.
#[derive(Default)]
pub(crate) struct Hits {
    pub(crate) counter: ThreadCounter,
    /// How many are in the numbers of their files and the group.
    settled: AtomicU64,
}

impl Hits {
    /// None as yet, and the counter's place, which it has from the start unless there are many.
    pub(crate) fn at_hand() -> (Self, CounterPlace) {
        let (counter, place) = ThreadCounter::at_hand();
        (Self { counter, settled: AtomicU64::new(0) }, place)
    }

    fn unsettled(&self) -> u64 {
        self.counter.sum().saturating_sub(self.settled.load(Ordering::Relaxed))
    }
}

/// The hits that a group, or a file, hasn't in its numbers yet. Each has a list of its own, so that
/// neither a handle that comes or goes nor a look at one tenant's numbers has to do with the
/// handles of others.
#[derive(Default)]
pub(crate) struct HitsList {
    lists: Mutex<Slab<Arc<Hits>>>,
}

impl HitsList {
    fn add(&self, hits: &Arc<Hits>) -> u32 {
        self.lists.lock().insert(Arc::clone(hits))
    }

    fn remove(&self, number: u32) {
        self.lists.lock().remove(number);
    }

    /// A handle that is just being closed may count nowhere for a moment.
    pub(crate) fn unsettled(&self) -> u64 {
        self.lists.lock().iter().map(|hits| hits.unsettled()).sum()
    }
}

impl fmt::Debug for HitsList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HitsList").finish_non_exhaustive()
    }
}

/// The hits of an open handle, or of a place, which are on its group's list and on that of the file
/// that is there now.
pub(crate) struct HitCount {
    hits: Arc<Hits>,
    in_group: u32,
    /// The number on the file's list, or [`NO_FILE`].
    in_file: AtomicU32,
}

const NO_FILE: u32 = u32::MAX;

impl HitCount {
    /// Bytes that this takes where it is kept elsewhere: the hits, and their place on two lists;
    /// not that of their counter.
    pub(crate) fn bytes() -> u64 {
        size_of::<Hits>() as u64 + 4 * ALLOCATION
    }

    /// Puts them on their group's list, and as yet on no file's.
    pub(crate) fn enter(hits: Hits, group: &HitsList) -> Self {
        let hits = Arc::new(hits);
        Self { in_group: group.add(&hits), hits, in_file: AtomicU32::new(NO_FILE) }
    }

    /// What is counted from now on is the file's with this list. The caller begins and settles one
    /// file after the other.
    pub(crate) fn begin(&self, file: &HitsList) {
        self.in_file.store(file.add(&self.hits), Ordering::Relaxed);
    }

    /// Takes them off the file's list, and adds what was counted to the counters of the file and
    /// the group. What comes late is the next file's.
    pub(crate) fn settle(&self, file: &HitsList, counters: [&Counters; 2]) {
        let number = self.in_file.swap(NO_FILE, Ordering::Relaxed);
        if number != NO_FILE {
            file.remove(number);
        }
        let all = self.counter.sum();
        let more = all.saturating_sub(self.settled.swap(all, Ordering::Relaxed));
        counters.into_iter().for_each(|counters| Counters::add(&counters.hits, more));
    }

    /// Takes them off the group's list, at the end. Not in `drop`: a forked child takes no locks.
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
