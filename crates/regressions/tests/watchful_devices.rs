//! A device that reads the bytes of a write twice, and fails the write with `EIO` if they have
//! changed in between. Real examples are ZFS, whose checksums cover direct writes, and disks with
//! protection information.

use sync::Arc;
use sync::SharedBytes;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::time::Instant;

use pagefold::File;
use pagefold::io::{BackingFile, IoError};
use test_disks::SimulatedDisk;

use crate::support::around::{Around, Wrapped};
use crate::support::{WATCHDOG, assert_same, bytes_on, manager};

const PAGE: u64 = 4096;

#[derive(Clone)]
struct Watchful {
    /// Whether the device says that it needs stable bytes.
    says_so: bool,
    /// The device fails each write that contains this byte, whether or not bytes change.
    bad: u8,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    writes: AtomicU64,
    refused: AtomicU64,
    longest: AtomicU64,
    turns: Mutex<Turns>,
    changed: Condvar,
}

/// What a write in flight requests of the writer.
#[derive(Default)]
struct Turns {
    has_writer: bool,
    /// Number of changes of the page that were requested.
    asked: u64,
    /// Number of changes that were made.
    made: u64,
}

impl Seen {
    /// If there is a writer, has it change its page, and waits for the change.
    fn have_page_changed(&self) {
        let mut turns = self.turns.lock();
        if !turns.has_writer {
            return;
        }
        turns.asked += 1;
        self.changed.notify_all();
        let (number, start) = (turns.asked, Instant::now());
        while turns.made < number {
            assert!(start.elapsed() < WATCHDOG, "a writer waits for a write that is under way");
            self.changed.wait_for(&mut turns, WATCHDOG);
        }
    }

    /// Waits until a change is requested. Returns false if there is no writer any more.
    fn is_asked(&self) -> bool {
        let mut turns = self.turns.lock();
        while turns.has_writer && turns.made == turns.asked {
            self.changed.wait(&mut turns);
        }
        turns.has_writer
    }

    fn made(&self) {
        self.turns.lock().made += 1;
        self.changed.notify_all();
    }

    fn set_writer(&self, has_writer: bool) {
        self.turns.lock().has_writer = has_writer;
        self.changed.notify_all();
    }
}

impl Watchful {
    fn new(says_so: bool) -> Self {
        Self { says_so, bad: 0xff, seen: Arc::default() }
    }
}

fn bytes_of(from: &[SharedBytes<'_>], len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slice in from {
        let start = bytes.len();
        bytes.resize(start + slice.len(), 0);
        slice.copy_to(0, &mut bytes[start..]);
    }
    bytes.truncate(len);
    bytes
}

impl Around for Watchful {
    fn needs_stable_bytes(&self) -> bool {
        self.says_so
    }

    fn write(
        &self,
        file: &dyn BackingFile,
        offset: u64,
        from: &[SharedBytes<'_>],
        len: usize,
    ) -> Result<usize, IoError> {
        self.seen.writes.fetch_add(1, Ordering::SeqCst);
        self.seen.longest.fetch_max(len as u64, Ordering::SeqCst);
        let before = bytes_of(from, len);
        self.seen.have_page_changed();
        if before != bytes_of(from, len) || before.contains(&self.bad) {
            self.seen.refused.fetch_add(1, Ordering::SeqCst);
            return Err(IoError::IO);
        }
        file.write(offset, from, len)
    }
}

/// A thread that changes 8 bytes of a page each time the device has begun a write.
struct Writer {
    seen: Arc<Seen>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Writer {
    fn start(seen: &Arc<Seen>, file: File, page: u64) -> Self {
        seen.set_writer(true);
        let its = Arc::clone(seen);
        let thread = std::thread::spawn(move || {
            let mut number = 0_u64;
            while its.is_asked() {
                number += 1;
                file.write_at(&(number % 200).to_ne_bytes(), page * PAGE + 8).unwrap();
                its.made();
            }
            number
        });
        Self { seen: Arc::clone(seen), thread: Some(thread) }
    }

    /// Ends the thread. Returns how many changes were requested of it.
    fn end(mut self) -> u64 {
        self.seen.set_writer(false);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Syncs forty times while a writer changes a page. Returns how many syncs failed, and how many
/// writes the device refused.
fn forty_syncs(watchful: Watchful) -> (u64, u64) {
    let disk = SimulatedDisk::default();
    disk.add_bytes("f", vec![1; 64 * PAGE as usize]);
    let seen = Arc::clone(&watchful.seen);
    let mm = manager(256, Wrapped::new(&disk, watchful));
    let group = mm.group("a").build().unwrap();
    let file = group.open_options().write(true).open("f").unwrap();
    let writer = Writer::start(&seen, file.clone(), 5);
    let mut failed = 0;
    for round in 0..40 {
        for page in 0..12 {
            file.write_at(&[round], page * PAGE).unwrap();
        }
        failed += u64::from(file.sync().is_err());
    }
    let refused = seen.refused.load(Ordering::SeqCst);
    assert!(writer.end() >= 40);
    let _ = file.sync();
    file.sync().unwrap();
    let mut expected = vec![0; 64 * PAGE as usize];
    file.read_exact_at(&mut expected, 0).unwrap();
    assert_same(&bytes_on(&disk, "f"), &expected, "synced in the end");
    (failed, refused)
}

/// Write-back gave the device pages that writers were still changing. On a device that checks this,
/// each sync beside a writer failed.
#[test]
fn a_device_that_needs_stable_bytes_gets_them() {
    assert_eq!(forty_syncs(Watchful::new(true)), (0, 0));
}

/// As above, on a device that doesn't say that it needs stable bytes. It refuses one write, which
/// is repeated from a copy; from then on, all writes are made from copies.
#[test]
fn a_device_that_refuses_a_page_that_was_changed_gets_copies_from_then_on() {
    assert_eq!(forty_syncs(Watchful::new(false)), (0, 1));
}

/// If a write fails for another reason, its error is returned, even if the page was changed
/// meanwhile.
#[test]
fn a_bad_device_is_not_taken_for_a_watchful_one() {
    let disk = SimulatedDisk::default();
    let watchful = Watchful { bad: 7, ..Watchful::new(false) };
    let seen = Arc::clone(&watchful.seen);
    let mm = manager(256, Wrapped::new(&disk, watchful));
    let group = mm.group("a").build().unwrap();
    let file = group.open_options().write(true).create(true).open("f").unwrap();
    file.write_at(&[3; 4 * PAGE as usize], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[7], 2 * PAGE + 100).unwrap();
    let writer = Writer::start(&seen, file.clone(), 2);
    file.sync().unwrap_err();
    file.sync().unwrap_err();
    writer.end();
    assert!(file.stats().unclean_bytes >= PAGE);
    file.write_at(&[4], 2 * PAGE + 100).unwrap();
    let _ = file.sync();
    file.sync().unwrap();
}

/// There are few buffers for copies. A file with more dirty pages than these buffers can hold is
/// written a part at a time.
#[test]
fn many_pages_are_written_from_few_copies() {
    let disk = SimulatedDisk::default();
    let watchful = Watchful::new(true);
    let seen = Arc::clone(&watchful.seen);
    let mm = manager(4096, Wrapped::new(&disk, watchful));
    let group = mm.group("a").build().unwrap();
    let files: Vec<_> = (0..3)
        .map(|number| group.open_options().write(true).create(true).open(format!("f{number}")).unwrap())
        .collect();
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, file) in (1..).zip(&files) {
            let failed = &failed;
            scope.spawn(move || {
                let bytes = vec![number; 900 * PAGE as usize + 77];
                let written = file.write_at(&bytes, 0).and_then(|()| file.sync());
                failed.fetch_or(written.is_err(), Ordering::SeqCst);
            });
        }
    });
    assert!(!failed.load(Ordering::SeqCst));
    for number in 0..3 {
        let expected = vec![number + 1; 900 * PAGE as usize + 77];
        assert_same(&bytes_on(&disk, format!("f{number}")), &expected, "synced");
    }
    assert_eq!(seen.refused.load(Ordering::SeqCst), 0);
    assert!(seen.longest.load(Ordering::SeqCst) <= 256 << 10, "copies of 256 KiB at most");
}
