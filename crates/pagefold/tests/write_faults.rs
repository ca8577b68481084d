//! Files that can't be written: what this must not do to other files, and how soon each call must
//! return.
#![cfg(not(pagefold_loom))]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use pagefold::io::{Access, Backend, BackingFile, IoError};
use pagefold::{Error, File, Group, Pagefold};
use support::{WATCHDOG, assert_same, bytes_on, disk, eventually, manager, version};
use test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};

/// The file `f0` is on a disk that can fail. The other files are on a disk that doesn't.
#[derive(Clone)]
struct OneFails {
    failing: FaultyBackend,
    disk: SimulatedDisk,
}

impl Backend for OneFails {
    fn name(&self) -> &'static str {
        "one fails"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        if path == Path::new("f0") { self.failing.open(path, access) } else { self.disk.open(path, access) }
    }
}

fn set_up(pages: u64) -> (OneFails, Pagefold) {
    let disk = disk(3, 2_000 * 4096);
    let backend = OneFails { failing: FaultyBackend::new(disk.clone(), Schedule::Never), disk };
    let mm = manager(pages, backend.clone());
    (backend, mm)
}

fn open(group: &Group, number: u64) -> File {
    group.open_options().write(true).open(format!("f{number}")).unwrap()
}

/// The time within which a call must return. Tests that aren't timed use [`WATCHDOG`] instead.
const PROMISED: Duration = Duration::from_secs(8);

/// What `act` gives; fails if that took too long.
fn within<T>(patience: Duration, what: &str, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = act();
    assert!(start.elapsed() < patience, "{what} took {:?}", start.elapsed());
    result
}

/// Repeats a call while it fails for lack of memory. The flusher's thread, which makes pages clean,
/// may get no CPU for as long as a call waits. Returns how often the call failed.
fn until_there_is_memory(mut call: impl FnMut() -> Result<(), Error>) -> u32 {
    let mut refused = 0;
    eventually("there is no memory", || match call() {
        Err(Error::LimitReached { .. }) => {
            refused += 1;
            false
        }
        result => {
            result.unwrap();
            true
        }
    });
    refused
}

const DEAD: Schedule = Schedule::From(1, Fault::Errno(5));

/// Writes pages of `f0` until memory is full of pages that can't be written. Returns how many
/// writes succeeded.
fn fill_up(file: &File, patience: Duration) -> u64 {
    for page in 0..2_000 {
        match within(patience, "a write", || file.write_at(&version(page, page * 4096, 4096), page * 4096)) {
            Ok(()) => {}
            Err(Error::WriteFailed { .. }) => return page,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("more was written than there is memory");
}

#[test]
fn memory_full_of_what_cannot_be_written_is_an_error() {
    let _refused = memory_is_full_of_what_cannot_be_written(WATCHDOG);
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_memory_full_of_what_cannot_be_written_is_an_error_soon() {
    assert_eq!(memory_is_full_of_what_cannot_be_written(PROMISED), 0, "calls that were refused");
}

/// Returns how many calls were refused that could go on.
fn memory_is_full_of_what_cannot_be_written(patience: Duration) -> u32 {
    let (backend, mm) = set_up(200);
    let (ours, theirs) = (mm.group("ours").build().unwrap(), mm.group("theirs").build().unwrap());
    let (bad, good, other) = (open(&ours, 0), open(&ours, 1), open(&theirs, 2));
    backend.failing.set_schedule(DEAD);
    let written = fill_up(&bad, patience);
    assert!(written >= 20, "{written} pages");
    // The others go on, in this group and in another.
    let start = Instant::now();
    let mut refused = 0;
    for page in 0..300 {
        for (number, file) in [(1, &good), (2, &other)] {
            refused += until_there_is_memory(|| file.write_at(&version(number, page * 4096, 4096), page * 4096));
            refused += until_there_is_memory(|| file.read_exact_at(&mut [0; 100], (1_000 + page) * 4096));
        }
    }
    assert!(start.elapsed() < patience, "others are held up: {:?}", start.elapsed());
    for (number, file) in [(1, &good), (2, &other)] {
        file.sync().unwrap();
        assert_same(
            &bytes_on(&backend.disk, format!("f{number}"))[..300 * 4096],
            &version(number, 0, 300 * 4096),
            "another file",
        );
    }
    assert!(within(patience, "a sync", || bad.sync()).is_err());
    assert!(matches!(
        within(patience, "a read", || bad.read_at(&mut [0; 10], 1_999 * 4096)),
        Err(Error::ReadFailed { .. })
    ));
    let mut bytes = vec![0; 4096];
    for page in 0..written {
        bad.read_exact_at(&mut bytes, page * 4096).unwrap();
        assert_same(&bytes, &version(page, page * 4096, 4096), "what couldn't be written is still there");
    }
    backend.failing.set_schedule(Schedule::Never);
    let _ = bad.sync();
    bad.sync().unwrap();
    let on_disk = bytes_on(&backend.disk, "f0");
    for page in 0..written {
        assert_same(&on_disk[page as usize * 4096..][..4096], &version(page, page * 4096, 4096), "after all");
    }
    assert_eq!(mm.stats().groups.iter().map(|group| group.unclean_bytes).sum::<u64>(), 0);
    refused
}

#[test]
fn with_the_rest_pinned_too_there_is_an_answer() {
    the_rest_is_pinned_too(WATCHDOG);
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_with_the_rest_pinned_too_the_answer_comes_soon() {
    the_rest_is_pinned_too(PROMISED);
}

/// All other pages are pinned, so nothing can be evicted.
fn the_rest_is_pinned_too(patience: Duration) {
    let (backend, mm) = set_up(100);
    let group = mm.group("a").max(40 * 4096).build().unwrap();
    let (bad, good) = (open(&group, 0), open(&group, 1));
    backend.failing.set_schedule(DEAD);
    fill_up(&bad, patience);
    let mut pins = Vec::new();
    let error = loop {
        match within(patience, "a pin", || good.page_at(pins.len() as u64 * 4096)) {
            Ok(pin) => pins.push(pin),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::LimitReached { .. }), "{error}");
    let error = within(patience, "a write", || good.write_at(&[1], 900 * 4096)).unwrap_err();
    assert!(matches!(error, Error::LimitReached { .. }), "{error}");
    let _ = within(patience, "a smaller budget", || mm.resize("450KiB"));
    within(patience, "a smaller limit", || group.set_max(8 * 4096)).unwrap();
    drop(pins);
    within(patience, "closing", || drop((bad, good)));
    eventually("pages are left", || group.charged() == 0);
}

#[test]
fn dropping_everything_unclean_ends() {
    for dead in [false, true] {
        let (backend, mm) = set_up(300);
        let group = mm.group("a").build().unwrap();
        let files: Vec<_> = (0..3).map(|number| open(&group, number)).collect();
        if dead {
            backend.failing.set_schedule(DEAD);
        }
        for (number, file) in files.iter().enumerate() {
            file.write_at(&version(number as u64, 0, 30 * 4096), 0).unwrap();
        }
        within(WATCHDOG, "dropping", || drop((mm, group, files)));
        for number in 0..3 {
            let on_disk = bytes_on(&backend.disk, format!("f{number}"));
            assert!(dead && number == 0 || on_disk[..30 * 4096] == version(number, 0, 30 * 4096));
        }
    }
}

#[test]
fn a_full_disk_heals_when_there_is_space_again() {
    let (backend, mm) = set_up(400);
    let group = mm.group("a").build().unwrap();
    backend.disk.set_capacity(10 * 4096);
    let file = group.open_options().write(true).create(true).open("new").unwrap();
    let bytes = version(7, 0, 60 * 4096);
    file.write_at(&bytes, 0).unwrap();
    let other = group.open("new").unwrap();
    for _ in 0..3 {
        let error = file.sync().unwrap_err();
        assert!(matches!(error, Error::WriteFailed { error: IoError::NO_SPACE, .. }), "{error}");
    }
    // Whole pages that already have space on the disk can still be written.
    let there = open(&group, 1);
    there.write_at(&bytes, 0).unwrap();
    there.sync().unwrap();
    backend.disk.set_capacity(100 * 4096);
    file.sync().unwrap();
    assert_same(&bytes_on(&backend.disk, "new"), &bytes, "with space again");
    assert!(other.sync().is_err(), "this handle wasn't told yet");
    other.sync().unwrap();
}

/// The disk loses written bytes and fails one or two syncs. Later syncs succeed, because the disk
/// doesn't remember the loss. Pagefold must write the bytes again.
#[test]
fn what_a_failed_sync_lost_is_written_again() {
    for round in 0..30 {
        let (backend, mm) = set_up(400);
        let file = open(&mm.group("a").build().unwrap(), 1);
        let bytes = version(round, 0, 40 * 4096);
        file.write_at(&bytes, 0).unwrap();
        backend.disk.fail_syncs(1 + round % 2, round);
        assert!(file.sync().is_err());
        while file.sync().is_err() {}
        assert_same(&bytes_on(&backend.disk, "f1")[..bytes.len()], &bytes, "after a sync that failed");
        backend.disk.power_cut(round);
        assert_same(&bytes_on(&backend.disk, "f1")[..bytes.len()], &bytes, "after a power cut");
    }
}

#[test]
fn handles_that_come_and_go_while_the_flusher_runs_lose_nothing() {
    let (backend, mm) = set_up(64);
    let group = mm.group("a").build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let group = &group;
            scope.spawn(move || {
                for round in 0..150 {
                    let file = open(group, 1);
                    let page = thread * 100 + round % 50;
                    file.write_at(&version(thread << 20 | round, page * 4096, 8192), page * 4096).unwrap();
                    if round % 3 == 0 {
                        file.close().unwrap();
                    }
                }
            });
        }
    });
    eventually("pages are left", || group.charged() == 0);
    let on_disk = bytes_on(&backend.disk, "f1");
    for thread in 0..3_u64 {
        for page in 0..50 {
            // Each round writes two pages. The next round overwrites the second one, except in the
            // last round.
            let at = ((thread * 100 + page) * 4096) as usize;
            assert_same(
                &on_disk[at..at + 4096],
                &version(thread << 20 | (100 + page), at as u64, 4096),
                "written last",
            );
        }
    }
}
