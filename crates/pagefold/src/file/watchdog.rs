//! How long a call waits for a device: [`io_timeout`](crate::Builder::io_timeout), if there is one.
//!
//! A call that needs a device waits for one of three things, and for none of them longer than that
//! time:
//!
//! | it waits for | if that takes too long |
//! |---|---|
//! | a page in *loading* | the request goes on: it owns frame, charge and file (`flight`) |
//! | an *errand*: a sync, a new length, a closing | the worker goes on, with its locks and the file |
//! | `extension`, which an errand may hold | |
//!
//! Without a time the thread does all of this itself, and nothing here is looked at but that there
//! is none.
//!
//! # Silence
//! A device is *silent* from when a call gave up waiting for it until it answers any request. Calls
//! that need a silent device fail at once, so that it keeps no more than the threads that it had
//! when it stopped.
//!
//! - WATCH-1. A device that is silent has a request, or a worker, that hasn't come to its end, or a
//!   page in *loading* that needs neither and is there in moments. So it is silent no longer than
//!   the kernel takes: each end looks whether the device is silent. A call that gives up sets
//!   *silent* first and then looks once more whether what it waits for is over; an end comes first,
//!   and then looks for *silent*. Both with a fence in between, so one of the two sees the other:
//!
//! ```text
//! caller: time is over ── silent = true ── fence ── over? no: gives up
//! end:                                        over ── fence ── silent? yes: silent = false
//! ```
//!
//! - WATCH-2. An errand's stage is under its lock. The caller takes the result, or leaves; the
//!   worker ends an errand that was left, or doesn't begin it. An errand that was left after it had
//!   begun is counted (`left`) until its end, and as long as there are any, the file has no other:
//!   they would wait for its locks, a worker each.
//! - WATCH-3. What a time is over for is an answer: an errand with many requests has the time anew
//!   after each.
//! - WATCH-4. A process that was stopped, or got no CPU, hasn't waited: the device may have
//!   answered, and no thread of the process has heard of it. A caller whose wait took much longer
//!   than it asked for has the time anew.

use std::mem;

use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::thread::sleep;
use sync::time::{Duration, Instant};

use frames::{LoadFailure, Waiting};

use crate::dirty::device::Device;
use crate::error::Error;
use crate::file::state::FileState;
use crate::file::watch::Watch;
use crate::manager::Manager;
use io::Workers;

/// A longer time is as good as none. It keeps sums of times within their numbers.
const TIME_MAX: Duration = Duration::from_secs(1 << 32);
/// A thread that wakes so much later than it wanted had no CPU meanwhile.
const STOPPED_MIN: Duration = Duration::from_millis(50);
/// What the flusher needs at most to hear of an answer that is there: a part of the time, within
/// bounds.
const HEARING_PART: u32 = 4;
const HEARING_MIN: Duration = Duration::from_millis(20);
const HEARING_MAX: Duration = Duration::from_secs(1);
/// Workers that one device has at most. They are started as they are needed.
const WORKERS_MAX: usize = 64;

/// A wait for `asked` that took so much longer says nothing of the device (WATCH-4).
fn was_stopped(asked: Duration, began: Instant) -> bool {
    began.elapsed().saturating_sub(asked) > STOPPED_MIN
}

/// What a worker does for a call.
struct Errand<T> {
    stage: Mutex<Stage<T>>,
    changed: Condvar,
}

enum Stage<T> {
    InLine,
    Begun,
    Over(Result<T, Error>),
    /// Its caller has gone.
    Left,
    LeftAndOver,
}

/// Whether an errand is done although its caller has gone before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matters {
    ToItsCaller,
    InAnyCase,
}

impl Manager {
    /// The threads for errands.
    ///
    /// # Errors
    /// The system's, if they can't be made.
    pub(crate) fn workers(&self) -> Result<&Workers, Error> {
        self.workers.get_or_try_init(|| Workers::new(WORKERS_MAX)).map_err(Error::no_threads)
    }
}

impl Watch<FileState> {
    /// Gives up waiting for something that ends with the device's answer, unless it is over.
    pub(crate) fn give_up<T>(&self, file: &FileState, outcome: impl FnOnce() -> Option<T>) -> Result<T, Error> {
        self.device.fall_silent(outcome).ok_or_else(|| file.device_timeout())
    }

    /// What is left of the time, for a call that has waited for an errand since `start_ms`.
    fn rest(&self, manager: &Manager, start_ms: u64) -> Duration {
        let since_ms = start_ms.max(self.answered_ms.load(Ordering::Relaxed));
        self.time.saturating_sub(Duration::from_millis(manager.now_ms().saturating_sub(since_ms)))
    }

    fn send<T: Send + 'static>(
        &self,
        matters: Matters,
        what: impl FnOnce(&FileState) -> Result<T, Error> + Send + 'static,
    ) -> Result<Arc<Errand<T>>, Error> {
        let errand = Arc::new(Errand { stage: Mutex::new(Stage::InLine), changed: Condvar::new() });
        // The caller has the file.
        let Some(file) = self.file.upgrade() else { return Ok(errand) };
        let workers = file.manager.workers()?;
        let (its, its_file) = (Arc::clone(&errand), Arc::clone(&file));
        let (device, left) = (Arc::clone(&self.device), Arc::clone(&self.left));
        workers.run(file.backing.identity(), move || {
            if its.begin(matters) {
                let result = what(&its_file);
                drop(its_file); // Before its caller goes on, which may have closed it.
                its.end(&left, result);
                device.answered(); // WATCH-1
            }
        });
        Ok(errand)
    }
}

impl<T> Errand<T> {
    /// Whether the errand is to be done.
    fn begin(&self, matters: Matters) -> bool {
        let mut stage = self.stage.lock();
        match *stage {
            // Transition: errand, in line → begun.
            Stage::InLine => *stage = Stage::Begun,
            Stage::Left if matters == Matters::InAnyCase => {}
            _ => return false,
        }
        true
    }

    fn end(&self, left: &AtomicUsize, result: Result<T, Error>) {
        let mut stage = self.stage.lock();
        if matches!(*stage, Stage::Left) {
            // Transition: errand, left → over.
            *stage = Stage::LeftAndOver;
            left.fetch_sub(1, Ordering::Relaxed);
        } else {
            // Transition: errand, begun → over.
            *stage = Stage::Over(result);
        }
        drop(stage);
        self.changed.notify_all();
    }

    /// Waits for the result.
    fn wait(&self, file: &FileState, watch: &Watch<FileState>, matters: Matters) -> Result<T, Error> {
        let mut start_ms = file.manager.now_ms();
        let mut stage = self.stage.lock();
        loop {
            match mem::replace(&mut *stage, Stage::Left) {
                Stage::Over(result) => return result,
                before => *stage = before,
            }
            // A closing has waited for the device when that is silent.
            let is_over = matters == Matters::InAnyCase && watch.is_silent();
            let rest = if is_over { Duration::ZERO } else { watch.rest(&file.manager, start_ms) };
            if rest.is_zero() {
                break;
            }
            let began = Instant::now();
            self.changed.wait_for(&mut stage, rest);
            if was_stopped(rest, began) {
                start_ms = file.manager.now_ms();
            }
        }
        let was_in_line = matches!(mem::replace(&mut *stage, Stage::Left), Stage::InLine);
        if was_in_line && matters == Matters::ToItsCaller {
            // Sometimes: a call gives up an errand that has not begun.
            return Err(file.device_timeout()); // It won't begin.
        }
        // Transition: errand, begun → left.
        watch.left.fetch_add(1, Ordering::Relaxed);
        drop(stage);
        let is_over = || matches!(*self.stage.lock(), Stage::LeftAndOver).then_some(());
        let _ = watch.give_up(file, is_over);
        Err(file.device_timeout()) // The result is gone in any case.
    }
}

/// A device that is listened to, if it is.
pub(crate) struct Answers(Option<Arc<Device>>);

impl Answers {
    /// It has answered, and all threads that wait for that can see it.
    pub(crate) fn heard(self) {
        self.0.into_iter().for_each(|device| device.answered());
    }
}

impl FileState {
    pub(crate) fn device_timeout(&self) -> Error {
        Error::DeviceTimeout { path: self.path.clone() }
    }

    /// Has calls wait no longer than the Pagefold's time, if it has one.
    pub(crate) fn begin_watch(self: &Arc<Self>) {
        if let Some(time) = self.manager.io_timeout.map(|time| time.min(TIME_MAX)) {
            let device = self.manager.devices.get(self.backing.identity().device);
            let _ = self.watch.set(Box::new(Watch::new(time, device, self))); // Once for each file.
        }
    }

    pub(crate) fn watch(&self) -> Option<&Watch<Self>> {
        self.watch.get().map(|watch| &**watch)
    }

    /// Before a call that needs the device.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`] if the device is silent.
    pub(crate) fn check_device(&self) -> Result<(), Error> {
        match self.watch() {
            Some(watch) if watch.is_silent() => Err(self.device_timeout()),
            _ => Ok(()),
        }
    }

    /// Where an answer of the device is to be told, also when the file is gone.
    pub(crate) fn answers(&self) -> Answers {
        Answers(self.watch().map(|watch| Arc::clone(&watch.device)))
    }

    /// The device has answered a request of the thread that leads a cycle (WATCH-3).
    pub(crate) fn cycle_answered(&self) {
        if let Some(watch) = self.watch() {
            watch.answered_ms.store(self.manager.now_ms(), Ordering::Relaxed);
            watch.device.answered();
        }
    }

    /// Does something that may wait for the device, in this thread or, if there is a time for it,
    /// in a worker's. The caller holds no lock. What it gave up waiting for may still be done.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`]; those of `what`.
    pub(crate) fn in_time<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(watch) = self.watch() else { return what(self) };
        if watch.is_silent() || watch.left.load(Ordering::Relaxed) > 0 {
            return Err(self.device_timeout());
        }
        watch.send(Matters::ToItsCaller, what)?.wait(self, watch, Matters::ToItsCaller)
    }

    /// As [`in_time`](Self::in_time), of something that has to be done in any case.
    pub(crate) fn in_time_or_later(&self, what: impl FnOnce(&Self) + Send + 'static) {
        let Some(watch) = self.watch() else { return what(self) };
        let what = move |file: &Self| {
            what(file);
            Ok(())
        };
        // Without a worker the Pagefold couldn't be built.
        if let Ok(errand) = watch.send(Matters::InAnyCase, what) {
            let _ = errand.wait(self, watch, Matters::InAnyCase);
        }
    }

    /// Waits for a load, on which the caller has waited for `waited` already.
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

    /// Waits for the load of a page, if it is being loaded.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`].
    pub(crate) fn wait_for_page(&self, page: u64) -> Result<(), Error> {
        match self.map.begin_wait(page, None) {
            Some(waiting) => self.wait_for_load(waiting, Duration::ZERO).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The right to change the file's length.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`].
    pub(crate) fn lock_extension(&self) -> Result<MutexGuard<'_, ()>, Error> {
        let Some(watch) = self.watch() else { return Ok(self.extension.lock()) };
        let mut start_ms = self.manager.now_ms();
        loop {
            // The thread that has it has waited for the device, if that is silent.
            let rest = if watch.is_silent() { Duration::ZERO } else { watch.rest(&self.manager, start_ms) };
            let began = Instant::now();
            match self.extension.try_lock_for(rest) {
                Some(turn) => return Ok(turn),
                None if was_stopped(rest, began) => start_ms = self.manager.now_ms(),
                None if rest.is_zero() => return Err(self.device_timeout()),
                None => {}
            }
        }
    }

    /// Before a write that waits for pages to become clean.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`] if the device has had something to write for so long, and written
    /// nothing.
    pub(crate) fn check_write_back(&self) -> Result<(), Error> {
        let Some(watch) = self.watch() else { return Ok(()) };
        let is_stopped = || watch.device.under_way.has_stopped_for(watch.time);
        if !is_stopped() {
            return Ok(());
        }
        sleep((watch.time / HEARING_PART).clamp(HEARING_MIN, HEARING_MAX)); // WATCH-4
        watch.give_up(self, || (!is_stopped()).then_some(()))
    }

    /// Whether the device is silent, as far as that is watched.
    pub(crate) fn is_device_silent(&self) -> bool {
        self.watch().is_some_and(Watch::is_silent)
    }
}
