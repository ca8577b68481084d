//! The queue of devices that the flusher's threads visit (`flusher`), and the signals by which
//! other threads wake the flusher's threads. No two threads visit a device at the same time.

use std::collections::VecDeque;

use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::thread::JoinHandle;
use sync::time::{Duration, Instant};

use crate::group::dirt::SHORT_MS;

/// How often devices with dirty pages are put into the queue.
const TICK: Duration = Duration::from_millis(500);
/// How long the thread that ends the process waits for the queue's lock. Other threads hold the
/// lock only while they change the queue, so the wait is usually short. The limit is a precaution:
/// in a forked child, the lock may stay locked forever (`sync::exit`).
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
const LINE_MAX: Duration = Duration::from_secs(1);
/// Threads, at most.
const THREADS_MAX: usize = 64;

/// What is visited.
pub(crate) trait Visited {
    fn place(&self) -> &Place;
}

/// A device's state in the queue.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// A visit was requested. A thread checks this at the end of its visit.
    asked: AtomicBool,
    /// The device is in the queue (`queued`); a thread is visiting the device (`busy`). Both change
    /// only under the queue's lock.
    queued: AtomicBool,
    busy: AtomicBool,
}

impl Place {
    /// Returns whether a visit was requested that hasn't begun yet. Relaxed: a hint.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The queue, and the signals to the flusher's threads.
pub(crate) struct Line<V> {
    state: Mutex<State<V>>,
    changed: Condvar,
    /// Whether the loops of the flusher's threads should end. A hint.
    stopping: AtomicBool,
    /// The process ends.
    leaving: AtomicBool,
    /// Notified when a device has been visited while the process ends.
    left: Condvar,
    /// Until when a thread is assumed to wait for a frame.
    short_until_ms: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<V> Default for Line<V> {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            left: Condvar::new(),
            short_until_ms: AtomicU64::new(0),
            threads: Mutex::default(),
        }
    }
}

/// The state under the queue's lock.
struct State<V> {
    stop: bool,
    devices: VecDeque<Arc<V>>,
    /// Devices that have dirty pages, queued or not.
    active: Vec<Arc<V>>,
    /// The number of threads that were started (`threads`), that have ended (`ended`), and that
    /// wait at the queue (`idle`). `watched` is set while one of the waiting threads wakes up at
    /// each tick.
    threads: usize,
    ended: usize,
    idle: usize,
    watched: bool,
    /// Devices that must be visited before the process ends.
    awaited: Vec<Arc<V>>,
    /// When all active devices were last put into the queue.
    ticked: Option<Instant>,
}

impl<V> Default for State<V> {
    fn default() -> Self {
        Self {
            stop: false,
            devices: VecDeque::new(),
            active: Vec::new(),
            threads: 0,
            ended: 0,
            idle: 0,
            watched: false,
            awaited: Vec::new(),
            ticked: None,
        }
    }
}

impl<V: Visited> State<V> {
    fn add(&mut self, device: &Arc<V>) {
        let place = device.place();
        // Relaxed: under the lock.
        if !place.busy.load(Ordering::Relaxed) && !place.queued.swap(true, Ordering::Relaxed) {
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

impl<V: Visited> Line<V> {
    /// Requests a visit to a device.
    pub(crate) fn ring(&self, device: &Arc<V>) {
        // Relaxed: a hint that is repeated while there is need. The flag is loaded before it is
        // swapped, so usually no shared cache line is written.
        let asked = &device.place().asked;
        if !asked.load(Ordering::Relaxed) && !asked.swap(true, Ordering::Relaxed) {
            self.state.lock().add(device);
            self.changed.notify_one();
        }
    }

    /// Requests visits to all devices with dirty pages. Called by a thread that can't get a frame,
    /// and that might get one if there were fewer dirty pages.
    pub(crate) fn ring_for_frames(&self, now_ms: u64) {
        self.short_until_ms.store(now_ms + SHORT_MS, Ordering::Relaxed); // Also a hint.
        self.state.lock().add_active();
        self.changed.notify_one();
    }

    /// Notes that the device has dirty pages from now on.
    pub(crate) fn activate(&self, device: &Arc<V>) {
        self.state.lock().active.push(Arc::clone(device));
        self.changed.notify_one();
    }

    /// Notes that the device has no more dirty pages.
    pub(crate) fn deactivate(&self, device: &Arc<V>) {
        self.state.lock().active.retain(|it| !Arc::ptr_eq(it, device));
    }

    /// Returns whether the process ends.
    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed: if a thread reads an outdated `false`, the only harm is one needless sync. The
        // devices to visit don't depend on this flag: they are in the queue, which a lock protects.
        // At the end of the process, the thread that writes the files has already read `true`, so
        // it can't read an older value afterwards.
        self.leaving.load(Ordering::Relaxed)
    }

    /// Notes that the process ends, and requests visits to all devices with dirty pages.
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    pub(crate) fn begin_leaving(&self) {
        let Some(mut line) = self.state.try_lock_for(LINE_MAX) else { return };
        self.leaving.store(true, Ordering::Relaxed);
        line.awaited = line.active.clone();
        line.add_active();
        // A device that is being visited now is visited again.
        line.active.iter().for_each(|device| device.place().asked.store(true, Ordering::Relaxed));
        drop(line);
        self.changed.notify_all();
    }

    /// Waits until the visits that [`begin_leaving`](Self::begin_leaving) requested have ended, but
    /// no longer than `at_most`.
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    pub(crate) fn wait_for_leaving(&self, at_most: Duration) {
        let start = Instant::now();
        let Some(mut line) = self.state.try_lock_for(LINE_MAX) else { return };
        while !line.awaited.is_empty() {
            let rest = at_most.saturating_sub(start.elapsed());
            if rest.is_zero() {
                return;
            }
            self.left.wait_for(&mut line, rest);
        }
    }

    /// Waits for a device to visit. Returns `None` when the thread should end.
    pub(crate) fn next_device(&self) -> Option<Arc<V>> {
        let mut line = self.state.lock();
        loop {
            if line.stop {
                return None;
            }
            if !line.active.is_empty() && line.ticked.is_none_or(|ticked| ticked.elapsed() >= TICK) {
                line.ticked = Some(Instant::now());
                line.add_active();
            }
            if let Some(device) = line.devices.pop_front() {
                let place = device.place();
                place.queued.store(false, Ordering::Relaxed);
                place.busy.store(true, Ordering::Relaxed);
                place.asked.store(false, Ordering::Relaxed); // A request from now on is for another visit.
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

    /// Notes that a visit has ended. If the process was already exiting when the visit began
    /// (`was_leaving`), the exiting process no longer waits for this device.
    pub(crate) fn visited(&self, device: &Arc<V>, was_leaving: bool) {
        let mut line = self.state.lock();
        device.place().busy.store(false, Ordering::Relaxed);
        if was_leaving {
            line.awaited.retain(|it| !Arc::ptr_eq(it, device));
            self.left.notify_all();
        }
        if device.place().asked.load(Ordering::Relaxed) {
            line.add(device);
        }
    }

    /// Waits until all threads have ended, for `time` at most. Returns whether all have ended. A
    /// thread whose device doesn't answer may end later, when the device answers.
    pub(crate) fn wait_for_ends(&self, time: Duration) -> bool {
        let start = Instant::now();
        let mut line = self.state.lock();
        loop {
            let rest = time.saturating_sub(start.elapsed());
            if line.ended == line.threads || rest.is_zero() {
                return line.ended == line.threads;
            }
            self.changed.wait_for(&mut line, rest);
        }
    }

    /// Wakes a thread that waits at the queue. If no thread waits there, and the number of threads
    /// is below its limit, counts a new thread and returns true. The caller must then start that
    /// thread.
    ///
    /// The caller has taken a device, and is about to visit it. If the caller was the thread that
    /// wakes up at each tick, the woken or the new thread takes over this duty.
    pub(crate) fn lacks_thread(&self) -> bool {
        let mut line = self.state.lock();
        let lacks = line.idle == 0 && line.threads < THREADS_MAX && !line.stop;
        line.threads += usize::from(lacks);
        drop(line);
        self.changed.notify_one();
        lacks
    }

    /// Makes each thread end at its next check.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Returns whether loops should end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Notes that a thread ends.
    pub(crate) fn ended(&self) {
        self.state.lock().ended += 1;
        self.changed.notify_all();
    }

    /// Notes that a [lacking](Self::lacks_thread) thread couldn't be started.
    pub(crate) fn not_started(&self) {
        self.state.lock().threads -= 1;
    }

    /// Returns until when a thread is assumed to wait for a frame.
    pub(crate) fn short_until_ms(&self) -> u64 {
        self.short_until_ms.load(Ordering::Relaxed)
    }

    /// Locks the list of the flusher's threads. Threads are added to the list when they are
    /// started, and removed when the Pagefold ends.
    pub(crate) fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock()
    }

    /// Counts the first thread, before it is started.
    pub(crate) fn first_thread(&self) {
        self.state.lock().threads = 1;
    }

    /// Removes and returns all devices with dirty pages.
    pub(crate) fn take_active(&self) -> Vec<Arc<V>> {
        std::mem::take(&mut self.state.lock().active)
    }

    /// Returns whether an exiting process still waits for a visit.
    #[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
    pub(crate) fn is_awaited(&self) -> bool {
        !self.state.lock().awaited.is_empty()
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::patience::WATCHDOG;

    #[derive(Default)]
    struct Dummy(Place);

    impl Visited for Dummy {
        fn place(&self) -> &Place {
            &self.0
        }
    }

    /// Regression: a thread of the flusher checked for requests and found none; then another thread
    /// made a request; then the flusher's thread went to sleep without noticing the request. Here
    /// the flusher's threads sleep without a timeout, so a single lost wake-up makes the test fail.
    #[test]
    fn every_ring_is_heard() {
        let (line, device, heard) = (Line::<Dummy>::default(), Arc::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(device) = line.next_device() {
                        heard.fetch_add(1, Ordering::SeqCst);
                        line.visited(&device, false);
                    }
                });
            }
            let mut all_heard = true;
            for _ in 0..20_000 {
                let before = heard.load(Ordering::SeqCst);
                line.ring(&device);
                let start = Instant::now();
                let mut looks = 0_u32;
                while all_heard && heard.load(Ordering::SeqCst) == before {
                    all_heard = start.elapsed() < WATCHDOG;
                    looks += 1;
                    // Spins first, so that the next request is made just when the flusher's thread
                    // is about to sleep. Then yields, because the flusher's thread may need this
                    // CPU.
                    if looks < 1_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
            }
            line.state.lock().stop = true;
            line.changed.notify_all();
            assert!(all_heard, "a ring was lost: in vain a thread was waited for that takes the device");
        });
    }

    /// While a thread visits a device, another thread may get any other device, but not this one.
    #[test]
    fn a_device_is_visited_by_one_thread_at_a_time() {
        let (line, one, other) = (Line::<Dummy>::default(), Arc::<Dummy>::default(), Arc::<Dummy>::default());
        line.ring(&one);
        assert!(Arc::ptr_eq(&line.next_device().unwrap(), &one));
        assert!(line.lacks_thread());
        line.ring(&one);
        line.ring(&other);
        assert!(Arc::ptr_eq(&line.next_device().unwrap(), &other));
        assert!(line.state.lock().devices.is_empty());
        line.visited(&one, false);
        assert!(Arc::ptr_eq(&line.next_device().unwrap(), &one), "it was rung for during the visit");
    }
}
