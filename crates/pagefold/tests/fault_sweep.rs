//! Two scenarios, of opening, reading and closing, and of making, writing, syncing and cutting off,
//! in which call 1 to the backend fails, then call 2, and so on until the call that was to fail is
//! never made; each in every way, once and for ever. Interruptions come a hundred times in a row
//! instead, and no call fails for them.
#![cfg(not(pagefold_loom))]

mod support;

use pagefold::io::{Backend, ThreadPool};
use pagefold::{Advice, Error, File, ReadQueue, ReadRequest};
use support::{RealFiles, assert_same, bytes_on, disk, eventually, manager, read, version};
use sync::atomic::{AtomicU64, Ordering};
use test_disks::{Fault, FaultyBackend, Schedule};

const FILE_LEN: u64 = 90 * 4096 + 77;

/// Whether a schedule has calls fail, and not only interrupted.
fn may_fail(schedule: &Schedule) -> bool {
    !matches!(schedule, Schedule::Once(_, Fault::Interrupted) | Schedule::InARow { .. })
}

/// Faults that have fired in all scenarios.
static FIRED: AtomicU64 = AtomicU64::new(0);

/// Errors come back as errors, pages that did come are right, and afterwards everything works
/// again.
fn scenario(backend: impl Backend, schedule: Schedule) -> u64 {
    let may_fail = may_fail(&schedule);
    let faulty = FaultyBackend::new(backend, schedule);
    let mm = manager(48, faulty.clone());
    let group = mm.group("a").max(40 * 4096).build().unwrap();
    let attempt = || -> Result<(), Error> {
        let f0 = group.open("f0")?;
        let f1 = group.open("f1")?;
        for round in 0..2 {
            for page in (0..90).step_by(3) {
                read(&f0, 0, page * 4096 + 5, 100)?;
                read(&f1, 1, page * 4096, 5000)?;
            }
            read(&f0, 0, FILE_LEN - 10, 100 * (round + 1))?;
            assert_eq!(f1.page_at(7 * 4096)?.len(), 4096);
            assert_eq!(f1.page_at(90 * 4096)?.len(), 77);
        }
        f0.advise(0..10 * 4096, Advice::WillNeed)?;
        batches(&f0)?;
        assert_eq!(read(&f0, 0, FILE_LEN, 1)?, 0);
        f1.close()
    };
    match attempt() {
        Ok(()) => {}
        Err(error @ (Error::OpenFailed { .. } | Error::ReadFailed { .. })) if may_fail => {
            assert!(faulty.fired_total() > 0, "{error}");
            assert!(error.to_string().contains("f0") || error.to_string().contains("f1"), "{error} names no file");
        }
        Err(error) => panic!("{error}"),
    }
    let calls = faulty.calls();
    FIRED.fetch_add(faulty.fired_total(), Ordering::Relaxed);
    faulty.set_schedule(Schedule::Never);
    attempt().expect("a fault that is over is over");
    eventually("a page outlived its file", || group.charged() == 0);
    calls
}

/// Several loads at a time. The first error, when all are done.
fn batches(file: &File) -> Result<(), Error> {
    file.prefetch(60 * 4096..70 * 4096);
    let mut bytes = vec![0; 24 * 4096];
    // Twelve neighbours, and twelve that aren't.
    let offset = |at: u64| if at < 12 { (20 + at) * 4096 } else { (at * 7 % 90) * 4096 };
    let mut batch: Vec<_> =
        bytes.chunks_mut(4096).zip(0..).map(|(into, at)| ReadRequest::new(offset(at), into)).collect();
    file.read_batch(&mut batch);
    let mut result = Ok(());
    let mut more = vec![0; 8 * 4096];
    let mut queue = ReadQueue::new(file);
    for (into, at) in more.chunks_mut(4096).zip(0..) {
        queue.push(ReadRequest::new((at * 11 % 90) * 4096, into), ());
    }
    batch.extend(std::iter::from_fn(|| queue.wait()).map(|(request, ())| request));
    for request in batch {
        match request.result {
            Ok(n) => support::check(0, request.offset, &request.into[..n]),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// What is done to a file, each with the version of the bytes that it leaves.
#[derive(Clone, Copy)]
enum Step {
    Write(u64, usize),
    Change(u64),
    SetLen(u64),
    Sync,
    SyncRange(u64, u64),
    /// So that it has to be read again.
    Forget,
}

const STEPS: [Step; 24] = [
    Step::Write(0, 10 * 4096),
    Step::Write(5000, 100),
    Step::Sync,
    Step::Forget,
    Step::Write(3 * 4096 + 7, 5000),
    Step::SyncRange(0, 4 * 4096),
    Step::SetLen(5 * 4096 + 100),
    Step::Write(8 * 4096 + 50, 9000),
    Step::Change(2),
    Step::Sync,
    Step::SetLen(30 * 4096),
    Step::Write(20 * 4096, 4096),
    Step::SetLen(20 * 4096 + 2000),
    Step::Forget,
    Step::Change(20),
    Step::Sync,
    // Each of these is a call of its own at least, whatever the flusher has got to by then.
    Step::Forget,
    Step::Write(2 * 4096 + 9, 50),
    Step::Sync,
    Step::Write(12 * 4096, 2 * 4096),
    Step::SyncRange(12 * 4096, 14 * 4096),
    Step::SetLen(16 * 4096),
    Step::Write(15 * 4096 - 20, 40),
    Step::Sync,
];

impl Step {
    fn take(self, file: &File, number: u64) -> Result<(), Error> {
        match self {
            Self::Write(offset, len) => file.write_at(&version(number, offset, len), offset),
            Self::Change(page) => {
                let mut guard = file.page_mut_at(page * 4096)?;
                let len = guard.len() / 2;
                guard[..len].copy_from_slice(&version(number, page * 4096, len));
                Ok(())
            }
            Self::SetLen(len) => file.set_len(len),
            Self::Sync => file.sync(),
            Self::SyncRange(from, to) => file.sync_range(from..to),
            Self::Forget => file.advise(0..u64::MAX, Advice::DontNeed),
        }
    }

    /// What a sync that went well has put on the disk is there.
    fn check_disk(self, disk: &impl Backend, expected: &[u8]) {
        match self {
            Self::Sync => assert_same(&bytes_on(disk, "new"), expected, "synced"),
            Self::SyncRange(from, to) => {
                let end = expected.len().min(to as usize);
                let mut there = bytes_on(disk, "new");
                there.truncate(end);
                assert_same(&there[from as usize..], &expected[from as usize..end], "synced in a range");
            }
            _ => {}
        }
    }

    /// What the file may be afterwards: done last; before that, done in part.
    fn outcomes(self, before: &[u8], number: u64) -> Vec<Vec<u8>> {
        let put = |offset: u64, len: usize| {
            let (mut after, offset) = (before.to_vec(), offset as usize);
            after.resize(after.len().max(if len > 0 { offset + len } else { 0 }), 0);
            after[offset..offset + len].copy_from_slice(&version(number, offset as u64, len));
            after
        };
        match self {
            Self::Write(offset, len) => {
                let first_end = (4096 - offset % 4096) as usize;
                let parts = (first_end..len).step_by(4096).chain([len]);
                // Before a write that leaves a gap, the file becomes longer.
                let mut gap = before.to_vec();
                gap.resize(
                    gap.len().max(if offset as usize > before.len() {
                        offset as usize + first_end.min(len)
                    } else {
                        0
                    }),
                    0,
                );
                [before.to_vec(), gap].into_iter().chain(parts.map(|part| put(offset, part))).collect()
            }
            Self::Change(page) => {
                let len = (before.len() - page as usize * 4096).min(4096) / 2;
                vec![before.to_vec(), put(page * 4096, len)]
            }
            Self::SetLen(len) => {
                let mut after = before.to_vec();
                after.resize(len as usize, 0);
                vec![before.to_vec(), after]
            }
            Self::Sync | Self::SyncRange(..) | Self::Forget => vec![before.to_vec()],
        }
    }
}

fn contents(file: &File) -> Vec<u8> {
    assert_eq!(file.read_at(&mut [0], 1 << 30).unwrap(), 0, "what a write that failed has left of a gap is noticed");
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Syncs without faults until all is well. Returns how often a sync failed.
fn sync_in_peace(file: &File) -> usize {
    (0..4).take_while(|_| file.sync().is_err()).count()
}

fn writing_scenario(disk: impl Backend + Clone, schedule: Schedule) -> u64 {
    let may_fail = may_fail(&schedule);
    let faulty = FaultyBackend::new(disk.clone(), schedule);
    let mm = manager(48, faulty.clone());
    let group = mm.group("a").max(40 * 4096).build().unwrap();
    let mut expected = Vec::new();
    let opened = group.open_options().write(true).create(true).open("new").and_then(|file| {
        let other = group.open_options().write(true).open("new")?;
        // Of the run until a step failed.
        let mut calls = None;
        for (number, step) in STEPS.into_iter().enumerate() {
            let mut outcomes = step.outcomes(&expected, number as u64);
            match step.take(&file, number as u64) {
                Ok(()) => {
                    expected = outcomes.pop().unwrap();
                    step.check_disk(&disk, &expected);
                }
                Err(error) => {
                    assert!(matches!(error, Error::ReadFailed { .. } | Error::WriteFailed { .. }), "{error}");
                    assert!(may_fail, "interrupted: {error}");
                    assert!(calls.is_none(), "a fault that is over is over: {error}");
                    assert!(faulty.fired_total() > 0 && error.to_string().contains("new"), "{error}");
                    let told = usize::from(matches!(step, Step::Sync | Step::SyncRange(..)));
                    calls = Some(faulty.calls());
                    faulty.set_schedule(Schedule::Never);
                    let found = contents(&file);
                    expected = outcomes.into_iter().find(|it| *it == found).expect("as before, or done in part");
                    check_the_rest(&disk, &file, &other, &expected, told);
                }
            }
        }
        drop(other);
        let closed = file.close();
        assert!((may_fail && calls.is_none()) || closed.is_ok(), "interrupted, or over: {closed:?}");
        let calls = calls.unwrap_or_else(|| faulty.calls());
        if closed.is_ok() {
            assert_same(&bytes_on(&disk, "new"), &expected, "closed");
        }
        Ok(calls)
    });
    let calls = opened.unwrap_or_else(|error| {
        assert!(matches!(error, Error::OpenFailed { .. }) && may_fail, "{error}");
        faulty.calls()
    });
    faulty.set_schedule(Schedule::Never);
    FIRED.fetch_add(faulty.fired_total(), Ordering::Relaxed);
    eventually("pages are left", || group.charged() == 0);
    // And from the beginning.
    let file = group.open_options().write(true).create(true).truncate(true).open("new").unwrap();
    let mut expected = Vec::new();
    for (number, step) in STEPS.into_iter().enumerate() {
        expected = step.outcomes(&expected, number as u64).pop().unwrap();
        step.take(&file, number as u64).expect("a fault that is over is over");
    }
    file.close().unwrap();
    assert_same(&bytes_on(&disk, "new"), &expected, "a fault that is over is over");
    calls
}

/// After a fault is over: all gets to the disk, and each handle hears of what couldn't be written
/// once.
fn check_the_rest(disk: &impl Backend, file: &File, other: &File, expected: &[u8], told: usize) {
    let by_first = sync_in_peace(file);
    // Those of the flusher too, which may have been at it until a moment ago.
    let failures = file.stats().write_errors as usize;
    assert!(by_first + told <= failures, "{by_first} times told, {told} before, of {failures}");
    assert_same(&bytes_on(disk, "new"), expected, "synced after all");
    assert_eq!(sync_in_peace(other), usize::from(failures > 0), "the other handle, of {failures}");
    assert_eq!((sync_in_peace(other), file.stats().unclean_bytes), (0, 0));
    assert_same(&bytes_on(disk, "new"), expected, "synced after all");
}

#[test]
fn any_call_of_a_reader_may_fail_in_any_way() {
    sweep(|schedule| scenario(disk(2, FILE_LEN), schedule));
}

#[test]
fn also_where_threads_do_it() {
    sweep_some(|schedule| scenario(ThreadPool::new(disk(2, FILE_LEN), 3).unwrap(), schedule));
}

/// Of requests that io_uring did, the answers are changed.
#[test]
fn also_where_io_uring_does_it() {
    let files = RealFiles::new(2, FILE_LEN);
    sweep_some(|schedule| scenario(files.clone(), schedule));
}

#[test]
fn any_call_of_a_writer_may_fail_in_any_way() {
    sweep(|schedule| writing_scenario(disk(0, 0), schedule));
}

#[test]
fn any_call_of_a_writer_may_fail_where_io_uring_does_it() {
    sweep_some(|schedule| writing_scenario(RealFiles::new(0, 0), schedule));
}

/// Threads that sweep side by side: a run waits more than it works.
const SWEEPERS: usize = 4;

/// The first four are of different kinds.
const FAULTS: [Fault; 11] = [
    Fault::Errno(5),
    Fault::Interrupted,
    Fault::Short(100),
    Fault::ShortThenErrno(512, 5),
    Fault::Again,
    Fault::Short(0),
    Fault::Short(4095),
    Fault::Errno(28),
    Fault::Errno(12),
    Fault::Errno(24),
    Fault::Errno(1),
];

/// On the simulated disk, with every fault.
fn sweep(scenario: impl Fn(Schedule) -> u64 + Sync) {
    sweep_with(&FAULTS, scenario);
}

/// On other ways to the same code, with one fault of each kind; with all, where
/// `PAGEFOLD_ALL_FAULTS` is set.
fn sweep_some(scenario: impl Fn(Schedule) -> u64 + Sync) {
    let all = std::env::var_os("PAGEFOLD_ALL_FAULTS").is_some();
    sweep_with(if all { &FAULTS } else { &FAULTS[..4] }, scenario);
}

fn sweep_with(faults: &[Fault], scenario: impl Fn(Schedule) -> u64 + Sync) {
    let clean = scenario(Schedule::Never);
    let schedules = [Schedule::Once as fn(u64, Fault) -> Schedule, Schedule::lasting];
    let kinds: Vec<_> = faults.iter().flat_map(|&fault| schedules.map(|schedule| (schedule, fault))).collect();
    let runs_of = |&(schedule, fault): &(fn(u64, Fault) -> Schedule, Fault)| {
        let mut call = 1;
        while scenario(schedule(call, fault)) >= call {
            call += 1;
        }
        assert!(call <= clean + 100, "retries without end");
        call - 1
    };
    let next = AtomicU64::new(0);
    let sweep_on = || -> u64 {
        let kind = || kinds.get(next.fetch_add(1, Ordering::Relaxed) as usize);
        std::iter::from_fn(kind).map(runs_of).sum()
    };
    let runs: u64 = std::thread::scope(|scope| {
        let sweepers: Vec<_> = (0..SWEEPERS).map(|_| scope.spawn(sweep_on)).collect();
        let runs = |thread: std::thread::ScopedJoinHandle<'_, u64>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        sweepers.into_iter().map(runs).sum()
    });
    let fired = FIRED.load(Ordering::Relaxed);
    println!("{clean} calls in a clean run, {runs} runs with a fault, {fired} faults until now in all scenarios");
    assert!(runs > 20 * 20);
}
