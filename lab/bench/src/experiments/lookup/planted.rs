//! Pagefold with a deliberate mistake: all hits increment one shared counter. The gate must fail
//! with it, and the profile must name the line.

use sync::atomic::{AtomicU64, Ordering};

use super::pagefold::Cached;
use super::{PageCache, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "planted",
    about: "Pagefold with a counter that all hits share: what the gate is for (only when asked for)",
    hidden: true,
    measure: |job| measure(job, |pages, tasks| Planted { cached: Cached::new(pages, tasks), hits: Hits::default() }),
};

#[derive(Default)]
#[repr(align(64))]
struct Hits(AtomicU64);

struct Planted {
    cached: Cached,
    hits: Hits,
}

impl PageCache for Planted {
    fn read(&self, page: u64, into: &mut [u8]) {
        // Relaxed: a statistic.
        self.hits.0.fetch_add(1, Ordering::Relaxed);
        self.cached.read(page, into);
    }

    fn change(&self, task: usize, page: u64) {
        self.cached.change(task, page);
    }
}
