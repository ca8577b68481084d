//! A file system whose calls fail with `EINTR` again and again, as those of FUSE and NFS do while
//! signals arrive.

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

use pagefold::Advice;
use pagefold::io::IoError;
use test_disks::{Call, SimulatedDisk};

use crate::support::around::{Around, Wrapped};
use crate::support::{assert_same, bytes_on, manager, read, version};

const PAGE: u64 = 4096;

/// Fails `times` calls with `error`, then lets one call through, and so on.
#[derive(Clone)]
struct Refusing {
    error: IoError,
    times: u64,
    calls: Arc<AtomicU64>,
}

impl Around for Refusing {
    fn before(&self, _: Call) -> Result<(), IoError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call % (self.times + 1) < self.times { Err(self.error) } else { Ok(()) }
    }
}

/// Makes every kind of call that a file needs. Each of them must succeed.
fn all_goes_well(error: IoError, times: u64) {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 0, 256 * PAGE);
    let refusing = Wrapped::new(&disk, Refusing { error, times, calls: Arc::default() });
    let mm = manager(64, refusing);
    let group = mm.group("a").build().unwrap();
    let file = group.open_options().write(true).open("f").unwrap();
    for page in 0..256 {
        assert_eq!(read(&file, 0, page * PAGE, 4096).unwrap(), 4096);
    }
    let mut expected = bytes_on(&disk, "f");
    for (offset, len) in [(5_000, 100), (100 * PAGE + 9, 20_000), (300 * PAGE, 5_000)] {
        let bytes = version(1, offset, len);
        file.write_at(&bytes, offset).unwrap();
        expected.resize(expected.len().max(offset as usize + len), 0);
        expected[offset as usize..][..len].copy_from_slice(&bytes);
        file.sync().unwrap();
        assert_same(&bytes_on(&disk, "f"), &expected, "synced");
    }
    for len in [400 * PAGE + 3, 200 * PAGE + 7] {
        file.set_len(len).unwrap();
        expected.resize(len as usize, 0);
    }
    file.advise(0..u64::MAX, Advice::PageOut).unwrap();
    file.close().unwrap();
    assert_same(&bytes_on(&disk, "f"), &expected, "closed");
}

/// When a call was interrupted twice in a row, it failed with `EINTR`. On a file system that
/// interrupted each call twice, two of 256 reads failed.
#[test]
fn an_interrupted_call_is_made_again_however_often_it_is_interrupted() {
    all_goes_well(IoError::INTERRUPTED, 2);
    all_goes_well(IoError::INTERRUPTED, 100);
}

/// As above, for reads and writes that fail with `EAGAIN`.
#[test]
fn a_read_or_write_that_the_system_has_no_room_for_is_tried_again_in_pauses() {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 0, 64 * PAGE);
    let refusing = Refusing { error: IoError::AGAIN, times: 0, calls: Arc::default() };
    let again = Wrapped::new(&disk, Transfers(refusing));
    let mm = manager(64, again);
    let file = mm.group("a").build().unwrap().open_options().write(true).open("f").unwrap();
    for page in 0..64 {
        assert_eq!(read(&file, 0, page * PAGE, 4096).unwrap(), 4096);
    }
    file.write_at(&[7; 9_000], 100).unwrap();
    file.sync().unwrap();
}

/// As [`Refusing`], but fails only reads and writes, three times each.
#[derive(Clone)]
struct Transfers(Refusing);

impl Around for Transfers {
    fn before(&self, call: Call) -> Result<(), IoError> {
        let refusing = Refusing { times: 3, ..self.0.clone() };
        if matches!(call, Call::Read | Call::Write) { refusing.before(call) } else { Ok(()) }
    }
}
