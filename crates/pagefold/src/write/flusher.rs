//! The flusher: threads that write back what has been dirty for long, or is much.
//!
//! Devices with something to do stand in line. A thread takes the first one, *visits* it, and
//! writes its files in slices of half a second (`writeback`): always the file that needs it most,
//! until none does. No two threads visit one device. So a device that doesn't answer keeps one
//! thread, and no other device waits for it.
//!
//! # Threads
//! The first one is started when a file is first opened for writing. One that takes a device out of
//! the line sees to it that another one waits at the line, and starts it if need be: there are as
//! many as devices were ever written at a time, and one more, up to [`THREADS_MAX`]. (Beyond that
//! many devices that don't answer, others wait.) While there are dirty pages, one of those that
//! wait wakes up every half second and puts all devices that have some into the line, so that pages
//! are written that have become old. Otherwise they sleep without waking up.
//!
//! # Need
//! A file needs to be written if it has dirty pages of a group that has many
//! ([`wants_writing`](Manager::wants_writing)) or waits for memory, if its dirty pages are old, or
//! if any tenant waits for memory. That one group has many dirty pages is no reason to write files
//! that have none of them. What waits longest gains on the others. A file that couldn't be written
//! is left alone for a second.
//!
//! # The end of the process
//! When the process exits normally with this Pagefold alive, its threads still run, and so they
//! write what is dirty: each device is visited once more, with each of its files written as for the
//! drop of its last handle (`writeback`). The exiting thread waits for that, for so long at most
//! ([`sync::exit`]).
//!
//! Lock order: a device's list → the line.

use std::collections::VecDeque;

use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::thread::{JoinHandle, is_current, spawn};
use sync::time::{Duration, Instant};

use crate::error::Error;
use crate::file::state::FileState;
use crate::manager::Manager;
use crate::write::device::Device;
use crate::write::dirty_part::DirtyPart;

/// How old dirty pages get before they are written,
const AGE_MAX_MS: u64 = 5_000;
/// and how often that is looked at while there are some.
const TICK: Duration = Duration::from_millis(500);
/// How long a file that couldn't be written is left alone.
const RETRY_MS: u64 = 1_000;
/// How long a thread that waits for a frame is believed to wait on,
const SHORT_MS: u64 = 50;
/// and how often a file is written for its sake.
const SHORT_PAUSE_MS: u64 = 100;
/// How long a thread that exits waits for the line, which is never held for longer than it takes to
/// change it.
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
const LINE_MAX: Duration = Duration::from_secs(1);
/// Threads, at most.
const THREADS_MAX: usize = 64;

/// How the threads are talked to.
#[derive(Default)]
pub(crate) struct Flusher {
    line: Mutex<Line>,
    changed: Condvar,
    /// A hint for loops that should end.
    stopping: AtomicBool,
    /// The process ends.
    leaving: AtomicBool,
    /// A device was visited since.
    left: Condvar,
    /// Until when a thread is believed to wait for a frame.
    short_until_ms: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The devices that are to be visited.
#[derive(Default)]
struct Line {
    stop: bool,
    devices: VecDeque<Arc<Device>>,
    /// Those that have dirty pages, in line or not.
    active: Vec<Arc<Device>>,
    /// Threads, and those of them that wait; one of these looks at the time.
    threads: usize,
    ended: usize,
    idle: usize,
    watched: bool,
    /// Devices that are to be visited before the process ends.
    awaited: Vec<Arc<Device>>,
    /// When all active devices were last put into the line.
    ticked: Option<Instant>,
}

impl Line {
    fn add(&mut self, device: &Arc<Device>) {
        // Relaxed: under the lock.
        if !device.busy.load(Ordering::Relaxed) && !device.queued.swap(true, Ordering::Relaxed) {
            self.devices.push_back(Arc::clone(device));
        }
    }

    fn add_active(&mut self) {
        for device in std::mem::take(&mut self.active) {
            self.add(&device);
            self.active.push(device);
        }
    }
}

impl Flusher {
    /// Has a device visited.
    pub(crate) fn ring(&self, device: &Arc<Device>) {
        // Relaxed, and looked at first: a hint that is repeated while there is reason to.
        if !device.asked.load(Ordering::Relaxed) && !device.asked.swap(true, Ordering::Relaxed) {
            self.line.lock().add(device);
            self.changed.notify_one();
        }
    }

    /// Has all devices with dirty pages visited, for a thread that can't get a frame, and perhaps
    /// could if there were fewer dirty pages.
    pub(crate) fn ring_for_frames(&self, now_ms: u64) {
        self.short_until_ms.store(now_ms + SHORT_MS, Ordering::Relaxed); // A hint, too.
        self.line.lock().add_active();
        self.changed.notify_one();
    }

    /// The device has dirty pages from now on.
    pub(crate) fn activate(&self, device: &Arc<Device>) {
        self.line.lock().active.push(Arc::clone(device));
        self.changed.notify_one();
    }

    /// It has none any more.
    pub(crate) fn deactivate(&self, device: &Arc<Device>) {
        self.line.lock().active.retain(|it| !Arc::ptr_eq(it, device));
    }

    /// Whether the process ends.
    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed: a thread that hears of it late syncs once too often. What is to be done is in
        // the line.
        self.leaving.load(Ordering::Relaxed)
    }

    /// The process ends: has all devices with dirty pages visited.
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    fn begin_leaving(&self) {
        let Some(mut line) = self.line.try_lock_for(LINE_MAX) else { return };
        self.leaving.store(true, Ordering::Relaxed);
        line.awaited = line.active.clone();
        line.add_active();
        // One that is just being visited is visited again.
        line.active.iter().for_each(|device| device.asked.store(true, Ordering::Relaxed));
        drop(line);
        self.changed.notify_all();
    }

    /// Waits until they have been.
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    fn wait_for_leaving(&self, at_most: Duration) {
        let start = Instant::now();
        let Some(mut line) = self.line.try_lock_for(LINE_MAX) else { return };
        while !line.awaited.is_empty() {
            let rest = at_most.saturating_sub(start.elapsed());
            if rest.is_zero() {
                return;
            }
            self.left.wait_for(&mut line, rest);
        }
    }

    /// Waits for a device that is to be visited. `None` when it is time to end.
    fn next_device(&self) -> Option<Arc<Device>> {
        let mut line = self.line.lock();
        loop {
            if line.stop {
                return None;
            }
            if !line.active.is_empty() && line.ticked.is_none_or(|ticked| ticked.elapsed() >= TICK) {
                line.ticked = Some(Instant::now());
                line.add_active();
            }
            if let Some(device) = line.devices.pop_front() {
                device.queued.store(false, Ordering::Relaxed);
                device.busy.store(true, Ordering::Relaxed);
                device.asked.store(false, Ordering::Relaxed); // Those that ask from now on want another visit.
                return Some(device);
            }
            line.idle += 1;
            if !line.watched && !line.active.is_empty() {
                line.watched = true;
                self.changed.wait_for(&mut line, TICK);
                line.watched = false;
            } else {
                self.changed.wait(&mut line);
            }
            line.idle -= 1;
        }
    }

    /// A visit is over. `was_leaving`: when it began, the process was ending.
    fn visited(&self, device: &Arc<Device>, was_leaving: bool) {
        let mut line = self.line.lock();
        device.busy.store(false, Ordering::Relaxed);
        if was_leaving {
            line.awaited.retain(|it| !Arc::ptr_eq(it, device));
            self.left.notify_all();
        }
        if device.asked.load(Ordering::Relaxed) {
            line.add(device);
        }
    }

    /// Waits until the threads have ended, for so long at most. One that ends later, because its
    /// device doesn't answer, ends by itself.
    fn wait_for_ends(&self, time: Duration) -> bool {
        let start = Instant::now();
        let mut line = self.line.lock();
        loop {
            let rest = time.saturating_sub(start.elapsed());
            if line.ended == line.threads || rest.is_zero() {
                return line.ended == line.threads;
            }
            self.changed.wait_for(&mut line, rest);
        }
    }

    /// Whether another thread has to be started, so that one waits at the line. If there is one,
    /// wakes it up: it may have to look at the time from now on, in the place of the caller, which
    /// has taken a device.
    fn lacks_thread(&self) -> bool {
        let mut line = self.line.lock();
        let lacks = line.idle == 0 && line.threads < THREADS_MAX && !line.stop;
        line.threads += usize::from(lacks);
        drop(line);
        self.changed.notify_one();
        lacks
    }
}

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
impl sync::exit::Leaving for Manager {
    fn begin(&self) {
        // A forked child has none of the threads, and nothing to write.
        if !self.frames.forked() {
            self.flusher.begin_leaving();
        }
    }

    fn wait(&self, at_most: Duration) {
        if !self.frames.forked() {
            self.flusher.wait_for_leaving(at_most);
        }
    }
}

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
impl Manager {
    fn as_leaving(self: &Arc<Self>) -> sync::Weak<dyn sync::exit::Leaving> {
        let leaving: sync::Weak<Self> = Arc::downgrade(self);
        leaving
    }

    /// Has what is dirty written when the process ends.
    fn write_at_exit(self: &Arc<Self>) {
        if !sync::exit::register(&self.as_leaving()) {
            tracing::warn!(
                "what is unwritten when the process ends will be lost: there is no memory for an exit function, \
                 or the process was forked at a bad moment"
            );
        }
    }

    fn write_at_exit_no_more(self: &Arc<Self>) {
        sync::exit::forget(&self.as_leaving());
    }
}

/// A model's process doesn't end.
#[cfg(any(pagefold_loom, pagefold_manycore))]
impl Manager {
    fn write_at_exit(&self) {}

    fn write_at_exit_no_more(&self) {}
}

/// Ends the flusher when dropped.
pub(crate) struct FlusherThread(pub(crate) Arc<Manager>);

impl Drop for FlusherThread {
    fn drop(&mut self) {
        // A forked child has no such threads to wait for, and perhaps locks that no thread will
        // release.
        if self.0.frames.forked() {
            return;
        }
        let flusher = &self.0.flusher;
        if !flusher.threads.lock().is_empty() {
            self.0.write_at_exit_no_more();
        }
        flusher.stopping.store(true, Ordering::Relaxed);
        flusher.line.lock().stop = true;
        flusher.changed.notify_all();
        let all_end = self.0.io_timeout.is_none_or(|time| flusher.wait_for_ends(time));
        loop {
            let Some(thread) = flusher.threads.lock().pop() else { break };
            if all_end && !is_current(&thread) {
                // It panics only by a bug of ours, which its message has told; there is nothing to
                // add.
                let _ = thread.join();
            }
        }
        let active = std::mem::take(&mut flusher.line.lock().active);
        active.iter().for_each(|device| device.clear());
    }
}

impl Manager {
    /// Starts the flusher, if it doesn't run yet.
    pub(crate) fn start_flusher(self: &Arc<Self>) -> Result<(), Error> {
        let mut threads = self.flusher.threads.lock();
        if threads.is_empty() {
            self.flusher.line.lock().threads = 1;
            threads.push(self.flusher_thread()?);
            self.write_at_exit();
        }
        Ok(())
    }

    fn flusher_thread(self: &Arc<Self>) -> Result<JoinHandle<()>, Error> {
        let its = Arc::clone(self);
        spawn("pagefold-flush", move || its.run_flusher()).map_err(Error::no_thread)
    }

    fn run_flusher(self: &Arc<Self>) {
        while let Some(device) = self.flusher.next_device() {
            if self.flusher.lacks_thread() {
                let mut threads = self.flusher.threads.lock();
                match self.flusher_thread() {
                    Ok(thread) => threads.push(thread),
                    // The next thread that takes a device tries again; until then those there are
                    // do what there is.
                    Err(_) => self.flusher.line.lock().threads -= 1,
                }
            }
            let was_leaving = self.flusher.is_leaving();
            self.visit(&device);
            self.flusher.visited(&device, was_leaving);
        }
        self.flusher.line.lock().ended += 1;
        self.flusher.changed.notify_all();
    }

    /// Writes the files of a device as long as one needs it.
    fn visit(&self, device: &Arc<Device>) {
        let visit = 1 + device.visits.fetch_add(1, Ordering::Relaxed);
        let mut stuck = Vec::new();
        device.each_part(|part| {
            if part.group.dirt.stuck() > 0 {
                stuck.push(Arc::clone(&part.group));
            }
        });
        stuck.dedup_by_key(|group| group.id);
        stuck.iter().for_each(|group| _ = self.count_stuck(group));
        while !self.flusher.stopping.load(Ordering::Relaxed) {
            let now_ms = self.now_ms();
            let is_leaving = self.flusher.is_leaving();
            let need = |part: &DirtyPart| match part.tried(visit) {
                true => None,
                false if is_leaving => (part.pages() > 0).then_some(1.0),
                false => self.need(part, now_ms),
            };
            let Some(part) = device.neediest(&self.flusher, need) else { break };
            let Some(file) = part.file.upgrade() else {
                part.try_no_more(visit); // It is being closed, which sees to its pages.
                continue;
            };
            file.try_notice_cut();
            let was_of_use = if is_leaving { file.leave() } else { file.sweep() };
            file.swept((!was_of_use).then_some(visit));
        }
    }

    /// How urgently the file of a part should be written; `None` if it needn't be.
    fn need(&self, part: &DirtyPart, now_ms: u64) -> Option<f64> {
        if part.pages() == 0 {
            return None;
        }
        let waited_ms = part.waited_ms(now_ms);
        let is_old = part.age_ms(now_ms) >= AGE_MAX_MS;
        let is_short = || now_ms < self.flusher.short_until_ms.load(Ordering::Relaxed) && waited_ms >= SHORT_PAUSE_MS;
        let urgency = match part.failed_ms() {
            Some(failed_ms) => (now_ms >= failed_ms + RETRY_MS).then_some(1.0),
            None if part.group.dirt.is_short(now_ms) || is_short() => Some(2.0),
            None => self.wants_writing(&part.group).or_else(|| is_old.then_some(1.0)),
        };
        Some(urgency? + waited_ms as f64 / 1_000.0)
    }
}

impl FileState {
    /// Writes the file because the process ends. No further attempt is of use.
    fn leave(&self) -> bool {
        if let Err(error) = self.write_out() {
            tracing::error!(file = %self.path.display(), pages = self.unclean(), %error, "can't be written before the process ends");
        }
        false
    }

    /// Whether the flusher should write the file now.
    pub(crate) fn needs_writing(&self) -> bool {
        let now_ms = self.manager.now_ms();
        self.any_part(|part| self.manager.need(part, now_ms).is_some())
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use sync::exit::Leaving;

    use super::*;
    use crate::Pagefold;
    use crate::io::SimulatedDisk;
    use crate::patience::WATCHDOG;

    /// The flusher's thread looked whether it had been asked, then went to sleep; a thread that
    /// asked in between didn't wake it. It sleeps for good here, so one ring that is lost is the
    /// end.
    #[test]
    fn every_ring_is_heard() {
        let (flusher, device, heard) = (Flusher::default(), Arc::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(device) = flusher.next_device() {
                        heard.fetch_add(1, Ordering::SeqCst);
                        flusher.visited(&device, false);
                    }
                });
            }
            let mut all_heard = true;
            for _ in 0..20_000 {
                let before = heard.load(Ordering::SeqCst);
                flusher.ring(&device);
                let start = Instant::now();
                let mut looks = 0_u32;
                while all_heard && heard.load(Ordering::SeqCst) == before {
                    all_heard = start.elapsed() < WATCHDOG;
                    looks += 1;
                    // Soon enough to ring again while the thread goes to sleep, unless that needs
                    // this CPU.
                    if looks < 1_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
            }
            flusher.line.lock().stop = true;
            flusher.changed.notify_all();
            assert!(all_heard, "a ring was lost: in vain a thread was waited for that takes the device");
        });
    }

    /// A process that ended waited for ten seconds, although its files had been written at once: no
    /// visit counted as one of those that it waited for.
    #[test]
    fn the_end_of_a_process_is_over_when_its_files_are_written() {
        let disk = SimulatedDisk::default();
        disk.add_bytes("file", vec![0; 4096]);
        let mm = Pagefold::builder().memory("1MiB").backend(disk).build().unwrap();
        let file = mm.group("a").build().unwrap().open_options().write(true).open("file").unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        let manager = mm.manager();
        manager.begin();
        manager.wait(WATCHDOG);
        assert!(manager.flusher.line.lock().awaited.is_empty());
        assert_eq!(mm.stats().groups[0].unclean_bytes, 0);
    }

    /// While a thread is with a device, another one is given any other device, but not this one.
    #[test]
    fn a_device_is_visited_by_one_thread_at_a_time() {
        let (flusher, one, other) = (Flusher::default(), Arc::<Device>::default(), Arc::<Device>::default());
        flusher.ring(&one);
        assert!(Arc::ptr_eq(&flusher.next_device().unwrap(), &one));
        assert!(flusher.lacks_thread());
        flusher.ring(&one);
        flusher.ring(&other);
        assert!(Arc::ptr_eq(&flusher.next_device().unwrap(), &other));
        assert!(flusher.line.lock().devices.is_empty());
        flusher.visited(&one, false);
        assert!(Arc::ptr_eq(&flusher.next_device().unwrap(), &one), "it was rung for during the visit");
    }
}
