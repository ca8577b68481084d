//! When a silent device is asked, and what ends its silence.

use std::future::Future;
use std::path::Path;

use super::*;
use crate::file::length::EndWait;
use crate::write::Written;
use io::{Access, BackingFile, Identity, IoError};
use sync::SharedBytes;
use sync::lock::{OnceCell, RwLock};

/// Regression: a page that was being loaded was taken for a page in use. So a call that waited for
/// the device failed with `PageBusy` after seconds, and until then its wait counted as progress.
#[test]
fn a_page_that_is_being_loaded_is_waited_for_as_the_device() {
    let (disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    disk.answer_by_hand();
    file.prefetch(8 * PAGE..9 * PAGE);
    assert_eq!(state.map.state(8), PageState::Loading);
    fall_silent(&state); // So no call waits for the load.
    state.shrink_to(8 * PAGE);
    let dropped = state.forget_beyond_end(8 * PAGE..9 * PAGE);
    assert!(matches!(dropped, Err(Error::DeviceTimeout { .. })), "{dropped:?}");
    assert!(!progressed(watch, Pace::Length));
    let waited = EndWait::default().wait(&state, 8, FileState::wait_for_page);
    assert!(matches!(waited, Err(Error::DeviceTimeout { .. })), "{waited:?}");
    state.grow_to(64 * PAGE);
    while disk.answer_next() {}
    state.shrink_to(8 * PAGE);
    state.forget_beyond_end(8 * PAGE..9 * PAGE).unwrap();
    assert_ne!(state.map.state(8), PageState::Loading);
}

/// Regression: a write that made a page in memory ended the device's silence, although the device
/// had answered nothing. A write that waited for a load, and gave up, ended the silence, too.
#[test]
fn a_write_to_memory_ends_no_silence() {
    let (disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    let no_cycle = state.writeback.pause(); // The flusher's writes would be answered.
    disk.answer_by_hand();
    file.prefetch(8 * PAGE..9 * PAGE);
    fall_silent(&state);
    let refused = (file.write_at(&[2; PAGE as usize], 8 * PAGE), watch.is_silent());
    fall_silent(&state);
    let appended = (file.write_at(&[2; PAGE as usize], 64 * PAGE), watch.is_silent());
    while disk.answer_next() {} // Before a check fails: the file's closing waits for the load.
    assert!(matches!(refused, (Err(Error::DeviceTimeout { .. }), true)), "{refused:?}");
    assert!(matches!(appended, (Ok(()), true)), "{appended:?}");
    assert!(!watch.is_silent());
    drop(no_cycle);
}

/// A call may wait for a page that a write creates in memory. If the writer gets no CPU, the call
/// gives up. Then no answer of the device ends the silence, so the writer has to end it.
#[test]
fn a_silence_that_began_while_a_page_was_made_ends_with_it() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    for permits in [true, false] {
        let give_up = || {
            assert_eq!(state.map.state(8), PageState::Loading);
            fall_silent(&state);
            permits
        };
        let written = file.handle().overwrite(&[2; PAGE as usize], 8 * PAGE, &give_up).unwrap();
        assert_eq!(written, if permits { Written::Done } else { Written::Refused });
        assert!(!watch.is_silent(), "permits: {permits}");
        file.sync().unwrap();
        file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    }
}

/// Regression: a call that gave up was counted even if the device was silent already. If it gave up
/// while a page was made, the older silence ended with the page's load, although the device had
/// answered nothing.
#[test]
fn an_older_silence_outlasts_a_call_that_gives_up_while_a_page_is_made() {
    let (_disk, _mm, group) = world();
    let file = open(&group, "large");
    let (state, watch) = state_of(&file);
    fall_silent(&state);
    let give_up = || {
        fall_silent(&state);
        true
    };
    assert_eq!(file.handle().overwrite(&[2; PAGE as usize], 8 * PAGE, &give_up).unwrap(), Written::Done);
    assert!(watch.is_silent());
    watch.device.answered();
}

/// A backend whose files panic when they are unlocked, and when they are dropped. After
/// `close(true)`, calls that ask for a length wait until `close(false)`.
#[derive(Clone, Default)]
struct Panicking(SimulatedDisk, Arc<(Mutex<bool>, Condvar)>);

struct PanickingFile(Box<dyn BackingFile>, Panicking);

impl Panicking {
    fn close(&self, is_closed: bool) {
        *self.1.0.lock() = is_closed;
        self.1.1.notify_all();
    }
}

impl Backend for Panicking {
    fn name(&self) -> &'static str {
        "panicking"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(PanickingFile(self.0.open(path, access)?, self.clone())))
    }
}

impl BackingFile for PanickingFile {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        let mut is_closed = self.1.1.0.lock();
        while *is_closed {
            self.1.1.1.wait(&mut is_closed);
        }
        drop(is_closed);
        self.0.len()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.0.read(offset, into)
    }

    fn unlock(&self) {
        panic!("on purpose");
    }
}

impl Drop for PanickingFile {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// Regression: a worker was asking for a file's length, on behalf of a call or of a future. Before
/// the device answered, the device was taken for silent, and the file was closed. So the worker
/// dropped the backend's file, which panicked. The device was silent for good.
#[test]
fn a_file_that_panics_when_a_worker_drops_it_ends_the_silence() {
    let disk = Panicking::default();
    let (_mm, group) = world_on(&disk.0, disk.clone());
    let other = group.open("f1").unwrap();
    for by_future in [false, true] {
        let file = group.open("f0").unwrap();
        disk.close(true);
        let state = Arc::clone(&file.handle().file);
        if by_future {
            let mut future = std::pin::pin!(file.page_at_async(9 * PAGE));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(future.as_mut().poll(&mut context).is_pending());
        } else {
            drop(state.watch().unwrap().send(Pace::Answer, |file| Ok(file.is_cut_off())).unwrap());
        }
        fall_silent(&state);
        drop((state, file));
        assert!(matches!(other.page_at(0), Err(Error::DeviceTimeout { .. })));
        disk.close(false);
        eventually(|| !other.stats().device_silent);
        other.page_at(0).unwrap();
        other.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    }
    std::mem::forget(other);
}

/// Regression: a caller had left an errand, and the file's last handle was dropped. When the errand
/// was over, the worker unlocked the file, and the unlocking panicked. So the worker dropped the
/// backend's file during the unwinding. The drop panicked, too, and the process ended.
#[test]
fn a_worker_survives_a_file_that_panics_when_it_is_unlocked_and_when_it_is_dropped() {
    let disk = Panicking::default();
    let (mm, group) = world_on(&disk.0, disk.clone());
    let other = group.open("f1").unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let (state, watch) = state_of(&file);
    let left = Arc::clone(&watch.left);
    // All workers but one hang. So further work is done only once that one worker has finished the
    // errand.
    let (workers, identity) = (mm.manager().file_io.workers().unwrap(), state.backing.identity());
    let (gate, is_through) = (Arc::new(RwLock::new(())), Arc::new(OnceCell::new()));
    let closed = gate.write();
    for _ in 1..crate::manager::file_io::WORKERS_MAX {
        let gate = Arc::clone(&gate);
        workers.run(identity, move || drop(gate.read()));
    }
    disk.close(true);
    let errand = watch.send(Pace::Closing, |file| Ok(file.is_cut_off())).unwrap();
    eventually(|| matches!(*errand.stage.lock(), Stage::Begun(_)));
    fall_silent(&state);
    // A closing doesn't wait for a silent device.
    let result = errand.wait(&state, watch, Pace::Closing);
    assert!(matches!(result, Err(Error::DeviceTimeout { .. })), "{result:?}");
    assert_eq!(left.load(Ordering::Relaxed), 1);
    drop((state, file));
    let its = Arc::clone(&is_through);
    workers.run(identity, move || its.set(()).unwrap());
    disk.close(false);
    eventually(|| is_through.get().is_some());
    assert!(left.load(Ordering::Relaxed) == 0 && !other.stats().device_silent);
    std::mem::forget(other);
    drop(closed);
}
