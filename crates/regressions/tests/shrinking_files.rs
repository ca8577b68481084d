//! Files that other processes truncate, rewrite or extend while pages of them are loaded.

use std::path::Path;

use sync::atomic::{AtomicU64, Ordering};
use sync::{Arc, SharedBytes, asleep};

use pagefold::io::{BackingFile, IoError};
use pagefold::{Error, File, Pagefold};
use test_disks::SimulatedDisk;

use crate::hooked::{Answer, Gate, Hooked, fill};
use crate::support::around::{Around, Wrapped};
use crate::support::{bytes_on, disk, manager};

fn open(backend: Hooked) -> (Pagefold, File) {
    let mm = manager(64, backend);
    let file = mm.group("tenant").build().unwrap().open("file").unwrap();
    (mm, file)
}

/// While a page is being loaded, another thread waits for it with `wait`. Then another process
/// truncates the file before the page.
fn shrink_while_somebody_waits(wait: impl Fn(&File) -> Result<usize, Error> + Send + 'static) {
    let len = Arc::new(AtomicU64::new(3 * 4096));
    let gate = Arc::new(Gate::default());
    let (len_now, held) = (Arc::clone(&len), Arc::clone(&gate));
    let (_mm, file) = open(Hooked::new(
        move |offset, into| {
            if offset == 2 * 4096 {
                held.pass();
            }
            Ok(fill(offset, into, 3 * 4096, 1))
        },
        move || Ok(len_now.load(Ordering::SeqCst)),
    ));
    let loads = file.clone();
    let loader = std::thread::spawn(move || loads.read_at(&mut [0; 4096], 2 * 4096));
    gate.wait_for_somebody();
    let waits = file.clone();
    let answer = Answer::of(move || wait(&waits));
    answer.thread().await_sleep();
    len.store(100, Ordering::SeqCst);
    assert_eq!(file.read_at(&mut [0; 10], 3 * 4096).unwrap(), 0, "this read notices");
    gate.open();
    let _ = loader.join().unwrap();
    match answer.wait().expect("the waiter spins for ever") {
        Ok(n) => assert_eq!(n, 0),
        Err(error) => assert!(matches!(error, Error::PastEnd { .. }), "{error}"),
    }
}

/// A reader waited for a page that another thread was loading. Meanwhile the file became shorter.
/// The lookup then found that the page is past the end, but the page word said that it is resident.
/// The reader alternated between these two answers forever.
#[test]
fn a_reader_who_waits_for_a_page_that_is_cut_off_goes_home() {
    shrink_while_somebody_waits(|file| file.read_at(&mut [0; 4096], 2 * 4096));
}

/// As above, for a thread that wanted to pin the page: the pin was refused as past the end, and
/// requested again, forever.
#[test]
fn a_pinner_who_waits_for_a_page_that_is_cut_off_goes_home() {
    shrink_while_somebody_waits(|file| file.page_at(2 * 4096).map(|page| page.len()));
}

/// The file had been truncated, so a load came back short. Its page was published before the new
/// length was known, and then the request for the length failed. The reader got an error, but all
/// later readers got zeros past the file's end as if they were in the file.
#[test]
fn a_short_load_whose_length_is_unknown_leaves_no_page() {
    let truth = Arc::new(AtomicU64::new(2 * 4096));
    let (reads, lens, calls) = (Arc::clone(&truth), Arc::clone(&truth), AtomicU64::new(0));
    let (_mm, file) = open(Hooked::new(
        move |offset, into| Ok(fill(offset, into, reads.load(Ordering::SeqCst), 7)),
        // In order, the calls are those of `open`, of the short read, and of the adoption of the
        // new length.
        move || match calls.fetch_add(1, Ordering::SeqCst) {
            2 => Err(IoError::IO),
            _ => Ok(lens.load(Ordering::SeqCst)),
        },
    ));
    truth.store(4096 + 10, Ordering::SeqCst);
    let mut buf = [0xa5; 4096];
    assert!(matches!(file.read_at(&mut buf, 4096), Err(Error::ReadFailed { .. })));
    assert_eq!(file.read_at(&mut buf, 4096).unwrap(), 10, "zeros past the end are given out as the file's");
    assert!(buf[..10].iter().all(|&byte| byte == 7));
}

/// Another process opened the file with `O_TRUNC` and then wrote it anew. A load in between read an
/// empty file. The length was requested after the load, and was the old one again. So the load
/// seemed complete, and the page of zeros stayed in memory.
#[test]
fn a_file_rewritten_during_a_load_does_not_stay_zeros() {
    let calls = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&calls);
    let (_mm, file) = open(Hooked::new(
        // The file is empty from the first request for its length, by `open`, until the second one
        // has been answered.
        move |offset, into| {
            let len = if seen.load(Ordering::SeqCst) == 1 { 0 } else { 2 * 4096 };
            Ok(fill(offset, into, len, 9))
        },
        move || Ok(if calls.fetch_add(1, Ordering::SeqCst) == 1 { 0 } else { 2 * 4096 }),
    ));
    for round in 0..4 {
        let mut buf = [0xa5; 4096];
        let n = file.read_at(&mut buf, 4096).unwrap();
        assert!(buf[..n].iter().all(|&byte| byte == 9), "read {round}: zeros that the file never had");
        assert!(n == 4096 || round == 0, "read {round}: {n} bytes");
    }
}

/// The page of a short load was already resident while the loader was still requesting the file's
/// length. A thread that read or pinned the page in this time got a whole page: a few bytes of the
/// file, followed by zeros.
#[test]
fn nobody_sees_a_short_page_before_its_length_is_known() {
    let truth = Arc::new(AtomicU64::new(2 * 4096));
    let gate = Arc::new(Gate::default());
    let (reads, lens, held) = (Arc::clone(&truth), Arc::clone(&truth), Arc::clone(&gate));
    let calls = AtomicU64::new(0);
    let (_mm, file) = open(Hooked::new(
        move |offset, into| Ok(fill(offset, into, reads.load(Ordering::SeqCst), 7)),
        move || {
            if calls.fetch_add(1, Ordering::SeqCst) == 2 {
                held.pass();
            }
            Ok(lens.load(Ordering::SeqCst))
        },
    ));
    truth.store(4096 + 10, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let loader = scope.spawn(|| file.read_at(&mut [0; 4096], 4096).unwrap());
        gate.wait_for_somebody();
        // The reader may wait for the length, but not make one up.
        let read = || (file.read_at(&mut [0; 4096], 4096).unwrap(), file.page_at(4096).unwrap().len());
        let reader = asleep::spawn(scope, read);
        gate.open();
        assert_eq!(loader.join().unwrap(), 10);
        assert_eq!(reader.join().unwrap(), (10, 10), "zeros past the end are given out as the file's");
    });
}

/// A file became longer than its page map, while it was open. A read past the page map's end
/// returned as if the file ended there, so a program that copied the file lost its rest without an
/// error.
#[test]
fn growth_beyond_the_first_page_words_is_read_and_not_taken_for_the_end() {
    const MAPPED: u64 = 4096 << 18;
    let len = Arc::new(AtomicU64::new(4096));
    let (reads, lens) = (Arc::clone(&len), Arc::clone(&len));
    let (_mm, file) = open(Hooked::new(
        move |offset, into| Ok(fill(offset, into, reads.load(Ordering::SeqCst), 1)),
        move || Ok(lens.load(Ordering::SeqCst)),
    ));
    len.store(MAPPED + (1 << 20), Ordering::SeqCst);
    assert_eq!(file.read_at(&mut [0; 10], MAPPED - 10).unwrap(), 10);
    let mut bytes = [0; 10];
    assert_eq!(file.read_at(&mut bytes, MAPPED - 5).unwrap(), 10);
    assert_eq!((file.read_at(&mut bytes, MAPPED + 5).unwrap(), bytes), (10, [1; 10]));
    assert_eq!(file.read_at(&mut [0; 10], MAPPED + (1 << 20)).unwrap(), 0, "that is the end");
}

/// Another process truncated a file while a cycle of write-back was writing it. The cycle went on,
/// and each of its requests made the file longer again. Only requests that are already under way at
/// the truncation may do that.
#[test]
fn a_cycle_ends_when_the_file_is_cut_off() {
    const PAGES: u64 = 800;
    /// The most requests that a cycle has under way.
    const UNDER_WAY: u64 = 128;

    /// Cuts the file off before the first page is written.
    #[derive(Clone)]
    struct CutsOff(SimulatedDisk, Arc<AtomicU64>);

    impl Around for CutsOff {
        fn tells_len_at_once(&self) -> bool {
            true
        }

        fn write(
            &self,
            file: &dyn BackingFile,
            offset: u64,
            from: &[SharedBytes<'_>],
            len: usize,
        ) -> Result<usize, IoError> {
            if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                self.0.truncate("f0", 100)?;
            }
            file.write(offset, from, len)
        }
    }

    let (disk, writes) = (disk(1, PAGES * 4096), Arc::new(AtomicU64::new(0)));
    let mm = manager(2 * PAGES, Wrapped::new(&disk, CutsOff(disk.clone(), Arc::clone(&writes))));
    let group = mm.group("a").max(2 * PAGES * 4096).build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    assert_eq!(file.path(), Path::new("f0"));
    // Every other page, so that each is a request of its own.
    (0..PAGES).step_by(2).for_each(|page| file.write_at(&[1], page * 4096).unwrap());
    let error = file.sync().unwrap_err();
    assert!(matches!(error, Error::WriteFailed { error: IoError::CutOff, .. }), "{error}");
    let (made, on_disk) = (writes.load(Ordering::SeqCst), bytes_on(&disk, "f0").len() as u64);
    assert!(made <= UNDER_WAY, "{made} requests");
    assert!(on_disk < PAGES / 2 * 4096, "{on_disk} bytes");
    // The sync has adopted the cut, so the file can be written again. Before, writes failed with
    // `CutOff` once the group had as many dirty pages as it may have.
    for page in 0..4 * PAGES {
        file.write_at(&[2; 4096], page * 4096).unwrap();
    }
}
