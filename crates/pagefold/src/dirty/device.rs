//! The devices that files are written to.
//!
//! Each device is written to independently, so a device that doesn't answer delays only its own
//! files (`flusher`). The backend decides which files share a device: those whose identities have
//! the same device number. A file gets its `Device` when it is opened for writing. If there is a
//! limit on how long calls wait for devices, every open file has a `Device`, so that reads can be
//! watched, too (`watchdog`).
//!
//! The dirty pages of a device's files are counted in *parts*, one for each pair of a file and a
//! group (`dirty_part`).
//!
//! # Invariants
//! - PART-1. A dirty page is counted in exactly one part (`DirtyPart`): the part for the page's
//!   file and the group that the page is charged to. A dirty page never moves to another group;
//!   only clean pages do (`file::recharge`).
//! - PART-2. A part that has dirty pages is in its device's list, where the flusher looks for
//!   parts; or the thread that made the part's first page dirty is about to add the part to the
//!   list. The flusher removes a part from the list in three steps:
//!   ```text
//!     flusher (has the list's lock)            writer
//!     listed: yes → no            SeqCst       pages: 0 → 1             SeqCst
//!     pages == 0?                 SeqCst       listed? no: lists it     SeqCst
//!     else listed: → yes, it stays
//!   ```
//!   All steps have one total order (SeqCst). The writer counts its page first, and then reads
//!   `listed`. If the writer reads `no`, the writer adds the part to the list. If the writer reads
//!   `yes` before the flusher's first step, the page was counted before that step. So the flusher
//!   finds the page in its second step, and keeps the part. If the writer reads `yes` after the
//!   first step, another thread has set `listed` to `yes` again: either the flusher, which keeps
//!   the part, or another writer, which adds the part.

use std::collections::HashMap;

use io::{Copies, Task, UnderWay};
use sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sync::lock::{Mutex, OnceCell};
use sync::time::Duration;
use sync::{Arc, Weak};

use crate::dirty::line::{Line, Place, Visited};
use crate::group::dirt::Part;
use crate::group::state::GroupState;
use crate::group::unclean::UncleanCount;
use crate::size::ALLOCATION;

/// A device counts as stalled if it has had something to write for this long, and has completed no
/// write in that time.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// The queue of devices that the flusher visits.
pub(crate) type Flusher = Line<Device>;

/// A device.
pub(crate) struct Device {
    /// How fast the device writes pages.
    pub(crate) rate: Rate,
    flusher: Weak<Flusher>,
    place: Place,
    /// The number of visits by the flusher.
    pub(crate) visits: AtomicU64,
    /// Parts that have dirty pages (PART-2).
    parts: Mutex<Vec<Arc<DirtyPart>>>,
    /// A call has given up waiting for the device, and the device has answered nothing since
    /// (`watchdog`).
    silent: AtomicBool,
    /// When a worker that does work for the device last made progress (WATCH-3 of `watchdog`).
    pub(crate) workers: LastTime,
    /// The write-back cycles that are under way on the device, and their progress.
    pub(crate) under_way: UnderWay,
    /// Buffers for copies, if the device needs bytes that don't change while it writes them
    /// (`request`).
    copies: OnceCell<Arc<Copies>>,
}

/// A time in milliseconds that never goes back. Relaxed: waiting threads use the time only to
/// extend their timeouts.
#[derive(Default)]
pub(crate) struct LastTime(AtomicU64);

impl LastTime {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn is(&self, ms: u64) {
        self.0.fetch_max(ms, Ordering::Relaxed);
    }

    #[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Visited for Device {
    fn place(&self) -> &Place {
        &self.place
    }
}

impl Device {
    /// Creates a device that this flusher visits.
    fn new(flusher: &Arc<Flusher>) -> Self {
        Self {
            rate: Rate::default(),
            flusher: Arc::downgrade(flusher),
            place: Place::default(),
            visits: AtomicU64::new(0),
            parts: Mutex::default(),
            silent: AtomicBool::new(false),
            workers: LastTime::default(),
            under_way: UnderWay::default(),
            copies: OnceCell::new(),
        }
    }

    /// Asks the flusher to visit the device.
    pub(crate) fn ring(self: &Arc<Self>) {
        // If a visit was requested already, writes nothing.
        if !self.place.is_asked()
            && let Some(flusher) = self.flusher.upgrade()
        {
            flusher.ring(self);
        }
    }

    /// Adds a part that has just got dirty pages.
    fn list(self: &Arc<Self>, part: &Arc<DirtyPart>) {
        let mut parts = self.parts.lock();
        if parts.is_empty()
            && let Some(flusher) = self.flusher.upgrade()
        {
            flusher.activate(self);
        }
        parts.push(Arc::clone(part));
    }

    /// Returns the part with the greatest `need`, if any has one. Removes parts that have no dirty
    /// pages from the list.
    pub(crate) fn neediest(self: &Arc<Self>, need: impl Fn(&DirtyPart) -> Option<f64>) -> Option<Arc<DirtyPart>> {
        let mut parts = self.parts.lock();
        parts.retain(|part| part.stays_listed());
        if parts.is_empty()
            && let Some(flusher) = self.flusher.upgrade()
        {
            flusher.deactivate(self);
        }
        let needs = parts.iter().filter_map(|part| Some((need(part)?, part)));
        needs.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, part)| Arc::clone(part))
    }

    /// Calls `what` with each part in the device's list (PART-2).
    pub(crate) fn each_part(&self, what: impl FnMut(&Arc<DirtyPart>)) {
        self.parts.lock().iter().for_each(what);
    }

    /// Removes all parts, once there is no flusher. Parts refer to the device, so this breaks
    /// reference cycles.
    pub(crate) fn clear(&self) {
        self.parts.lock().clear();
    }

    /// Notes that a cycle begins. The cycle counts as under way until the returned value is
    /// dropped.
    pub(crate) fn begin_cycle(&self) -> impl Drop + use<'_> {
        struct Ends<'a>(&'a Device, Option<Task<'a>>);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                // The cycle ends first: a call that is giving up marks the device as silent, and
                // then checks whether a cycle is still under way (WATCH-1).
                self.1 = None;
                self.0.answered();
            }
        }
        Ends(self, Some(self.under_way.begin()))
    }

    /// Returns the buffers for copies, if the device needs copies.
    pub(crate) fn copies(&self) -> Option<&Arc<Copies>> {
        self.copies.get()
    }

    /// Notes that the device needs copies from now on.
    pub(crate) fn needs(&self, copies: Arc<Copies>) {
        let _ = self.copies.set(copies);
    }

    /// Returns whether the device seems to have stopped.
    pub(crate) fn is_stalled(&self) -> bool {
        self.under_way.has_stopped_for(STALLED_AFTER)
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Marks the device as silent, for a call that gives up waiting for its request. Calls `begins`
    /// if the device wasn't silent before. Then calls `outcome` to check once more whether that
    /// request has completed. If it has, removes the mark again (WATCH-1 of `watchdog`) and returns
    /// the outcome.
    pub(crate) fn fall_silent<T>(&self, begins: impl FnOnce(), outcome: impl FnOnce() -> Option<T>) -> Option<T> {
        if !self.silent.swap(true, Ordering::Relaxed) {
            begins();
        }
        // Pairs with the fence in `answered`.
        fence(Ordering::SeqCst);
        outcome().inspect(|_| self.silent.store(false, Ordering::Relaxed))
    }

    /// Notes that the device has completed a request that calls may wait for, so that the device
    /// isn't silent. Loads the flag before storing it: usually the flag isn't set, so usually no
    /// shared cache line is written.
    pub(crate) fn answered(&self) {
        fence(Ordering::SeqCst);
        if self.silent.load(Ordering::Relaxed) {
            self.silent.store(false, Ordering::Relaxed);
        }
    }
}

/// The pages a second that are assumed before any were written back.
const RATE_AT_START: u64 = 50_000;

/// How fast pages are written back.
#[derive(Debug)]
pub(crate) struct Rate(AtomicU64);

impl Default for Rate {
    fn default() -> Self {
        Self(AtomicU64::new(RATE_AT_START))
    }
}

impl Rate {
    /// Updates the estimate: `pages` were written in `time`. Relaxed, also below: an estimate.
    pub(crate) fn measured(&self, pages: u64, time: Duration) {
        let now = pages as f64 / time.as_secs_f64().max(1e-6);
        let before = self.0.load(Ordering::Relaxed) as f64;
        self.0.store((before * 0.75 + now * 0.25).max(1.0) as u64, Ordering::Relaxed);
    }

    pub(crate) fn page_ns(&self) -> f64 {
        1e9 / self.0.load(Ordering::Relaxed).max(1) as f64
    }
}

/// A group's dirty pages of a file.
pub(crate) struct DirtyPart {
    pub(crate) file: Weak<dyn Flushed>,
    pub(crate) group: Arc<GroupState>,
    pub(crate) device: Arc<Device>,
    pages: UncleanCount,
    /// The part is in the device's list (PART-2).
    listed: AtomicBool,
    /// Since when there have been dirty pages, if there are any.
    since_ms: AtomicU64,
    /// When the file was last written to by the flusher.
    swept_ms: AtomicU64,
    /// When writing the file last failed; 0 if it hasn't failed since it last succeeded.
    failed_ms: AtomicU64,
    /// The number of the last visit in which the flusher shouldn't try to write the file again.
    tried: AtomicU64,
}

/// A part's file, as the flusher sees it.
pub(crate) trait Flushed: Send + Sync {
    /// Writes dirty pages of the file for a limited time, or all of them if the process exits
    /// (`is_leaving`). If the flusher would gain nothing by calling `flush` again during the same
    /// visit to the device, marks the file's parts with the number of this `visit`
    /// ([`tried`](DirtyPart::tried)). The flusher then leaves the file alone for the rest of the
    /// visit.
    fn flush(&self, is_leaving: bool, visit: u64);
}

// Times are Relaxed: hints for the flusher.
impl DirtyPart {
    /// Creates a part of `file`. `failed_ms` is the present time if write-back of the file is
    /// failing, otherwise 0.
    pub(crate) fn new(
        file: &Weak<dyn Flushed>,
        group: &Arc<GroupState>,
        device: &Arc<Device>,
        failed_ms: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            file: Weak::clone(file),
            group: Arc::clone(group),
            device: Arc::clone(device),
            pages: UncleanCount::default(),
            listed: AtomicBool::new(false),
            since_ms: AtomicU64::new(0),
            swept_ms: AtomicU64::new(0),
            failed_ms: AtomicU64::new(failed_ms),
            tried: AtomicU64::new(0),
        })
    }

    /// The bytes that a part takes, with its places in lists.
    pub(crate) const BYTES: u64 = (size_of::<Self>() + 6 * size_of::<usize>()) as u64 + ALLOCATION;

    /// Counts a page that has just become dirty, also in `all`.
    pub(crate) fn became_dirty(self: &Arc<Self>, all: &UncleanCount, now_ms: impl FnOnce() -> u64) {
        if self.pages.add() {
            self.since_ms.store(now_ms(), Ordering::Relaxed);
        }
        self.group.unclean.add();
        all.add();
        if !self.listed.load(Ordering::SeqCst) && !self.listed.swap(true, Ordering::SeqCst) {
            self.device.list(self);
        }
    }

    /// Counts pages that have become clean, also in `all`.
    pub(crate) fn became_clean(&self, all: &UncleanCount, pages: u64) {
        // First: a waiting thread that finds no dirty page must see that there was progress
        // (`clean_wait`). Relaxed: the Release in `remove` orders it.
        self.group.dirt.cleaned.fetch_add(pages, Ordering::Relaxed);
        self.pages.remove(pages);
        self.group.unclean.remove(pages);
        self.group.walk.cleaned(pages);
        all.remove(pages);
    }

    /// Returns whether the file may drop the part: no handle uses it, and it has no dirty pages.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.pages.exact() == 0
    }

    /// Notes that all pages that were dirty at `started_ms` have become clean.
    pub(crate) fn clean_since(&self, started_ms: u64) {
        self.since_ms.store(started_ms, Ordering::Relaxed);
    }

    /// Notes that the flusher has written the file. If `tried` names a visit, the flusher doesn't
    /// try the file again in that visit.
    pub(crate) fn swept(&self, now_ms: u64, tried: Option<u64>) {
        self.swept_ms.store(now_ms, Ordering::Relaxed);
        tried.into_iter().for_each(|visit| self.try_no_more(visit));
    }

    /// Notes that writing the file failed at `failed_ms`, or, if `failed_ms` is 0, that it doesn't
    /// fail any more.
    pub(crate) fn failed_at(&self, failed_ms: u64) {
        self.failed_ms.store(failed_ms, Ordering::Relaxed);
    }

    /// Returns whether the part stays in its device's list. Called by the flusher, which holds the
    /// list's lock (PART-2).
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

    /// Returns the milliseconds since the flusher last wrote the file, or since there have been
    /// dirty pages, whichever is less.
    pub(crate) fn waited_ms(&self, now_ms: u64) -> u64 {
        self.age_ms(now_ms).min(now_ms.saturating_sub(self.swept_ms.load(Ordering::Relaxed)))
    }

    /// Returns whether the flusher shouldn't try to write the file again in this visit.
    pub(crate) fn tried(&self, visit: u64) -> bool {
        self.tried.load(Ordering::Relaxed) == visit
    }

    pub(crate) fn try_no_more(&self, visit: u64) {
        self.tried.store(visit, Ordering::Relaxed);
    }

    /// Returns when writing the file failed, if it hasn't succeeded since.
    pub(crate) fn failed_ms(&self) -> Option<u64> {
        Some(self.failed_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
    }
}

impl Part for DirtyPart {
    fn pages(&self) -> u64 {
        self.pages()
    }

    fn is_stuck(&self) -> bool {
        self.failed_ms().is_some() || self.device.is_stalled()
    }

    fn ring(&self) {
        self.device.ring();
    }
}

/// The devices of files that are open for writing, or watched, by number.
pub(crate) struct Devices {
    flusher: Arc<Flusher>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    devices: HashMap<u64, Weak<Device>>,
    /// When there are this many devices, those that no file uses are removed.
    swept_at: usize,
}

impl Devices {
    /// Creates an empty table of devices that this flusher will visit.
    pub(crate) fn new(flusher: &Arc<Flusher>) -> Self {
        Self { flusher: Arc::clone(flusher), known: Mutex::default() }
    }

    /// Returns the device with this number, creating it if need be.
    pub(crate) fn get(&self, number: u64) -> Arc<Device> {
        let mut known = self.known.lock();
        if let Some(device) = known.devices.get(&number).and_then(Weak::upgrade) {
            return device;
        }
        if known.devices.len() >= known.swept_at {
            known.devices.retain(|_, device| device.strong_count() > 0);
            known.swept_at = 16.max(2 * known.devices.len());
        }
        let device = Arc::new(Device::new(&self.flusher));
        known.devices.insert(number, Arc::downgrade(&device));
        device
    }
}
