//! Each answer of a backend is noted before the next call.

use std::path::Path;
use std::sync::OnceLock;
use std::thread::ThreadId;

use super::*;
use crate::file::length::{Attempt, End};
use io::{Access, BackingFile, Identity, IoError};
use sync::SharedBytes;

/// A backend that checks, for each call, that the answer was noted before the next call began. It
/// checks only calls of the thread that called [`look_at`](Notes::look_at).
#[derive(Clone)]
struct Noting(SimulatedDisk, Arc<Notes>);

struct NotingFile(Box<dyn BackingFile>, Arc<Notes>);

#[derive(Default)]
struct Notes {
    file: OnceLock<(Arc<FileState>, ThreadId)>,
    /// The last call, and the last progress of cycles of the device at that time.
    last: Mutex<Option<(&'static str, Duration)>>,
    /// The calls, and which of these two made progress after each: `Length`, `Cycle`.
    noted: Mutex<Vec<(&'static str, bool, bool)>>,
    /// The calls after which no cycle of the device made progress.
    without_cycle: Mutex<Vec<&'static str>>,
}

impl Notes {
    fn look_at(&self, file: &File) {
        assert!(self.file.set((Arc::clone(&file.handle().file), thread::current().id())).is_ok());
    }

    fn watch(&self) -> Option<&Watch<FileState>> {
        self.file.get().filter(|(_, thread)| *thread == thread::current().id())?.0.watch()
    }

    fn look(&self) {
        if let Some(watch) = self.watch()
            && let Some((call, before)) = self.last.lock().take()
        {
            if watch.device.under_way.last_progress() == before {
                self.without_cycle.lock().push(call);
            }
            self.noted.lock().push((call, progressed(watch, Pace::Length), progressed(watch, Pace::Cycle)));
        }
    }

    fn around<T>(&self, what: &'static str, call: impl FnOnce() -> T) -> T {
        self.look();
        let result = call();
        if let Some(watch) = self.watch() {
            watch.forget();
            let now = Instant::now();
            while Instant::now() == now {} // So any later progress has another time.
            *self.last.lock() = Some((what, watch.device.under_way.last_progress()));
        }
        result
    }

    fn calls(&self) -> Vec<(&'static str, bool, bool)> {
        self.look();
        mem::take(&mut *self.noted.lock())
    }
}

impl Backend for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(NotingFile(self.0.open(path, access)?, Arc::clone(&self.1))))
    }
}

impl BackingFile for NotingFile {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.1.around("len", || self.0.len())
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.1.around("read", || self.0.read(offset, into))
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.1.around("write", || self.0.write(offset, from, len))
    }

    fn sync(&self) -> Result<(), IoError> {
        self.1.around("sync", || self.0.sync())
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.1.around("set_len", || self.0.set_len(len))
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        self.1.around("lengthen", || self.0.lengthen(len))
    }
}

fn noting() -> (SimulatedDisk, Arc<Notes>, Pagefold, File) {
    let (disk, notes) = (SimulatedDisk::default(), Arc::<Notes>::default());
    let (mm, group) = world_on(&disk, Noting(disk.clone(), Arc::clone(&notes)));
    let file = open(&group, "f0");
    (disk, notes, mm, file)
}

/// Regression: an errand asked for the file's length, changed it, and read the page with the old
/// end. Only the answer to the change counted.
#[test]
fn each_answer_to_an_errand_that_changes_the_length_counts() {
    let (disk, notes, _mm, file) = noting();
    let (state, _) = state_of(&file);
    notes.look_at(&file);
    // A longer file. `turn` is taken between these two calls.
    state.set_len(6000).unwrap();
    assert_eq!(notes.calls(), [("len", true, true), ("set_len", true, true)]);
    // A shorter file.
    state.set_len(PAGE + 10).unwrap();
    assert_eq!(notes.calls(), [("len", true, true), ("set_len", true, true)]);
    // A gap.
    let turn = state.lock_extension_in_errand();
    state.close_gap(9 * PAGE..9 * PAGE + 10).unwrap();
    assert_eq!(notes.calls(), [("len", true, false), ("lengthen", true, false), ("len", true, false)]);
    state.grow_to(9 * PAGE + 10);
    drop(turn);
    // A truncation and growth by another process.
    disk.truncate("f0", 5000).unwrap();
    assert!(matches!(state.adopt_len(), Ok(Attempt::Done(5000))));
    assert_eq!(notes.calls(), [("len", true, true), ("len", true, true)]);
    disk.grow("f0", 6000).unwrap();
    assert!(matches!(state.adopt_len(), Ok(Attempt::Done(6000))));
    assert_eq!(notes.calls(), [("len", true, false)]);
    // The page with the old end is dirty.
    let no_cycle = state.pause_write_back();
    file.write_at(&[2; PAGE as usize], 0).unwrap();
    file.write_at(&[2; 10], PAGE).unwrap();
    notes.calls();
    disk.grow("f0", 7000).unwrap();
    let mut end = state.await_end(6000..7000).unwrap();
    assert!(matches!(end, End::Held(_)));
    state.fill_own_end(&mut end, 6000..7000).unwrap();
    let calls = notes.calls(); // A read may take several calls. Only its end is an answer.
    assert!(calls.first().is_some_and(|(call, ..)| *call == "read"), "{calls:?}");
    assert!(calls.last().is_some_and(|(_, length, _)| *length), "{calls:?}");
    drop((end, no_cycle));
}

/// Each answer to write-back counts as progress: also a failure, and the answers to the pieces of a
/// request that failed. Regression: these answers didn't count. Later they counted for syncs, but
/// not for the device's cycles. So writers that had to wait for write-back took the device for
/// silent.
#[test]
fn each_answer_to_a_cycle_counts() {
    let (disk, notes, _mm, file) = noting();
    let (state, _) = state_of(&file);
    file.set_len(2 * PAGE).unwrap();
    disk.set_capacity(0); // For the flusher, too: both pages stay dirty.
    disk.fail_syncs(u64::MAX, 0);
    file.write_at(&[2; 2 * PAGE as usize], 2 * PAGE).unwrap();
    notes.look_at(&file);
    assert!(state.write_back_all().is_err());
    let calls = notes.calls();
    assert!(calls.iter().filter(|(call, ..)| *call == "write").count() > 1, "{calls:?}");
    assert!(calls.iter().all(|(.., cycle)| *cycle), "{calls:?}");
    let without_cycle = mem::take(&mut *notes.without_cycle.lock());
    assert!(!without_cycle.iter().any(|call| ["write", "sync"].contains(call)), "{without_cycle:?}");
}
