//! Limits how long a call waits for a device, if [`io_timeout`](crate::Builder::io_timeout) is set.
//!
//! A call that needs a device waits for one of three things, and for each at most that timeout:
//!
//! | it waits for | after the timeout |
//! |---|---|
//! | a page in *loading* | the request goes on: it owns the frame, the charge and the file (`flight`) |
//! | an *errand*: a sync, a new length, a closing | the worker goes on, and keeps its locks and the file |
//! | `extension`, which an errand may hold | the errand goes on, and keeps `extension` |
//!
//! Without a timeout, the calling thread does all of this itself.
//!
//! # Silence
//! A device is *silent* from the moment when a call gives up waiting for it until the device
//! answers any request. Calls that need a silent device fail at once. So a device that stops
//! answering ties up no more threads than are waiting for it at that moment. Exception: a call
//! whose errand no worker has begun waits for a worker, not for the device. If such a call gives
//! up, the device doesn't become silent.
//!
//! - WATCH-1. While a device is silent, at least one operation is outstanding: a request to the
//!   device, a worker's errand, or the loading of a page that needs neither a request nor an
//!   errand, and so ends very soon. Each of these operations ends, and its end clears *silent*. So
//!   a device is silent no longer than the kernel takes to answer. There is one exception: a write
//!   that creates a page without reading it. The end of such a write is no answer of the device. So
//!   it clears *silent* only if a call of the file has given up since the write put the page's word
//!   in *loading*: that call may have waited for this page ([`Watch::load_without_device`]). A
//!   silence that began before the write goes on.
//!
//!   Before a call gives up, it sets *silent*, and then checks once more whether the operation that
//!   it waits for is over. The thread that ends the operation first marks the operation as over,
//!   and then checks *silent*. Each of the two threads has a fence between its two steps, so at
//!   least one of them sees what the other did:
//!
//! ```text
//! caller: time is over ── silent = true ── fence ── over? no: gives up
//! end:                                        over ── fence ── silent? yes: silent = false
//! ```
//!
//! - WATCH-2. An errand's lock protects its stage. So exactly one of two things happens: the caller
//!   takes the result, or the caller gives up. If the caller gives up after a worker has begun the
//!   errand, the worker still completes it. If the caller gives up earlier, the errand never
//!   begins, unless it is a closing. An errand that goes on without its caller is counted in `left`
//!   until it ends. While `left` isn't 0, the file gets no further errand except a closing. The
//!   errand that goes on may hold the file's locks, so each further errand would tie up a worker
//!   that waits for these locks. It may also change the file. So the lock that keeps other
//!   Pagefolds from the file isn't released before `left` is 0.
//! - WATCH-3. The timeout applies to one answer: an errand with many requests has the full time
//!   again after each answer. The device must not be taken for silent unless a request waits for
//!   it. But most errands make their requests while they hold a lock. Before its first request,
//!   such an errand may wait for the lock, and the lock's holder may wait for the device, for a
//!   page in use, or for memory. So the time of the last progress is kept for each lock, not for
//!   each errand. Only the lock's holder writes that time: after each answer, and at each wait for
//!   something other than the device ([`FileState::progresses`]). [`Pace`] says whose progress a
//!   wait depends on:
//!
//! | a wait for | starts again with the progress of |
//! |---|---|
//! | an errand with a single request, made without a lock | no thread |
//! | `extension`, or an errand that makes its requests while it holds `extension` | the holder of `extension` |
//! | a sync, which makes its requests while it holds the file's `turn` | the holder of `turn` |
//! | a closing | the holder of `turn`, or a load that the closing waits for; while it adopts a length, the holder of `extension` |
//! | an errand that no worker has begun | a worker that does work for the device |
//!
//!   While the holder of a lock waits for an answer to its request, it makes no progress. Answers
//!   to other threads don't count. So a sync or a change of length that hangs times out, even if
//!   appends and other errands go on.
//!
//!   Two rules apply to the holder of `extension`. While it also waits for `turn`, or holds `turn`,
//!   the progress of the holder of `turn` counts as its own. While it waits for memory, the
//!   timeouts that depend on its progress don't run.
//!
//!   The timeout of an errand starts again when a worker begins the errand. Until then, the errand
//!   depends on the workers' progress. If all workers hang, the errand times out, even if the
//!   device answers other threads. The timeout starts once more when the errand gets `extension`,
//!   unless the device is silent. In a silence, the last holder may have released `extension`
//!   because it gave up, so the release is no sign that the device has answered.
//! - WATCH-4. Time in which the process was stopped, or got no CPU, doesn't count. The device may
//!   have answered in that time, although no thread of the process could run to see the answer. So
//!   if a wait returns much later than it should, the caller's timeout starts anew. A call that
//!   waits in short slices leaves out the late slice. A future waits longer by as much as its timer
//!   was late.

use std::cell::Cell;
use std::mem;

use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::thread::sleep;
use sync::time::{Duration, Instant};

use frames::{LoadFailure, Waiting};

use crate::dirty::device::Device;
use crate::dirty::turn::Turn;
use crate::error::Error;
use crate::file::state::FileState;
use crate::file::watch::{Delay, Pace, Watch};
use crate::manager::Manager;
use crate::timers::was_stopped;
use io::unless_it_panics;

/// A longer timeout counts as this one, so that sums of times don't overflow.
const TIME_MAX: Duration = Duration::from_secs(1 << 32);
/// Before a call gives up waiting for write-back, it gives the flusher some time to notice an
/// answer of the device: timeout / `HEARING_PART`, but at least `HEARING_MIN` and at most
/// `HEARING_MAX`. A thread that waits for `extension` checks again after timeout / `HEARING_PART`,
/// but at least [`SLICE_MIN`] and at most `HEARING_MAX`. If the device is silent, such a thread
/// waits for at most `HEARING_MIN` in all.
const HEARING_PART: u32 = 4;
const HEARING_MIN: Duration = Duration::from_millis(20);
const HEARING_MAX: Duration = Duration::from_secs(1);
/// The shortest time after which a thread that waits for `extension` checks again.
const SLICE_MIN: Duration = Duration::from_millis(1);

thread_local! {
    /// Whether this thread is a worker, in a call of [`FileState::run_by_worker`].
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as a worker until it is dropped.
struct Working {
    before: bool,
}

impl Working {
    fn begin() -> Self {
        Self { before: IS_WORKER.replace(true) }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        IS_WORKER.set(self.before);
    }
}

/// A job that a worker does for a call.
struct Errand<T> {
    stage: Mutex<Stage<T>>,
    changed: Condvar,
}

enum Stage<T> {
    InLine,
    /// A worker has begun it at this time, in milliseconds.
    Begun(u64),
    Over(Result<T, Error>),
    /// The caller has left.
    Left,
    LeftAndOver,
}

/// One wait with a timeout.
struct Wait {
    /// From when on the timeout counts.
    start_ms: u64,
}

impl Wait {
    /// Begins to wait, or begins anew.
    fn new(now_ms: u64) -> Self {
        Self { start_ms: now_ms }
    }

    /// Returns what is left of a timeout of `time`. The timeout starts again at `last_ms`, the time
    /// of the last progress.
    fn rest(&mut self, time: Duration, last_ms: u64, now_ms: u64) -> Duration {
        self.start_ms = self.start_ms.max(last_ms);
        time.saturating_sub(Duration::from_millis(now_ms.saturating_sub(self.start_ms)))
    }

    /// Leaves `time`, which has passed, out of the timeout (WATCH-4).
    fn leave_out(&mut self, time: Duration) {
        self.start_ms += time.as_millis() as u64;
    }
}

impl Watch<FileState> {
    /// Gives up waiting and marks the device as silent, unless `outcome` shows that the wait is
    /// over.
    pub(crate) fn give_up<T>(&self, file: &FileState, outcome: impl FnOnce() -> Option<T>) -> Result<T, Error> {
        self.fall_silent(outcome).ok_or_else(|| file.device_timeout())
    }

    /// Returns the rest of a wait that depends on the progress of the thread that `pace` names.
    fn rest(&self, manager: &Manager, pace: Pace, wait: &mut Wait) -> Duration {
        let now_ms = manager.memory.now_ms();
        wait.rest(self.time, self.last_ms(pace, now_ms), now_ms)
    }

    /// Returns the rest of a wait for an errand (WATCH-3).
    fn rest_of_errand<T>(&self, manager: &Manager, stage: &Stage<T>, pace: Pace, wait: &mut Wait) -> Duration {
        let now_ms = manager.memory.now_ms();
        let last_ms = match stage {
            Stage::InLine => self.device.workers.get(),
            Stage::Begun(begun_ms) => self.last_ms(pace, now_ms).max(*begun_ms),
            Stage::Over(_) | Stage::Left | Stage::LeftAndOver => 0,
        };
        wait.rest(self.time, last_ms, now_ms)
    }

    /// Returns how long a thread that waits for `extension` sleeps before it checks again.
    fn slice(&self) -> Duration {
        (self.time / HEARING_PART).clamp(SLICE_MIN, HEARING_MAX)
    }

    fn send<T: Send + 'static>(
        &self,
        pace: Pace,
        what: impl FnOnce(&FileState) -> Result<T, Error> + Send + 'static,
    ) -> Result<Arc<Errand<T>>, Error> {
        let errand = Arc::new(Errand { stage: Mutex::new(Stage::InLine), changed: Condvar::new() });
        // Always succeeds: the caller holds the file.
        let Some(file) = self.file.upgrade() else { return Ok(errand) };
        let its = Arc::clone(&errand);
        let (device, left) = (Arc::clone(&self.device), Arc::clone(&self.left));
        file.run_by_worker(move |its_file| {
            if its.begin(pace, its_file.manager.memory.now_ms()) {
                let result = unless_it_panics(|| what(&its_file)).unwrap_or_else(|| Err(its_file.device_timeout()));
                its_file.worker_progresses();
                its.end(its_file, &device, &left, result);
            }
        })?;
        Ok(errand)
    }
}

impl<T> Errand<T> {
    /// Marks the errand as begun. Returns false if it must not be done: its caller has left, and it
    /// isn't a closing.
    fn begin(&self, pace: Pace, now_ms: u64) -> bool {
        let mut stage = self.stage.lock();
        match *stage {
            // Transition: errand, in line → begun.
            Stage::InLine => *stage = Stage::Begun(now_ms),
            Stage::Left if pace == Pace::Closing => {}
            _ => return false,
        }
        true
    }

    /// Ends the errand, and then any silence of the device (WATCH-1).
    fn end(&self, file: Arc<FileState>, device: &Device, left: &AtomicUsize, result: Result<T, Error>) {
        let mut stage = self.stage.lock();
        if matches!(*stage, Stage::Left) {
            // Transition: errand, left → over.
            *stage = Stage::LeftAndOver;
            left.fetch_sub(1, Ordering::Relaxed);
            drop(stage);
            device.answered(); // First: dropping the file may take long.
            // The file's last handle may have been dropped meanwhile. If `file` is the last
            // reference, dropping it drops the backend's file, too. Both calls below may panic. If
            // `release_lock` could unwind, `file` would be dropped during the unwinding, and a
            // second panic there would end the process.
            unless_it_panics(|| file.release_lock());
            unless_it_panics(|| drop(file));
        } else {
            // Transition: errand, begun → over.
            *stage = Stage::Over(result);
            unless_it_panics(|| drop(file)); // Before the caller goes on: it may be closing the file.
            drop(stage);
            self.changed.notify_all();
            device.answered();
        }
    }

    /// Waits for the result, at most for the timeout.
    fn wait(&self, file: &FileState, watch: &Watch<FileState>, pace: Pace) -> Result<T, Error> {
        let mut wait = Wait::new(file.manager.memory.now_ms());
        let mut stage = self.stage.lock();
        loop {
            match mem::replace(&mut *stage, Stage::Left) {
                Stage::Over(result) => return result,
                before => *stage = before,
            }
            // A closing doesn't wait for a silent device: another call has waited for the whole
            // timeout already.
            let is_over = pace == Pace::Closing && watch.is_silent();
            let rest = watch.rest_of_errand(&file.manager, &stage, pace, &mut wait);
            if is_over || rest.is_zero() {
                break;
            }
            let began = Instant::now();
            self.changed.wait_for(&mut stage, rest);
            if was_stopped(rest, began) {
                wait = Wait::new(file.manager.memory.now_ms()); // WATCH-4
            }
        }
        let was_in_line = matches!(mem::replace(&mut *stage, Stage::Left), Stage::InLine);
        if was_in_line && pace != Pace::Closing {
            // Sometimes: a call gives up an errand that has not begun.
            return Err(file.device_timeout()); // The errand won't begin.
        }
        // Transition: errand, begun → left; a closing also in line → left.
        watch.left.fetch_add(1, Ordering::Relaxed);
        drop(stage);
        if !was_in_line {
            let is_over = || matches!(*self.stage.lock(), Stage::LeftAndOver).then_some(());
            let _ = watch.give_up(file, is_over);
        }
        Err(file.device_timeout()) // If the errand is over by now, `end` has dropped its result.
    }
}

/// The device that answers are reported to, if there is a timeout.
pub(crate) struct Answers(Option<Arc<Device>>);

impl Answers {
    /// Reports that the device has answered. The answer must already be visible to the threads that
    /// wait for it.
    pub(crate) fn heard(self) {
        self.0.into_iter().for_each(|device| device.answered());
    }
}

impl FileState {
    pub(crate) fn device_timeout(&self) -> Error {
        Error::DeviceTimeout { path: self.path.clone() }
    }

    /// Limits how long calls wait for this file's device, if the Pagefold has a timeout.
    pub(crate) fn begin_watch(self: &Arc<Self>) {
        if let Some(time) = self.manager.file_io.io_timeout.map(|time| time.min(TIME_MAX)) {
            let device = self.manager.file_io.devices.get(self.backing.identity().device);
            let _ = self.watch.set(Box::new(Watch::new(time, device, self))); // Set once.
        }
    }

    pub(crate) fn watch(&self) -> Option<&Watch<Self>> {
        self.watch.get().map(|watch| &**watch)
    }

    /// Checks the device before a call that needs it.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`] if the device is silent.
    pub(crate) fn check_device(&self) -> Result<(), Error> {
        match self.watch() {
            Some(watch) if watch.is_silent() => Err(self.device_timeout()),
            _ => Ok(()),
        }
    }

    /// Returns where an answer of the device is reported, even after the file is dropped.
    pub(crate) fn answers(&self) -> Answers {
        Answers(self.watch().map(|watch| Arc::clone(&watch.device)))
    }

    /// Notes that the calling thread, which `pace` names, makes progress: the device has answered
    /// the thread, or the thread waits for a page in use (WATCH-3).
    pub(crate) fn progresses(&self, pace: Pace) {
        self.watch().into_iter().for_each(|watch| watch.progresses(pace, self.manager.memory.now_ms()));
        self.worker_progresses();
    }

    /// If the calling thread is a worker, notes that it makes progress, or is done.
    pub(crate) fn worker_progresses(&self) {
        let watch = self.watch().filter(|_| IS_WORKER.get());
        watch.into_iter().for_each(|watch| watch.device.workers.is(self.manager.memory.now_ms()));
    }

    /// Notes that the device has answered a request of the calling thread, which `pace` names.
    pub(crate) fn was_answered(&self, pace: Pace) {
        self.progresses(pace);
        self.answers().heard();
    }

    /// Notes that the device has answered a request of the calling thread, which runs a cycle.
    pub(crate) fn cycle_was_answered(&self) {
        // Before `was_answered`: a writer that gives up marks the device as silent, and then checks
        // `under_way` (WATCH-1).
        self.device().into_iter().for_each(|device| device.under_way.progressed());
        self.was_answered(Pace::Cycle);
    }

    /// Calls `wait`, which may wait for memory. If `turn` is set, the caller holds `extension`.
    /// Then the time of the wait doesn't count towards the timeouts of the threads that wait for
    /// `extension` (WATCH-3).
    pub(crate) fn wait_for_memory<T>(&self, turn: bool, wait: impl FnOnce() -> T) -> T {
        let _delayed =
            self.watch().filter(|_| turn).map(|watch| watch.delayed(Delay::Memory, || self.manager.memory.now_ms()));
        wait()
    }

    /// Keeps write-back from running until the returned value is dropped. The caller must hold
    /// `extension`. Until the drop, the progress of the holder of `turn` also counts as that of the
    /// holder of `extension` (WATCH-3).
    pub(crate) fn pause_write_back(&self) -> impl Drop + use<'_> {
        struct Paused<'a, D> {
            file: &'a FileState,
            delayed: Option<D>,
            _turn: MutexGuard<'a, Turn>,
        }
        impl<D> Drop for Paused<'_, D> {
            fn drop(&mut self) {
                self.file.progresses(Pace::Cycle); // The next holder of `turn` begins now.
                self.delayed = None;
            }
        }
        let delayed = self.watch().map(|watch| watch.delayed(Delay::Turn, || self.manager.memory.now_ms()));
        let paused = Paused { file: self, delayed, _turn: self.writeback.pause() };
        if !self.is_device_silent() {
            self.progresses(Pace::Cycle);
        }
        paused
    }

    /// Has a worker call `what`, which may wait for the device. The worker's progress restarts the
    /// timeouts of errands that no worker has begun (WATCH-3). `what` must call
    /// [`worker_progresses`](Self::worker_progresses) when it is done.
    ///
    /// # Errors
    /// The system's, if the workers can't be started.
    pub(crate) fn run_by_worker(self: Arc<Self>, what: impl FnOnce(Arc<Self>) + Send + 'static) -> Result<(), Error> {
        let (manager, identity) = (Arc::clone(&self.manager), self.backing.identity());
        manager.file_io.workers()?.run(identity, move || {
            let _working = Working::begin();
            what(self);
        });
        Ok(())
    }

    /// Runs `what`, which may wait for the device, at this `pace`. With a timeout, a worker runs
    /// `what`; without one, this thread does. The caller must hold no lock. After a timeout, the
    /// worker may still complete `what`.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`], also if `what` panics in a worker; those of `what`.
    pub(crate) fn in_time<T: Send + 'static>(
        &self,
        pace: Pace,
        what: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(watch) = self.watch() else { return what(self) };
        if watch.is_silent() || watch.left.load(Ordering::Relaxed) > 0 {
            return Err(self.device_timeout());
        }
        watch.send(pace, what)?.wait(self, watch, pace)
    }

    /// Runs a closing like [`in_time`](Self::in_time). But if the caller gives up before a worker
    /// has begun the closing, a worker still does it later.
    pub(crate) fn close_in_time(&self, what: impl FnOnce(&Self) + Send + 'static) {
        let Some(watch) = self.watch() else { return what(self) };
        let what = move |file: &Self| {
            what(file);
            Ok(())
        };
        // Always succeeds: without workers the Pagefold couldn't have been built.
        if let Ok(errand) = watch.send(Pace::Closing, what) {
            let _ = errand.wait(self, watch, Pace::Closing);
        }
    }

    /// See [`Watch::load_without_device`].
    pub(crate) fn load_without_device(&self) -> Option<impl Drop + use<'_>> {
        self.watch().map(Watch::load_without_device)
    }

    /// Waits for a load. `waited` is how long the caller has waited for it already.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`].
    pub(crate) fn wait_for_load(
        &self,
        mut waiting: Waiting<'_>,
        waited: Duration,
    ) -> Result<Result<(), LoadFailure>, Error> {
        let Some(watch) = self.watch() else { return Ok(waiting.sleep()) };
        if watch.is_silent() {
            // Sometimes: a call needs a device that is silent.
            return waiting.outcome().ok_or_else(|| self.device_timeout());
        }
        let mut rest = watch.time.saturating_sub(waited);
        loop {
            let began = Instant::now();
            match waiting.sleep_for(rest) {
                Some(outcome) => return Ok(outcome),
                None if was_stopped(rest, began) => rest = watch.time,
                None => return watch.give_up(self, || waiting.outcome()),
            }
        }
    }

    /// Waits for the load of a page, if the page is being loaded.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`].
    pub(crate) fn wait_for_page(&self, page: u64) -> Result<(), Error> {
        match self.map.begin_wait(page, None) {
            Some(waiting) => self.wait_for_load(waiting, Duration::ZERO).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Waits for the load of a page like [`wait_for_page`](Self::wait_for_page), but without a
    /// limit: in an errand.
    pub(crate) fn wait_for_page_in_errand(&self, page: u64) -> Result<(), Error> {
        let _ = self.map.wait(page); // Whether the load succeeded doesn't matter.
        Ok(())
    }

    /// Locks `extension`, for a change of the file's length.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`].
    pub(crate) fn lock_extension(&self) -> Result<MutexGuard<'_, ()>, Error> {
        let Some(watch) = self.watch() else { return Ok(self.extension.lock()) };
        let mut wait = Wait::new(self.manager.memory.now_ms());
        loop {
            if watch.is_silent() {
                match self.lock_extension_soon(watch, watch.slice().min(HEARING_MIN))? {
                    Some(turn) => return Ok(turn),
                    None => continue,
                }
            }
            let rest = watch.rest(&self.manager, Pace::Length, &mut wait);
            let (slice, began) = (rest.min(watch.slice()), Instant::now());
            match self.extension.try_lock_for(slice) {
                Some(turn) => return Ok(turn),
                None if was_stopped(slice, began) => wait.leave_out(began.elapsed()), // WATCH-4
                None if rest.is_zero() => return Err(self.device_timeout()),
                None => {}
            }
        }
    }

    /// Locks `extension` while the device is silent. Another call has waited for the whole timeout
    /// already. So this call waits no longer than `at_most`, in case the lock's holder needs no
    /// device. Returns `None` if the device has answered meanwhile.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`].
    fn lock_extension_soon(&self, watch: &Watch<Self>, at_most: Duration) -> Result<Option<MutexGuard<'_, ()>>, Error> {
        match self.extension.try_lock_for(at_most) {
            None if watch.is_silent() => Err(self.device_timeout()),
            turn => Ok(turn),
        }
    }

    /// Locks `extension` without a limit: in an errand, or if there is no timeout. Unless the
    /// device is silent, the errand's timeout starts again once it has the lock (WATCH-3).
    pub(crate) fn lock_extension_in_errand(&self) -> MutexGuard<'_, ()> {
        let turn = self.extension.lock();
        if !self.is_device_silent() {
            self.progresses(Pace::Length);
        }
        turn
    }

    /// Checks the device before a write waits for pages to become clean.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`] if the device has had pages to write for the whole timeout and has
    /// written none.
    pub(crate) fn check_write_back(&self) -> Result<(), Error> {
        let Some(watch) = self.watch() else { return Ok(()) };
        let is_stopped = || watch.device.under_way.has_stopped_for(watch.time);
        if !is_stopped() {
            return Ok(());
        }
        sleep((watch.time / HEARING_PART).clamp(HEARING_MIN, HEARING_MAX)); // WATCH-4
        watch.give_up(self, || (!is_stopped()).then_some(()))
    }

    /// Returns whether the device is silent. False without a timeout.
    pub(crate) fn is_device_silent(&self) -> bool {
        self.watch().is_some_and(Watch::is_silent)
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests;
