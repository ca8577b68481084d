//! Tests of submitted requests, on each backend. Each request must complete exactly once and with
//! the right bytes; the order doesn't matter. This must hold even if answers are short, attempts
//! are interrupted, no thread waits for the request, or the submitting thread ends.
#![cfg(not(pagefold_loom))]

mod backends;

use std::path::Path;

use backends::patience::wait_until;
use backends::{Batch, FILE_LEN, PAGE, each_world, wanted_word};
use pagefold_io::{Access, Backend, BackingFile, IoError, Request};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Arc, StableBytes};
use test_disks::{Fault, FaultyBackend, Schedule};

fn read_every_page(name: &str, file: &dyn BackingFile) {
    let batch = Batch::default();
    let mut requests: Vec<_> = (0..FILE_LEN / PAGE).map(|page| batch.read(page * PAGE, 1)).collect();
    let queue = file.submit(&mut requests);
    assert!(requests.is_empty());
    file.help(queue, &|| batch.is_over());
    assert!(batch.is_over(), "{name}");
    assert!(batch.results().iter().all(|(_, result)| *result == Ok(PAGE as usize)), "{name}");
}

#[test]
fn a_batch_is_read_by_its_submitter() {
    each_world(|world| read_every_page(&world.name, &*world.open(Access::Read)));
}

#[test]
fn a_vectored_read_fills_its_pages_and_zeroes_what_lies_past_the_end() {
    each_world(|world| {
        let file = world.open(Access::Read);
        let batch = Batch::default();
        let at = |pages: u64| FILE_LEN - pages * PAGE;
        let mut requests = vec![batch.read(0, 256), batch.read(at(2), 5), batch.read(at(0), 1), batch.read(PAGE, 0)];
        let queue = file.submit(&mut requests);
        file.help(queue, &|| batch.is_over());
        let wanted = [(0, Ok(256 * PAGE as usize)), (at(2), Ok(2 * PAGE as usize)), (at(0), Ok(0)), (PAGE, Ok(0))];
        let mut wanted = wanted.to_vec();
        wanted.sort_by_key(|&(offset, _)| offset);
        assert_eq!(batch.results(), wanted, "{}", world.name);
    });
}

#[test]
fn what_is_written_is_read_back() {
    each_world(|world| {
        let file = world.open(Access::Write);
        let batch = Batch::default();
        let (pages, len) = (FILE_LEN / PAGE, FILE_LEN + 1000);
        let mut requests: Vec<_> = (0..pages / 8).map(|run| batch.write(run * 8 * PAGE, 8, 8 * PAGE, 1)).collect();
        requests.push(batch.write(FILE_LEN, 1, 1000, 1));
        let queue = file.submit(&mut requests);
        file.help(queue, &|| batch.is_over());
        assert!(batch.results().iter().all(|(_, result)| result.is_ok()), "{}: {:?}", world.name, batch.results());
        assert_eq!(file.len(), Ok(len), "{}", world.name);
        let words: Arc<[AtomicU64]> = (0..len.next_multiple_of(PAGE) / 8).map(|_| AtomicU64::new(7)).collect();
        assert_eq!(pagefold_io::read_full(&*file, 0, sync::SharedBytes::new(&words)), Ok(len as usize));
        for (at, word) in words.iter().enumerate() {
            let at = at as u64 * 8;
            let wanted = if at < len { wanted_word(1, at) } else { 0 };
            assert_eq!(word.load(Ordering::Relaxed), wanted, "{} at {at}", world.name);
        }
    });
}

#[test]
fn requests_are_over_also_if_nobody_helps_and_their_submitter_is_gone() {
    each_world(|world| {
        let batch = Batch::default();
        let theirs = batch.clone();
        let file = world.open(Access::Read);
        let submitter = std::thread::spawn(move || {
            let mut requests: Vec<_> = (0..64).map(|page| theirs.read(page * PAGE, 1)).collect();
            file.submit(&mut requests);
        });
        submitter.join().unwrap();
        wait_until(&format!("{}: requests are over", world.name), || batch.is_over());
        assert!(batch.results().iter().all(|(_, result)| *result == Ok(PAGE as usize)), "{}", world.name);
    });
}

#[test]
fn many_threads_help_each_other() {
    each_world(|world| {
        let file: Arc<dyn BackingFile> = Arc::from(world.open(Access::Read));
        // The threads are joined one by one, because ThreadSanitizer doesn't see how scoped threads
        // end.
        let helper = |_| {
            let (file, name) = (Arc::clone(&file), world.name.clone());
            std::thread::spawn(move || (0..5).for_each(|_| read_every_page(&name, &*file)))
        };
        let helpers: Vec<_> = (0..8).map(helper).collect();
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
    });
}

#[test]
fn a_range_that_no_file_has_is_refused() {
    let page = || -> Arc<[AtomicU64]> { (0..512).map(AtomicU64::new).collect() };
    assert!(matches!(Request::read(u64::MAX - 4095, page(), |_, _| {}), Err(IoError::INVALID)));
    assert!(matches!(Request::write(u64::MAX - 4095, page(), 4096, |_, _| {}), Err(IoError::INVALID)));
    assert!(matches!(Request::write(0, page(), 4097, |_, _| {}), Err(IoError::INVALID)));
}

/// Makes a few requests in each run. Call 1 opens the file. Call 2 fails in the first run, call 3
/// in the second run, and so on, until a run makes fewer calls. A request may fail only if a fault
/// fired; otherwise its bytes must be right.
#[test]
fn a_sweep_of_each_fault_over_submitted_requests_ends() {
    let faults =
        [Fault::Errno(5), Fault::Interrupted, Fault::Again, Fault::Short(0), Fault::Short(1), Fault::Short(4100)];
    each_world(|world| {
        for fault in faults {
            for schedule in [Schedule::Once as fn(u64, Fault) -> Schedule, Schedule::lasting] {
                let mut fired = 0;
                for call in 2.. {
                    let backend = FaultyBackend::new(world.backend(), schedule(call, fault));
                    let failures = few_requests(&*backend.open(world.path(), Access::Write).unwrap());
                    if backend.calls() < call {
                        assert_eq!((failures, backend.fired_total()), (0, 0), "{}", world.name);
                        break;
                    }
                    assert!(call < 300, "{}: the sweep of {fault:?} doesn't end", world.name);
                    assert!(failures as u64 <= backend.fired_total(), "{}: {fault:?}", world.name);
                    fired += backend.fired_total();
                }
                assert!(fired > 0, "{}: {fault:?} never fired", world.name);
            }
        }
    });
}

/// Says how many failed.
fn few_requests(file: &dyn BackingFile) -> usize {
    let batch = Batch::default();
    let mut requests = vec![batch.read(0, 1), batch.read(4 * PAGE, 3), batch.read(FILE_LEN - PAGE, 2)];
    requests.push(batch.write(16 * PAGE, 4, 4 * PAGE, 0));
    let queue = file.submit(&mut requests);
    file.help(queue, &|| batch.is_over());
    let results = batch.results();
    assert_eq!(results.len(), 4);
    results.iter().filter(|(_, result)| result.is_err()).count()
}

/// Memory that decrements `alive` when it is dropped.
struct Watched {
    words: Box<[AtomicU64]>,
    alive: Arc<AtomicU64>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: the box's.
unsafe impl StableBytes for Watched {
    fn each<'a>(&'a self, f: &mut dyn FnMut(sync::SharedBytes<'a>)) {
        self.words.each(f);
    }
}

/// The most requests in flight whose callers are gone.
const IN_FLIGHT: u64 = 400;

/// Thousands of callers end while their requests are in flight. All requests must complete, and no
/// memory may be freed while a device uses it. AddressSanitizer (`cargo xtask test --long`) would
/// detect that.
#[test]
fn callers_that_go_away_leave_nothing_behind() {
    each_world(|world| {
        let alive = Arc::new(AtomicU64::new(0));
        let over = Arc::new(AtomicU64::new(0));
        let mut submitted = 0;
        for round in 0..if cfg!(debug_assertions) { 200 } else { 1000 } {
            let file = world.open(Access::Read);
            let mut requests = Vec::new();
            for page in 0..16 {
                alive.fetch_add(1, Ordering::Relaxed);
                let memory = Watched { words: (0..512).map(AtomicU64::new).collect(), alive: Arc::clone(&alive) };
                let over = Arc::clone(&over);
                let then = move |_, result| {
                    assert_eq!(result, Ok(4096));
                    over.fetch_add(1, Ordering::Relaxed);
                };
                requests.push(Request::read((round + page) % (FILE_LEN / PAGE) * PAGE, memory, then).unwrap());
            }
            // One request is dropped without having been submitted.
            drop(requests.pop());
            submitted += requests.len() as u64;
            file.submit(&mut requests);
            drop(file);
            // A file stays open until its requests have completed, and a process may have only
            // about a thousand files open. So the number of requests in flight is limited.
            let few = || alive.load(Ordering::Relaxed) <= IN_FLIGHT;
            wait_until(&format!("{}: no more than {IN_FLIGHT} requests are in flight", world.name), few);
        }
        wait_until(&format!("{}: no memory is left", world.name), || alive.load(Ordering::Relaxed) == 0);
        assert_eq!(over.load(Ordering::Relaxed), submitted, "{}", world.name);
    });
}

#[test]
fn answers_of_the_simulated_disk_come_in_the_order_of_the_seed() {
    let order = |seed| {
        let disk = test_disks::SimulatedDisk::default();
        disk.add_generated("f", 0, FILE_LEN);
        disk.answer_by_hand();
        disk.reorder(seed);
        let batch = Batch::default();
        let mut requests = (0..8).map(|page| batch.read(page * PAGE, 1)).collect();
        disk.open(Path::new("f"), Access::Read).unwrap().submit(&mut requests);
        assert!(!batch.is_over() && batch.in_order().is_empty());
        while disk.answer_next() {}
        assert!(batch.is_over());
        batch.in_order()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}
