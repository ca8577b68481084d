//! Many loads at once: batches, prefetching, futures, read-ahead.
#![cfg(not(pagefold_loom))]

mod support;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use pagefold::io::ThreadPool;
use pagefold::{Advice, Error, File, Group, PageFuture, PageRef, Pagefold, ReadRequest, WriteRequest};
use support::{check, disk, eventually, manager};
use sync::random::Random;
use test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};

const LEN: u64 = 64 << 20;
const PAGE: u64 = 4096;

fn open(pages: u64, limit: u64, backend: impl pagefold::io::Backend) -> (Pagefold, Group, File) {
    let mm = manager(pages, backend);
    let group = mm.group("tenant").max(limit * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    (mm, group, file)
}

/// A disk that answers a request only when the test says so, or when a waiting thread helps.
fn by_hand() -> SimulatedDisk {
    let disk = disk(1, LEN);
    disk.answer_by_hand();
    disk
}

/// A disk that answers in random order.
fn reordered(seed: u64) -> SimulatedDisk {
    let disk = disk(1, LEN);
    disk.reorder(seed);
    disk
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(std::sync::Arc::new(Unpark(thread::current())))
}

/// The simplest executor that there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = waker();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Reads random ranges as a batch, and checks the results.
fn read_random(file: &File, random: &mut Random, requests: usize, errors: impl Fn(&Error) -> bool) {
    let places: Vec<_> = (0..requests).map(|_| (random.below(LEN + 9000), random.below(9_000) as usize)).collect();
    let mut bytes: Vec<_> = places.iter().map(|&(_, len)| vec![0xa5_u8; len]).collect();
    let mut batch: Vec<_> =
        places.iter().zip(&mut bytes).map(|(&(offset, _), into)| ReadRequest::new(offset, into)).collect();
    file.read_batch(&mut batch);
    for request in batch {
        match request.result {
            Ok(n) => {
                assert_eq!(n as u64, LEN.saturating_sub(request.offset).min(request.into.len() as u64));
                check(0, request.offset, &request.into[..n]);
                assert!(request.into[n..].iter().all(|&byte| byte == 0xa5), "bytes past the end were touched");
            }
            Err(error) => assert!(errors(&error), "{error}"),
        }
    }
}

#[test]
fn a_batch_is_as_many_reads() {
    for (pages, limit) in [(4_000, 2_000), (200, 100), (64, 16)] {
        let (_mm, group, file) = open(pages, limit, disk(1, LEN));
        let mut random = Random::seeded(limit);
        for requests in [1, 2, 64, 1024, 0, 3000] {
            read_random(&file, &mut random, requests, |_| false);
        }
        assert!(group.stats().peak_bytes <= group.max());
    }
}

#[test]
fn a_batch_loads_its_pages_together_and_neighbours_in_one_request() {
    let disk = disk(1, LEN);
    let (_mm, group, file) = open(4_000, 2_000, disk.clone());
    let mut bytes = vec![0; 64 * 4096];
    let offsets = (0..64_u64).rev().map(|at| if at < 32 { at * PAGE } else { at * 100 * PAGE });
    let mut batch: Vec<_> =
        bytes.chunks_mut(4096).zip(offsets).map(|(into, offset)| ReadRequest::new(offset, into)).collect();
    let before = disk.stats().requests;
    file.read_batch(&mut batch);
    assert!(batch.iter().all(|request| matches!(request.result, Ok(4096))));
    assert_eq!(disk.stats().requests - before, 1 + 32);
    let stats = group.stats();
    assert_eq!((stats.misses, stats.hits, stats.waits), (64, 0, 0));
    file.read_batch(&mut batch);
    assert_eq!((group.stats().misses, group.stats().hits), (64, 64));
    assert_eq!(disk.stats().requests - before, 1 + 32);
}

#[test]
fn one_cold_megabyte_is_one_request() {
    let disk = disk(1, LEN);
    let (_mm, group, file) = open(4_000, 2_000, disk.clone());
    let before = disk.stats().requests;
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, 8 << 20).unwrap();
    check(0, 8 << 20, &bytes);
    assert_eq!(disk.stats().requests - before, 1);
    file.advise(16 << 20..17 << 20, Advice::WillNeed).unwrap();
    assert_eq!((disk.stats().requests - before, group.stats().misses), (2, 512));
    file.read_exact_at(&mut bytes, 16 << 20).unwrap();
    check(0, 16 << 20, &bytes);
    assert_eq!((disk.stats().requests - before, group.stats().hits), (2, 256));
}

#[test]
fn one_bad_page_fails_its_request_alone() {
    let faulty = FaultyBackend::new(disk(1, LEN), Schedule::Never);
    let (_mm, _group, file) = open(4_000, 2_000, faulty.clone());
    let mut random = Random::seeded(4);
    for round in 0..200 {
        file.advise(0..LEN, Advice::DontNeed).unwrap();
        faulty.set_schedule(Schedule::Once(1 + round % 40, Fault::Errno(5)));
        let mut bytes = vec![0; 40 * 4096];
        let first = random.below(10_000);
        // Half of them neighbours.
        let page = |at: u64| if at < 20 { first + at } else { first + at * 37 };
        let mut batch: Vec<_> =
            bytes.chunks_mut(4096).zip(0..).map(|(into, at)| ReadRequest::new(page(at) * PAGE, into)).collect();
        file.read_batch(&mut batch);
        let failed = batch.iter().filter(|request| request.result.is_err()).count();
        assert!(failed <= 1, "{failed} failed");
        for request in &batch {
            if request.result.is_ok() {
                check(0, request.offset, request.into);
            }
        }
        faulty.set_schedule(Schedule::Never);
    }
}

#[test]
fn with_all_pinned_each_request_is_told() {
    let (_mm, _group, file) = open(400, 16, disk(1, LEN));
    let pins: Vec<_> = (0..16).map(|page| file.page_at((page * 10) * PAGE).unwrap()).collect();
    let mut bytes = [0; 4 * 8];
    let mut batch: Vec<_> = bytes
        .chunks_mut(8)
        .zip([0, 5 << 20, 10 * PAGE, 6 << 20])
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(into, offset)| ReadRequest::new(offset, into))
        .collect();
    file.read_batch(&mut batch);
    assert!(matches!((&batch[0].result, &batch[2].result), (Ok(8), Ok(8))));
    for refused in [&batch[1], &batch[3]] {
        assert!(matches!(refused.result, Err(Error::LimitReached { .. })), "{:?}", refused.result);
    }
    assert!(matches!(block_on(file.page_at_async(7_000 * PAGE)), Err(Error::LimitReached { .. })));
    drop(pins);
    assert!(block_on(file.page_at_async(7_000 * PAGE)).is_ok());
}

#[test]
fn writes_in_a_batch() {
    let disk = disk(1, LEN);
    let (_mm, group, _) = open(4_000, 2_000, disk.clone());
    let file = group.open_options().write(true).open("f0").unwrap();
    let before = disk.stats().requests;
    let bytes = [7_u8; 100];
    let mut batch: Vec<_> = (0..32).map(|at| WriteRequest::new(at * 50 * PAGE + 4090, &bytes)).collect();
    batch.push(WriteRequest::new(u64::MAX - 5, &bytes));
    file.write_batch(&mut batch);
    assert!(matches!(batch[32].result, Err(Error::FileTooLarge { .. })));
    assert!(batch[..32].iter().all(|request| request.result.is_ok()));
    assert_eq!(disk.stats().requests - before, 32, "two neighbours each");
    let mut found = vec![0; 4096 * 2];
    for at in 0..32 {
        file.read_exact_at(&mut found, at * 50 * PAGE).unwrap();
        check(0, at * 50 * PAGE, &found[..4090]);
        assert_eq!(found[4090..4190], bytes);
        check(0, at * 50 * PAGE + 4190, &found[4190..]);
    }
    let read_only = group.open("f0").unwrap();
    let mut batch = [WriteRequest::new(0, &bytes)];
    read_only.write_batch(&mut batch);
    assert!(matches!(batch[0].result, Err(Error::ReadOnly { .. })));
}

#[test]
fn prefetching_does_not_wait() {
    let disk = by_hand();
    let (_mm, group, file) = open(4_000, 2_000, disk.clone());
    file.prefetch(0..1 << 20);
    file.prefetch(LEN - 1..u64::MAX);
    file.prefetch(u64::MAX - 1..u64::MAX);
    assert_eq!(group.charged(), 257 * PAGE, "in flight, and charged");
    while disk.answer_next() {}
    let mut bytes = vec![0; 1 << 20];
    assert_eq!(group.stats().misses, 257);
    file.read_exact_at(&mut bytes, 0).unwrap();
    check(0, 0, &bytes);
    assert_eq!((group.stats().misses, group.stats().hits), (257, 256));
}

#[test]
fn a_handle_can_be_dropped_while_loads_are_in_flight() {
    let disk = reordered(3);
    let (mm, group, file) = open(4_000, 2_000, disk);
    for round in 0..50 {
        let file = group.open("f0").unwrap();
        file.prefetch(round << 20..(round + 2) << 20);
        let mut future = file.page_at_async((5_000 + round) * PAGE);
        let _ = poll(&mut future);
        drop(future);
        drop(file);
    }
    drop(file);
    eventually("a page outlived its file", || group.charged() == 0);
    drop((group, mm));
}

#[test]
fn futures_give_pages() {
    let (_mm, group, file) = open(400, 100, disk(1, LEN));
    let mut random = Random::seeded(8);
    for _ in 0..2_000 {
        let page = random.below(LEN / PAGE);
        check(0, page * PAGE, &block_on(file.page_at_async(page * PAGE)).unwrap());
    }
    assert!(matches!(block_on(file.page_at_async(LEN)), Err(Error::PastEnd { .. })));
    assert!(matches!(block_on(file.page_at_async(u64::MAX)), Err(Error::PastEnd { .. })));
    let mut bytes = vec![0xa5; 50_000];
    for offset in [0, 77, LEN - 50_000, LEN - 100, LEN, u64::MAX - 5] {
        let n = block_on(file.read_at_async(&mut bytes, offset)).unwrap();
        assert_eq!(n as u64, LEN.saturating_sub(offset).min(50_000));
        check(0, offset, &bytes[..n]);
    }
    assert!(group.stats().peak_bytes <= group.max());
    fn is_send<T: Send>(_: &T) {}
    is_send(&file.page_at_async(0));
    is_send(&file.read_at_async(&mut bytes, 0));
    is_send(&file.page_at(0).unwrap());
}

#[test]
fn a_future_that_is_dropped_leaves_its_page_in_memory() {
    let disk = by_hand();
    let (_mm, group, file) = open(400, 100, disk.clone());
    let mut future = file.page_at_async(5 * PAGE);
    let mut other = file.page_at_async(5 * PAGE);
    assert!(poll(&mut future).is_pending() && poll(&mut other).is_pending());
    drop(future);
    assert!(poll(&mut other).is_pending());
    assert!(disk.answer_next());
    let Poll::Ready(Ok(page)) = poll(&mut other) else { panic!("woken without a page") };
    check(0, 5 * PAGE, &page);
    drop(page);
    assert!(poll(&mut file.page_at_async(5 * PAGE)).is_ready(), "in memory");
    // A page that was loaded for a future stays in memory although the future isn't polled.
    let mut late = file.page_at_async(9 * PAGE);
    assert!(poll(&mut late).is_pending() && disk.answer_next());
    for page in 100..400 {
        file.prefetch(page * PAGE..page * PAGE + 1);
        while disk.answer_next() {}
    }
    assert!(matches!(poll(&mut late), Poll::Ready(Ok(_))));
    assert!(group.stats().evictions > 100);
}

#[test]
fn failures_reach_every_future_that_waits() {
    let disk = by_hand();
    let faulty = FaultyBackend::new(disk.clone(), Schedule::Never);
    let (_mm, group, file) = open(400, 100, faulty.clone());
    // The load's first attempt succeeds in part, so the load is in flight.
    faulty.set_schedule(Schedule::From(1, Fault::ShortThenErrno(512, 5)));
    let mut futures: Vec<_> = (0..3).map(|_| file.page_at_async(5 * PAGE)).collect();
    let pending = futures.iter_mut().filter_map(|future| poll(future).is_pending().then_some(())).count();
    while disk.answer_next() {}
    assert_eq!(pending, 3);
    for mut future in futures {
        assert!(matches!(poll(&mut future), Poll::Ready(Err(Error::ReadFailed { page: 5, .. }))));
    }
    faulty.set_schedule(Schedule::Never);
    assert_eq!(group.stats().errors, 1);
    assert!(block_on_by_hand(&disk, file.page_at_async(5 * PAGE)).is_ok(), "tried again");
}

fn block_on_by_hand<F: Future + Unpin>(disk: &SimulatedDisk, mut future: F) -> F::Output {
    loop {
        match poll(&mut future) {
            Poll::Ready(output) => return output,
            Poll::Pending => assert!(disk.answer_next(), "nothing is in flight"),
        }
    }
}

/// Polls futures in random order, and drops most of them before they complete.
fn drop_by_the_thousand<'a>(file: &'a File, random: &mut Random, rounds: usize) {
    let mut futures: Vec<PageFuture<'a>> = Vec::new();
    let mut pages: Vec<PageRef<'a>> = Vec::new();
    for _ in 0..rounds {
        futures.push(file.page_at_async((random.below(2_000)) * PAGE));
        let at = random.below(futures.len() as u64) as usize;
        match random.below(4) {
            0 => drop(futures.swap_remove(at)),
            _ => match poll(&mut futures[at]) {
                Poll::Pending => {}
                Poll::Ready(result) => {
                    drop(futures.swap_remove(at));
                    match result {
                        Ok(page) => pages.push(page),
                        Err(Error::ReadFailed { .. } | Error::LimitReached { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            },
        }
        if pages.len() > 8 {
            pages.clear();
        }
        if futures.len() > 60 {
            futures.truncate(20);
        }
    }
}

#[test]
fn futures_are_dropped_mid_flight_by_the_thousand() {
    let faults = vec![Fault::Errno(5), Fault::Interrupted, Fault::Short(512)];
    for (seed, backend) in [disk(1, LEN), reordered(7)].into_iter().enumerate() {
        let faults = faults.clone();
        let faulty = FaultyBackend::new(backend, Schedule::OneIn { n: 50, seed: seed as u64, faults });
        let (_mm, group, file) = open(300, 120, faulty);
        thread::scope(|scope| {
            for seed in 0..3 {
                let file = &file;
                scope.spawn(move || drop_by_the_thousand(file, &mut Random::seeded(seed), 6_000));
            }
        });
        drop(file);
        eventually("a page outlived its file", || group.charged() == 0);
    }
}

#[test]
#[cfg_attr(pagefold_tsan, ignore = "tokio's locks are the standard library's, which ThreadSanitizer can't see into")]
fn under_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let pool = ThreadPool::new(disk(1, LEN), 4).unwrap();
    let (_mm, group, file) = open(2_000, 1_000, pool);
    runtime.block_on(async {
        let tasks: Vec<_> = (0..200_u64)
            .map(|task| {
                let file = file.clone();
                tokio::spawn(async move {
                    let mut random = Random::seeded(task);
                    for _ in 0..50 {
                        let page = random.below(LEN / PAGE);
                        let guard = file.page_at_async(page * PAGE).await.unwrap();
                        tokio::task::yield_now().await;
                        check(0, page * PAGE, &guard[..64]);
                    }
                    let mut bytes = vec![0; 20_000];
                    let n = file.read_at_async(&mut bytes, task * 12_345).await.unwrap();
                    check(0, task * 12_345, &bytes[..n]);
                })
            })
            .collect();
        let (some, rest) = tasks.split_at(20);
        some.iter().for_each(|task| task.abort());
        let _ = rest;
        for (at, task) in tasks.into_iter().enumerate() {
            assert!(task.await.is_ok() || at < 20);
        }
    });
    drop(file);
    eventually("a page outlived its file", || group.charged() == 0);
}

#[test]
#[cfg_attr(
    pagefold_tsan,
    ignore = "counts what is in memory before its reader comes: ThreadSanitizer is too slow for that"
)]
fn a_sequential_reader_waits_little_and_a_random_one_wastes_nothing() {
    let (mm, group, file) = open(4_000, 3_000, disk(1, LEN));
    let mut buf = vec![0; 4096];
    for page in 0..LEN / PAGE {
        file.read_exact_at(&mut buf, page * PAGE).unwrap();
    }
    check(0, LEN - PAGE, &buf);
    let stats = group.stats();
    assert_eq!((stats.misses, stats.read_ahead), (3, LEN / PAGE - 3), "{stats:?}");
    assert_eq!(stats.read_ahead_wasted, 0);
    assert_eq!(stats.hits + stats.waits, LEN / PAGE - 3);
    file.advise(0..LEN, Advice::DontNeed).unwrap();
    let mut random = Random::seeded(77);
    for _ in 0..20_000 {
        file.read_exact_at(&mut buf, random.below(LEN / PAGE) * PAGE).unwrap();
    }
    let after = file.stats();
    let ahead = after.read_ahead - stats.read_ahead;
    assert!(ahead * 100 <= after.misses - stats.misses, "{ahead} pages read ahead for random accesses");
    assert!(mm.stats().used_bytes <= mm.budget());
}

/// Fills memory with the last pages of the file, which are used only once.
fn fill_up(group: &Group, limit: u64) {
    let file = group.open("f0").unwrap();
    for page in LEN / PAGE - limit..LEN / PAGE {
        file.read_exact_at(&mut [0; 10], page * PAGE).unwrap();
    }
}

fn loaded(group: &Group) -> u64 {
    group.stats().misses + group.stats().read_ahead
}

/// Regression: Ten readers took turns. Pages that had been read ahead for one of them were evicted
/// before the reader came to them, and so readahead windows shrank. They were evicted in favour of
/// other pages that had been read ahead: the first use of such a page counted as its second use.
#[test]
fn ten_readers_in_turn_are_read_ahead_for_and_nothing_is_wasted() {
    let disk = disk(1, LEN);
    let (_mm, group, _) = open(4_500, 4_096, disk.clone());
    fill_up(&group, 4_096);
    let readers: Vec<_> = (0..10).map(|_| group.open("f0").unwrap()).collect();
    let (part, piece) = (1_200, 16);
    let before = (group.stats().read_ahead_wasted, loaded(&group), disk.stats().requests);
    let mut bytes = vec![0; piece * 4096];
    for at in (0..part).step_by(piece) {
        for (reader, file) in (0..).zip(&readers) {
            let offset = (reader * (part + 300) + at) as u64 * PAGE;
            file.read_exact_at(&mut bytes, offset).unwrap();
            check(0, offset, &bytes);
        }
    }
    assert_eq!(group.stats().read_ahead_wasted, before.0);
    let (loaded, requests) = (loaded(&group) - before.1, disk.stats().requests - before.2);
    assert!(loaded <= 10 * (part as u64 + 2 * 64), "{loaded} pages");
    assert!(requests <= 10 * (part as u64 / 64 + 8), "{requests} requests");
}

/// A scan must not evict pages in use, even if readahead serves it.
#[test]
fn what_is_used_survives_a_scan_that_is_read_ahead_for() {
    let (_mm, group, file) = open(2_200, 2_048, disk(1, LEN));
    let mut random = Random::seeded(6);
    let hot = |random: &mut Random| file.read_exact_at(&mut [0; 10], random.below(1_500) * PAGE).unwrap();
    file.advise(0..LEN, Advice::Random).unwrap();
    fill_up(&group, 2_048);
    (0..30_000).for_each(|_| hot(&mut random));
    let scanner = group.open("f0").unwrap();
    let before = file.stats().misses;
    let mut bytes = [0; 512];
    for page in 2_000..14_000 {
        for part in 0..8 {
            scanner.read_exact_at(&mut bytes, page * PAGE + part * 512).unwrap();
        }
    }
    let scanned = file.stats().misses - before;
    (0..1_500).for_each(|page| file.read_exact_at(&mut [0; 10], page * PAGE).unwrap());
    let lost = file.stats().misses - before - scanned;
    assert!(lost < 150, "{lost} of 1,500 pages that are used again and again");
}

#[test]
fn a_reader_in_strides_comes_upon_anothers_marks() {
    let (_mm, group, file) = open(2_200, 2_048, disk(1, LEN));
    let first = group.open("f0").unwrap();
    for page in 0..1_000 {
        first.read_exact_at(&mut [0; 10], page * PAGE).unwrap();
    }
    let before = loaded(&group);
    for at in 0..1_500 {
        file.read_exact_at(&mut [0; 10], (1_000 + 8 * at) * PAGE).unwrap();
    }
    let loaded = loaded(&group) - before;
    assert!((1_400..1_800).contains(&loaded), "{loaded} pages for 1,500 reads");
}

#[test]
fn advice_steers_read_ahead() {
    let read = |advice| {
        let (_mm, group, file) = open(4_000, 3_000, disk(1, LEN));
        file.advise(0..LEN, advice).unwrap();
        for page in 0..1_000 {
            file.read_exact_at(&mut [0; 10], page * PAGE).unwrap();
        }
        (group.stats().misses, group.stats().read_ahead)
    };
    assert_eq!(read(Advice::Random), (1_000, 0));
    assert_eq!(read(Advice::Normal).0, 3);
    assert_eq!(read(Advice::Sequential).0, 1);
}

#[test]
#[cfg_attr(
    pagefold_tsan,
    ignore = "counts what is in memory before its reader comes: ThreadSanitizer is too slow for that"
)]
fn pages_read_ahead_in_vain_are_counted() {
    let (_mm, group, file) = open(4_000, 3_000, disk(1, LEN));
    for page in 0..20 {
        file.read_exact_at(&mut [0; 10], page * PAGE).unwrap();
    }
    eventually("all has landed", || file.advise(0..LEN, Advice::DontNeed).is_ok() && group.charged() == 0);
    let stats = file.stats();
    assert_eq!(stats.read_ahead_wasted, stats.read_ahead + 3 - 20);
    assert_eq!(group.stats().read_ahead_wasted, stats.read_ahead_wasted);
    assert!(stats.read_ahead_wasted > 0);
}

/// Regression: Pages that had been read ahead were evicted while they were isolated, waiting to be
/// put on their group's lists. They weren't counted as wasted.
#[test]
fn pages_read_ahead_that_go_before_they_are_listed_are_counted() {
    let (_mm, group, file) = open(4_000, 3_000, disk(2, LEN));
    let (other, mut random) = (group.open("f1").unwrap(), Random::seeded(1));
    other.advise(0..LEN, Advice::Random).unwrap();
    // The group is so large that pages loaded next wait until a batch is full.
    eventually("the group is large", || {
        other.prefetch(0..2_500 * PAGE);
        group.charged() >= 2_500
    });
    for page in 0..3 {
        file.read_exact_at(&mut [0; 10], page * PAGE).unwrap();
    }
    eventually("all has landed, gone, and been counted", || {
        file.advise(0..LEN, Advice::DontNeed).unwrap();
        // These reads fill up the batch.
        for _ in 0..40 {
            other.read_exact_at(&mut [0; 10], (3_000 + random.below(10_000)) * PAGE).unwrap();
        }
        let stats = file.stats();
        stats.read_ahead > 0 && stats.read_ahead_wasted == stats.read_ahead + stats.misses - 3
    });
    assert_eq!(group.stats().read_ahead_wasted, file.stats().read_ahead_wasted);
}

/// Another process cuts the file off while loads are in flight. Futures and reads must then end at
/// the new end.
#[test]
fn a_file_that_shrinks_meanwhile_ends_where_it_ends() {
    let disk = by_hand();
    let (_mm, _group, file) = open(400, 200, disk.clone());
    file.prefetch(0..40 * PAGE);
    let mut future = file.page_at_async(50 * PAGE);
    assert!(poll(&mut future).is_pending());
    disk.truncate("f0", 20 * PAGE + 100).unwrap();
    while disk.answer_next() {}
    assert!(matches!(block_on(future), Err(Error::PastEnd { .. })));
    let mut bytes = vec![0; 40 * 4096];
    let n = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(n as u64, 20 * PAGE + 100);
    check(0, 0, &bytes[..n]);
}
