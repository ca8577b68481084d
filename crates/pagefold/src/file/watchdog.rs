//! Limits how long a call waits for a device, if [`io_timeout`](crate::Builder::io_timeout) is set.
//!
//! A call that needs a device waits for one of three things, and for each at most that timeout:
//!
//! | it waits for | after the timeout |
//! |---|---|
//! | a page in *loading* | the request goes on: it owns the frame, the charge and the file (`flight`) |
//! | an *errand*: a sync, a new length, a closing | the worker goes on, and keeps its locks and the file |
//! | `extension`, which an errand may hold | |
//!
//! Without a timeout, the calling thread does all of this itself.
//!
//! # Silence
//! A device is *silent* from the moment when a call gives up waiting for it until the device
//! answers any request. Calls that need a silent device fail at once. So a device that stops
//! answering ties up no more threads than are waiting for it at that moment.
//!
//! - WATCH-1. While a device is silent, at least one operation is outstanding: a request to the
//!   device, a worker's errand, or the loading of a page that needs neither a request nor an
//!   errand, and so ends very soon. Each of these operations ends, and its end clears *silent*. So
//!   a device is silent no longer than the kernel takes to answer.
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
//!   that waits for these locks.
//! - WATCH-3. The timeout applies to one answer: an errand with many requests has the full time
//!   again after each answer. The device must be taken for silent only if a request waits for it.
//!   So the time for which an errand waits for a page in use doesn't count
//!   ([`waits_for_page`](FileState::waits_for_page)). Nor does the time for which an errand or a
//!   call waits for `extension` while the lock's holder waits for memory, or for a page in use
//!   ([`Watch::has_waited_otherwise`]). Threads that append excuse no errand that waits for the
//!   device: a sync that hangs times out beside them. But errands of one file excuse each other,
//!   because they share the time of the last answer.
//! - WATCH-4. Time in which the process was stopped, or got no CPU, doesn't count. The device may
//!   have answered in that time, although no thread of the process could run to see the answer. So
//!   if a wait returns much later than it should, the caller's timeout starts anew. A call that
//!   waits in short slices leaves out the late slice. A future waits longer by as much as its timer
//!   was late.

use std::mem;

use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::tasks::survive;
use sync::thread::sleep;
use sync::time::{Duration, Instant};

use frames::{LoadFailure, Waiting};

use crate::dirty::device::Device;
use crate::error::Error;
use crate::file::state::FileState;
use crate::file::watch::Watch;
use crate::manager::Manager;
use crate::timers::was_stopped;
use io::{IoError, Workers};

/// A longer timeout counts as this one, so that sums of times don't overflow.
const TIME_MAX: Duration = Duration::from_secs(1 << 32);
/// How long a call waits for the flusher to notice an answer: timeout / `HEARING_PART`, but at
/// least `HEARING_MIN` and at most `HEARING_MAX`.
const HEARING_PART: u32 = 4;
const HEARING_MIN: Duration = Duration::from_millis(20);
const HEARING_MAX: Duration = Duration::from_secs(1);
/// The least time for which a thread sleeps that waits for `extension`.
const SLICE_MIN: Duration = Duration::from_millis(1);
/// The most workers for one device. They are started on demand.
const WORKERS_MAX: usize = 64;

/// A job that a worker does for a call.
struct Errand<T> {
    stage: Mutex<Stage<T>>,
    changed: Condvar,
}

enum Stage<T> {
    InLine,
    Begun,
    Over(Result<T, Error>),
    /// The caller has left.
    Left,
    LeftAndOver,
}

/// Whether an errand is still done if its caller leaves before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matters {
    ToItsCaller,
    InAnyCase,
}

impl Manager {
    /// Returns the worker threads for errands.
    ///
    /// # Errors
    /// The system's, if the threads can't be started.
    pub(crate) fn workers(&self) -> Result<&Workers, Error> {
        self.workers.get_or_try_init(|| Workers::new(WORKERS_MAX)).map_err(Error::no_threads)
    }
}

impl Watch<FileState> {
    /// Gives up waiting and marks the device as silent, unless `outcome` shows that the wait is
    /// over.
    pub(crate) fn give_up<T>(&self, file: &FileState, outcome: impl FnOnce() -> Option<T>) -> Result<T, Error> {
        self.device.fall_silent(outcome).ok_or_else(|| file.device_timeout())
    }

    /// Returns the remaining time of a call that has waited for an errand since `start_ms`.
    fn rest(&self, manager: &Manager, start_ms: u64) -> Duration {
        self.time.saturating_sub(Duration::from_millis(manager.now_ms().saturating_sub(self.since_ms(start_ms))))
    }

    /// Returns the time from which the timeout counts for a call that began to wait at `start_ms`.
    fn since_ms(&self, start_ms: u64) -> u64 {
        start_ms.max(self.answered_ms.load(Ordering::Relaxed))
    }

    /// Returns how long a thread that waits for `extension` sleeps before it looks why it waits.
    fn slice(&self) -> Duration {
        (self.time / HEARING_PART).clamp(SLICE_MIN, HEARING_MAX)
    }

    fn send<T: Send + 'static>(
        &self,
        matters: Matters,
        what: impl FnOnce(&FileState) -> Result<T, Error> + Send + 'static,
    ) -> Result<Arc<Errand<T>>, Error> {
        let errand = Arc::new(Errand { stage: Mutex::new(Stage::InLine), changed: Condvar::new() });
        // Always succeeds: the caller holds the file.
        let Some(file) = self.file.upgrade() else { return Ok(errand) };
        let workers = file.manager.workers()?;
        let (its, its_file) = (Arc::clone(&errand), Arc::clone(&file));
        let (device, left) = (Arc::clone(&self.device), Arc::clone(&self.left));
        workers.run(file.backing.identity(), move || {
            if its.begin(matters) {
                let result = unless_it_panics(|| what(&its_file)).unwrap_or_else(|| Err(its_file.device_timeout()));
                drop(its_file); // Before the caller goes on: it may be closing the file.
                its.end(&left, result);
                device.answered(); // WATCH-1
            }
        });
        Ok(errand)
    }
}

/// Calls `what`. Returns `None` if it panics, as the user's backend may. For callers that have to
/// go on then: a worker has to tell the thread or the task that waits for it.
pub(crate) fn unless_it_panics<T>(what: impl FnOnce() -> T) -> Option<T> {
    let mut result = None;
    if !survive(|| result = Some(what())) {
        // Sometimes: a backend panics.
        tracing::error!("a call of the backend panicked");
    }
    result
}

/// Calls a backend. A call that panics counts as an I/O error, so that its caller takes back what
/// it has begun and reports the failure.
pub(crate) fn failing_if_it_panics<T>(call: impl FnOnce() -> Result<T, IoError>) -> Result<T, IoError> {
    unless_it_panics(call).unwrap_or(Err(IoError::IO))
}

impl<T> Errand<T> {
    /// Marks the errand as begun. Returns false if it must not be done.
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

    /// Waits for the result, at most for the timeout.
    fn wait(&self, file: &FileState, watch: &Watch<FileState>, matters: Matters) -> Result<T, Error> {
        let mut start_ms = file.manager.now_ms();
        let mut stage = self.stage.lock();
        loop {
            match mem::replace(&mut *stage, Stage::Left) {
                Stage::Over(result) => return result,
                before => *stage = before,
            }
            // A closing doesn't wait for a silent device: another call has waited for the whole
            // timeout already.
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
            return Err(file.device_timeout()); // The errand won't begin.
        }
        // Transition: errand, begun → left.
        watch.left.fetch_add(1, Ordering::Relaxed);
        drop(stage);
        let is_over = || matches!(*self.stage.lock(), Stage::LeftAndOver).then_some(());
        let _ = watch.give_up(file, is_over);
        Err(file.device_timeout()) // The result was dropped in any case.
    }
}

/// The holder of `extension` waits for memory until this is dropped.
struct MemoryWait<'a>(&'a Watch<FileState>);

impl<'a> MemoryWait<'a> {
    fn begin(watch: &'a Watch<FileState>) -> Self {
        watch.other_waits.fetch_add(1, Ordering::Relaxed);
        Self(watch)
    }
}

impl Drop for MemoryWait<'_> {
    fn drop(&mut self) {
        self.0.other_waits.fetch_add(1, Ordering::Relaxed);
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
        if let Some(time) = self.manager.io_timeout.map(|time| time.min(TIME_MAX)) {
            let device = self.manager.devices.get(self.backing.identity().device);
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

    /// Notes that the device has answered a request that an errand waits for: one of the thread
    /// that leads a write-back cycle, a change of the file's length, or a load that the file's
    /// closing waits for (WATCH-3).
    pub(crate) fn errand_answered(&self) {
        if let Some(watch) = self.watch() {
            watch.answered_ms.store(self.manager.now_ms(), Ordering::Relaxed);
            watch.device.answered();
        }
    }

    /// Notes that an errand waits for a page in use or for `extension`, and so not for the device
    /// (WATCH-3).
    pub(crate) fn waits_for_page(&self) {
        if let Some(watch) = self.watch() {
            watch.answered_ms.store(self.manager.now_ms(), Ordering::Relaxed);
        }
    }

    /// Notes that the holder of `extension` is about to wait for a page in use. For threads that
    /// wait for `extension` (WATCH-3).
    pub(crate) fn holder_waits_for_page(&self) {
        self.watch().into_iter().for_each(|watch| _ = watch.other_waits.fetch_add(2, Ordering::Relaxed));
    }

    /// Calls `wait`, which may wait for memory. If the caller holds `extension` (`turn`), this time
    /// doesn't count for the threads that wait for `extension` (WATCH-3).
    pub(crate) fn wait_for_memory<T>(&self, turn: bool, wait: impl FnOnce() -> T) -> T {
        let _waits = self.watch().filter(|_| turn).map(MemoryWait::begin);
        wait()
    }

    /// Runs `what`, which may wait for the device. With a timeout, a worker runs `what`; without
    /// one, this thread does. The caller must hold no lock. After a timeout, the worker may still
    /// complete `what`.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`], also if `what` panics in a worker; those of `what`.
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

    /// Runs `what` like [`in_time`](Self::in_time), but even if the caller gives up before `what`
    /// begins.
    pub(crate) fn in_time_or_later(&self, what: impl FnOnce(&Self) + Send + 'static) {
        let Some(watch) = self.watch() else { return what(self) };
        let what = move |file: &Self| {
            what(file);
            Ok(())
        };
        // Always succeeds: without workers the Pagefold couldn't have been built.
        if let Ok(errand) = watch.send(Matters::InAnyCase, what) {
            let _ = errand.wait(self, watch, Matters::InAnyCase);
        }
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

    /// Locks `extension`, for a change of the file's length.
    ///
    /// # Errors
    /// [`Error::DeviceTimeout`].
    pub(crate) fn lock_extension(&self) -> Result<MutexGuard<'_, ()>, Error> {
        let Some(watch) = self.watch() else { return Ok(self.extension.lock()) };
        let (mut start_ms, mut seen) = (self.manager.now_ms(), watch.other_waits());
        loop {
            if watch.is_silent() {
                // Another call has waited for the whole timeout already. A holder that doesn't wait
                // for the device releases the lock soon.
                let turn = self.extension.try_lock_for(watch.slice().min(HEARING_MIN));
                return turn.ok_or_else(|| self.device_timeout());
            }
            start_ms = watch.since_ms(start_ms);
            let rest = watch.rest(&self.manager, start_ms);
            let (slice, began) = (rest.min(watch.slice()), Instant::now());
            match self.extension.try_lock_for(slice) {
                Some(turn) => return Ok(turn),
                None if watch.has_waited_otherwise(&mut seen) => start_ms = self.manager.now_ms(),
                None if was_stopped(slice, began) => start_ms += began.elapsed().as_millis() as u64, // WATCH-4
                None if rest.is_zero() => return Err(self.device_timeout()),
                None => {}
            }
        }
    }

    /// Locks `extension` without a limit: in an errand, or if there is no timeout. If the errand
    /// has to wait, its own request hasn't begun yet when it has the lock.
    pub(crate) fn lock_extension_in_errand(&self) -> MutexGuard<'_, ()> {
        let Some(watch) = self.watch() else { return self.extension.lock() };
        if let Some(turn) = self.extension.try_lock() {
            return turn;
        }
        let mut seen = watch.other_waits();
        loop {
            let turn = self.extension.try_lock_for(watch.slice());
            if turn.is_some() || watch.has_waited_otherwise(&mut seen) {
                self.waits_for_page();
            }
            if let Some(turn) = turn {
                return turn;
            }
        }
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
mod tests {
    use std::thread;

    use super::*;
    use crate::{Advice, File, Group, Pagefold};
    use test_disks::SimulatedDisk;

    const PAGE: u64 = 4096;
    /// No test waits for so long.
    const TIME: Duration = Duration::from_secs(3600);

    /// A disk with files of two pages, the second of which isn't full, and a large file.
    fn world() -> (SimulatedDisk, Pagefold, Group) {
        let disk = SimulatedDisk::default();
        (0..4).for_each(|file| disk.add_bytes(format!("f{file}"), vec![1; 5000]));
        disk.add_bytes("large", vec![1; 64 * PAGE as usize]);
        let mm = Pagefold::builder().memory("4MiB").backend(disk.clone()).io_timeout(TIME).build().unwrap();
        let group = mm.group("ours").max(16 * PAGE).build().unwrap();
        (disk, mm, group)
    }

    fn open(group: &Group, path: &str) -> File {
        let file = group.open_options().write(true).open(path).unwrap();
        file.advise(0..u64::MAX, Advice::Random).unwrap();
        file
    }

    /// The last time at which the file's device answered, or didn't matter. It is 0 at first.
    fn answered_ms(file: &FileState) -> u64 {
        while file.manager.now_ms() == 0 {
            thread::yield_now();
        }
        file.watch().unwrap().answered_ms.load(Ordering::Relaxed)
    }

    /// Regression: a thread held `extension` while it waited for memory, for an append. Threads
    /// that waited for `extension` took the device for silent, although it had nothing to answer.
    #[test]
    fn a_wait_for_memory_with_extension_is_no_wait_for_the_device() {
        let (_disk, mm, group) = world();
        let foreign = mm.group("another").build().unwrap();
        open(&foreign, "f2").read_exact_at(&mut [0], PAGE).unwrap();
        let files: Vec<_> = (0..4).map(|file| open(&group, &format!("f{file}"))).collect();
        files[1].set_len(PAGE).unwrap();
        let large = open(&group, "large");
        let pins: Vec<_> = (0..64).map_while(|page| large.page_at(page * PAGE).ok()).collect();
        let writes: [(&str, u64, usize); 3] = [
            ("the page with the end is read", 5000, 10),
            ("a page is made", PAGE, PAGE as usize),
            ("a page of another group is charged to this one", 5000, 10),
        ];
        let waits = |file: &File| file.handle().file.watch().unwrap().other_waits();
        for (file, (what, at, len)) in files.iter().zip(writes) {
            let result = file.write_at(&vec![2; len], at);
            assert!(matches!(result, Err(Error::LimitReached { .. })), "{what}: {result:?}");
            assert!(waits(file) > 0 && waits(file) % 2 == 0, "{what}: {}", waits(file));
        }
        // A write that doesn't hold `extension` keeps no thread waiting.
        assert!(matches!(files[3].write_at(&[2; 10], 10), Err(Error::LimitReached { .. })));
        assert_eq!(waits(&files[3]), 0);
        drop(pins);
    }

    /// While the holder of `extension` waits for memory, and once after it has waited, the time of
    /// a thread that waits for `extension` is excused.
    #[test]
    fn a_holder_of_extension_that_waits_for_memory_is_noticed() {
        let (_disk, _mm, group) = world();
        let file = open(&group, "f0");
        let (state, watch) = (&*file.handle().file, file.handle().file.watch().unwrap());
        let mut seen = watch.other_waits();
        state.wait_for_memory(false, || assert!(!watch.has_waited_otherwise(&mut seen)));
        state.wait_for_memory(true, || (0..2).for_each(|_| assert!(watch.has_waited_otherwise(&mut seen))));
        assert_eq!([(); 2].map(|()| watch.has_waited_otherwise(&mut seen)), [true, false]);
    }

    /// Regression: an append that got memory at once restarted the timeout of all errands of the
    /// file. So a sync that hung never timed out beside a thread that appended all the time.
    #[test]
    fn an_append_excuses_no_errand_that_waits_for_the_device() {
        let (_disk, _mm, group) = world();
        let file = open(&group, "f0");
        let state = &*file.handle().file;
        file.read_exact_at(&mut [0], PAGE).unwrap();
        let no_cycle = state.writeback.pause(); // The flusher's writes would be answered.
        state.watch().unwrap().answered_ms.store(0, Ordering::Relaxed);
        file.write_at(&[2; 4 * PAGE as usize], 5000).unwrap();
        assert_eq!(answered_ms(state), 0);
        drop(no_cycle);
    }

    /// Regression: a thread that waited for `extension` while its holder waited for memory didn't
    /// sleep, and didn't fail, if the device was silent.
    #[test]
    fn a_silent_device_is_not_waited_for_beside_a_wait_for_memory() {
        let (_disk, _mm, group) = world();
        let file = open(&group, "f0");
        let state = Arc::clone(&file.handle().file);
        let turn = state.extension.lock();
        assert!(state.watch().unwrap().give_up(&state, || None::<()>).is_err());
        state.wait_for_memory(true, || {
            let locked = thread::scope(|scope| scope.spawn(|| state.lock_extension().map(drop)).join().unwrap());
            assert!(matches!(locked, Err(Error::DeviceTimeout { .. })), "{locked:?}");
        });
        drop(turn);
        assert!(state.lock_extension().is_ok(), "the lock is free");
    }

    /// Regression: several errands waited for `extension`, one after another, and each was answered
    /// by the device in time. But the time that an errand had waited for the lock counted against
    /// its own request.
    #[test]
    fn each_answer_to_an_errand_that_changes_the_length_counts() {
        let (_disk, _mm, group) = world();
        let check = |path: &str, change: &dyn Fn(&File) -> Result<(), Error>| {
            let file = open(&group, path);
            assert_eq!(answered_ms(&file.handle().file), 0);
            change(&file).unwrap();
            assert!(answered_ms(&file.handle().file) > 0, "{path}");
        };
        check("f0", &|file| file.write_at(&[2; 10], 9 * PAGE)); // With a gap.
        check("f1", &|file| file.set_len(20_000));
        check("f2", &|file| file.set_len(PAGE));
    }

    /// An errand that waits for `extension` notes that it doesn't wait for the device.
    #[test]
    fn an_errand_that_waits_for_a_holder_that_waits_for_memory_waits_for_no_device() {
        let (_disk, _mm, group) = world();
        let file = open(&group, "f0");
        let state = Arc::clone(&file.handle().file);
        state.watch().unwrap().answered_ms.store(0, Ordering::Relaxed);
        let turn = state.extension.lock();
        thread::scope(|scope| {
            let waits = scope.spawn(|| drop(state.lock_extension_in_errand()));
            state.wait_for_memory(true, || {
                while answered_ms(&state) == 0 {
                    thread::yield_now();
                }
            });
            drop(turn);
            waits.join().unwrap();
        });
    }

    /// Regression: a file was closed while loads of it were in flight. The device answered one
    /// after another, but the answers didn't count, so it was taken for silent after the timeout.
    #[test]
    fn loads_that_a_closing_waits_for_are_answers() {
        let (disk, _mm, group) = world();
        let file = open(&group, "large");
        let state = Arc::clone(&file.handle().file);
        disk.answer_by_hand();
        file.prefetch(0..PAGE);
        while disk.answer_next() {}
        assert_eq!(answered_ms(&state), 0, "no errand waited for this load");
        file.prefetch(8 * PAGE..9 * PAGE);
        thread::scope(|scope| {
            let closes = scope.spawn(|| drop(file));
            while state.handles.load(Ordering::Acquire) > 0 {
                thread::yield_now();
            }
            assert!(disk.answer_next());
            closes.join().unwrap();
        });
        assert!(answered_ms(&state) > 0);
    }
}
