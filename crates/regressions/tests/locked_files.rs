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

/// Two Pagefolds had the same page of a file in memory. One changed a byte and synced, the other
/// changed another byte and synced: both were told that it had worked, and the first one's byte was
/// gone.
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

/// A server that was killed and started again at once was told that its file was in use: the kernel
/// still held the killed process's lock, whose last requests hadn't ended.
#[test]
fn an_open_waits_for_a_lock_that_is_about_to_go() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [7; 4096]).unwrap();
    let (dying, next) = (manager(64, Posix::default()), manager(64, Posix::default()));
    // Half of what is waited for a lock: this thread may get no CPU for longer, and then there is
    // another try.
    const LOCKED_MAX: Duration = Duration::from_secs(1);
    eventually("the lock never goes in time", || {
        let last_handle = open(&dying, &path).unwrap();
        // However the two threads run: the lock goes before the open, or while it waits.
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
    // A handle that was opened without, and one that was refused, leave no lock.
    assert!(is_in_use(&open(&other, &path)));
    drop(first);
    drop(open(&one, &path).unwrap());
    // The file is locked as soon as any handle wants that.
    let third = open(&other, &path).unwrap();
    drop(second);
    assert!(is_in_use(&open(&one, &path)));
    drop(third);
    open(&one, &path).unwrap();
}

/// Programs that ask for the lock by themselves are kept out as well, and keep us out.
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

/// A child shares its parent's lock, because it has the descriptor: it mustn't release it, nor keep
/// it longer than the parent.
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

/// The simulated disk has locks, too; a power cut ends them.
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

/// `create(true)` without `write(true)` was answered with the system's "Invalid argument", and no
/// word of which.
#[test]
fn options_that_need_write_say_so() {
    let mm = manager(64, disk(1, 4096));
    let group = mm.group("a").build().unwrap();
    for options in [group.open_options().create(true), group.open_options().truncate(true)] {
        let error = options.open("f0").unwrap_err();
        assert!(matches!(error, Error::NotForWriting { .. }) && error.to_string().contains("need `write`"), "{error}");
    }
}

/// A page was pinned by a reader while another Pagefold wrote to it. Then the reader's Pagefold got
/// the file's lock, kept the page as it had been, since it was pinned, and wrote it back with a
/// change of its own: what the other one had synced was gone.
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
