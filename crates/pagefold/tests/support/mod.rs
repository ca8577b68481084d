//! Code that the tests share. Among others, files in which every byte depends on its position.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod around;
pub mod devices;
pub mod gate;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagefold::io::{Access, Backend, BackingFile, IoError, automatic, read_full};
use pagefold::{Error, File, Group, Pagefold};
use sync::SharedBytes;
use sync::atomic::{AtomicBool, Ordering};
use test_disks::{SimulatedDisk, generated_word};

/// Stops the threads of a scope even if a check in the scope fails. Otherwise the scope would wait
/// for its threads forever, and the test would never end.
pub fn stop_at_end(stop: &AtomicBool) -> impl Drop + use<'_> {
    struct Stops<'a>(&'a AtomicBool);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    Stops(stop)
}

/// How long tests wait for something that must happen. This is much longer than it takes on the
/// busiest machine.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// Returns a disk with `files` files of `len` bytes, named `f0`, `f1`, … A file's number is the
/// seed of its contents.
pub fn disk(files: u64, len: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    for file in 0..files {
        disk.add_generated(format!("f{file}"), file, len);
    }
    disk
}

/// The machine's own files, in a new directory, through the best backend that the machine supports:
/// normally io_uring.
#[derive(Clone)]
pub struct RealFiles {
    directory: Arc<tempfile::TempDir>,
    backend: Arc<dyn Backend>,
}

impl RealFiles {
    /// The files that [`disk`] has.
    pub fn new(files: u64, len: u64) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for file in 0..files {
            std::fs::write(directory.path().join(format!("f{file}")), generated(file, 0, len as usize)).unwrap();
        }
        Self { directory: Arc::new(directory), backend: Arc::from(automatic()) }
    }
}

impl Backend for RealFiles {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        self.backend.open(&self.directory.path().join(path), access)
    }

    fn waits_in_submit(&self) -> bool {
        self.backend.waits_in_submit()
    }
}

/// Returns a Pagefold with about `pages` pages, on a disk.
pub fn manager(pages: u64, backend: impl pagefold::io::Backend) -> Pagefold {
    manager_in_time(pages, backend, None)
}

/// As above, with an `io_timeout`.
pub fn manager_in_time(pages: u64, backend: impl pagefold::io::Backend, time: Option<Duration>) -> Pagefold {
    let builder = Pagefold::builder().memory(pages * 4096 + (256 << 10)).backend(backend);
    builder.io_timeout(time).build().unwrap()
}

/// `len` bytes at `offset` of a generated file with this seed.
fn generated(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let first = offset & !7;
    let skipped = (offset - first) as usize;
    let mut bytes = vec![0; (skipped + len).next_multiple_of(8)];
    for (word, at) in bytes.as_chunks_mut().0.iter_mut().zip((first..).step_by(8)) {
        *word = generated_word(seed, at).to_le_bytes();
    }
    bytes.truncate(skipped + len);
    bytes.split_off(skipped)
}

/// Fails unless `bytes` are the file's at `offset`.
pub fn check(seed: u64, offset: u64, bytes: &[u8]) {
    if let Some(at) = first_difference(bytes, &generated(seed, offset, bytes.len())) {
        let at = offset + at as u64;
        panic!("file {seed}, byte {at} (page {}): foreign bytes", at / 4096);
    }
}

/// Reads and checks.
pub fn read(file: &File, seed: u64, offset: u64, len: usize) -> Result<usize, Error> {
    let mut buf = vec![0xa5; len];
    let n = file.read_at(&mut buf, offset)?;
    check(seed, offset, &buf[..n]);
    assert!(buf[n..].iter().all(|&byte| byte == 0xa5), "bytes past the end were touched");
    Ok(n)
}

/// Whether a group is within its limit.
pub fn within_limit(group: &Group) -> bool {
    group.charged() <= group.max()
}

/// `len` bytes of version `number` at `offset`. They depend only on `number` and on each byte's
/// offset.
pub fn version(number: u64, offset: u64, len: usize) -> Vec<u8> {
    generated(!number, offset, len)
}

/// All bytes that a file has on the disk, read directly from the backend.
pub fn bytes_on(disk: &impl Backend, path: impl AsRef<Path>) -> Vec<u8> {
    let file = disk.open(path.as_ref(), Access::Read).unwrap();
    let len = file.len().unwrap() as usize;
    let mut bytes = vec![0; len.next_multiple_of(4096)];
    // More than `len` if it is just growing.
    let there = read_full(&*file, 0, SharedBytes::of(&mut bytes).unwrap()).unwrap();
    bytes.truncate(there);
    bytes
}

/// The first position at which the two differ. If they differ only in length, this is the end of
/// the shorter one.
pub fn first_difference(found: &[u8], expected: &[u8]) -> Option<usize> {
    // Comparing everything at once is faster, above all under a sanitizer.
    if found == expected {
        return None;
    }
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    Some(differs.unwrap_or(found.len().min(expected.len())))
}

/// Fails, with the position of the first different byte, unless both are equal.
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    if let Some(at) = first_difference(found, expected) {
        let byte = |bytes: &[u8]| bytes.get(at).map(|byte| format!("{byte:#x}"));
        panic!("{what}: byte {at} (page {}) is {:?}, not {:?}", at / 4096, byte(found), byte(expected));
    }
}

/// Waits for something that other threads should do within moments. If they don't, fails with
/// `what`, the description of what is wrong.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < WATCHDOG, "{what}, after {WATCHDOG:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Repeats a call while it fails because a page is in use. This is needed because the thread that
/// uses the page may get no CPU for as long as a call waits.
pub fn when_free<T>(mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let is_busy = |result: &Result<T, Error>| matches!(result, Err(Error::PageBusy { .. } | Error::AddressBusy { .. }));
    let mut result = call();
    eventually("the page stays in use", || {
        if is_busy(&result) {
            result = call();
        }
        !is_busy(&result)
    });
    result
}

/// Returns the result of a `round` that took less than `time`, and repeats rounds that took longer.
/// In a longer round, background work may have begun that depends on time, and changed the result.
pub fn undisturbed<T>(time: Duration, mut round: impl FnMut() -> T) -> T {
    let mut result = None;
    eventually("no round is over in time", || {
        let start = Instant::now();
        let given = round();
        result = Some(given).filter(|_| start.elapsed() < time);
        result.is_some()
    });
    result.unwrap()
}
