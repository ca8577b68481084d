//! A group's record of its dirty pages. The pages are counted in parts, one for each file
//! (`dirty::device`).

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{Arc, Weak};

/// How long after its last request a thread counts as waiting for memory.
pub(crate) const SHORT_MS: u64 = 50;

/// A group's dirty pages of one file.
pub(crate) trait Part: Send + Sync {
    fn pages(&self) -> u64;

    /// Returns whether the pages can't be written now: writes to their file fail, or their device
    /// doesn't answer.
    fn is_stuck(&self) -> bool;

    /// Wakes the flusher to look at the pages' device.
    fn ring(&self);
}

/// A group's record of its dirty pages.
#[derive(Default)]
pub(crate) struct GroupDirt {
    parts: Mutex<WeakList>,
    /// Until when a thread counts as waiting for pages of the group to become clean.
    short_until_ms: AtomicU64,
    /// The number of pages that have become clean so far.
    pub(crate) cleaned: AtomicU64,
    /// The number of dirty pages that couldn't be written at the last count.
    stuck: AtomicU64,
}

impl std::fmt::Debug for GroupDirt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupDirt").field("stuck", &self.stuck).finish_non_exhaustive()
    }
}

/// A group's parts. Dead entries are removed before the list grows.
#[derive(Default)]
struct WeakList(Vec<Weak<dyn Part>>);

impl WeakList {
    fn push(&mut self, part: &Arc<dyn Part>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|part| part.strong_count() > 0);
            self.0.reserve(self.0.len().max(1)); // So the scans are amortized.
        }
        self.0.push(Arc::downgrade(part));
    }
}

impl GroupDirt {
    /// Returns the group's parts that have dirty pages.
    fn parts(&self) -> Vec<Arc<dyn Part>> {
        self.parts.lock().0.iter().filter_map(Weak::upgrade).filter(|part| part.pages() > 0).collect()
    }

    /// Adds a part.
    pub(crate) fn add(&self, part: &Arc<dyn Part>) {
        self.parts.lock().push(part);
    }

    /// Counts the dirty pages that can't be written now.
    pub(crate) fn count_stuck(&self) -> u64 {
        let stuck = self.parts().iter().filter(|part| part.is_stuck()).map(|part| part.pages()).sum();
        self.stuck.store(stuck, Ordering::Relaxed);
        stuck
    }

    /// Wakes the flusher to look at all devices with dirty pages of the group.
    pub(crate) fn ring(&self) {
        self.parts().iter().for_each(|part| part.ring());
    }

    /// Notes that a thread waits for pages to become clean.
    pub(crate) fn short(&self, now_ms: u64) {
        self.short_until_ms.store(now_ms + SHORT_MS, Ordering::Relaxed);
    }

    pub(crate) fn is_short(&self, now_ms: u64) -> bool {
        now_ms < self.short_until_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed)
    }
}
