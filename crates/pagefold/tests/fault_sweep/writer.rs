//! Creating, writing, syncing, cutting off and closing a file.

use pagefold::io::Backend;
use pagefold::{Error, File};
use sync::atomic::Ordering;
use test_disks::{FaultyBackend, Schedule};

use crate::steps::Step;
use crate::support::{assert_same, bytes_on, eventually, manager};
use crate::{FIRED, may_fail};

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
    // Each of the following steps makes at least one call of its own, however much the flusher has
    // written by then.
    Step::Forget,
    Step::Write(2 * 4096 + 9, 50),
    Step::Sync,
    Step::Write(12 * 4096, 2 * 4096),
    Step::SyncRange(12 * 4096, 14 * 4096),
    Step::SetLen(16 * 4096),
    Step::Write(15 * 4096 - 20, 40),
    Step::Sync,
];

fn contents(file: &File) -> Vec<u8> {
    assert_eq!(file.read_at(&mut [0], 1 << 30).unwrap(), 0, "what a write that failed has left of a gap is noticed");
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Syncs without faults until a sync succeeds. Returns how often it failed.
pub(crate) fn sync_in_peace(file: &File) -> usize {
    (0..4).take_while(|_| file.sync().is_err()).count()
}

pub(crate) fn writing_scenario(disk: impl Backend + Clone, schedule: Schedule) -> u64 {
    let may_fail = may_fail(&schedule);
    let faulty = FaultyBackend::new(disk.clone(), schedule);
    let mm = manager(48, faulty.clone());
    let group = mm.group("a").max(40 * 4096).build().unwrap();
    let mut expected = Vec::new();
    let opened = group.open_options().write(true).create(true).open("new").and_then(|file| {
        let other = group.open_options().write(true).open("new")?;
        // The number of calls until a step failed.
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

/// Checks, after the fault has ended, that all bytes get to the disk, and that each handle reports
/// once what couldn't be written.
fn check_the_rest(disk: &impl Backend, file: &File, other: &File, expected: &[u8], told: usize) {
    let by_first = sync_in_peace(file);
    // Includes failures of the flusher, which may have been writing until just now.
    let failures = file.stats().write_errors as usize;
    assert!(by_first + told <= failures, "{by_first} times told, {told} before, of {failures}");
    assert_same(&bytes_on(disk, "new"), expected, "synced after all");
    assert_eq!(sync_in_peace(other), usize::from(failures > 0), "the other handle, of {failures}");
    assert_eq!((sync_in_peace(other), file.stats().unclean_bytes), (0, 0));
    assert_same(&bytes_on(disk, "new"), expected, "synced after all");
}
