//! The devices that files are written to.
//!
//! Each device is written to on its own: one that doesn't answer keeps nothing waiting but its own
//! files (`flusher`). What is a device is for the backend to say: it is the first half of a file's
//! identity. If calls wait for devices for a limited time only, files that are read have them too
//! (`watchdog`).
//!
//! The dirty pages of a device's files are counted in *parts*, by file and group (`dirty_part`).
//!
//! # Invariants
//! - PART-1. A page is counted in the part of its file and of the group that it is charged to. Only
//!   clean pages change their group (`file::recharge`).
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

/// A device that has had something to write for so long, and written nothing, is taken to have
/// stopped.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// The line of devices that the flusher visits.
pub(crate) type Flusher = Line<Device>;

/// A device.
pub(crate) struct Device {
    /// How fast pages are written to it.
    pub(crate) rate: Rate,
    flusher: Weak<Flusher>,
    place: Place,
    /// Visits of the flusher.
    pub(crate) visits: AtomicU64,
    /// Parts that have dirty pages (PART-2).
    parts: Mutex<Vec<Arc<DirtyPart>>>,
    /// A call gave up waiting for it, and it has answered nothing since (`watchdog`).
    silent: AtomicBool,
    /// Cycles of write-back.
    pub(crate) under_way: UnderWay,
    /// What is written to it are copies, since it needs bytes that stay as they are (`request`).
    copies: OnceCell<Arc<Copies>>,
}

impl Visited for Device {
    fn place(&self) -> &Place {
        &self.place
    }
}

impl Device {
    /// One that this flusher visits.
    fn new(flusher: &Arc<Flusher>) -> Self {
        Self {
            rate: Rate::default(),
            flusher: Arc::downgrade(flusher),
            place: Place::default(),
            visits: AtomicU64::new(0),
            parts: Mutex::default(),
            silent: AtomicBool::new(false),
            under_way: UnderWay::default(),
            copies: OnceCell::new(),
        }
    }

    /// Has the flusher look at it.
    pub(crate) fn ring(self: &Arc<Self>) {
        if let Some(flusher) = self.flusher.upgrade() {
            flusher.ring(self);
        }
    }

    /// Adds a part that has dirty pages from now on.
    fn list(self: &Arc<Self>, part: &Arc<DirtyPart>) {
        let mut parts = self.parts.lock();
        if parts.is_empty()
            && let Some(flusher) = self.flusher.upgrade()
        {
            flusher.activate(self);
        }
        parts.push(Arc::clone(part));
    }

    /// The part that `need` says most of, if it does of any. Those that have no dirty pages any
    /// more are forgotten.
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

    /// Does something with each part that has dirty pages.
    pub(crate) fn each_part(&self, what: impl FnMut(&Arc<DirtyPart>)) {
        self.parts.lock().iter().for_each(what);
    }

    /// Forgets all parts, which have the device: there is no flusher any more.
    pub(crate) fn clear(&self) {
        self.parts.lock().clear();
    }

    /// A cycle begins, and is under way until what this returns is dropped.
    pub(crate) fn begin_cycle(&self) -> impl Drop + use<'_> {
        struct Ends<'a>(&'a Device, Option<Task<'a>>);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                // First: a call that gives up meanwhile looks for that (WATCH-1).
                self.1 = None;
                self.0.answered();
            }
        }
        Ends(self, Some(self.under_way.begin()))
    }

    /// What it is written to from, if it needs copies.
    pub(crate) fn copies(&self) -> Option<&Arc<Copies>> {
        self.copies.get()
    }

    /// It needs copies, from now on.
    pub(crate) fn needs(&self, copies: Arc<Copies>) {
        let _ = self.copies.set(copies);
    }

    /// Whether the device seems to have stopped.
    pub(crate) fn is_stalled(&self) -> bool {
        self.under_way.has_stopped_for(STALLED_AFTER)
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// For a call that gives up, unless what it waits for has an `outcome` (WATCH-1 of `watchdog`).
    pub(crate) fn fall_silent<T>(&self, outcome: impl FnOnce() -> Option<T>) -> Option<T> {
        self.silent.store(true, Ordering::Relaxed);
        // Pairs with the fence in `answered`.
        fence(Ordering::SeqCst);
        outcome().inspect(|_| self.silent.store(false, Ordering::Relaxed))
    }

    /// Something that calls may wait for is over. Looked at first, so that nothing is written that
    /// threads share.
    pub(crate) fn answered(&self) {
        fence(Ordering::SeqCst);
        if self.silent.load(Ordering::Relaxed) {
            self.silent.store(false, Ordering::Relaxed);
        }
    }
}

/// Pages a second that are taken for granted before any were written back.
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
    /// Takes `pages` in `time` into account. Relaxed, also below: an estimate.
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

/// A part's file, as the flusher sees it.
pub(crate) trait Flushed: Send + Sync {
    /// Writes it for a while, or all of it if the process `is_leaving`. If nothing came of it, its
    /// parts aren't [tried](DirtyPart::tried) again in that visit.
    fn flush(&self, is_leaving: bool, visit: u64);
}

// Times are Relaxed: hints for the flusher.
impl DirtyPart {
    /// Of a `file` that has been failing since `failed_ms`, if that isn't 0.
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

    /// What a part takes, with its places in lists.
    pub(crate) const BYTES: u64 = (size_of::<Self>() + 4 * size_of::<usize>()) as u64 + ALLOCATION;

    /// Counts a page that has just become dirty, in `all` too.
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

    /// Counts pages that aren't dirty any more, in `all` too.
    pub(crate) fn became_clean(&self, all: &UncleanCount, pages: u64) {
        self.pages.remove(pages);
        self.group.unclean.remove(pages);
        self.group.walk.cleaned(pages);
        all.remove(pages);
        // A sign of life for threads that wait.
        self.group.dirt.cleaned.fetch_add(pages, Ordering::Relaxed);
    }

    /// Whether the file may forget it: no handle uses it, and it has no dirty pages.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.pages.exact() == 0
    }

    /// What was dirty at `started_ms` is clean by now.
    pub(crate) fn clean_since(&self, started_ms: u64) {
        self.since_ms.store(started_ms, Ordering::Relaxed);
    }

    /// The flusher came by; `tried` if it needn't again in this visit.
    pub(crate) fn swept(&self, now_ms: u64, tried: Option<u64>) {
        self.swept_ms.store(now_ms, Ordering::Relaxed);
        tried.into_iter().for_each(|visit| self.try_no_more(visit));
    }

    /// Writing the file failed at that time, or goes well again: 0.
    pub(crate) fn fails_since(&self, failed_ms: u64) {
        self.failed_ms.store(failed_ms, Ordering::Relaxed);
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
    /// When there are so many, those that have no file any more are forgotten.
    swept_at: usize,
}

impl Devices {
    /// None as yet; this flusher will visit them.
    pub(crate) fn new(flusher: &Arc<Flusher>) -> Self {
        Self { flusher: Arc::clone(flusher), known: Mutex::default() }
    }

    /// The device with this number.
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
