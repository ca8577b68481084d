use sync::atomic::AtomicU64;
use sync::lock::Mutex;

use super::*;
use crate::Identity;
use crate::retry::AGAIN_MAX;

/// Answers each write with the next step of a script, and records its offset and length. After the
/// last step, each write writes all of its bytes.
struct Scripted {
    bytes: Mutex<Vec<u8>>,
    steps: Mutex<Vec<Result<usize, IoError>>>,
    writes: Mutex<Vec<(u64, usize)>>,
}

fn scripted(steps: &[Result<usize, IoError>]) -> Scripted {
    Scripted {
        bytes: Mutex::default(),
        steps: Mutex::new(steps.iter().rev().copied().collect()),
        writes: Mutex::default(),
    }
}

impl BackingFile for Scripted {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 0 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read(&self, _: u64, _: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        Ok(0)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        assert!(offset.is_multiple_of(4096), "misaligned write at {offset}");
        self.writes.lock().push((offset, len));
        let most = self.steps.lock().pop().unwrap_or(Ok(usize::MAX))?;
        let mut given: Vec<u8> = from.iter().flat_map(bytes_of).collect();
        assert!(len <= given.len(), "{len} bytes of {}", given.len());
        given.truncate(len.min(most));
        let (start, end) = (offset as usize, offset as usize + given.len());
        let mut bytes = self.bytes.lock();
        let longer = bytes.len().max(end);
        bytes.resize(longer, 0xee);
        bytes[start..end].copy_from_slice(&given);
        // Some backends report more bytes than were requested.
        Ok(if most == usize::MAX { usize::MAX } else { given.len() })
    }
}

fn bytes_of(shared: &SharedBytes<'_>) -> Vec<u8> {
    let mut bytes = vec![0; shared.len()];
    shared.copy_to(0, &mut bytes);
    bytes
}

/// Writes `len` bytes at `offset` from slices of `pages` pages each, and checks the bytes. Returns
/// the offset and length of each call of the backend.
fn write(file: &Scripted, offset: u64, pages: &[usize], len: usize) -> Result<Vec<(u64, usize)>, IoError> {
    let mut number = 0;
    let mut words = |n: usize| -> Vec<AtomicU64> {
        number += 1;
        (0..n * 512).map(|at| AtomicU64::new(number << 32 | at as u64)).collect()
    };
    let words: Vec<_> = pages.iter().map(|&n| words(n)).collect();
    let slices: Vec<_> = words.iter().map(|words| SharedBytes::new(words)).collect();
    write_full(file, offset, &slices, len)?;
    let wanted: Vec<u8> = slices.iter().flat_map(bytes_of).take(len).collect();
    assert!(len == 0 || file.bytes.lock()[offset as usize..] == wanted);
    Ok(std::mem::take(&mut *file.writes.lock()))
}

#[test]
fn a_whole_answer_is_one_call() {
    assert_eq!(write(&scripted(&[]), 8192, &[1, 1, 2], 16_384), Ok(vec![(8192, 16_384)]));
    assert_eq!(write(&scripted(&[]), 0, &[1, 1], 5000), Ok(vec![(0, 5000)]));
}

#[test]
fn short_writes_go_on_from_the_last_aligned_byte() {
    let file = scripted(&[Ok(5000), Ok(4096), Ok(4097)]);
    let calls = [(0, 16_384), (4096, 12_288), (8192, 8192), (12_288, 4096)];
    assert_eq!(write(&file, 0, &[1; 4], 16_384).as_deref(), Ok(&calls[..]));
    let file = scripted(&[Ok(5000)]);
    assert_eq!(write(&file, 0, &[1; 2], 6000), Ok(vec![(0, 6000), (4096, 1904)]));
}

#[test]
fn an_attempt_within_a_slice_gets_the_rest_of_it_alone() {
    let file = scripted(&[Ok(8192 + 4096)]);
    let calls = [(0, 9 * 4096), (3 * 4096, 3 * 4096), (6 * 4096, 3 * 4096)];
    assert_eq!(write(&file, 0, &[2, 4, 4], 9 * 4096).as_deref(), Ok(&calls[..]));
    let file = scripted(&[Ok(4096)]);
    assert_eq!(write(&file, 0, &[4, 4], 4096 + 10), Ok(vec![(0, 4106), (4096, 10)]));
}

#[test]
fn empty_slices_are_passed_over() {
    assert_eq!(write(&scripted(&[Ok(4096)]), 0, &[0, 1, 0, 1], 8192), Ok(vec![(0, 8192), (4096, 4096)]));
}

#[test]
fn what_passes_by_itself_is_tried_again() {
    for error in [IoError::INTERRUPTED, IoError::AGAIN] {
        let file = scripted(&[Err(error), Ok(4096), Err(error), Ok(4096), Err(error)]);
        assert_eq!(write(&file, 0, &[1; 3], 3 * 4096).map(|calls| calls.len()), Ok(6));
    }
    let file = scripted(&[Err(IoError::INTERRUPTED); 1000]);
    assert_eq!(write(&file, 0, &[1], 4096).map(|calls| calls.len()), Ok(1001));
    let tries = AGAIN_MAX as usize;
    let file = scripted(&vec![Err(IoError::AGAIN); tries]);
    assert_eq!(write(&file, 0, &[1], 4096).map(|calls| calls.len()), Ok(tries + 1));
    let file = scripted(&vec![Err(IoError::AGAIN); tries + 1]);
    assert_eq!(write(&file, 0, &[1], 4096), Err(IoError::AGAIN));
    assert_eq!(file.writes.lock().len(), tries + 1);
}

#[test]
fn no_progress_twice_is_an_error() {
    let between = vec![Ok(0), Err(IoError::AGAIN), Err(IoError::INTERRUPTED), Ok(0)];
    for steps in [vec![Ok(0); 2], vec![Ok(5000), Ok(904), Ok(500)], between] {
        let file = scripted(&steps);
        assert_eq!(write(&file, 0, &[1; 2], 8192), Err(IoError::NoProgress));
        assert_eq!(file.writes.lock().len(), steps.len());
    }
    // Each new byte counts as progress.
    let file = scripted(&[Ok(0), Ok(1), Ok(1), Ok(2), Ok(0)]);
    assert_eq!(write(&file, 0, &[1], 4096).map(|calls| calls.len()), Ok(6));
}

#[test]
fn other_errors_end_it_at_once() {
    for error in [IoError::IO, IoError::NO_SPACE] {
        let file = scripted(&[Ok(4096), Err(error)]);
        assert_eq!(write(&file, 0, &[1; 2], 8192), Err(error));
        assert_eq!(*file.writes.lock(), [(0, 8192), (4096, 4096)]);
    }
}

#[test]
fn an_impossible_range_is_refused_and_an_empty_one_needs_no_call() {
    let file = scripted(&[]);
    assert_eq!(write(&file, u64::MAX - 4095, &[1], 4096), Err(IoError::INVALID));
    assert_eq!(write(&file, 0, &[1], 4097), Err(IoError::INVALID));
    assert_eq!(write(&file, 0, &[], 0), Ok(vec![]));
    assert!(file.writes.lock().is_empty());
}

#[test]
fn a_file_opened_for_reading_says_so() {
    struct ReadOnly;
    impl BackingFile for ReadOnly {
        fn identity(&self) -> Identity {
            Identity { device: 0, inode: 0 }
        }

        fn len(&self) -> Result<u64, IoError> {
            Ok(0)
        }

        fn read(&self, _: u64, _: &[SharedBytes<'_>]) -> Result<usize, IoError> {
            Ok(0)
        }
    }
    let words: Vec<_> = (0..512).map(AtomicU64::new).collect();
    assert_eq!(write_full(&ReadOnly, 0, &[SharedBytes::new(&words)], 4096), Err(IoError::BAD_FILE));
    assert_eq!((ReadOnly.sync(), ReadOnly.set_len(1)), (Err(IoError::BAD_FILE), Err(IoError::BAD_FILE)));
}
