use io::{Request, read_full};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{SimulatedDisk, generated_word};

/// The number of times that crate `io` retries a read after consecutive `EAGAIN`s.
const AGAIN_MAX: u64 = 20;
const ENOSPC: i32 = 28;
const FILE_LEN: u64 = 10_000;

fn faulty(schedule: Schedule) -> FaultyBackend {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 1, FILE_LEN);
    FaultyBackend::new(disk, schedule)
}

/// Opens the file, queries the length, reads the whole file and beyond its end, and checks every
/// byte.
fn scenario(backend: &dyn Backend) -> Result<(), IoError> {
    let file = backend.open(Path::new("f"), Access::Read)?;
    assert_eq!(file.len()?, FILE_LEN);
    let words: Vec<_> = (0..3 * 512).map(|_| AtomicU64::new(u64::MAX)).collect();
    assert_eq!(read_full(&*file, 0, SharedBytes::new(&words))?, 10_000);
    for (at, word) in words.iter().enumerate() {
        let wanted = if at < 1250 { generated_word(1, at as u64 * 8) } else { 0 };
        assert_eq!(word.load(Ordering::Relaxed), wanted, "word {at}");
    }
    Ok(())
}

#[test]
fn without_faults_it_is_the_inner_backend() {
    let backend = faulty(Schedule::Never);
    assert_eq!(scenario(&backend), Ok(()));
    // `open`, `len`, `read`, and the `len` with which `read_full` detects the end.
    assert_eq!((backend.calls(), backend.fired_total()), (4, 0));
    assert_eq!([Call::Open, Call::Len, Call::Read].map(|call| backend.calls_of(call)), [1, 2, 1]);
}

/// What a sweep tries at each call.
pub(super) const FAULTS: [Fault; 8] = [
    Fault::Errno(5),
    Fault::Errno(ENOSPC),
    Fault::Interrupted,
    Fault::Again,
    Fault::Short(0),
    Fault::Short(1),
    Fault::Short(4100),
    Fault::ShortThenErrno(5000, ENOSPC),
];

#[test]
fn a_sweep_of_each_fault_ends_and_shows_no_wrong_byte() {
    for fault in FAULTS {
        for schedule in [Schedule::Once as fn(u64, Fault) -> Schedule, Schedule::lasting] {
            let mut fired = 0;
            for call in 1.. {
                let backend = faulty(schedule(call, fault));
                let result = scenario(&backend);
                if backend.calls() < call {
                    assert_eq!((result, backend.fired_total()), (Ok(()), 0));
                    break;
                }
                assert!(call < 20, "the sweep of {fault:?} doesn't end");
                assert!(result.is_ok() || backend.fired_total() > 0, "{result:?} out of nothing");
                fired += backend.fired_total();
            }
            assert!(fired > 0, "{fault:?} never fired");
        }
    }
}

#[test]
fn each_kind_fires_as_itself_and_at_the_call_that_was_named() {
    let kinds = |backend: &FaultyBackend| FaultKind::ALL.map(|kind| backend.fired(kind));
    for (fault, result, fired) in [
        (Fault::Errno(ENOSPC), Err(IoError::Os(ENOSPC)), [1, 0, 0, 0]),
        (Fault::Interrupted, Ok(()), [0, 1, 0, 0]),
        (Fault::Again, Ok(()), [0, 0, 1, 0]),
        (Fault::Errno(IoError::AGAIN.errno().unwrap()), Ok(()), [0, 0, 1, 0]),
        (Fault::Short(100), Ok(()), [0, 0, 0, 1]),
        (Fault::Short(10_000), Ok(()), [0, 0, 0, 0]),
        (Fault::ShortThenErrno(100, ENOSPC), Err(IoError::Os(ENOSPC)), [1, 0, 0, 1]),
    ] {
        let backend = faulty(Schedule::Once(3, fault));
        assert_eq!((scenario(&backend), kinds(&backend)), (result, fired), "{fault:?}");
    }
    for (call, error) in [(1, Err(IoError::INTERRUPTED)), (2, Err(IoError::INTERRUPTED)), (4, Ok(()))] {
        let backend = faulty(Schedule::Once(call, Fault::Interrupted));
        assert_eq!((scenario(&backend), kinds(&backend)), (error, [0, 1, 0, 0]));
    }
    let backend = faulty(Schedule::From(3, Fault::Again));
    assert_eq!((scenario(&backend), kinds(&backend)), (Err(IoError::AGAIN), [0, 0, AGAIN_MAX + 1, 0]));
}

#[test]
fn a_failed_read_leaves_rubbish_in_what_it_did_not_deliver() {
    for (fault, kept) in [(Fault::Short(100), 100), (Fault::Errno(ENOSPC), 0), (Fault::Short(4095), 4095)] {
        let backend = faulty(Schedule::From(2, fault));
        let file = backend.open(Path::new("f"), Access::Read).unwrap();
        let words: Vec<_> = (0..512).map(|_| AtomicU64::new(0)).collect();
        let shared = SharedBytes::new(&words);
        let _ = file.read(0, &[shared]);
        let mut bytes = vec![0; 4096];
        shared.copy_to(0, &mut bytes);
        let wanted: Vec<u8> = (0..512).flat_map(|at| generated_word(1, at * 8).to_ne_bytes()).collect();
        assert_eq!(bytes[..kept], wanted[..kept]);
        assert!(bytes[kept..].iter().all(|&byte| byte == 0xdb));
    }
}

#[test]
fn random_faults_show_no_wrong_byte_and_all_kinds_fire() {
    let faults = vec![Fault::Errno(5), Fault::Interrupted, Fault::Again, Fault::Short(4200)];
    let backend = faulty(Schedule::OneIn { n: 8, seed: 42, faults });
    let (mut good, mut bad) = (0, 0);
    for _ in 0..1000 {
        match scenario(&backend) {
            Ok(()) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
    assert!(FaultKind::ALL.into_iter().all(|kind| backend.fired(kind) > 20));
}

#[test]
fn a_request_is_under_way_until_its_completion_has_returned() {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 1, FILE_LEN);
    disk.answer_by_hand();
    let backend = FaultyBackend::new(disk.clone(), Schedule::Once(1, Fault::Short(100)));
    let file = backend.open(Path::new("f"), Access::Read).unwrap();
    let seen = Arc::new(AtomicU64::new(u64::MAX));
    let read = || {
        let page: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
        let (backend, seen) = (backend.clone(), Arc::clone(&seen));
        Request::read(0, page, move |_, _| seen.store(backend.under_way(), Ordering::Relaxed)).unwrap()
    };
    file.submit(&mut vec![read()]);
    backend.set_schedule(Schedule::Once(1, Fault::Errno(5)));
    file.submit(&mut vec![read()]);
    assert_eq!((seen.load(Ordering::Relaxed), backend.under_way()), (2, 1), "one failed, one waits");
    while backend.under_way() > 0 {
        assert!(disk.answer_next());
    }
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn a_new_schedule_counts_from_its_beginning() {
    let backend = faulty(Schedule::Once(1, Fault::Errno(5)));
    let other = backend.clone();
    assert_eq!(scenario(&other), Err(IoError::IO));
    assert_eq!((scenario(&backend), other.fired_total()), (Ok(()), 1));
    backend.set_schedule(Schedule::Once(1, Fault::Errno(5)));
    assert_eq!(backend.calls(), 0);
    assert_eq!(scenario(&backend), Err(IoError::IO));
    assert_eq!(backend.fired(FaultKind::Errno), 2);
}
