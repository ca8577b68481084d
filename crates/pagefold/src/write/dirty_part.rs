//! The dirty pages that one group has in one file.
//!
//! Writers are held back by group, pages are written by file and device. So dirty pages are counted
//! by pairs of a file and a group, each in a [`DirtyPart`]: made when the group first makes a page
//! of the file dirty, kept by the file as long as it has dirty pages or a handle uses it. A group
//! knows its parts, a device those that have dirty pages.
//!
//! # Invariants
//! - PART-1. A page is counted in the part of its file and of the group that it is charged to. Only
//!   clean pages change their group (`group::recharge`).
//! - PART-2. A part that has dirty pages is in its device's list, where the flusher looks for it,
//!   or the thread that counted a page in is about to put it there. The flusher takes it off the
//!   list in three steps:
//!   ```text
//!     flusher (has the list's lock)            writer
//!     listed: yes → no            SeqCst       pages: 0 → 1             SeqCst
//!     pages == 0?                 SeqCst       listed? no: lists it     SeqCst
//!     else listed: → yes, it stays
//!   ```
//!   In the order of all SeqCst operations one of the two comes first. If the writer found `yes`,
//!   it looked before the flusher's change, so the flusher finds its page.

use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Mutex, OnceCell};
use sync::{Arc, Weak};

use crate::file::handle::Handle;
use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::io::IoError;
use crate::manager::Manager;
use crate::stats::census::ALLOCATION;
use crate::write::device::Device;
use crate::write::dirty::UncleanCount;

/// How long a thread that waits for memory is taken to go on waiting.
const SHORT_MS: u64 = 50;

/// A group's dirty pages of a file.
pub(crate) struct DirtyPart {
    pub(crate) file: Weak<FileState>,
    pub(crate) group: Arc<GroupState>,
    pub(crate) device: Arc<Device>,
    pages: UncleanCount,
    /// In the device's list (PART-2).
    listed: AtomicBool,
    /// Since when there have been dirty pages, if there are.
    since_ms: AtomicU64,
    /// When the file was last written to by the flusher.
    swept_ms: AtomicU64,
    /// When writing the file last failed, if it hasn't gone well since; else 0.
    failed_ms: AtomicU64,
    /// The last of the flusher's visits in which the file couldn't be helped any more.
    tried: AtomicU64,
}

// Times are Relaxed: hints for the flusher.
impl DirtyPart {
    /// What a part takes, with its places in lists.
    pub(crate) const BYTES: u64 = (size_of::<Self>() + 4 * size_of::<usize>()) as u64 + ALLOCATION;

    /// Counts a page that has just become dirty.
    fn became_dirty(self: &Arc<Self>, manager: &Manager) {
        if self.pages.add() {
            self.since_ms.store(manager.now_ms(), Ordering::Relaxed);
        }
        self.group.unclean.add();
        manager.unclean.add();
        if !self.listed.load(Ordering::SeqCst) && !self.listed.swap(true, Ordering::SeqCst) {
            self.device.list(self, &manager.flusher);
        }
    }

    /// Counts pages that aren't dirty any more.
    pub(crate) fn became_clean(&self, manager: &Manager, pages: u64) {
        self.pages.remove(pages);
        self.group.unclean.remove(pages);
        self.group.walk.cleaned(pages);
        manager.unclean.remove(pages);
        // Signs of life for those that wait.
        self.group.dirt.cleaned.fetch_add(pages, Ordering::Relaxed);
        manager.cleaned.fetch_add(pages, Ordering::Relaxed);
    }

    /// Whether the part stays in its device's list. For the flusher, under the list's lock
    /// (PART-2).
    pub(crate) fn stays_listed(&self) -> bool {
        if self.pages.exact() != 0 {
            return true;
        }
        self.listed.store(false, Ordering::SeqCst);
        self.pages.exact() != 0 && !self.listed.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages.get()
    }

    pub(crate) fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms.load(Ordering::Relaxed))
    }

    /// Milliseconds since the flusher last came by, or since there has been something to write.
    pub(crate) fn waited_ms(&self, now_ms: u64) -> u64 {
        self.age_ms(now_ms).min(now_ms.saturating_sub(self.swept_ms.load(Ordering::Relaxed)))
    }

    /// Whether nothing more comes of writing the file in this visit of the flusher.
    pub(crate) fn tried(&self, visit: u64) -> bool {
        self.tried.load(Ordering::Relaxed) == visit
    }

    pub(crate) fn try_no_more(&self, visit: u64) {
        self.tried.store(visit, Ordering::Relaxed);
    }

    /// When writing the file failed, if it still does.
    pub(crate) fn failed_ms(&self) -> Option<u64> {
        Some(self.failed_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
    }
}

/// What a file knows of its dirty pages.
#[derive(Default)]
pub(crate) struct FileDirt {
    parts: Mutex<Vec<Arc<DirtyPart>>>,
    /// The file itself, and its device: once it is open for writing.
    home: OnceCell<(Weak<FileState>, Arc<Device>)>,
}

/// What a group knows of its dirty pages.
#[derive(Default)]
pub(crate) struct GroupDirt {
    parts: Mutex<WeakList>,
    /// Until when a thread is taken to wait for pages of the group to become clean.
    short_until_ms: AtomicU64,
    /// Pages that have become clean so far.
    pub(crate) cleaned: AtomicU64,
    /// Dirty pages that can't be written now, when they were last counted.
    stuck: AtomicU64,
}

impl std::fmt::Debug for GroupDirt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupDirt").field("stuck", &self.stuck).finish_non_exhaustive()
    }
}

/// A group's parts. Those that are gone are cleared away before the list grows.
#[derive(Default)]
struct WeakList(Vec<Weak<DirtyPart>>);

impl WeakList {
    fn push(&mut self, part: &Arc<DirtyPart>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|part| part.strong_count() > 0);
            self.0.reserve(self.0.len().max(1)); // So that the next time is as many parts away.
        }
        self.0.push(Arc::downgrade(part));
    }
}

impl GroupDirt {
    /// The group's parts that have dirty pages.
    pub(crate) fn parts(&self) -> Vec<Arc<DirtyPart>> {
        self.parts.lock().0.iter().filter_map(Weak::upgrade).filter(|part| part.pages() > 0).collect()
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

impl Manager {
    /// Counts the group's dirty pages that can't be written now, because their file fails or their
    /// device doesn't answer.
    pub(crate) fn count_stuck(&self, group: &GroupState) -> u64 {
        let is_stuck = |part: &&Arc<DirtyPart>| part.failed_ms().is_some() || part.device.is_stalled();
        let stuck = group.dirt.parts().iter().filter(is_stuck).map(|part| part.pages()).sum();
        group.dirt.stuck.store(stuck, Ordering::Relaxed);
        stuck
    }

    /// Has the flusher look at all devices with dirty pages of the group.
    pub(crate) fn ring_for_group(&self, group: &GroupState) {
        group.dirt.parts().iter().for_each(|part| self.flusher.ring(&part.device));
    }
}

impl FileState {
    /// Before the file is first written to.
    pub(crate) fn settle_on(self: &Arc<Self>, device: impl FnOnce() -> Arc<Device>) {
        self.dirt.home.get_or_init(|| (Arc::downgrade(self), device()));
    }

    /// The device, if the file is open for writing.
    pub(crate) fn device(&self) -> Option<&Arc<Device>> {
        self.dirt.home.get().map(|(_, device)| device)
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.device().is_some_and(|device| device.is_stalled())
    }

    /// Dirty pages of all groups.
    pub(crate) fn unclean(&self) -> u64 {
        self.dirt.parts.lock().iter().map(|part| part.pages()).sum()
    }

    /// Does something with each part.
    pub(crate) fn each_part(&self, what: impl FnMut(&Arc<DirtyPart>)) {
        self.dirt.parts.lock().iter().for_each(what);
    }

    /// Whether `is` holds for any part.
    pub(crate) fn any_part(&self, is: impl FnMut(&Arc<DirtyPart>) -> bool) -> bool {
        self.dirt.parts.lock().iter().any(is)
    }

    /// The part of a group. `None` if the file isn't open for writing.
    pub(crate) fn part_of(&self, group: &Arc<GroupState>) -> Option<Arc<DirtyPart>> {
        let (file, device) = self.dirt.home.get()?;
        let mut parts = self.dirt.parts.lock();
        // A group's number may have been another's, so the group itself is compared.
        if let Some(part) = parts.iter().find(|part| Arc::ptr_eq(&part.group, group)) {
            return Some(Arc::clone(part));
        }
        parts.retain(|part| Arc::strong_count(part) > 1 || part.pages.exact() != 0);
        let part = Arc::new(DirtyPart {
            file: Weak::clone(file),
            group: Arc::clone(group),
            device: Arc::clone(device),
            pages: UncleanCount::default(),
            listed: AtomicBool::new(false),
            since_ms: AtomicU64::new(0),
            swept_ms: AtomicU64::new(0),
            failed_ms: AtomicU64::new(self.latch.failing().map_or(0, |_| self.manager.now_ms().max(1))),
            tried: AtomicU64::new(0),
        });
        group.dirt.parts.lock().push(&part);
        parts.push(Arc::clone(&part));
        Some(part)
    }

    /// The part that dirty pages charged to the group with this number are counted in.
    pub(crate) fn part_of_number(&self, group: u32) -> Option<Arc<DirtyPart>> {
        match self.manager.groups.get(group) {
            Some(group) => self.part_of(&group),
            // Its last page was given up just now, by another thread.
            None => self.dirt.parts.lock().iter().find(|part| part.group.id == group).cloned(),
        }
    }

    /// Counts a page charged to the group with this number that has just become dirty.
    pub(crate) fn became_dirty(&self, group: u32) {
        if let Some(part) = self.part_of_number(group) {
            part.became_dirty(&self.manager);
        }
    }

    /// What was dirty at `started_ms` is clean by now.
    pub(crate) fn clean_since(&self, started_ms: u64) {
        self.each_part(|part| part.since_ms.store(started_ms, Ordering::Relaxed));
    }

    /// The flusher came by; `tried` if it needn't again in this visit.
    pub(crate) fn swept(&self, tried: Option<u64>) {
        let now_ms = self.manager.now_ms();
        self.each_part(|part| {
            part.swept_ms.store(now_ms, Ordering::Relaxed);
            tried.into_iter().for_each(|visit| part.try_no_more(visit));
        });
    }

    /// Notes that a cycle failed, or that a round of the whole file went well.
    pub(crate) fn note_outcome(&self, failure: Option<IoError>) {
        match failure {
            Some(error) => self.latch.fail(error),
            None if self.latch.failing().is_none() => return,
            None => self.latch.heal(),
        }
        let failed_ms = failure.map_or(0, |_| self.manager.now_ms().max(1));
        let mut groups = Vec::new();
        self.each_part(|part| {
            part.failed_ms.store(failed_ms, Ordering::Relaxed);
            groups.push(Arc::clone(&part.group));
        });
        for group in groups {
            self.manager.count_stuck(&group);
        }
    }
}

impl Handle {
    /// Counts a page, charged to the group with this number, that has just become dirty.
    pub(crate) fn became_dirty(&self, group: u32) {
        let own = self.group.state();
        if group != own.id {
            return self.file.became_dirty(group);
        }
        let part = match self.dirty_part.get() {
            Some(part) => part,
            None => match self.file.part_of(own) {
                Some(part) => self.dirty_part.get_or_init(|| part),
                None => return,
            },
        };
        part.became_dirty(&self.file.manager);
    }
}
