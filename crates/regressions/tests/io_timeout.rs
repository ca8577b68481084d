//! Devices that don't answer, and `io_timeout`, which limits how long calls wait for them.

use std::path::Path;
use std::time::Duration;

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

use pagefold::io::{Access, Backend, IoError};
use pagefold::{Advice, Error, File, Group, Pagefold, Protection, ReadQueue, ReadRequest};
use test_disks::Call;

use crate::everything_pinned::block_on;
use crate::hooked::Answer;
use crate::support::devices::Devices;
use crate::support::{RealFiles, bytes_on, check, disk, eventually, manager, read, version};
use crate::watched::Watched;

const PAGE: u64 = 4096;
/// The `io_timeout`. It is short, because each test with a silent device takes at least this long.
/// So a call to a working device may time out, too, if a thread gets no CPU. The tests repeat such
/// calls with [`again`].
const TIME: Duration = Duration::from_millis(100);

fn timed(backend: impl Backend, time: Duration) -> Pagefold {
    Pagefold::builder().memory(4 << 20).backend(backend).io_timeout(time).build().unwrap()
}

/// Two devices, each with a file of 64 pages that has the device's number as its seed.
fn two_devices() -> Devices {
    let devices = Devices::new(2);
    for number in 0..2 {
        devices.device(number).disk.add_generated("f", number as u64, 64 * PAGE);
    }
    devices
}

fn scene() -> (Devices, Pagefold, Group) {
    let devices = two_devices();
    let mm = timed(devices.clone(), TIME);
    let group = mm.group("tenant").build().unwrap();
    (devices, mm, group)
}

fn open(group: &Group, path: &str) -> File {
    let file = group.open_options().write(true).create(true).open(path).unwrap();
    file.advise(0..u64::MAX, Advice::Random).unwrap();
    file
}

/// Returns the result of `call`. Fails if `call` hangs.
fn answer<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    Answer::of(call).wait().unwrap_or_else(|| panic!("{what} waits for the silent device"))
}

fn is_timeout<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::DeviceTimeout { .. }))
}

fn read_page(file: &File, page: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; PAGE as usize];
    file.read_exact_at(&mut bytes, page * PAGE).map(|()| bytes)
}

/// Repeats a call that times out, until the device counts as silent. One call may not be enough: a
/// call that no worker has begun says nothing about the device.
fn falls_silent<T: Send + 'static>(
    what: &str,
    file: &File,
    call: impl Fn(&File) -> Result<T, Error> + Clone + Send + 'static,
) {
    eventually("the device never counts as silent", || {
        let (file, call) = (file.clone(), call.clone());
        let result = answer(what, move || (call(&file).map(drop), file.stats().device_silent));
        assert!(is_timeout(&result.0), "{what}: {:?}", result.0);
        result.1
    });
}

/// Repeats a call that times out, until the device's answers have arrived.
fn again<T>(what: &str, call: impl Fn() -> Result<T, Error>) -> T {
    let mut result = call();
    eventually(what, || {
        if is_timeout(&result) {
            result = call();
        }
        !is_timeout(&result)
    });
    result.unwrap()
}

/// A read waited in the kernel for as long as its device took, and the caller couldn't end it.
#[test]
fn a_miss_fails_in_time_and_the_next_ones_at_once() {
    let (devices, mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let (silent, well) = (open(&group, "0/f"), open(&group, "1/f"));
    check(0, 0, &again("no page comes", || read_page(&silent, 0)));
    let before = devices.device(0).reads();
    devices.device(0).silence(true);
    falls_silent("a miss", &silent, |file| read_page(file, 1));
    eventually("the device isn't asked", || devices.device(0).reads() > before);
    let reads = devices.device(0).reads();
    let space = group.space().unwrap();
    let area = space.map_file(&silent, 0, 64 * PAGE, Protection::Read).unwrap();
    let mapped = answer("a mapped file", move || space.read_at(&mut [0; 8], area.start + 4 * PAGE));
    assert!(matches!(mapped.unwrap_err().cause(), Error::DeviceTimeout { .. }));
    let file = silent.clone();
    let results = answer("another miss", move || {
        let same = read_page(&file, 1);
        (
            same,
            read_page(&file, 2),
            file.page_at(3 * PAGE).map(|_| ()),
            file.advise(8 * PAGE..9 * PAGE, Advice::WillNeed),
        )
    });
    assert!(is_timeout(&results.0) && is_timeout(&results.1), "{results:?}");
    assert!(is_timeout(&results.2) && is_timeout(&results.3), "{results:?}");
    assert_eq!(devices.device(0).reads(), reads, "the device is asked for more");
    assert!(silent.stats().device_silent && !well.stats().device_silent);
    // The page is still loading, and stays charged.
    assert!(group.charged() >= 2 * PAGE);
    // Calls that don't need the silent device still succeed.
    check(0, 0, &read_page(&silent, 0).unwrap());
    (0..64).for_each(|page| check(1, page * PAGE, &again("the other device is kept", || read_page(&well, page))));
    assert!(silent.stats().device_silent);
    devices.device(0).silence(false);
    (0..64).for_each(|page| check(0, page * PAGE, &again("no answer is heard", || read_page(&silent, page))));
    eventually("the device is silent for good", || !silent.stats().device_silent);
    drop((silent, well));
    eventually("charges are leaked", || group.charged() == 0);
    drop(mm);
}

#[test]
fn batches_and_queues_of_reads_fail_in_time() {
    let (devices, _mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let file = open(&group, "0/f");
    again("no page comes", || read_page(&file, 0));
    devices.device(0).silence(true);
    let ours = file.clone();
    let timeouts = answer("a batch", move || {
        let mut buffers = vec![[0; 8]; 40];
        let requests = buffers.iter_mut().enumerate();
        let mut requests: Vec<_> = requests.map(|(page, bytes)| ReadRequest::new(page as u64 * PAGE, bytes)).collect();
        ours.read_batch(&mut requests);
        assert!(requests[0].result.is_ok());
        requests.iter().filter(|request| is_timeout(&request.result)).count()
    });
    assert_eq!(timeouts, 39);
    let ours = file.clone();
    let timeouts = answer("a queue", move || {
        let mut buffers = vec![[0; 8]; 40];
        let mut queue = ReadQueue::new(&ours);
        for (page, bytes) in buffers.iter_mut().enumerate() {
            queue.push(ReadRequest::new(page as u64 * PAGE, bytes), page);
        }
        let mut timeouts = 0;
        while let Some((request, _)) = queue.wait() {
            timeouts += usize::from(is_timeout(&request.result));
        }
        timeouts
    });
    assert_eq!(timeouts, 39);
    devices.device(0).silence(false);
    (0..64).for_each(|page| check(0, page * PAGE, &again("no answer is heard", || read_page(&file, page))));
}

/// A call for many pages submitted their loads before it noticed that the device was silent. Each
/// of these pages stayed charged until the device answered. So a few calls filled the group's
/// limit, and the group could no longer read files on other devices.
#[test]
fn a_silent_device_is_asked_for_no_more_pages() {
    let (devices, _mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let file = group.open("0/f").unwrap(); // With readahead.
    devices.device(0).silence(true);
    falls_silent("a miss", &file, |file| read_page(file, 1));
    let charged = group.charged();
    let results = answer("many pages", move || {
        let mut bytes = vec![0; 16 * PAGE as usize];
        let many = is_timeout(&file.read_at(&mut bytes, 16 * PAGE));
        let asynchronous = is_timeout(&block_on(file.read_at_async(&mut bytes, 32 * PAGE)));
        let mut buffers = [[0; 8]; 8];
        let requests = buffers.iter_mut().zip(48..);
        let mut requests: Vec<_> = requests.map(|(bytes, page)| ReadRequest::new(page * PAGE, bytes)).collect();
        file.read_batch(&mut requests);
        let batch = requests.iter().all(|request| is_timeout(&request.result));
        let mut queue = ReadQueue::new(&file);
        buffers.iter_mut().zip(56..).for_each(|(bytes, page)| queue.push(ReadRequest::new(page * PAGE, bytes), ()));
        let queue = std::iter::from_fn(|| queue.wait()).filter(|(request, ())| is_timeout(&request.result)).count();
        file.prefetch(0..64 * PAGE);
        (many, asynchronous, batch, queue)
    });
    assert_eq!(results, (true, true, true, 8));
    assert_eq!(group.charged(), charged, "pages that the device may never bring");
}

/// Returns a file of 64 pages and 10 bytes, all of it synced. Its `io_timeout` is half a second.
fn with_ten_bytes_in_the_last_page() -> (Pagefold, File) {
    let mm = timed(two_devices(), Duration::from_millis(500));
    let file = open(&mm.group("tenant").build().unwrap(), "0/f");
    file.write_at(&[1; 10], 64 * PAGE).unwrap();
    file.sync().unwrap();
    (mm, file)
}

/// `set_len` waited for a pinned page. This wait counted as a wait for the device. So the device
/// counted as silent, and each miss of every tenant failed.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_page_in_use_makes_no_device_silent() {
    let (_mm, file) = with_ten_bytes_in_the_last_page();
    let pinned = file.page_at(64 * PAGE).unwrap();
    let ours = file.clone();
    let refused = answer("a new length", move || ours.set_len(70 * PAGE));
    assert!(matches!(refused, Err(Error::PageBusy { .. })), "{refused:?}");
    assert!(!file.stats().device_silent);
    drop(pinned);
    file.set_len(70 * PAGE).unwrap();
}

/// As above: here a write at the end waits for the pinned page, and `set_len` waits for the write.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_write_that_waits_for_a_page_in_use_makes_no_device_silent() {
    let (_mm, file) = with_ten_bytes_in_the_last_page();
    let pinned = file.page_at(64 * PAGE).unwrap();
    let (ours, theirs) = (file.clone(), file.clone());
    let write = Answer::of(move || ours.write_at(&[1], 64 * PAGE + 10));
    let refused = answer("a new length", move || theirs.set_len(70 * PAGE));
    assert!(matches!(refused, Err(Error::PageBusy { .. })), "{refused:?}");
    let refused = write.wait().unwrap();
    assert!(matches!(refused, Err(Error::PageBusy { .. })), "{refused:?}");
    assert!(!file.stats().device_silent);
    drop(pinned);
    file.set_len(70 * PAGE).unwrap();
}

/// After a sync had timed out, the file's write-back lock stayed locked, or the pages counted as
/// clean.
#[test]
fn a_sync_fails_in_time_and_nothing_is_lost() {
    let (devices, _mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let (silent, well) = (open(&group, "0/f"), open(&group, "1/f"));
    for (file, seed) in [(&silent, 7), (&well, 8)] {
        (0..16).for_each(|page| file.write_at(&version(seed, page * PAGE, PAGE as usize), page * PAGE).unwrap());
    }
    devices.device(0).silence(true);
    falls_silent("a sync", &silent, File::sync);
    let (writes, file) = (devices.device(0).writes(), silent.clone());
    let results = answer("another sync", move || (file.sync(), file.sync_range(0..PAGE), file.set_len(0)));
    assert!(is_timeout(&results.0) && is_timeout(&results.1) && is_timeout(&results.2), "{results:?}");
    assert_eq!(devices.device(0).writes(), writes);
    again("the other device is kept", || well.sync());
    assert_eq!(bytes_on(&devices.device(1).disk, "f")[..PAGE as usize], version(8, 0, PAGE as usize));
    // Writes still succeed in memory, up to the dirty marks.
    silent.write_at(&version(9, 0, PAGE as usize), 0).unwrap();
    assert_eq!(read_page(&silent, 0).unwrap(), version(9, 0, PAGE as usize));
    devices.device(0).silence(false);
    again("no answer is heard", || silent.sync());
    let on_disk = bytes_on(&devices.device(0).disk, "f");
    for page in 0..16 {
        let seed = if page == 0 { 9 } else { 7 };
        assert_eq!(on_disk[(page * PAGE) as usize..][..PAGE as usize], version(seed, page * PAGE, PAGE as usize));
    }
    assert_eq!(silent.stats().unclean_bytes, 0);
}

#[test]
fn a_new_length_fails_in_time_and_keeps_no_append() {
    let (devices, _mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let (silent, well) = (open(&group, "0/f"), open(&group, "1/f"));
    devices.device(0).silence(true);
    falls_silent("a new length", &silent, |file| file.set_len(10 * PAGE));
    let file = silent.clone();
    let results = answer("an append", move || {
        (file.write_at(&[1; 8], 64 * PAGE), file.write_at(&[1; 8], 100 * PAGE), file.set_len(3 * PAGE), file.sync())
    });
    // The first call may find that `set_len` has already lowered the length, and that no call holds
    // the lock of the length.
    assert!(is_timeout(&results.0) && is_timeout(&results.1), "{results:?}");
    assert!(is_timeout(&results.2) && is_timeout(&results.3), "{results:?}");
    again("the other device is kept", || well.set_len(3 * PAGE));
    again("the other device is kept", || well.write_at(&[1; 8], 64 * PAGE));
    again("the other device is kept", || well.sync());
    devices.device(0).silence(false);
    again("no answer is heard", || silent.set_len(5 * PAGE));
    assert_eq!((silent.len(), bytes_on(&devices.device(0).disk, "f").len() as u64), (5 * PAGE, 5 * PAGE));
    again("no answer is heard", || silent.write_at(&[3; 8], 9 * PAGE));
    again("no answer is heard", || silent.sync());
    let on_disk = bytes_on(&devices.device(0).disk, "f");
    assert_eq!(on_disk[(9 * PAGE) as usize..], [3; 8]);
    assert!(on_disk[(5 * PAGE) as usize..(9 * PAGE) as usize].iter().all(|&byte| byte == 0));
    check(0, 0, &on_disk[..(5 * PAGE) as usize]);
}

/// A call to make a file shorter had timed out, but a worker was still executing it when the file's
/// last handle was dropped. The file's lock was released at once. So the worker could cut off what
/// another Pagefold had written under its own lock.
#[test]
fn a_new_length_that_timed_out_keeps_the_lock() {
    let (devices, _mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let file = open(&group, "0/f");
    devices.device(0).silence(true);
    falls_silent("a new length", &file, |file| file.set_len(10));
    answer("closing", move || drop(file));
    let other = devices.device(0).disk.open(Path::new("f"), Access::Write).unwrap();
    assert_eq!(other.lock(), Err(IoError::BUSY));
    devices.device(0).silence(false);
    eventually("the file stays locked", || other.lock().is_ok());
    assert_eq!(other.len(), Ok(10), "a change comes after that");
}

/// A write past the end first makes the file longer. Meanwhile it holds the lock of the file's
/// length.
#[test]
fn a_write_that_leaves_a_gap_fails_in_time() {
    let (devices, _mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let file = open(&group, "0/f");
    devices.device(0).silence(true);
    let ours = file.clone();
    assert!(is_timeout(&answer("a write", move || ours.write_at(&[1; 8], 100 * PAGE))));
    devices.device(0).silence(false);
    again("no answer is heard", || file.write_at(&[2; 8], 100 * PAGE));
    again("no answer is heard", || file.sync());
    let on_disk = bytes_on(&devices.device(0).disk, "f");
    assert_eq!(on_disk[(100 * PAGE) as usize..], [2; 8]);
    check(0, 0, &on_disk[..(64 * PAGE) as usize]);
}

/// A file with dirty pages is closed while its device is silent. `close` must time out, and the
/// pages must still be written once the device answers.
#[test]
fn closing_fails_in_time_and_is_done_later() {
    let (devices, mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let other = timed(devices.clone(), TIME);
    let others = other.group("other").build().unwrap();
    let file = open(&group, "0/f");
    file.write_at(&version(5, 0, PAGE as usize), 0).unwrap();
    devices.device(0).stall(true);
    let result = answer("closing", move || file.close());
    assert!(is_timeout(&result));
    let refused = others.open_options().write(true).open("0/f");
    assert!(matches!(refused, Err(Error::FileInUse { .. })), "what is dirty isn't written yet: {refused:?}");
    answer("the end", move || drop((group, mm)));
    devices.device(0).stall(false);
    let mut file = None;
    eventually("the lock is kept", || {
        file = others.open_options().write(true).open("0/f").ok();
        file.is_some()
    });
    let file = file.unwrap();
    assert_eq!(again("no page comes", || read_page(&file, 0)), version(5, 0, PAGE as usize));
}

/// More threads than there are workers for one device call a silent device at the same time. Each
/// call must time out, and calls to another device must succeed meanwhile.
#[test]
fn many_calls_to_a_silent_device_keep_no_other() {
    let (devices, _mm, group) = scene();
    let _going_on = devices.going_on_at_last();
    let (silent, well) = (open(&group, "0/f"), open(&group, "1/f"));
    again("no page comes", || silent.write_at(&[1; 8], 0));
    devices.device(0).silence(true);
    // More of them than there are workers for one device.
    let callers: Vec<_> = (0..160)
        .map(|n| {
            let file = silent.clone();
            Answer::of(move || match n % 4 {
                0 => file.sync(),
                1 => file.set_len(50 * PAGE),
                2 => file.write_at(&[1; 8], 100 * PAGE),
                _ => read_page(&file, n % 64).map(|_| ()),
            })
        })
        .collect();
    for page in 0..64 {
        again("the other device is kept", || well.write_at(&[2; 8], page * PAGE));
        again("the other device is kept", || well.sync());
    }
    for (n, caller) in callers.iter().enumerate() {
        let result = caller.wait().unwrap_or_else(|| panic!("call {n} waits for the silent device"));
        assert!(is_timeout(&result), "call {n}: {result:?}");
    }
    devices.device(0).silence(false);
    again("no answer is heard", || silent.sync());
    again("no answer is heard", || read_page(&silent, 1));
}

/// A group's limit fills up with pages that the silent device doesn't take. The writer must fail
/// with a timeout.
#[test]
fn a_writer_to_a_silent_device_fails_in_time() {
    let (devices, mm, _) = scene();
    let _going_on = devices.going_on_at_last();
    let small = mm.group("small").max(64 * PAGE).build().unwrap();
    let file = open(&small, "0/f");
    devices.device(0).stall(true);
    let ours = file.clone();
    let result = answer("a writer", move || (0..1000).try_for_each(|page| ours.write_at(&[1; 4096], page * PAGE)));
    assert!(is_timeout(&result), "{result:?}");
    devices.device(0).stall(false);
    again("no answer is heard", || file.sync());
}

/// With a timeout that never ends, each call behaves as it does without a timeout. This includes
/// errors, and files that another process changes.
#[test]
fn with_a_long_time_all_is_as_without() {
    let devices = two_devices();
    let mm = timed(devices.clone(), Duration::from_secs(3600));
    let group = mm.group("tenant").max(64 * PAGE).build().unwrap();
    let file = open(&group, "0/f");
    for page in 0..64 {
        read(&file, 0, page * PAGE, PAGE as usize).unwrap();
    }
    assert_eq!(read(&file, 0, 63 * PAGE, 3 * PAGE as usize).unwrap() as u64, PAGE);
    devices.device(0).disk.truncate("f", 10 * PAGE + 5).unwrap();
    file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    assert_eq!(read(&file, 0, 10 * PAGE, PAGE as usize).unwrap(), 5);
    file.write_at(&[9; 100], 20 * PAGE + 7).unwrap();
    file.sync().unwrap();
    assert_eq!(bytes_on(&devices.device(0).disk, "f").len() as u64, 20 * PAGE + 107);
    devices.device(0).disk.grow("f", 30 * PAGE).unwrap();
    assert_eq!(read_page(&file, 25).unwrap(), [0; PAGE as usize]);
    devices.device(0).kill(true);
    file.write_at(&[9; 100], 0).unwrap();
    assert!(matches!(file.sync(), Err(Error::WriteFailed { error: IoError::IO, .. })));
    devices.device(0).kill(false);
    file.sync().unwrap();
    drop(file);
    eventually("charges are leaked", || group.charged() == 0);
}

#[test]
fn a_load_that_fails_tells_why() {
    let disk = crate::support::disk(1, 64 * PAGE);
    let fails = Arc::new(sync::atomic::AtomicBool::new(true));
    let its = Arc::clone(&fails);
    let watched = crate::watched::Watched::new(&disk, move |call| {
        let fails = call == Call::Read && its.load(sync::atomic::Ordering::SeqCst);
        if fails { Err(IoError::IO) } else { Ok(()) }
    });
    let mm = timed(watched, Duration::from_secs(3600));
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("f0").unwrap();
    for page in [0, 5] {
        assert!(matches!(read_page(&file, page), Err(Error::ReadFailed { error: IoError::IO, .. })));
    }
    fails.store(false, sync::atomic::Ordering::SeqCst);
    read(&file, 0, 0, 64 * PAGE as usize).unwrap();
}

/// Many threads use the machine's files with an `io_timeout`, and with too little memory.
#[test]
fn files_of_the_machine_go_on() {
    let mm = timed(RealFiles::new(2, 512 * PAGE), Duration::from_secs(3600));
    let group = mm.group("tenant").max(128 * PAGE).build().unwrap();
    let files = [open(&group, "f0"), open(&group, "f1")];
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let file = &files[thread as usize % 2];
            scope.spawn(move || {
                for n in 0..300 {
                    let page = sync::random::mix(thread << 32 | n) % 500;
                    read(file, thread % 2, page * PAGE, (1 + n % 5) as usize * PAGE as usize).unwrap();
                    if n % 50 == 0 {
                        let own = (500 + thread) * PAGE;
                        file.write_at(&version(thread % 2, own, 100), own + PAGE * 1000).unwrap();
                        file.sync().unwrap();
                    }
                }
            });
        }
    });
}

/// Without an `io_timeout`, a miss waits for as long as the device takes.
#[test]
fn without_a_time_a_miss_waits() {
    let devices = two_devices();
    let mm = manager(1024, devices.clone());
    let group = mm.group("tenant").build().unwrap();
    let file = open(&group, "0/f");
    let _going_on = devices.going_on_at_last();
    devices.device(0).silence(true);
    let reads = devices.device(0).reads();
    let ours = file.clone();
    let reader = Answer::of(move || read_page(&ours, 1));
    eventually("no read is begun", || devices.device(0).reads() > reads);
    assert!(!file.stats().device_silent);
    devices.device(0).silence(false);
    check(0, PAGE, &reader.wait().unwrap().unwrap());
}

/// Many calls time out, some of them just as the answer comes. Whatever they leave behind must end
/// when the device answers: the device must not stay silent, and nothing must stay charged.
#[test]
fn no_device_is_silent_for_good() {
    let devices = two_devices();
    let mm = timed(devices.clone(), Duration::from_micros(500));
    let group = mm.group("tenant").max(48 * PAGE).build().unwrap();
    let _going_on = devices.going_on_at_last();
    let file = open(&group, "0/f");
    let work = |thread: u64| {
        for n in 0..2_000_u64 {
            let page = sync::random::mix(thread << 32 | n) % 64;
            match n % 8 {
                0 if thread == 0 => drop(file.sync()),
                1 if thread == 0 => drop(file.write_at(&version(3, page * PAGE, 8), page * PAGE + 64)),
                2 if thread == 1 => drop(file.set_len(64 * PAGE)),
                3 => drop(group.open("0/f").map(drop)),
                4 => file.prefetch(page * PAGE..(page + 2) * PAGE),
                _ => drop(read_page(&file, page)),
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            devices.device(0).silence(true);
            std::thread::sleep(Duration::from_micros(700));
            devices.device(0).silence(false);
            std::thread::sleep(Duration::from_micros(700));
        }
    });
    for page in 0..64 {
        again("the device is silent for good", || read_page(&file, page));
    }
    again("the device is silent for good", || file.sync());
    drop(file);
    eventually("charges are leaked", || group.charged() == 0);
}

/// A backend panicked in the worker that synced a file. The sync counted as under way for good, so
/// all later syncs of the file failed without reaching the backend.
#[test]
fn a_sync_that_panics_does_not_keep_the_next_one_from_the_device() {
    let syncs = AtomicU64::new(0);
    let watched = Watched::new(&disk(1, 4 * PAGE), move |call| {
        let panics = call == Call::Sync && syncs.fetch_add(1, Ordering::SeqCst) == 0;
        if panics { panic!("on purpose") } else { Ok(()) }
    });
    let mm = timed(watched, TIME);
    let file = open(&mm.group("tenant").build().unwrap(), "f0");
    file.write_at(&[1; PAGE as usize], 0).unwrap(); // A whole page needn't be read.
    assert!(file.sync().is_err(), "it panics, or times out before it begins");
    eventually("no sync reaches the device", || file.sync().is_ok());
}
