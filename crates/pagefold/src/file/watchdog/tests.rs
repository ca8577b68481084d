use std::future::Future;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

use super::*;
use crate::file::length::{Attempt, End, EndWait};
use crate::patience::WATCHDOG;
use crate::write::Written;
use crate::{Advice, File, Group, Pagefold};
use frames::{PageState, Unclean};
use io::{Access, Backend, BackingFile, Identity, IoError};
use sync::SharedBytes;
use test_disks::SimulatedDisk;

const PAGE: u64 = 4096;
/// No test waits for so long.
const TIME: Duration = Duration::from_secs(3600);

/// A disk with files of two pages, the second of which isn't full, and a large file.
fn world() -> (SimulatedDisk, Pagefold, Group) {
    let disk = SimulatedDisk::default();
    let (mm, group) = world_on(&disk, disk.clone());
    (disk, mm, group)
}

fn world_on(disk: &SimulatedDisk, backend: impl Backend) -> (Pagefold, Group) {
    (0..4).for_each(|file| disk.add_bytes(format!("f{file}"), vec![1; 5000]));
    disk.add_bytes("large", vec![1; 64 * PAGE as usize]);
    let mm = Pagefold::builder().memory("4MiB").backend(backend).io_timeout(TIME).build().unwrap();
    let group = mm.group("ours").max(16 * PAGE).build().unwrap();
    (mm, group)
}

/// Opens a file. From now on the time isn't 0.
fn open(group: &Group, path: &str) -> File {
    let file = group.open_options().write(true).open(path).unwrap();
    file.advise(0..u64::MAX, Advice::Random).unwrap();
    eventually(|| file.handle().file.manager.now_ms() > 0);
    file
}

fn state_of(file: &File) -> (Arc<FileState>, &Watch<FileState>) {
    let state = &file.handle().file;
    (Arc::clone(state), state.watch().unwrap())
}

/// Returns whether the thread that `pace` names has made progress since it was forgotten.
fn progressed(watch: &Watch<FileState>, pace: Pace) -> bool {
    watch.last_ms(pace, 1) > 0
}

#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WATCHDOG, "it doesn't happen");
        thread::yield_now();
    }
}

fn fall_silent(state: &FileState) {
    assert!(state.watch().unwrap().give_up(state, || None::<()>).is_err());
}

/// Regression: a thread held `extension` while it waited for memory, for an append. Threads that
/// waited for `extension` took the device for silent, although it had nothing to answer.
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
    for (file, (what, at, len)) in files.iter().zip(writes) {
        let (_, watch) = state_of(file);
        watch.forget();
        let result = file.write_at(&vec![2; len], at);
        assert!(matches!(result, Err(Error::LimitReached { .. })), "{what}: {result:?}");
        assert!(progressed(watch, Pace::Length), "{what}");
    }
    // A write that doesn't hold `extension` keeps no thread waiting.
    let (_, watch) = state_of(&files[3]);
    watch.forget();
    assert!(matches!(files[3].write_at(&[2; 10], 10), Err(Error::LimitReached { .. })));
    assert!(!progressed(watch, Pace::Length));
    drop(pins);
}

/// While the holder of `extension` waits for memory, the time of a thread that waits for
/// `extension` doesn't count. Afterwards, it counts from the end of that wait.
#[test]
fn a_holder_of_extension_that_waits_for_memory_is_noticed() {
    const LATER: u64 = 1 << 40;
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    state.wait_for_memory(false, || assert_eq!(watch.last_ms(Pace::Length, LATER), 0));
    state.wait_for_memory(true, || {
        assert_eq!(watch.last_ms(Pace::Length, LATER), LATER);
        assert_eq!(watch.last_ms(Pace::Cycle, LATER), 0, "no sync waits for that");
    });
    assert!((1..LATER).contains(&watch.last_ms(Pace::Length, LATER)));
}

/// While the holder of `extension` waits for write-back's `turn`, or has it, the threads that wait
/// for `extension` wait for the holder of `turn`. Otherwise they don't.
#[test]
fn a_holder_of_extension_that_waits_for_a_cycle_is_noticed() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    state.progresses(Pace::Cycle);
    assert!(!progressed(watch, Pace::Length));
    let paused = state.pause_write_back();
    assert!(progressed(watch, Pace::Length) && progressed(watch, Pace::Cycle));
    watch.forget();
    state.progresses(Pace::Cycle);
    assert!(progressed(watch, Pace::Length));
    watch.forget();
    drop(paused);
    assert!(progressed(watch, Pace::Length) && progressed(watch, Pace::Cycle));
}

/// Regression: a write past the end, with a gap or without one, restarted the timeout of all
/// errands of the file. So a sync that hung never timed out beside a thread that wrote there all
/// the time.
#[test]
fn a_write_past_the_end_excuses_no_sync() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    file.read_exact_at(&mut [0], PAGE).unwrap();
    let no_cycle = state.writeback.pause(); // The flusher's writes would be answered.
    file.write_at(&[2; 4 * PAGE as usize], 5000).unwrap();
    assert!(!progressed(watch, Pace::Cycle), "an append");
    file.write_at(&[2; 10], 9 * PAGE).unwrap();
    assert!(!progressed(watch, Pace::Cycle), "a gap");
    drop(no_cycle);
}

/// Write-back that the device answers excuses no new length that hangs.
#[test]
fn a_sync_excuses_no_new_length() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (_, watch) = state_of(&file);
    file.write_at(&[2; 10], 0).unwrap();
    file.sync().unwrap();
    assert!(progressed(watch, Pace::Cycle) && !progressed(watch, Pace::Length));
}

/// An errand of one request has its time once, whatever else goes on.
#[test]
fn no_thread_excuses_an_errand_of_one_request() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    [Pace::Answer, Pace::Length, Pace::Cycle, Pace::Closing].into_iter().for_each(|pace| state.progresses(pace));
    assert!(!progressed(watch, Pace::Answer));
}

/// Progress is never forgotten when another thread notes an earlier time late.
#[test]
fn progress_does_not_go_back() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (_, watch) = state_of(&file);
    [7, 5].into_iter().for_each(|ms| watch.progresses(Pace::Cycle, ms));
    assert_eq!(watch.last_ms(Pace::Cycle, 9), 7);
}

/// Regression: a thread that waited for `extension` while its holder waited for memory didn't
/// sleep, and didn't fail, if the device was silent.
#[test]
fn a_silent_device_is_not_waited_for_beside_a_wait_for_memory() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, _) = state_of(&file);
    let turn = state.extension.lock();
    fall_silent(&state);
    state.wait_for_memory(true, || {
        let locked = thread::scope(|scope| scope.spawn(|| state.lock_extension().map(drop)).join().unwrap());
        assert!(matches!(locked, Err(Error::DeviceTimeout { .. })), "{locked:?}");
    });
    drop(turn);
    assert!(state.lock_extension().is_ok(), "the lock is free");
}

/// Regression: an append failed because its device had been silent, although the device had
/// answered while the append waited for `extension`.
#[test]
fn a_wait_for_extension_fails_only_for_a_device_that_is_still_silent() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    let turn = state.extension.lock();
    fall_silent(&state);
    let refused = state.lock_extension_soon(watch, Duration::ZERO);
    assert!(matches!(refused, Err(Error::DeviceTimeout { .. })));
    watch.device.answered();
    assert!(matches!(state.lock_extension_soon(watch, Duration::ZERO), Ok(None)), "waits on");
    drop(turn);
    assert!(matches!(state.lock_extension_soon(watch, Duration::ZERO), Ok(Some(_))));
}

/// A holder of `extension` that needs no device releases it soon, so a thread that needs it waits
/// for a moment, even if the device is silent.
#[test]
fn a_holder_that_releases_extension_soon_is_waited_for_beside_a_silent_device() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    let turn = state.extension.lock();
    fall_silent(&state);
    thread::scope(|scope| {
        let waits = scope.spawn(|| state.lock_extension_soon(watch, WATCHDOG).map(|turn| turn.is_some()));
        drop(turn);
        assert!(waits.join().unwrap().unwrap());
    });
}

/// Regression: several errands waited for `extension`, one after another, and each was answered by
/// the device in time. But the time that an errand had waited for the lock counted against its own
/// request. If the device is silent, the lock's last holder may have released it without an answer.
#[test]
fn an_errand_that_gets_extension_has_its_full_time_unless_the_device_is_silent() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    fall_silent(&state);
    drop(state.lock_extension_in_errand());
    assert!(!progressed(watch, Pace::Length));
    watch.device.answered();
    drop(state.lock_extension_in_errand());
    assert!(progressed(watch, Pace::Length));
}

/// The timeout starts again with the last progress. A slice that was late is left out after that,
/// too.
#[test]
fn the_rest_of_a_wait_counts_from_the_last_progress() {
    let time = Duration::from_millis(100);
    let mut wait = Wait::new(1000);
    let rest = |wait: &mut Wait, last_ms, now_ms| wait.rest(time, last_ms, now_ms).as_millis();
    assert_eq!(rest(&mut wait, 0, 1030), 70);
    assert_eq!(rest(&mut wait, 1050, 1060), 90);
    wait.leave_out(Duration::from_millis(40));
    assert_eq!(rest(&mut wait, 1050, 1100), 90);
    assert_eq!([rest(&mut wait, 1050, 1190), rest(&mut wait, 1050, 5000), rest(&mut wait, 4950, 5000)], [0, 0, 50]);
}

/// Regression: a file was closed while loads of it were in flight. The device answered one after
/// another, but the answers didn't count, so it was taken for silent after the timeout.
#[test]
fn loads_that_a_closing_waits_for_are_answers() {
    let (disk, _mm, group) = world();
    let file = open(&group, "large");
    let state = Arc::clone(&file.handle().file);
    let watch = state.watch().unwrap();
    disk.answer_by_hand();
    file.prefetch(0..PAGE);
    while disk.answer_next() {}
    assert!(!progressed(watch, Pace::Closing), "no closing waited for this load");
    file.prefetch(8 * PAGE..9 * PAGE);
    thread::scope(|scope| {
        let closes = scope.spawn(|| drop(file));
        eventually(|| state.handles.load(Ordering::Acquire) == 0);
        assert!(disk.answer_next());
        closes.join().unwrap();
    });
    assert!(progressed(watch, Pace::Closing));
}

/// Regression: `set_len` waited for loads past the new end. The device answered one after another,
/// but the answers didn't count.
#[test]
fn loads_that_a_new_length_waits_for_are_answers() {
    let (disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    disk.answer_by_hand();
    for page in [0, 8] {
        file.prefetch(page * PAGE..(page + 1) * PAGE);
        watch.forget();
        thread::scope(|scope| {
            let waits = scope.spawn(|| state.wait_to_cut(page));
            assert!(disk.answer_next());
            waits.join().unwrap();
        });
        assert!(progressed(watch, Pace::Cycle));
    }
}

/// Regression: a new length, or a truncation by another process, removed very many pages from
/// memory. A sync that had very many pages to settle took as long. None of this counted, so the
/// device was taken for silent, although it had answered all requests.
#[test]
fn each_page_that_is_dropped_or_settled_is_progress() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    let no_cycle = state.writeback.pause();
    let ends_with_progress = |what: &str, act: &dyn Fn()| {
        watch.forget();
        act();
        assert!(progressed(watch, Pace::Cycle), "{what}");
    };
    file.write_at(&[2; 2 * PAGE as usize], 0).unwrap();
    (0..2).for_each(|page| state.hold(page, Unclean::Dirty).unwrap().end(Unclean::Unstable));
    ends_with_progress("pages that a sync settles", &|| assert_eq!(state.settle([0..2, 0..0], true), 2));
    drop(no_cycle);
    file.read_exact_at(&mut [0; 4 * PAGE as usize], 60 * PAGE).unwrap();
    ends_with_progress("a page behind a new length", &|| state.drop_cut_page(63));
    assert!(matches!(state.map.state(63), PageState::Vacant { .. }));
    let (_turn, _no_cycle) = (state.extension.lock(), state.writeback.pause());
    ends_with_progress("pages that another process cut off", &|| state.take_over_cut(60 * PAGE));
    assert!((60..63).all(|page| matches!(state.map.state(page), PageState::Vacant { .. })));
}

/// The file may be open again while a closing waits for the device. Then an append must not excuse
/// the closing.
#[test]
fn an_append_excuses_no_closing_that_needs_no_length() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    watch.forget();
    let turn = state.lock_extension_in_errand();
    state.wait_for_memory(true, || assert!(!progressed(watch, Pace::Closing)));
    drop(turn);
    assert!(progressed(watch, Pace::Length) && !progressed(watch, Pace::Closing));
    let needs = watch.closing_at_length();
    assert!(progressed(watch, Pace::Closing), "it waits for the holder of the lock");
    drop(needs);
    assert!(progressed(watch, Pace::Closing), "what the lock's holder did until then counts");
}

/// A closing that no worker has begun says nothing of the device.
#[test]
fn a_closing_in_line_makes_no_device_silent() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, _) = state_of(&file);
    let errand = |stage| Errand { stage: Mutex::new(stage), changed: Condvar::new() };
    let watch = Watch::new(Duration::ZERO, state.manager.devices.get(state.backing.identity().device), &state);
    assert!(errand(Stage::<()>::InLine).wait(&state, &watch, Pace::Closing).is_err());
    assert!(!watch.is_silent() && watch.left.load(Ordering::Relaxed) == 1, "it is done later");
    assert!(errand(Stage::<()>::Begun(0)).wait(&state, &watch, Pace::Closing).is_err());
    assert!(watch.is_silent());
}

/// Regression: an errand that had waited in line for almost its whole time had only the rest for
/// its request. Then the device was taken for silent.
#[test]
fn an_errand_that_is_begun_has_its_full_time() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    let errand = Errand::<()> { stage: Mutex::new(Stage::InLine), changed: Condvar::new() };
    let now_ms = state.manager.now_ms();
    assert!(errand.begin(Pace::Answer, now_ms));
    let mut wait = Wait::new(0);
    watch.rest_of_errand(&state.manager, &errand.stage.lock(), Pace::Answer, &mut wait);
    assert_eq!(wait.start_ms, now_ms);
    assert!(now_ms > 0);
}

/// Regression: an errand waited in line while all workers of its device were busy, and the device
/// answered each of them in time. But their progress didn't count for the errand, so it failed.
/// Only the progress of workers counts: if all of them hang, other threads may still be answered.
#[test]
fn the_progress_of_workers_counts_for_an_errand_in_line() {
    let (_disk, _mm, group) = world();
    let (file, other) = (open(&group, "f0"), open(&group, "f1"));
    let (state, watch) = state_of(&file);
    let rest_begins = || {
        let mut wait = Wait::new(0);
        watch.rest_of_errand(&state.manager, &Stage::<()>::InLine, Pace::Answer, &mut wait);
        wait.start_ms
    };
    watch.device.workers.forget();
    other.handle().file.was_answered(Pace::Cycle);
    assert_eq!(rest_begins(), 0, "this thread is no worker");
    let noted = other.handle().file.in_time(Pace::Answer, |file| {
        file.was_answered(Pace::Cycle);
        Ok(file.watch().unwrap().device.workers.get())
    });
    assert!(noted.unwrap() > 0, "an answer");
    watch.device.workers.forget();
    state.in_time(Pace::Answer, |_| Ok(())).unwrap();
    assert!(rest_begins() > 0, "a worker is done");
}

/// Regression: a page that was being loaded was taken for one in use: the call failed with
/// `PageBusy` after seconds, although it waited for the device, and excused other calls meanwhile.
#[test]
fn a_page_that_is_being_loaded_is_waited_for_as_the_device() {
    let (disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    disk.answer_by_hand();
    file.prefetch(8 * PAGE..9 * PAGE);
    assert_eq!(state.map.state(8), PageState::Loading);
    fall_silent(&state); // So no call waits for the load.
    state.shrink_to(8 * PAGE);
    let dropped = state.forget_beyond_end(8 * PAGE..9 * PAGE);
    assert!(matches!(dropped, Err(Error::DeviceTimeout { .. })), "{dropped:?}");
    assert!(!progressed(watch, Pace::Length));
    let waited = EndWait::default().wait(&state, 8, FileState::wait_for_page);
    assert!(matches!(waited, Err(Error::DeviceTimeout { .. })), "{waited:?}");
    state.grow_to(64 * PAGE);
    while disk.answer_next() {}
    state.shrink_to(8 * PAGE);
    state.forget_beyond_end(8 * PAGE..9 * PAGE).unwrap();
    assert_ne!(state.map.state(8), PageState::Loading);
}

/// Regression: a write that made a page in memory ended the device's silence, although the device
/// had answered nothing. So did a write that waited for a load, and gave up.
#[test]
fn a_write_to_memory_ends_no_silence() {
    let (disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    let no_cycle = state.writeback.pause(); // The flusher's writes would be answered.
    disk.answer_by_hand();
    file.prefetch(8 * PAGE..9 * PAGE);
    fall_silent(&state);
    let refused = (file.write_at(&[2; PAGE as usize], 8 * PAGE), watch.is_silent());
    fall_silent(&state);
    let appended = (file.write_at(&[2; PAGE as usize], 64 * PAGE), watch.is_silent());
    while disk.answer_next() {} // Before a check fails: the file's closing waits for the load.
    assert!(matches!(refused, (Err(Error::DeviceTimeout { .. }), true)), "{refused:?}");
    assert!(matches!(appended, (Ok(()), true)), "{appended:?}");
    assert!(!watch.is_silent());
    drop(no_cycle);
}

/// A call may wait for a page that a write makes in memory, and give up if the writer gets no CPU.
/// Then no answer of the device ends the silence, so the writer ends it.
#[test]
fn a_silence_that_began_while_a_page_was_made_ends_with_it() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    for permits in [true, false] {
        let give_up = || {
            assert_eq!(state.map.state(8), PageState::Loading);
            fall_silent(&state);
            permits
        };
        let written = file.handle().overwrite(&[2; PAGE as usize], 8 * PAGE, &give_up).unwrap();
        assert_eq!(written, if permits { Written::Done } else { Written::Refused });
        assert!(!watch.is_silent(), "permits: {permits}");
        file.sync().unwrap();
        file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    }
}

/// Regression: calls that gave up while the device was silent already counted, too. If one did so
/// while a page was made, the older silence ended, although the device had answered nothing.
#[test]
fn an_older_silence_outlasts_a_call_that_gives_up_while_a_page_is_made() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    fall_silent(&state);
    let give_up = || {
        fall_silent(&state);
        true
    };
    assert_eq!(file.handle().overwrite(&[2; PAGE as usize], 8 * PAGE, &give_up).unwrap(), Written::Done);
    assert!(watch.is_silent());
    watch.device.answered();
}

/// A backend whose files panic when they are dropped. Once it is closed, questions for a length
/// wait until it is opened again.
#[derive(Clone, Default)]
struct Panicking(SimulatedDisk, Arc<(Mutex<bool>, Condvar)>);

struct PanickingFile(Box<dyn BackingFile>, Panicking);

impl Panicking {
    fn close(&self, is_closed: bool) {
        *self.1.0.lock() = is_closed;
        self.1.1.notify_all();
    }
}

impl Backend for Panicking {
    fn name(&self) -> &'static str {
        "panicking"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(PanickingFile(self.0.open(path, access)?, self.clone())))
    }
}

impl BackingFile for PanickingFile {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        let mut is_closed = self.1.1.0.lock();
        while *is_closed {
            self.1.1.1.wait(&mut is_closed);
        }
        drop(is_closed);
        self.0.len()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.0.read(offset, into)
    }
}

impl Drop for PanickingFile {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// Regression: a worker was asking for a file's length, in place of a call or of a future. Before
/// the device answered, the device was taken for silent, and the file was closed. So the worker
/// dropped the backend's file, which panicked. The device was silent for good.
#[test]
fn a_file_that_panics_when_a_worker_drops_it_ends_the_silence() {
    let disk = Panicking::default();
    let (_mm, group) = world_on(&disk.0, disk.clone());
    let other = group.open("f1").unwrap();
    for by_future in [false, true] {
        let file = group.open("f0").unwrap();
        disk.close(true);
        let state = Arc::clone(&file.handle().file);
        if by_future {
            let mut future = std::pin::pin!(file.page_at_async(9 * PAGE));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(future.as_mut().poll(&mut context).is_pending());
        } else {
            drop(state.watch().unwrap().send(Pace::Answer, |file| Ok(file.is_cut_off())).unwrap());
        }
        fall_silent(&state);
        drop((state, file));
        assert!(matches!(other.page_at(0), Err(Error::DeviceTimeout { .. })));
        disk.close(false);
        eventually(|| !other.stats().device_silent);
        other.page_at(0).unwrap();
        other.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    }
    std::mem::forget(other);
}

/// A backend that looks, after each call, whether the call's answer is noted before the next call.
/// Looks at the calls of the thread that called [`look_at`](Notes::look_at).
#[derive(Clone)]
struct Noting(SimulatedDisk, Arc<Notes>);

struct NotingFile(Box<dyn BackingFile>, Arc<Notes>);

#[derive(Default)]
struct Notes {
    file: OnceLock<(Arc<FileState>, ThreadId)>,
    /// The last call, and the last progress of cycles of the device at that time.
    last: Mutex<Option<(&'static str, Duration)>>,
    /// The calls, and which of these two made progress after each: `Length`, `Cycle`.
    noted: Mutex<Vec<(&'static str, bool, bool)>>,
    /// The calls after which no cycle of the device made progress.
    without_cycle: Mutex<Vec<&'static str>>,
}

impl Notes {
    fn look_at(&self, file: &File) {
        assert!(self.file.set((Arc::clone(&file.handle().file), thread::current().id())).is_ok());
    }

    fn watch(&self) -> Option<&Watch<FileState>> {
        self.file.get().filter(|(_, thread)| *thread == thread::current().id())?.0.watch()
    }

    fn look(&self) {
        if let Some(watch) = self.watch()
            && let Some((call, before)) = self.last.lock().take()
        {
            if watch.device.under_way.last_progress() == before {
                self.without_cycle.lock().push(call);
            }
            self.noted.lock().push((call, progressed(watch, Pace::Length), progressed(watch, Pace::Cycle)));
        }
    }

    fn around<T>(&self, what: &'static str, call: impl FnOnce() -> T) -> T {
        self.look();
        let result = call();
        if let Some(watch) = self.watch() {
            watch.forget();
            let now = Instant::now();
            while Instant::now() == now {} // So any later progress has another time.
            *self.last.lock() = Some((what, watch.device.under_way.last_progress()));
        }
        result
    }

    fn calls(&self) -> Vec<(&'static str, bool, bool)> {
        self.look();
        mem::take(&mut *self.noted.lock())
    }
}

impl Backend for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(NotingFile(self.0.open(path, access)?, Arc::clone(&self.1))))
    }
}

impl BackingFile for NotingFile {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.1.around("len", || self.0.len())
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.1.around("read", || self.0.read(offset, into))
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.1.around("write", || self.0.write(offset, from, len))
    }

    fn sync(&self) -> Result<(), IoError> {
        self.1.around("sync", || self.0.sync())
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.1.around("set_len", || self.0.set_len(len))
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        self.1.around("lengthen", || self.0.lengthen(len))
    }
}

fn noting() -> (SimulatedDisk, Arc<Notes>, Pagefold, File) {
    let (disk, notes) = (SimulatedDisk::default(), Arc::<Notes>::default());
    let (mm, group) = world_on(&disk, Noting(disk.clone(), Arc::clone(&notes)));
    let file = open(&group, "f0");
    (disk, notes, mm, file)
}

/// Regression: an errand asked for the file's length, changed it, and read the page with the old
/// end. Only the answer to the change counted.
#[test]
fn each_answer_to_an_errand_that_changes_the_length_counts() {
    let (disk, notes, _mm, file) = noting();
    let (state, _) = state_of(&file);
    notes.look_at(&file);
    // A longer file. `turn` is taken between these two calls.
    state.set_len(6000).unwrap();
    assert_eq!(notes.calls(), [("len", true, true), ("set_len", true, true)]);
    // A shorter file.
    state.set_len(PAGE + 10).unwrap();
    assert_eq!(notes.calls(), [("len", true, true), ("set_len", true, true)]);
    // A gap.
    let turn = state.lock_extension_in_errand();
    state.close_gap(9 * PAGE..9 * PAGE + 10).unwrap();
    assert_eq!(notes.calls(), [("len", true, false), ("lengthen", true, false), ("len", true, false)]);
    state.grow_to(9 * PAGE + 10);
    drop(turn);
    // A truncation and growth by another process.
    disk.truncate("f0", 5000).unwrap();
    assert!(matches!(state.adopt_len(), Ok(Attempt::Done(5000))));
    assert_eq!(notes.calls(), [("len", true, true), ("len", true, true)]);
    disk.grow("f0", 6000).unwrap();
    assert!(matches!(state.adopt_len(), Ok(Attempt::Done(6000))));
    assert_eq!(notes.calls(), [("len", true, false)]);
    // The page with the old end is dirty.
    let no_cycle = state.pause_write_back();
    file.write_at(&[2; PAGE as usize], 0).unwrap();
    file.write_at(&[2; 10], PAGE).unwrap();
    notes.calls();
    disk.grow("f0", 7000).unwrap();
    let mut end = state.await_end(6000..7000).unwrap();
    assert!(matches!(end, End::Held(_)));
    state.fill_own_end(&mut end, 6000..7000).unwrap();
    let calls = notes.calls(); // A read may take several calls. Only its end is an answer.
    assert!(calls.first().is_some_and(|(call, ..)| *call == "read"), "{calls:?}");
    assert!(calls.last().is_some_and(|(_, length, _)| *length), "{calls:?}");
    drop((end, no_cycle));
}

/// Each answer to write-back counts, also a failure, and those to the pieces of a request that
/// failed. Regression: these didn't count. When they counted for syncs, they didn't count for the
/// device's cycles, so writers that had to wait for write-back took the device for silent.
#[test]
fn each_answer_to_a_cycle_counts() {
    let (disk, notes, _mm, file) = noting();
    let (state, _) = state_of(&file);
    file.set_len(2 * PAGE).unwrap();
    disk.set_capacity(0); // For the flusher, too: both pages stay dirty.
    disk.fail_syncs(u64::MAX, 0);
    file.write_at(&[2; 2 * PAGE as usize], 2 * PAGE).unwrap();
    notes.look_at(&file);
    assert!(state.write_back_all().is_err());
    let calls = notes.calls();
    assert!(calls.iter().filter(|(call, ..)| *call == "write").count() > 1, "{calls:?}");
    assert!(calls.iter().all(|(.., cycle)| *cycle), "{calls:?}");
    let without_cycle = mem::take(&mut *notes.without_cycle.lock());
    assert!(!without_cycle.iter().any(|call| ["write", "sync"].contains(call)), "{without_cycle:?}");
}
