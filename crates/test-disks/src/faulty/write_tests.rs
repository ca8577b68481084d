use std::collections::HashSet;

use io::{read_full, write_full};
use sync::atomic::AtomicU64;

use super::tests::FAULTS;
use super::*;
use crate::{SimulatedDisk, generated_word};

const ENOSPC: i32 = 28;
const LEN: usize = 10_000;

fn page_words(seed: u64) -> Vec<AtomicU64> {
    (0..3 * 512).map(|at| AtomicU64::new(generated_word(seed, at * 8))).collect()
}

fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
    let mut bytes = vec![0; words.len() * 8];
    SharedBytes::new(words).copy_to(0, &mut bytes);
    bytes
}

fn read_all(disk: &SimulatedDisk, path: &str) -> Result<Vec<u8>, IoError> {
    let words: Vec<_> = (0..8 * 512).map(|_| AtomicU64::new(u64::MAX)).collect();
    let n = read_full(&*disk.open(Path::new(path), Access::Read)?, 0, SharedBytes::new(&words))?;
    Ok(bytes_of(&words)[..n].to_vec())
}

/// Creates a file, which is too long at first, and writes it twice.
fn scenario(backend: &dyn Backend) -> Result<(), IoError> {
    let file = backend.open(Path::new("f"), Access::CreateNew)?;
    file.set_len(20_000)?;
    for seed in [1, 2] {
        let words = page_words(seed);
        let pages: Vec<_> = words.chunks(512).map(SharedBytes::new).collect();
        write_full(&*file, 0, &pages, LEN)?;
        file.set_len(LEN as u64)?;
        file.sync()?;
    }
    Ok(())
}

#[test]
fn without_faults_it_is_the_inner_backend() {
    let disk = SimulatedDisk::default();
    let backend = FaultyBackend::new(disk.clone(), Schedule::Never);
    assert_eq!(scenario(&backend), Ok(()));
    assert!(read_all(&disk, "f").unwrap() == bytes_of(&page_words(2))[..LEN]);
    let calls = [Call::Open, Call::Len, Call::Read, Call::Write, Call::Sync, Call::SetLen];
    assert_eq!(calls.map(|call| backend.calls_of(call)), [1, 0, 0, 2, 2, 3]);
    assert_eq!((backend.calls(), backend.fired_total()), (8, 0));
}

#[test]
fn a_sweep_of_each_fault_ends_and_success_survives_a_power_cut() {
    for fault in FAULTS {
        for schedule in [Schedule::Once as fn(u64, Fault) -> Schedule, Schedule::lasting] {
            let (mut fired, mut good, mut bad) = (0, 0, 0);
            for call in 1.. {
                let disk = SimulatedDisk::default();
                let backend = FaultyBackend::new(disk.clone(), schedule(call, fault));
                let result = scenario(&backend);
                disk.power_cut(call);
                match result {
                    Ok(()) => {
                        assert!(read_all(&disk, "f").unwrap() == bytes_of(&page_words(2))[..LEN], "{fault:?}, {call}");
                        good += 1;
                    }
                    Err(_) => bad += 1,
                }
                if backend.calls() < call {
                    assert_eq!((result, backend.fired_total()), (Ok(()), 0));
                    break;
                }
                assert!(call < 30, "the sweep of {fault:?} doesn't end");
                assert!(result.is_ok() || backend.fired_total() > 0, "{result:?} out of nothing");
                fired += backend.fired_total();
            }
            assert!(fired > 0 && good > 0, "{fault:?}: fired {fired} times, {good} good, {bad} bad");
        }
    }
}

#[test]
fn each_call_fails_as_it_was_told_and_has_done_nothing() {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 1, 9);
    let backend = FaultyBackend::new(disk.clone(), Schedule::Never);
    let file = backend.open(Path::new("f"), Access::Write).unwrap();
    backend.set_schedule(Schedule::From(1, Fault::Errno(5)));
    assert_eq!(backend.open(Path::new("new"), Access::Create).err(), Some(IoError::IO));
    assert_eq!((file.sync(), file.set_len(3)), (Err(IoError::IO), Err(IoError::IO)));
    assert_eq!((backend.fired(FaultKind::Errno), disk.stats().syncs), (3, 0));
    assert!(read_all(&disk, "new").is_err() && read_all(&disk, "f").unwrap().len() == 9);
    // Calls that can't be short succeed.
    backend.set_schedule(Schedule::From(1, Fault::ShortThenErrno(0, 5)));
    assert_eq!((file.set_len(3), file.sync(), file.set_len(4)), (Ok(()), Ok(()), Ok(())));
}

#[test]
fn a_failed_write_has_written_some_sectors_from_the_front() {
    let (old, new) = (bytes_of(&page_words(1)), page_words(2));
    let mut written = HashSet::new();
    for call in 2..200 {
        let disk = SimulatedDisk::default();
        disk.add_bytes("f", old[..LEN].to_vec());
        let backend = FaultyBackend::new(disk.clone(), Schedule::Once(call, Fault::Errno(ENOSPC)));
        let file = backend.open(Path::new("f"), Access::Write).unwrap();
        (2..call).for_each(|_| assert_eq!(file.len(), Ok(LEN as u64)));
        assert_eq!(file.write(0, &[SharedBytes::new(&new)], LEN), Err(IoError::NO_SPACE));
        let found = read_all(&disk, "f").unwrap();
        let same = found.iter().zip(bytes_of(&new)).take_while(|(found, new)| **found == *new).count();
        let sectors = if same == LEN { LEN } else { same / 512 * 512 };
        assert!(found[sectors..] == old[sectors..LEN], "call {call}");
        written.insert(sectors);
    }
    assert!(written.contains(&0) && written.contains(&LEN) && written.len() == 21, "{written:?}");
}

#[test]
fn a_short_write_is_followed_by_the_error_of_a_write() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("f", vec![0; LEN]);
    let backend = FaultyBackend::new(disk, Schedule::Once(2, Fault::ShortThenErrno(700, ENOSPC)));
    let file = backend.open(Path::new("f"), Access::Write).unwrap();
    let words = page_words(1);
    let pages = [SharedBytes::new(&words)];
    assert_eq!(file.write(0, &pages, LEN), Ok(700));
    assert_eq!(file.read(0, &[SharedBytes::new(&page_words(0))]), Ok(LEN));
    assert_eq!(file.write(0, &pages, LEN), Err(IoError::NO_SPACE));
    assert_eq!(file.write(0, &pages, LEN), Ok(LEN));
    assert_eq!(FaultKind::ALL.map(|kind| backend.fired(kind)), [1, 0, 0, 1]);
}
