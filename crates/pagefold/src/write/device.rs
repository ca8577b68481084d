//! The devices that files are written to.
//!
//! Each device is written to on its own: one that doesn't answer keeps nothing waiting but its own
//! files (`flusher`). What is a device is for the backend to say: it is the first half of a file's
//! identity. If calls wait for devices for a limited time only, files that are read have them too
//! (`watchdog`).

use std::collections::HashMap;

use io::{Copies, Task, UnderWay};
use sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sync::lock::{Mutex, OnceCell};
use sync::time::Duration;
use sync::{Arc, Weak};

use crate::write::dirty::Rate;
use crate::write::dirty_part::DirtyPart;
use crate::write::flusher::Flusher;

/// A device that has had something to write for so long, and written nothing, is taken to have
/// stopped.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// A device.
#[derive(Default)]
pub(crate) struct Device {
    /// How fast pages are written to it.
    pub(crate) rate: Rate,
    /// The flusher is to look at it (`flusher`).
    pub(crate) asked: AtomicBool,
    /// In the flusher's line; in the hands of one of its threads. Both under the flusher's lock.
    pub(crate) queued: AtomicBool,
    pub(crate) busy: AtomicBool,
    /// Visits of the flusher.
    pub(crate) visits: AtomicU64,
    /// Parts that have dirty pages (PART-2 of `dirty_part`).
    parts: Mutex<Vec<Arc<DirtyPart>>>,
    /// A call gave up waiting for it, and it has answered nothing since (`watchdog`).
    silent: AtomicBool,
    /// Cycles of write-back.
    pub(crate) under_way: UnderWay,
    /// What is written to it are copies, since it needs bytes that stay as they are (`request`).
    copies: OnceCell<Arc<Copies>>,
}

impl Device {
    /// Adds a part that has dirty pages from now on.
    pub(crate) fn list(self: &Arc<Self>, part: &Arc<DirtyPart>, flusher: &Flusher) {
        let mut parts = self.parts.lock();
        if parts.is_empty() {
            flusher.activate(self);
        }
        parts.push(Arc::clone(part));
    }

    /// The part that `need` says most of, if it does of any. Those that have no dirty pages any
    /// more are forgotten.
    pub(crate) fn neediest(
        self: &Arc<Self>,
        flusher: &Flusher,
        need: impl Fn(&DirtyPart) -> Option<f64>,
    ) -> Option<Arc<DirtyPart>> {
        let mut parts = self.parts.lock();
        parts.retain(|part| part.stays_listed());
        if parts.is_empty() {
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

/// The devices of files that are open for writing, or watched, by number.
#[derive(Default)]
pub(crate) struct Devices {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    devices: HashMap<u64, Weak<Device>>,
    /// When there are so many, those that have no file any more are forgotten.
    swept_at: usize,
}

impl Devices {
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
        let device = Arc::new(Device::default());
        known.devices.insert(number, Arc::downgrade(&device));
        device
    }
}
