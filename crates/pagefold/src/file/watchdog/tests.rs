//! Tests whose progress restarts a wait's timeout, and which waits count as waits for the device.

mod answers;
mod silence;

use std::thread;

use super::*;
use crate::patience::WATCHDOG;
use crate::{Advice, File, Group, Pagefold};
use frames::{PageState, Unclean};
use io::Backend;
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
    eventually(|| file.handle().file.manager.memory.now_ms() > 0);
    file
}

fn state_of(file: &File) -> (Arc<FileState>, &Watch<FileState>) {
    let state = &file.handle().file;
    (Arc::clone(state), state.watch().unwrap())
}

/// Returns whether the thread that `pace` names has made progress since `forget` was called.
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

/// While the holder of `extension` waits for memory, the timeout of a thread that waits for
/// `extension` doesn't run. It starts again when the wait for memory ends.
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

/// While the holder of `extension` waits for write-back's `turn`, or has it, the progress of the
/// holder of `turn` restarts the timeouts of threads that wait for `extension`. At other times it
/// doesn't.
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
/// errands of the file. So a sync that hung never timed out while another thread kept writing
/// there.
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

/// Regression: a device was silent, and a thread waited for `extension` while the holder of
/// `extension` waited for memory. The waiting thread neither slept nor failed.
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

/// A holder of `extension` that needs no device releases the lock soon. So a thread that needs the
/// lock waits for a moment, even if the device is silent.
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
/// the device in time. But the time for which an errand had waited for the lock counted towards the
/// timeout of its own request. If the device is silent, the lock's last holder may have released
/// the lock without an answer.
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

/// The timeout starts again with the last progress. Time that was left out (WATCH-4) stays left out
/// after that, too.
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

/// Regression: a file was closed while loads of it were in flight. The device answered one load
/// after another, but the answers didn't count as progress, so it was taken for silent after the
/// timeout.
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

/// Regression: `set_len` waited for loads past the new end. The device answered one load after
/// another, but the answers didn't count as progress.
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
/// memory, or a sync settled very many pages. None of these pages counted as progress. So the
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

/// The file may be open again while a closing waits for the device. Then the progress of an append
/// must not restart the closing's timeout, unless the closing needs `extension`.
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
    let watch = Watch::new(Duration::ZERO, state.manager.file_io.devices.get(state.backing.identity().device), &state);
    assert!(errand(Stage::<()>::InLine).wait(&state, &watch, Pace::Closing).is_err());
    assert!(!watch.is_silent() && watch.left.load(Ordering::Relaxed) == 1, "it is done later");
    assert!(errand(Stage::<()>::Begun(0)).wait(&state, &watch, Pace::Closing).is_err());
    assert!(watch.is_silent());
}

/// Regression: an errand waited in line for almost its whole timeout, and had only the rest of it
/// for its request. Then the device was taken for silent.
#[test]
fn an_errand_that_is_begun_has_its_full_time() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "f0");
    let (state, watch) = state_of(&file);
    let errand = Errand::<()> { stage: Mutex::new(Stage::InLine), changed: Condvar::new() };
    let now_ms = state.manager.memory.now_ms();
    assert!(errand.begin(Pace::Answer, now_ms));
    let mut wait = Wait::new(0);
    watch.rest_of_errand(&state.manager, &errand.stage.lock(), Pace::Answer, &mut wait);
    assert_eq!(wait.start_ms, now_ms);
    assert!(now_ms > 0);
}

/// Regression: an errand waited in line while all workers of its device were busy, and the device
/// answered each of them in time. But their progress didn't count for the errand, so it failed.
/// Only the progress of workers counts: if all workers hang, the device may still answer other
/// threads.
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
