//! Files that two Pagefolds, or a Pagefold and another program, would write to at once.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pagefold::io::{DirectIo, Posix};
use pagefold::{Error, File, OpenOptions, Pagefold};
use test_disks::SimulatedDisk;

use crate::forked_children::in_child;
use crate::support::{disk, eventually, manager};

fn options(mm: &Pagefold) -> OpenOptions {
    let name = format!("group {}", mm.stats().groups.len());
    mm.group(&name).build().unwrap().open_options().write(true)
}

fn open(mm: &Pagefold, path: &Path) -> Result<File, Error> {
    options(mm).open(path)
}

fn is_in_use(opened: &Result<File, Error>) -> bool {
    matches!(opened, Err(error @ Error::FileInUse { .. }) if error.to_string().contains("OpenOptions::lock"))
}

/// Two Pagefolds had the same page of a file in memory. The first changed a byte and synced, then
/// the second changed another byte and synced. Both calls succeeded, but the first one's byte was
/// lost.
#[test]
fn two_pagefolds_do_not_write_to_one_file() {
    for direct in [DirectIo::Auto, DirectIo::Never] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("file");
        fs::write(&path, [7; 4096]).unwrap();
        let (one, other) = (manager(64, Posix::new(direct)), manager(64, Posix::new(direct)));
        let first = open(&one, &path).unwrap();
        let again = open(&one, &path).unwrap();
        let reader = other.group("reader").build().unwrap().open(&path).unwrap();
        assert_eq!(reader.read_at(&mut [0; 10], 0).unwrap(), 10, "readers are let in");
        assert!(is_in_use(&open(&other, &path)));
        first.write_at(&[42], 0).unwrap();
        first.close().unwrap();
        assert!(is_in_use(&open(&other, &path)), "another handle is open");
        drop(again);
        let second = open(&other, &path).unwrap();
        second.write_at(&[43], 1).unwrap();
        assert!(is_in_use(&open(&one, &path)), "it goes both ways");
        drop(reader);
        second.close().unwrap();
        assert_eq!(fs::read(&path).unwrap()[..3], [42, 43, 7]);
    }
}

/// A server was killed and restarted at once. It couldn't open its file, because the file was still
/// locked: the kernel releases a killed process's lock only when the process's last requests have
/// ended.
#[test]
fn an_open_waits_for_a_lock_that_is_about_to_go() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [7; 4096]).unwrap();
    let (dying, next) = (manager(64, Posix::default()), manager(64, Posix::default()));
    // Half of the time that `open` waits for a lock. If this thread gets no CPU for longer than
    // that, the round is repeated.
    const LOCKED_MAX: Duration = Duration::from_secs(1);
    eventually("the lock never goes in time", || {
        let last_handle = open(&dying, &path).unwrap();
        // The lock is released before the `open`, or while it waits, depending on the two threads'
        // timing.
        std::thread::scope(|scope| {
            let start = Instant::now();
            let opened = scope.spawn(|| open(&next, &path).map(drop));
            last_handle.close().unwrap();
            let was_short = start.elapsed() < LOCKED_MAX;
            let opened = opened.join().unwrap();
            assert!(opened.is_ok() || !was_short, "{opened:?}");
            opened.is_ok()
        })
    });
}

#[test]
fn the_lock_can_be_done_without() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [7; 4096]).unwrap();
    let (one, other) = (manager(64, Posix::default()), manager(64, Posix::default()));
    let first = open(&one, &path).unwrap();
    let second = options(&other).lock(false).open(&path).unwrap();
    // A handle that was opened without a lock, and an `open` that was refused, leave no lock.
    assert!(is_in_use(&open(&other, &path)));
    drop(first);
    drop(open(&one, &path).unwrap());
    // The file is locked as soon as one of its handles asks for the lock.
    let third = open(&other, &path).unwrap();
    drop(second);
    assert!(is_in_use(&open(&one, &path)));
    drop(third);
    open(&one, &path).unwrap();
}

/// Other programs that take the same lock are refused while we hold it, and we are refused while
/// they hold it.
#[test]
fn other_programs_locks_count() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let other = fs::File::create(&path).unwrap();
    let mm = manager(64, Posix::default());
    other.lock().unwrap();
    assert!(is_in_use(&open(&mm, &path)));
    other.unlock().unwrap();
    let file = open(&mm, &path).unwrap();
    assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
    drop(file);
    other.try_lock().unwrap();
}

/// A child inherits the file descriptor, and so shares its parent's lock. It must neither release
/// the lock, nor keep it longer than the parent.
#[test]
fn a_child_neither_releases_the_lock_nor_keeps_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [7; 4096]).unwrap();
    let mm = manager(64, Posix::default());
    let mut file = Some(open(&mm, &path).unwrap());
    in_child(|| {
        drop(file.take());
        true
    });
    let other = fs::File::open(&path).unwrap();
    assert!(other.try_lock().is_err(), "the child has released the lock");
    // The child that is there now outlives the parent's handle.
    let (ends, stay) = std::io::pipe().unwrap();
    let (mut said, say) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            in_child(|| {
                use std::io::{Read as _, Write as _};
                (&say).write_all(&[1]).unwrap();
                let mut ends = &ends;
                ends.read_exact(&mut [0]).is_ok()
            });
        });
        std::io::Read::read_exact(&mut said, &mut [0]).unwrap();
        drop(file.take());
        let unlocked = other.try_lock();
        std::io::Write::write_all(&mut &stay, &[1]).unwrap();
        unlocked.unwrap();
    });
}

/// The simulated disk has locks, too. A power cut releases them.
#[test]
fn the_simulated_disk_has_locks() {
    let disk: SimulatedDisk = disk(1, 4096);
    let (one, other) = (manager(64, disk.clone()), manager(64, disk.clone()));
    let path = Path::new("f0");
    let file = open(&one, path).unwrap();
    assert!(is_in_use(&open(&other, path)));
    disk.power_cut(1);
    let second = open(&other, path).unwrap();
    drop(file);
    assert!(is_in_use(&open(&one, path)), "what was before the cut releases nothing");
    drop(second);
    open(&one, path).unwrap();
}

/// `create(true)` without `write(true)` failed with the system's "Invalid argument", which doesn't
/// say which argument is meant.
#[test]
fn options_that_need_write_say_so() {
    let mm = manager(64, disk(1, 4096));
    let group = mm.group("a").build().unwrap();
    for options in [group.open_options().create(true), group.open_options().truncate(true)] {
        let error = options.open("f0").unwrap_err();
        assert!(matches!(error, Error::NotForWriting { .. }) && error.to_string().contains("need `write`"), "{error}");
    }
}

/// A reader pinned a page, and another Pagefold wrote to the page and synced. Then the reader's
/// Pagefold got the file's lock. Because the page was pinned, this Pagefold kept its old copy of
/// it, changed the copy, and wrote it back. So the other Pagefold's synced bytes were lost.
#[test]
fn a_page_that_was_pinned_before_the_lock_does_not_bring_old_bytes_back() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [7; 5000]).unwrap();
    let (one, other) = (manager(64, Posix::default()), manager(64, Posix::default()));
    let reader = one.group("reader").build().unwrap().open(&path).unwrap();
    let (pin, unchanged) = (reader.page_at(0).unwrap(), reader.page_at(4096).unwrap());
    let theirs = open(&other, &path).unwrap();
    theirs.write_at(&[42], 0).unwrap();
    theirs.close().unwrap();
    let opened = open(&one, &path);
    assert!(matches!(opened, Err(Error::PageBusy { page: 0, .. })), "{opened:?}");
    drop(open(&other, &path).expect("the one that was refused has no lock"));
    drop(pin);
    let ours = open(&one, &path).unwrap();
    ours.write_at(&[43], 1).unwrap();
    ours.close().unwrap();
    assert_eq!(fs::read(&path).unwrap()[..3], [42, 43, 7]);
    assert_eq!(unchanged[0], 7);
}
