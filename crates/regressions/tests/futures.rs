//! Futures of pages, and their asynchronous callers.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use sync::atomic::{AtomicU64, Ordering};

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use pagefold::{Advice, Error, File, Group, PageFuture, Pagefold, Protection};
use sync::SharedBytes;
use test_disks::SimulatedDisk;

use crate::gated_disk::GatedDisk;
use crate::hooked::{Answer, Hooked, fill};
use crate::support::devices::Devices;
use crate::support::{check, disk, eventually, manager, read};
use crate::swap_areas::swapping_to;

const PAGE: u64 = 4096;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Unparks the thread, and counts how often.
struct Wakes(std::thread::Thread, AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Runs the future on this thread. Returns its output, and how often it was polled.
fn run<F: Future + Unpin>(mut future: F) -> (F::Output, u64) {
    let wakes = Arc::new(Wakes(std::thread::current(), AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&wakes));
    let mut polls = 0;
    loop {
        let seen = wakes.1.load(Ordering::SeqCst);
        polls += 1;
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return (output, polls);
        }
        while wakes.1.load(Ordering::SeqCst) == seen {
            std::thread::park();
        }
    }
}

/// A file of 4,096 pages on a disk that answers by hand, in a group of 16 pages.
fn by_hand() -> (SimulatedDisk, Pagefold, Group, File) {
    let disk = disk(1, 4096 * PAGE);
    disk.answer_by_hand();
    let mm = manager(1024, disk.clone());
    let group = mm.group("tenant").max(16 * PAGE).build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    file.advise(0..u64::MAX, Advice::Random).unwrap();
    (disk, mm, group, file)
}

/// Futures whose pages have been loaded, but which haven't been polled since.
fn arrived<'a>(disk: &SimulatedDisk, file: &'a File, pages: impl IntoIterator<Item = u64>) -> Vec<PageFuture<'a>> {
    let mut futures: Vec<_> = pages.into_iter().map(|page| file.page_at_async(page * PAGE)).collect();
    futures.iter_mut().for_each(|future| assert!(poll(future).is_pending()));
    while disk.answer_next() {}
    futures
}

/// A page that was loaded for a future stayed pinned until the future was polled, so writers failed
/// with `PageBusy` after seconds. If one task had such a future and wrote to the same page, it
/// waited for itself.
#[test]
fn a_future_that_is_not_polled_keeps_no_writer_out() {
    let (disk, _mm, _group, file) = by_hand();
    let mut futures = arrived(&disk, &file, [3, 5, 4095]);
    file.write_at(&[7; 100], 3 * PAGE + 50).unwrap();
    let mut page = file.page_mut_at(5 * PAGE).unwrap();
    page[..8].fill(9);
    drop(page);
    file.set_len(4095 * PAGE).unwrap();
    for (future, first) in futures.iter_mut().zip([None, Some(9)]) {
        let Poll::Ready(Ok(page)) = poll(future) else { panic!("the page is in memory") };
        match first {
            None => assert_eq!(page[50..150], [7; 100]),
            Some(byte) => assert_eq!(page[..8], [byte; 8]),
        }
    }
    let (result, _) = run(futures.pop().unwrap());
    assert!(matches!(result, Err(Error::PastEnd { .. })), "{result:?}");
}

/// Pages that were loaded for futures stayed pinned until the futures were polled. They filled the
/// group's limit, so nothing else could be read.
#[test]
fn futures_that_are_not_polled_keep_no_reader_out() {
    let (disk, mm, group, file) = by_hand();
    let mut futures = arrived(&disk, &file, 0..16);
    assert_eq!(group.charged(), 16 * PAGE);
    read(&file, 0, 100 * PAGE, PAGE as usize).unwrap();
    // Futures that aren't polled don't keep other futures from their pages, either.
    let answers = disk.clone();
    let stop = Arc::new(sync::atomic::AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let device = std::thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            if !answers.answer_next() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    for page in 16..40 {
        futures.extend(std::iter::once(file.page_at_async(page * PAGE)));
        let (result, _) = run(futures.pop().unwrap());
        check(0, page * PAGE, &result.unwrap());
    }
    // Each future still gets its page; if the page was evicted, it is loaded again.
    for (page, future) in futures.into_iter().enumerate() {
        check(0, page as u64 * PAGE, &run(future).0.unwrap());
    }
    stop.store(true, Ordering::SeqCst);
    device.join().unwrap();
    drop(file);
    eventually("charges are leaked", || group.charged() == 0);
    drop(mm);
}

/// Pages of futures that weren't polled stayed pinned, so the budget couldn't be lowered below
/// them.
#[test]
fn futures_that_are_not_polled_let_the_budget_be_lowered() {
    let disk = disk(1, 4096 * PAGE);
    disk.answer_by_hand();
    let mm = Pagefold::builder().memory("16 MiB").backend(disk.clone()).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..u64::MAX, Advice::Random).unwrap();
    let futures = arrived(&disk, &file, 0..2048);
    mm.resize("4 MiB").unwrap();
    drop(futures);
}

/// A future that got no frame woke its task again at once: in the 0.2 s until its error, it was
/// polled thousands of times, and each poll ran a reclaim.
#[test]
fn a_future_without_a_frame_pauses() {
    let disk = disk(1, 4096 * PAGE);
    let mm = manager(1024, disk);
    let group = mm.group("tenant").max(16 * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    let pins: Vec<_> = (0..16).map(|page| file.page_at((page * 10) * PAGE).unwrap()).collect();
    let (result, polls) = run(file.page_at_async(1000 * PAGE));
    assert!(matches!(result, Err(Error::LimitReached { .. })), "{result:?}");
    assert!(polls < 250, "{polls} polls");
    // Once a frame is free again, the future completes without further calls.
    let mut future = file.page_at_async(1000 * PAGE);
    assert!(poll(&mut future).is_pending());
    drop(pins);
    check(0, 1000 * PAGE, &run(future).0.unwrap());
}

/// A poll blocked the executor's thread in two cases: the page was being changed through a guard,
/// or the page was at the file's end while the file's length was being changed.
#[test]
fn a_poll_waits_for_nothing() {
    let devices = Devices::new(1);
    devices.device(0).disk.add_generated("f", 0, 64 * PAGE);
    let mm = manager(1024, devices.clone());
    let group = mm.group("tenant").build().unwrap();
    let file = group.open_options().write(true).open("0/f").unwrap();
    let _going_on = devices.going_on_at_last();
    let changed = file.page_mut_at(7 * PAGE).unwrap();
    let mut future = file.page_at_async(7 * PAGE);
    assert!(poll(&mut future).is_pending());
    drop(changed);
    check(0, 7 * PAGE, &run(future).0.unwrap());
    devices.device(0).silence(true);
    let ours = file.clone();
    let longer = Answer::of(move || ours.set_len(80 * PAGE));
    eventually("the new length doesn't reach the device", || devices.device(0).waiting() > 0);
    let ours = file.clone();
    let polled = Answer::of(move || poll(&mut ours.page_at_async(70 * PAGE)).is_pending());
    assert_eq!(polled.wait(), Some(true), "a poll waits for the device");
    devices.device(0).silence(false);
    longer.wait().unwrap().unwrap();
    assert_eq!(run(file.page_at_async(70 * PAGE)).0.unwrap()[..], [0; PAGE as usize]);
    assert!(matches!(run(file.page_at_async(80 * PAGE)).0, Err(Error::PastEnd { .. })));
}

/// A task whose executor is gone: only the waker keeps it alive. Waking it drops it.
struct Forgotten(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Forgotten {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

/// A task owned the last handle of a file. The thread that completed a load woke the task, which
/// dropped the handle. The drop waited for all loads of the file, one of which this thread was
/// completing: it waited for itself.
#[test]
fn a_waker_that_drops_the_last_handle_keeps_no_thread() {
    for is_dirty in [false, true] {
        let (disk, mm, _group, file) = by_hand();
        if is_dirty {
            file.write_at(&[1; PAGE as usize], 100 * PAGE).unwrap();
        }
        let read = async move { drop(file.read_at_async(&mut [0; 8 * PAGE as usize], 0).await) };
        let task = Arc::new(Forgotten(Mutex::new(Some(Box::pin(read)))));
        let mut read = task.0.lock().unwrap().take().unwrap();
        let waker = Waker::from(Arc::clone(&task));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *task.0.lock().unwrap() = Some(read);
        drop((task, waker));
        let answers = Answer::of({
            let disk = disk.clone();
            move || while disk.answer_next() {}
        });
        assert!(answers.wait().is_some(), "the thread that completes the load waits for it");
        eventually("the file stays open", || {
            while disk.answer_next() {}
            mm.stats().files.is_empty()
        });
    }
}

/// When many futures wait for one page, each of them is woken, and any of them may be dropped
/// before that.
#[test]
fn many_futures_of_one_page_are_told() {
    let (disk, _mm, _group, file) = by_hand();
    let mut futures: Vec<_> = (0..20_000).map(|_| file.page_at_async(5 * PAGE)).collect();
    futures.iter_mut().for_each(|future| assert!(poll(future).is_pending()));
    let mut at = 0;
    futures.retain(|_| {
        at += 1;
        at % 3 != 0
    });
    futures.iter_mut().for_each(|future| assert!(poll(future).is_pending()));
    while disk.answer_next() {}
    for mut future in futures {
        let Poll::Ready(Ok(page)) = poll(&mut future) else { panic!("it isn't told") };
        check(0, 5 * PAGE, &page[..8]);
    }
}

/// A future of a silent device stayed pending until the device answered. It must fail after
/// `io_timeout`.
#[test]
fn a_future_of_a_silent_device_fails_in_time() {
    let devices = Devices::new(2);
    (0..2).for_each(|number| devices.device(number).disk.add_generated("f", number as u64, 64 * PAGE));
    let builder = Pagefold::builder().memory(4 << 20).backend(devices.clone());
    let mm = builder.io_timeout(Duration::from_millis(100)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let (silent, well) = (group.open("0/f").unwrap(), group.open("1/f").unwrap());
    let _going_on = devices.going_on_at_last();
    devices.device(0).silence(true);
    let file = silent.clone();
    let timeouts = Answer::of(move || {
        let mut futures: Vec<_> = [1, 2, 2].into_iter().map(|page| file.page_at_async(page * PAGE)).collect();
        futures.iter_mut().for_each(|future| assert!(poll(future).is_pending()));
        let timeouts = futures.into_iter().map(|future| run(future).0.is_err_and(|error| is_timeout(&error)));
        timeouts.filter(|is_timeout| *is_timeout).count()
    });
    assert_eq!(timeouts.wait(), Some(3), "a future waits for the silent device");
    assert!(matches!(poll(&mut silent.page_at_async(40 * PAGE)), Poll::Ready(Err(error)) if is_timeout(&error)));
    // A device that isn't silent may also answer too late: the test's timeout is short, and the
    // device's thread may get no CPU.
    let again = |file: &File, seed: u64, page: u64| {
        eventually("the device doesn't answer in time", || match run(file.page_at_async(page * PAGE)).0 {
            Err(error) if is_timeout(&error) => false,
            result => {
                check(seed, page * PAGE, &result.unwrap());
                true
            }
        });
    };
    again(&well, 1, 0);
    assert!(silent.stats().device_silent);
    devices.device(0).silence(false);
    (0..64).for_each(|page| again(&silent, 0, page));
    eventually("no answer is heard", || !silent.stats().device_silent);
    drop((silent, well));
    eventually("charges are leaked", || group.charged() == 0);
}

/// A backend panicked in the worker that asked for the file's length in place of a future. The
/// future was never woken.
#[test]
fn a_future_whose_worker_panics_is_woken_and_fails() {
    let calls = AtomicU64::new(0);
    let len = move || match calls.fetch_add(1, Ordering::SeqCst) {
        1 => panic!("on purpose"),
        _ => Ok(PAGE),
    };
    let mm = manager(64, Hooked::new(|offset, into| Ok(fill(offset, into, PAGE, 7)), len));
    let file = mm.group("tenant").build().unwrap().open("file").unwrap();
    let ours = file.clone();
    let result = Answer::of(move || run(Box::pin(async move { ours.read_at_async(&mut [0; 8], PAGE).await })).0);
    let result = result.wait().expect("the future isn't woken");
    assert!(matches!(result, Err(Error::ReadFailed { .. })), "{result:?}");
    assert_eq!(run(Box::pin(async { file.read_at_async(&mut [0; 8], PAGE).await })).0.unwrap(), 0);
}

/// Drops a handle when it is woken, as a task may that is its last user.
struct Drops<T>(Mutex<Option<T>>);

impl<T: Send + 'static> Wake for Drops<T> {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

/// Lets a task's waker drop a handle.
fn drop_by_waker<T: Send + 'static>(handle: T) {
    sync::tasks::wake_all([Waker::from(Arc::new(Drops(Mutex::new(Some(handle)))))]);
}

/// A backend of one file, which notes the thread that drops the file.
#[derive(Default)]
struct NotesDrop(Arc<Mutex<Option<ThreadId>>>);

impl Backend for NotesDrop {
    fn name(&self) -> &'static str {
        "notes drop"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(DropNoted(Arc::clone(&self.0))))
    }
}

struct DropNoted(Arc<Mutex<Option<ThreadId>>>);

impl BackingFile for DropNoted {
    fn identity(&self) -> Identity {
        Identity { device: 1, inode: 1 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(PAGE)
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        Ok(fill(offset, into[0], PAGE, 7))
    }
}

impl Drop for DropNoted {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = Some(std::thread::current().id());
    }
}

/// A task's waker dropped the last handle of a space. The thread that had called the waker tore the
/// space down: it freed all its pages, waited for those in use, and closed its files. But this
/// thread may be the one that completes all tenants' loads.
#[test]
fn a_space_that_a_waker_drops_is_torn_down_by_another_thread() {
    let backend = NotesDrop::default();
    let dropped = Arc::clone(&backend.0);
    let mm = manager(64, backend);
    let group = mm.group("tenant").build().unwrap();
    let space = group.space().unwrap();
    let file = group.open("file").unwrap();
    space.map_file(&file, 0, PAGE, Protection::Read).unwrap();
    drop(file);
    drop_by_waker(space);
    eventually("the space is never torn down", || dropped.lock().unwrap().is_some());
    assert_ne!(*dropped.lock().unwrap(), Some(std::thread::current().id()));
    eventually("charges are leaked", || group.charged() == 0);
}

/// A task's waker dropped the last handle of a file without changes. The thread that had called the
/// waker closed the file: it freed all the file's pages, and waited for those in use.
#[test]
fn a_file_that_a_waker_drops_is_closed_by_another_thread() {
    let backend = NotesDrop::default();
    let dropped = Arc::clone(&backend.0);
    let mm = manager(64, backend);
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("file").unwrap();
    file.read_exact_at(&mut [0], 0).unwrap();
    drop_by_waker(file);
    eventually("the file is never closed", || dropped.lock().unwrap().is_some());
    assert_ne!(*dropped.lock().unwrap(), Some(std::thread::current().id()));
    eventually("charges are leaked", || group.charged() == 0);
}

/// A task's waker dropped a space while a swap area was being removed. The removal was reading one
/// of the space's pages, and the area's device didn't answer. The thread that had called the waker
/// waited for the read.
#[test]
fn a_space_that_a_waker_drops_is_not_waited_for() {
    let disk = GatedDisk::with_file("/swap", 1001 * PAGE);
    let (mm, space, _) = swapping_to(&disk);
    let group = space.group().clone();
    group.set_max("4MiB").unwrap();
    disk.fail_reads();
    let removal = Answer::of(move || mm.remove_swap(0).is_ok());
    disk.gate.wait_for_somebody();
    let wakes = Answer::of(move || drop_by_waker(space));
    assert!(wakes.wait().is_some(), "the thread that calls the waker waits for the area's device");
    disk.gate.open();
    assert!(removal.wait().is_some(), "the removal hangs");
    eventually("charges are leaked", || group.charged() == 0 && group.stats().swapped_bytes == 0);
}

fn is_timeout(error: &Error) -> bool {
    matches!(error, Error::DeviceTimeout { .. })
}
