//! What happens to unwritten changes when a file's last handle is dropped, or when the process
//! ends.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use pagefold::io::{BackingFile, IoError};
use pagefold::{Error, File, Pagefold};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use test_disks::SimulatedDisk;

use crate::support::around::{Around, Wrapped};
use crate::support::{bytes_on, eventually, manager, undisturbed, version};

/// The flusher syncs no file whose changes are younger than this.
const YOUNG: Duration = Duration::from_secs(3);

/// A program that unpacked an archive created, wrote and dropped 300 small files. Each drop synced
/// its file, although no caller had asked for it: this took 2 seconds instead of a few
/// milliseconds.
#[test]
fn a_dropped_file_is_written_and_not_synced() {
    let (disk, mm) = undisturbed(YOUNG, || {
        let disk = SimulatedDisk::default();
        let mm = manager(256, disk.clone());
        let group = mm.group("unpacker").build().unwrap();
        for number in 0..300 {
            let file = group.open_options().write(true).create_new(true).open(format!("{number}")).unwrap();
            file.write_at(&version(number, 0, 100), 0).unwrap();
            drop(file);
        }
        (disk, mm)
    });
    assert_eq!(disk.stats().syncs, 0);
    for number in 0..300 {
        assert!(bytes_on(&disk, format!("{number}")) == version(number, 0, 100), "file {number}");
    }
    assert!(mm.stats().files.is_empty());
    // `close` guarantees what `sync` does, also for bytes that were written through a handle that
    // was dropped.
    let group = mm.group("later").build().unwrap();
    group.open_options().write(true).open("7").unwrap().close().unwrap();
    assert_eq!(disk.stats().syncs, 1);
    disk.power_cut(1);
    assert!(bytes_on(&disk, "7") == version(7, 0, 100));
}

/// When the last handle is dropped, its bytes go to the kernel without a sync. If the kernel fails
/// to write them to the device, the next `sync` through any handle of the file must return the
/// error.
#[test]
fn a_sync_tells_that_what_a_dropped_handle_wrote_is_lost() {
    let disk = SimulatedDisk::default();
    let mm = manager(256, disk.clone());
    let group = mm.group("a").build().unwrap();
    let open = || group.open_options().write(true).create(true).open("file").unwrap();
    let file = open();
    file.write_at(&[1; 10_000], 0).unwrap();
    drop(file);
    disk.fail_syncs(1, 1);
    let file = open();
    assert!(matches!(file.sync(), Err(Error::WriteFailed { .. })));
    file.write_at(&[2; 10_000], 0).unwrap();
    file.sync().unwrap();
    disk.power_cut(1);
    assert!(bytes_on(&disk, "file") == [2; 10_000]);
}

const DIRECTORY: &str = "PAGEFOLD_EXIT_IN";
/// The scenario in which no file can be written.
const FULL_DISK: &str = "ends_with_a_full_disk";
/// How many bytes the child process writes before it ends.
const LEFT: u64 = 30_000;

static FOREVER: OnceLock<(Pagefold, File)> = OnceLock::new();

/// Runs an ignored test of this program in a process of its own. Returns the bytes of its file
/// after the process has ended.
fn bytes_after(scenario: &str) -> Vec<u8> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("closing::{scenario}"), "--ignored", "--nocapture"]);
    if scenario == FULL_DISK {
        // A program that counts coverage writes its profile at its end: a signal would kill it.
        child.env("LLVM_PROFILE_FILE", "/dev/null");
    }
    let status = child.env(DIRECTORY, directory.path()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{status}");
    std::fs::read(directory.path().join("file")).unwrap()
}

/// Called in the child process. Opens a file and writes to it, but doesn't close it.
fn leave_a_file_open() -> Option<&'static File> {
    let directory = std::env::var(DIRECTORY).ok()?;
    let mm = Pagefold::builder().memory("1MiB").build().unwrap();
    let options = mm.group("a").build().unwrap().open_options().write(true).create(true);
    let file = options.open(Path::new(&directory).join("file")).unwrap();
    file.write_at(&version(1, 0, LEFT as usize), 0).unwrap();
    Some(&FOREVER.get_or_init(|| (mm, file)).1)
}

/// A program kept its file in a `static`, wrote to it, and returned from `main`: the file was
/// empty. The bytes must be written then, as `stdio` does with its buffers.
#[test]
fn what_was_written_is_in_the_file_when_the_process_ends() {
    assert!(bytes_after("returns_from_main") == version(1, 0, LEFT as usize));
    assert!(bytes_after("exits_in_a_thread") == version(1, 0, LEFT as usize));
}

#[test]
#[ignore = "for a process of its own"]
fn returns_from_main() {
    leave_a_file_open();
}

/// The process exits after a forked child has exited, and while a thread holds a guard of a page.
#[test]
#[ignore = "for a process of its own"]
fn exits_in_a_thread() {
    let Some(file) = leave_a_file_open() else { return };
    // SAFETY: the child ends at once, as a program does that returns from `main`.
    match unsafe { libc::fork() } {
        0 => std::process::exit(0),
        child => {
            let mut status = 0;
            // SAFETY: the status is this function's own.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    std::mem::forget(file.page_mut_at(4096).unwrap());
    std::thread::spawn(|| std::process::exit(0)).join().unwrap();
}

/// A process must end although its file can't be written.
#[test]
fn a_process_ends_although_its_file_cannot_be_written() {
    assert!(bytes_after(FULL_DISK).is_empty());
}

#[test]
#[ignore = "for a process of its own"]
fn ends_with_a_full_disk() {
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    if std::env::var(DIRECTORY).is_ok() {
        // SAFETY: the limit is this function's own. Of lengths: nothing can be written.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    }
    leave_a_file_open();
}

/// A device on which each of the first four syncs waits until all four have begun. The flusher's
/// thread does one sync at a time, so it could never finish these four.
#[derive(Clone, Default)]
struct Together(Arc<AtomicU64>);

impl Around for Together {
    fn sync(&self, file: &dyn BackingFile) -> Result<(), IoError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        eventually("a sync waits for the end of another one", || self.0.load(Ordering::Relaxed) >= 4);
        file.sync()
    }
}

/// Closing files one after another takes one sync's time for each. `close_all` must sync them at
/// the same time.
#[test]
fn files_that_are_closed_together_are_synced_together() {
    let disk = SimulatedDisk::default();
    let mm = manager(256, Wrapped::new(&disk, Together::default()));
    let group = mm.group("unpacker").build().unwrap();
    let open = |number: u64| {
        let file = group.open_options().write(true).create(true).open(format!("{number}")).unwrap();
        file.write_at(&version(number, 0, 100), 0).unwrap();
        file
    };
    File::close_all((0..40).map(open)).unwrap();
    assert!(mm.stats().files.is_empty());
    disk.power_cut(1);
    assert!((0..40).all(|number| bytes_on(&disk, format!("{number}")) == version(number, 0, 100)));

    disk.fail_syncs(1, 1);
    let files: Vec<_> = (40..44).map(open).collect();
    assert!(matches!(File::close_all(files), Err(Error::WriteFailed { .. })));
    assert!(mm.stats().files.is_empty(), "all are closed");
    File::close_all([]).unwrap();
}
