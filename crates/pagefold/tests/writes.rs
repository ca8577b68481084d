//! Writing files, on the machine's own file systems.
#![cfg(not(pagefold_loom))]

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pagefold::{Error, File, Group, Pagefold};
use support::devices::Devices;
use support::{WATCHDOG, bytes_on, manager};
use tempfile::TempDir;

const PAGE: usize = 4096;

fn set_up(memory: &str) -> (TempDir, PathBuf, Group) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("data");
    let group = Pagefold::builder().memory(memory).build().unwrap().group("a").build().unwrap();
    (dir, path, group)
}

fn create(group: &Group, path: &PathBuf) -> File {
    group.open_options().write(true).create(true).open(path).unwrap()
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn what_is_written_is_read_and_after_a_sync_in_the_file() {
    let (_dir, path, group) = set_up("16MiB");
    let file = create(&group, &path);
    file.write_at(b"hello", 3).unwrap();
    assert_eq!((file.len(), read_all(&file)), (8, b"\0\0\0hello".to_vec()));
    file.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"\0\0\0hello");
    file.write_at(&[7; 3 * PAGE], 5000).unwrap();
    file.sync().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[3..8], bytes[4999], bytes[5000]), (5000 + 3 * PAGE, &b"hello"[..], 0, 7));
    assert_eq!(read_all(&file), bytes);
    let stats = file.stats();
    assert_eq!((stats.unclean_bytes, stats.write_errors), (0, 0));
    file.close().unwrap();
}

/// The device doesn't answer. The writes and reads meanwhile must not wait for it.
#[test]
fn what_is_written_is_in_memory_and_the_device_is_not_waited_for() {
    let devices = Devices::new(1);
    let device = devices.device(0);
    device.disk.add_bytes("data", vec![1; 4 * PAGE]);
    let mm = manager(200, devices.clone());
    let file = mm.group("a").build().unwrap().open_options().write(true).open("0/data").unwrap();
    let _going_on = devices.going_on_at_last();
    let mut expected = read_all(&file);
    device.silence(true);
    file.write_at(b"hello", 3).unwrap();
    expected[3..8].copy_from_slice(b"hello");
    drop(file.page_mut_at(0).unwrap());
    assert_eq!(file.stats().unclean_bytes, PAGE as u64);
    drop(file.page_mut_at(4096).unwrap());
    assert_eq!(file.stats().unclean_bytes, PAGE as u64, "a page that wasn't changed is clean");
    assert!(read_all(&file) == expected);
    assert!(!bytes_on(&device.disk, "data").contains(&b'h'), "nothing is written yet");
    device.silence(false);
    file.sync().unwrap();
    assert!(bytes_on(&device.disk, "data") == expected);
}

#[test]
fn whole_pages_are_not_read_first_and_parts_are() {
    let (_dir, path, group) = set_up("16MiB");
    fs::write(&path, vec![1; 8 * PAGE]).unwrap();
    let file = group.open_options().write(true).open(&path).unwrap();
    file.write_at(&[2; 2 * PAGE], 2 * PAGE as u64).unwrap();
    assert_eq!(file.stats().bytes_in, 0);
    file.write_at(&[3; 10], 4 * PAGE as u64 + 100).unwrap();
    assert_eq!(file.stats().bytes_in, PAGE as u64);
    file.write_at(&[4; 100], 8 * PAGE as u64 - 50).unwrap();
    drop(file);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 8 * PAGE + 50);
    let at = |from: usize, to: usize, byte| bytes[from..to].iter().all(|&b| b == byte);
    assert!(at(0, 2 * PAGE, 1) && at(2 * PAGE, 4 * PAGE, 2) && at(4 * PAGE, 4 * PAGE + 100, 1));
    assert!(at(4 * PAGE + 100, 4 * PAGE + 110, 3) && at(8 * PAGE - 50, 8 * PAGE + 50, 4));
}

#[test]
fn far_more_than_memory_is_written() {
    let (_dir, path, group) = set_up("4MiB");
    let file = create(&group, &path);
    let pages = 8192_u64; // 32 MiB
    let contents = |page: u64| {
        let mut bytes = [0; PAGE];
        bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&(page * 31 + 7).to_ne_bytes()));
        bytes
    };
    for page in 0..pages {
        file.write_at(&contents(page), page * PAGE as u64).unwrap();
    }
    let mut bytes = [0; PAGE];
    for page in (0..pages).rev() {
        file.read_exact_at(&mut bytes, page * PAGE as u64).unwrap();
        assert!(bytes == contents(page), "page {page}");
    }
    file.sync().unwrap();
    let stats = file.stats();
    assert_eq!((stats.bytes_out, stats.unclean_bytes), (pages * PAGE as u64, 0));
    assert!(stats.write_requests < pages / 8, "{} requests", stats.write_requests);
    let on_disk = fs::read(&path).unwrap();
    assert!((0..pages).all(|page| on_disk[page as usize * PAGE..][..PAGE] == contents(page)));
}

#[test]
fn lengths_change_both_ways() {
    let (_dir, path, group) = set_up("16MiB");
    let file = create(&group, &path);
    file.write_at(&[1; 3 * PAGE], 0).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!((file.len(), fs::metadata(&path).unwrap().len()), (5000, 5000));
    file.set_len(4 * PAGE as u64).unwrap();
    let mut expected = vec![1; 5000];
    expected.resize(4 * PAGE, 0);
    assert!(read_all(&file) == expected, "what was cut off is zeros");
    file.write_at(&[9; 1], 6 * PAGE as u64).unwrap();
    expected.resize(6 * PAGE, 0);
    expected.push(9);
    assert!(read_all(&file) == expected);
    file.sync().unwrap();
    assert!(fs::read(&path).unwrap() == expected);
    let pin = file.page_at(6 * 4096).unwrap();
    assert!(matches!(file.set_len(PAGE as u64), Err(Error::PageBusy { page: 6, .. })));
    assert_eq!(file.len(), expected.len() as u64, "nothing is changed");
    drop(pin);
    file.set_len(0).unwrap();
    assert!(file.is_empty() && fs::read(&path).unwrap().is_empty());
}

#[test]
fn a_page_is_changed_in_place() {
    let (_dir, path, group) = set_up("16MiB");
    fs::write(&path, vec![1; PAGE + 100]).unwrap();
    let file = group.open_options().write(true).open(&path).unwrap();
    let mut page = file.page_mut_at(4096).unwrap();
    assert_eq!(*page, [1; 100]);
    page[99] = 5;
    let mut bytes = [0; 100];
    file.read_exact_at(&mut bytes, PAGE as u64).unwrap();
    assert_eq!(bytes[99], 1, "not yet");
    drop(page);
    file.read_exact_at(&mut bytes, PAGE as u64).unwrap();
    assert_eq!(bytes[99], 5);
    drop(file.page_mut_at(0).unwrap());
    // The flusher may have been here.
    assert!(file.stats().unclean_bytes <= PAGE as u64, "a page that wasn't changed is clean");
    assert!(matches!(file.page_mut_at(2 * 4096), Err(Error::PastEnd { .. })));
    file.close().unwrap();
    assert_eq!(fs::read(&path).unwrap()[PAGE + 98..], [1, 5]);
}

#[test]
fn a_panic_with_a_page_in_hand_keeps_what_was_changed() {
    let (_dir, path, group) = set_up("16MiB");
    fs::write(&path, vec![1; PAGE]).unwrap();
    let file = group.open_options().write(true).open(&path).unwrap();
    let theirs = file.clone();
    let panicked = std::thread::spawn(move || {
        let mut page = theirs.page_mut_at(0).unwrap();
        page[0] = 2;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    file.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap()[..2], [2, 1]);
    file.write_at(&[3], 0).unwrap();
}

#[test]
fn what_is_refused_is_refused_clearly() {
    let (_dir, path, group) = set_up("16MiB");
    let missing = group.open_options().write(true).open(&path).unwrap_err();
    assert!(matches!(missing, Error::OpenFailed { .. }), "{missing}");
    fs::write(&path, [1; 10]).unwrap();
    let reader = group.open(&path).unwrap();
    assert!(matches!(reader.write_at(&[2], 0), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.page_mut_at(0), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.set_len(0), Err(Error::ReadOnly { .. })));
    reader.sync().unwrap();
    let writer = group.open_options().write(true).open(&path).unwrap();
    writer.write_at(&[2], 9).unwrap();
    let mut last = [0];
    reader.read_exact_at(&mut last, 9).unwrap();
    assert_eq!(last, [2], "the same file is one cache");
    assert!(matches!(reader.write_at(&[2], 0), Err(Error::ReadOnly { .. })));
    for offset in [1 << 63, u64::MAX] {
        assert!(matches!(writer.write_at(&[2; 2], offset), Err(Error::FileTooLarge { .. })), "{offset}");
        assert!(matches!(writer.set_len(offset), Err(Error::FileTooLarge { .. })));
    }
    writer.write_at(&[], u64::MAX).unwrap();
    assert!(group.open_options().create(true).open(&path).is_err(), "needs `write`");
    assert!(group.open_options().write(true).create_new(true).open(&path).is_err(), "it is there");
    let pin = reader.page_at(0).unwrap();
    let busy = writer.write_at(&[2], 0).unwrap_err();
    assert!(matches!(busy, Error::PageBusy { page: 0, .. }), "{busy}");
    drop(pin);
    drop(group.open_options().write(true).truncate(true).open(&path).unwrap());
    assert_eq!((reader.len(), fs::metadata(&path).unwrap().len()), (0, 0));
}

#[test]
fn many_threads_write_while_others_read_and_sync() {
    let (_dir, path, group) = set_up("2MiB");
    let file = create(&group, &path);
    let pages = 1500_u64;
    file.set_len(pages * PAGE as u64).unwrap();
    let stamp = |page: u64, turn: u64| (page << 20 | turn).to_ne_bytes().repeat(PAGE / 8);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (file, stamp) = (&file, &stamp);
            scope.spawn(move || {
                for turn in 1..4 {
                    for page in (thread..pages).step_by(3) {
                        file.write_at(&stamp(page, turn), page * PAGE as u64).unwrap();
                    }
                    file.sync().unwrap();
                }
            });
        }
        let (file, stamp) = (&file, &stamp);
        scope.spawn(move || {
            let mut bytes = vec![0; PAGE];
            for round in 0..3000_u64 {
                let page = round * 7919 % pages;
                file.read_exact_at(&mut bytes, page * PAGE as u64).unwrap();
                let turn = u64::from_ne_bytes(bytes[..8].try_into().unwrap()) & 0xf_ffff;
                assert!(bytes == stamp(page, turn) || bytes.iter().all(|&b| b == 0), "page {page} is torn");
            }
        });
    });
    file.sync().unwrap();
    let on_disk = fs::read(&path).unwrap();
    assert!((0..pages).all(|page| on_disk[page as usize * PAGE..][..PAGE] == stamp(page, 3)));
}

/// Writes, and waits until the bytes are in the file, without a sync.
fn is_written_by_itself(patience: Duration) {
    let (_dir, path, group) = set_up("16MiB");
    let file = create(&group, &path);
    file.write_at(b"by itself", 0).unwrap();
    let start = std::time::Instant::now();
    while fs::read(&path).unwrap() != b"by itself" {
        assert!(start.elapsed() < patience, "it is still in memory alone after {patience:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Even if the flusher sleeps without a timeout, a single write must wake it.
#[test]
fn what_is_not_synced_gets_into_the_file_by_itself() {
    is_written_by_itself(WATCHDOG);
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_what_is_not_synced_is_in_the_file_within_seconds() {
    is_written_by_itself(Duration::from_secs(12));
}
