//! Tests that write real files: on the temporary directory's file system and, if there is one, in
//! memory.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::tests::{PAGE, Pages, TRIES, contents, file_of, resident, takes_direct};
use super::*;
use crate::directories::Place;
use crate::patience::not_here;
use crate::{read_full, write_full};

const ROUTES: [DirectIo; 2] = [DirectIo::Auto, DirectIo::Never];

/// Returns the temporary directory, which may be on a disk, and a directory in memory if there is
/// `/dev/shm`.
fn places() -> Vec<TempDir> {
    let mut places = vec![tempfile::tempdir().unwrap()];
    places.extend(tempfile::tempdir_in("/dev/shm"));
    places
}

/// Creates pages filled with `contents` from `skip` on.
fn filled(pages: usize, skip: usize) -> Pages {
    let filled = Pages::new(pages);
    filled.bytes().copy_from(0, &contents(skip + pages * PAGE)[skip..]);
    filled
}

fn open(path: &Path, direct: DirectIo, access: Access) -> PosixFile {
    Posix::new(direct).open_file(path, access).unwrap()
}

#[test]
fn what_is_written_is_what_others_read() {
    for dir in places() {
        let path = dir.path().join("file");
        for (direct, len) in ROUTES
            .into_iter()
            .flat_map(|direct| [1, 511, 4095, 4096, 4097, 10_000, 16_384, 100_001_usize].map(|len| (direct, len)))
        {
            let file = open(&path, direct, Access::CreateNew);
            let pages = filled(len.div_ceil(PAGE), 0);
            let single: Vec<_> = (0..len.div_ceil(PAGE)).map(|n| pages.page(n)).collect();
            for slices in [&single[..], &[pages.bytes()]] {
                file.set_len(0).unwrap();
                write_full(&file, 0, slices, len).unwrap();
                assert_eq!(file.len(), Ok(len as u64), "{direct:?}");
                assert!(std::fs::read(&path).unwrap() == contents(len), "{direct:?}: {len} bytes");
            }
            file.sync().unwrap();
            let back = Pages::new(len.div_ceil(PAGE) + 1);
            assert_eq!(read_full(&file, 0, back.bytes()), Ok(len));
            assert!(back.to_vec()[..len] == contents(len)[..]);
            drop(file);
            std::fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_part_page_at_the_end_grows_page_by_page_and_never_too_far() {
    for dir in places() {
        let path = dir.path().join("file");
        for direct in ROUTES {
            let file = open(&path, direct, Access::Create);
            file.set_len(0).unwrap();
            let mut end = 0;
            // Each step rewrites the last, partly filled page, and extends the file.
            for step in [100, 4000, 4096, 1, 8191, 20_000, 96] {
                let start = end / PAGE * PAGE;
                end += step;
                let pages = filled((end - start).div_ceil(PAGE), start);
                let written = file.write(start as u64, &[pages.bytes()], end - start).unwrap();
                assert!(file.len().unwrap() <= end as u64, "{direct:?}: too long");
                let rest = written / PAGE * PAGE;
                write_full(&file, (start + rest) as u64, &[pages.bytes().suffix(rest)], end - start - rest).unwrap();
                assert!(std::fs::read(&path).unwrap() == contents(end), "{direct:?}: {end} bytes");
                let back = Pages::new(1);
                let last = (end - 1) / PAGE * PAGE;
                assert_eq!(read_full(&file, last as u64, back.bytes()), Ok(end - last));
                assert!(back.to_vec()[..end - last] == contents(end)[last..]);
            }
        }
    }
}

#[test]
fn pages_are_overwritten_in_place() {
    for dir in places() {
        let path = file_of(&dir, 10 * PAGE + 5);
        let mut wanted = contents(10 * PAGE + 5);
        for (turn, direct) in ROUTES.into_iter().enumerate() {
            let file = open(&path, direct, Access::Write);
            let pages = filled(2, turn + 77);
            write_full(&file, 3 * PAGE as u64, &[pages.page(1), pages.page(0)], 2 * PAGE).unwrap();
            wanted[3 * PAGE..4 * PAGE].copy_from_slice(&pages.to_vec()[PAGE..]);
            wanted[4 * PAGE..5 * PAGE].copy_from_slice(&pages.to_vec()[..PAGE]);
            assert!(std::fs::read(&path).unwrap() == wanted, "{direct:?}");
            file.sync().unwrap();
        }
    }
}

#[test]
fn more_slices_than_the_system_takes_are_written_in_turns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let pages = filled(1, 0);
    for direct in ROUTES {
        let file = open(&path, direct, Access::Create);
        let slices = vec![pages.bytes(); 2500];
        assert_eq!(file.write(0, &slices, 2500 * PAGE), Ok(1024 * PAGE));
        write_full(&file, 0, &slices, 2499 * PAGE + 9).unwrap();
        assert_eq!(std::fs::read(&path).unwrap().len(), 2499 * PAGE + 9);
        assert_eq!(std::fs::read(&path).unwrap()[2000 * PAGE..2001 * PAGE], contents(PAGE));
        file.set_len(0).unwrap();
    }
}

#[test]
fn lengths_change_both_ways_and_what_comes_back_is_zeros() {
    for dir in places() {
        let path = file_of(&dir, 3 * PAGE);
        for direct in ROUTES {
            let file = open(&path, direct, Access::Write);
            write_full(&file, 0, &[filled(3, 0).bytes()], 3 * PAGE).unwrap();
            file.set_len(5000).unwrap();
            file.set_len(10_000).unwrap();
            let mut wanted = contents(5000);
            wanted.resize(10_000, 0);
            assert!(std::fs::read(&path).unwrap() == wanted, "{direct:?}");
            let pages = Pages::new(3);
            assert_eq!(read_full(&file, 0, pages.bytes()), Ok(10_000));
            assert!(pages.to_vec()[..10_000] == wanted);
            file.sync().unwrap();
            assert_eq!(file.set_len(u64::MAX), Err(IoError::INVALID));
        }
    }
}

#[test]
fn access_is_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let errno = |path: &Path, access| Posix::default().open(path, access).err().and_then(IoError::errno);
    let path = dir.path().join("new");
    for access in [Access::Read, Access::Write] {
        assert_eq!(errno(&path, access), Some(libc::ENOENT));
    }
    assert_eq!(errno(&path, Access::CreateNew), None);
    assert_eq!(errno(&path, Access::CreateNew), Some(libc::EEXIST));
    std::fs::write(&path, contents(9)).unwrap();
    assert_eq!(errno(&path, Access::Create), None);
    assert_eq!(std::fs::read(&path).unwrap(), contents(9), "not truncated");
    for access in [Access::Write, Access::Create] {
        assert_eq!(errno(dir.path(), access), Some(libc::EISDIR));
        assert!(matches!(Posix::default().open(Path::new("/dev/null"), access), Err(IoError::NoLength)));
    }
    for access in [Access::Create, Access::CreateNew] {
        assert_eq!(errno(&dir.path().join("no/where"), access), Some(libc::ENOENT));
        assert_eq!(errno(&dir.path().join("folder/"), access), Some(libc::EISDIR));
        assert_eq!(errno(Path::new(""), access), Some(libc::ENOENT));
    }
    let file = open(&path, DirectIo::Auto, Access::Read);
    assert_eq!(file.write(0, &[Pages::new(1).bytes()], PAGE), Err(IoError::BAD_FILE));
    assert_eq!((file.sync(), file.set_len(0)), (Err(IoError::BAD_FILE), Err(IoError::BAD_FILE)));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0);
}

fn directory_of(name: Option<Place>) -> OwnedFd {
    match name {
        Some(Place::In(directory)) => directory,
        name => panic!("no directory, but {name:?}"),
    }
}

#[test]
fn a_link_to_nothing_says_where_to_make_the_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("there")).unwrap();
    let (link, longer) = (dir.path().join("link"), dir.path().join("there/longer"));
    symlink("there/file", &link).unwrap();
    symlink("../link", &longer).unwrap();
    assert_eq!(Posix::default().open_file(&longer, Access::CreateNew).err(), Some(IoError::EXISTS));
    let opened = posix_open::open(&longer, Access::Create).unwrap();
    assert!(dir.path().join("there/file").is_file());
    let made_in = fs::fstat(directory_of(opened.name)).unwrap();
    assert_eq!(made_in.st_ino, std::fs::metadata(dir.path().join("there")).unwrap().ino());
    let round = dir.path().join("round");
    symlink("round", &round).unwrap();
    assert_eq!(Posix::default().open_file(&round, Access::Create).err(), Some(IoError::Os(libc::ELOOP)));
}

/// Regression: an attempt to open a file created the file and then failed. The next attempt found
/// an existing file, so it recorded no directory to sync. A sync of this file then returned `Ok`,
/// although a power cut could still remove the file's name.
#[test]
fn the_name_of_a_file_that_is_there_is_synced_too() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("file"), dir.path().join("link"));
    symlink("file", &link).unwrap();
    for (path, access) in [
        (&path, Access::CreateNew),
        (&path, Access::Create),
        (&path, Access::Write),
        (&link, Access::Create),
        (&link, Access::Write),
    ] {
        let file = open(path, DirectIo::Auto, access);
        assert!(file.durability.has_name(), "{} for {access:?}", path.display());
        file.sync().unwrap();
        assert!(!file.durability.has_name(), "it is synced once");
    }
    assert!(!open(&path, DirectIo::Auto, Access::Read).durability.has_name());
}

#[test]
fn the_directory_of_a_file_is_the_one_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("file"), "").unwrap();
    symlink("inner/file", dir.path().join("link")).unwrap();
    let opened = posix_open::open(&dir.path().join("link"), Access::Write).unwrap();
    let found = fs::fstat(directory_of(opened.name)).unwrap();
    assert_eq!(found.st_ino, std::fs::metadata(&inner).unwrap().ino());
    // The directory can't be read, but the file can still be opened.
    std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o111)).unwrap();
    assert!(posix_open::open(&inner.join("file"), Access::Write).is_ok());
    std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The lock belongs to one opening, however the file is read and written.
#[test]
fn a_file_is_locked_by_one_opening() {
    // Each refusal comes only after a wait, so the cases run in parallel.
    let is_locked_by_one = |path: &Path, direct: DirectIo| {
        let (one, other) = (open(path, direct, Access::Create), open(path, direct, Access::Write));
        assert_eq!((one.lock(), one.lock(), other.lock()), (Ok(()), Ok(()), Err(IoError::BUSY)));
        assert_eq!(Posix::new(direct).open_file(path, Access::Alone).err(), Some(IoError::BUSY));
        other.unlock();
        assert_eq!(other.lock(), Err(IoError::BUSY), "it isn't the other one's to release");
        one.unlock();
        let alone = open(path, direct, Access::Alone);
        assert_eq!(other.lock(), Err(IoError::BUSY));
        // This copy keeps the file open, as a forked child's copy of the descriptor does.
        let copy = alone.fd.try_clone().unwrap();
        drop(alone);
        assert_eq!(other.lock(), Ok(()));
        drop(copy);
    };
    let places = places();
    std::thread::scope(|scope| {
        for (number, direct) in ROUTES.into_iter().enumerate() {
            for dir in &places {
                let path = dir.path().join(format!("file{number}"));
                scope.spawn(move || is_locked_by_one(&path, direct));
            }
        }
    });
}

/// The part page at a file's end needs a buffered write. So the file's descriptor loses the flag
/// `O_DIRECT` until the write is complete.
#[test]
fn a_part_page_takes_the_flag_for_direct_io_away_for_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, 4 * PAGE);
    if !takes_direct(&path) {
        return;
    }
    let file = open(&path, DirectIo::Always, Access::Write);
    let has_flag = || fs::fcntl_getfl(&file.fd).unwrap().contains(OFlags::DIRECT);
    let pages = filled(2, 9);
    write_full(&file, 0, &[pages.bytes()], 2 * PAGE - 100).unwrap();
    assert!(has_flag() && file.direct.load(Ordering::Relaxed));
    let (one, other) = (file.buffered().unwrap(), file.buffered().unwrap());
    drop(one);
    assert!(!has_flag(), "another part page is under way");
    // Whole pages are written and read meanwhile.
    write_full(&file, 2 * PAGE as u64, &[pages.bytes()], 2 * PAGE).unwrap();
    drop(other);
    assert!(has_flag());
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..2 * PAGE - 100] == pages.to_vec()[..2 * PAGE - 100] && bytes[2 * PAGE..] == pages.to_vec()[..]);
    // If direct I/O is rejected meanwhile, it stays off.
    let auto = open(&path, DirectIo::Auto, Access::Write);
    let buffered = auto.buffered().unwrap();
    auto.leave_direct().unwrap();
    drop(buffered);
    assert!(!fs::fcntl_getfl(&auto.fd).unwrap().contains(OFlags::DIRECT));
}

#[test]
fn a_refused_direct_write_is_done_buffered() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, 4 * PAGE);
    if !takes_direct(&path) {
        return;
    }
    // No disk has blocks of 8 bytes, so this is rejected.
    let pages = filled(1, 99);
    assert_eq!(open(&path, DirectIo::Always, Access::Write).write(8, &[pages.bytes()], PAGE), Err(IoError::INVALID));
    let auto = open(&path, DirectIo::Auto, Access::Write);
    assert!(auto.direct.load(Ordering::Relaxed));
    for _ in 0..2 {
        assert_eq!(auto.write(8, &[pages.bytes()], PAGE), Ok(PAGE));
        assert!(!auto.direct.load(Ordering::Relaxed));
    }
    assert!(!fs::fcntl_getfl(&auto.fd).unwrap().contains(OFlags::DIRECT));
    assert!(std::fs::read(&path).unwrap()[8..8 + PAGE] == pages.to_vec());
}

#[test]
fn an_impossible_write_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = open(&file_of(&dir, PAGE), DirectIo::Auto, Access::Write);
    let direct = file.direct.load(Ordering::Relaxed);
    for offset in [u64::MAX, u64::MAX - 4095, i64::MAX as u64 - 4095, 1 << 63] {
        assert_eq!(file.write(offset, &[Pages::new(2).bytes()], 2 * PAGE), Err(IoError::INVALID));
    }
    assert_eq!((file.len(), file.direct.load(Ordering::Relaxed)), (Ok(PAGE as u64), direct));
}

#[test]
fn the_kernel_keeps_no_copy_of_what_was_synced() {
    const PAGES: usize = 100;
    for dir in places() {
        let path = dir.path().join("file");
        for direct in ROUTES {
            let file = open(&path, direct, Access::Create);
            if file.in_memory {
                continue;
            }
            let left = || {
                write_full(&file, 0, &[filled(PAGES, 0).bytes()], PAGES * PAGE - 1000).unwrap();
                file.sync().unwrap();
                resident(&path, PAGES * PAGE - 1000)
            };
            let left: Vec<_> = (0..TRIES).map(|_| left()).collect();
            assert!(left.contains(&0), "{direct:?}: pages left: {left:?}");
        }
    }
}

/// Regression: a sync failed, and the record of the written pages was lost. The next sync
/// succeeded, but the kernel kept its copies of these pages until they were written again.
#[test]
fn what_a_failed_sync_left_is_dropped_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = open(&file_of(&dir, 4 * PAGE), DirectIo::Never, Access::Write);
    file.written.note(PAGE as u64..3 * PAGE as u64);
    // A socket can't be synced.
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let fd = std::mem::replace(&mut file.fd, socket.into());
    assert!(file.sync().is_err());
    assert_eq!(file.written.take(), Some(PAGE as u64..3 * PAGE as u64));
    file.written.note(PAGE as u64..3 * PAGE as u64);
    file.fd = fd;
    file.sync().unwrap();
    assert_eq!(file.written.take(), None);
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Lazily: the file may still be open.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_file_system_says_so_and_room_heals_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(dir.path()).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        return not_here("the right to mount");
    }
    let _mounted = Mounted(dir.path());
    let file = open(&dir.path().join("file"), DirectIo::Auto, Access::Create);
    let pages = filled(32, 0);
    let full = write_full(&file, 0, &[pages.bytes()], 32 * PAGE);
    file.set_len(8 * PAGE as u64).unwrap();
    let again = write_full(&file, 8 * PAGE as u64, &[pages.bytes()], 4 * PAGE);
    let synced = file.sync();
    assert_eq!((full, again, synced), (Err(IoError::NO_SPACE), Ok(()), Ok(())));
}
