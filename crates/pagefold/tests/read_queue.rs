//! Queues of reads: one thread keeps many reads in flight.
#![cfg(not(pagefold_loom))]

mod support;

use std::thread;

use pagefold::io::{Backend, ThreadPool};
use pagefold::{Advice, Error, File, Group, Pagefold, ReadQueue, ReadRequest};
use support::{bytes_on, check, disk, eventually, manager};
use sync::random::Random;
use test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};

const LEN: u64 = 64 << 20;
const PAGE: u64 = 4096;

fn open(pages: u64, limit: u64, backend: impl Backend) -> (Pagefold, Group, File) {
    let mm = manager(pages, backend);
    let group = mm.group("tenant").max(limit * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    (mm, group, file)
}

fn reordered(seed: u64) -> SimulatedDisk {
    let disk = disk(1, LEN);
    disk.reorder(seed);
    disk
}

/// Checks the result of a read into a buffer that was filled with 0xa5. Returns whether the read
/// failed.
fn look_at(read: &ReadRequest<'_>) -> bool {
    match &read.result {
        Ok(n) => {
            assert_eq!(*n as u64, LEN.saturating_sub(read.offset).min(read.into.len() as u64));
            check(0, read.offset, &read.into[..*n]);
            assert!(read.into[*n..].iter().all(|&byte| byte == 0xa5), "bytes past the end were touched");
            false
        }
        Err(Error::ReadFailed { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Makes `reads` reads at random offsets, each of up to three pages, `depth` at a time. Returns how
/// many failed.
fn read_random(file: &File, random: &mut Random, reads: usize, depth: usize) -> usize {
    let mut buffers: Vec<_> = (0..depth).map(|_| vec![0xa5; random.below(9_000) as usize]).collect();
    let mut queue = ReadQueue::new(file);
    let mut offsets: Vec<_> = (0..reads).map(|_| random.below(LEN + 9_000)).collect();
    for into in &mut buffers {
        if let Some(offset) = offsets.pop() {
            queue.push(ReadRequest::new(offset, into), offset);
        }
    }
    assert_eq!(queue.len(), depth.min(reads));
    let (mut over, mut failed) = (0, 0);
    while let Some((read, tag)) = queue.wait() {
        assert_eq!(read.offset, tag);
        over += 1;
        failed += usize::from(look_at(&read));
        if let Some(offset) = offsets.pop() {
            read.into.fill(0xa5);
            queue.push(ReadRequest::new(offset, read.into), offset);
        }
    }
    assert!(queue.is_empty());
    assert_eq!(over, reads);
    failed
}

#[test]
fn a_queue_is_as_many_reads() {
    for (pages, limit) in [(4_000, 2_000), (200, 100), (64, 16)] {
        for backend in [disk(1, LEN), reordered(limit)] {
            let (_mm, group, file) = open(pages, limit, backend);
            let mut random = Random::seeded(limit);
            for (reads, depth) in [(0, 1), (1, 1), (3, 2), (500, 16), (1_000, 64), (1_500, 1_024)] {
                assert_eq!(read_random(&file, &mut random, reads, depth), 0);
            }
            assert!(group.stats().peak_bytes <= group.max());
        }
    }
}

#[test]
fn through_threads_and_the_systems_best() {
    let (_mm, _group, file) = open(4_000, 300, ThreadPool::new(disk(1, LEN), 3).unwrap());
    assert_eq!(read_random(&file, &mut Random::seeded(1), 3_000, 64), 0);
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), bytes_on(&disk(1, LEN), "f0")).unwrap();
    let mm = Pagefold::builder().memory(16_u64 << 20).page_size(4096).build().unwrap();
    let group = mm.group("tenant").max(2_u64 << 20).build().unwrap();
    let file = group.open(path.path()).unwrap();
    assert_eq!(read_random(&file, &mut Random::seeded(2), 5_000, 64), 0);
}

#[test]
fn all_are_under_way_together_and_any_order_will_do() {
    let disk = disk(1, LEN);
    disk.answer_by_hand();
    let (_mm, group, file) = open(4_000, 2_000, disk.clone());
    file.advise(0..LEN, Advice::Random).unwrap();
    let mut bytes = vec![0xa5; 64 * 4096];
    let mut queue = ReadQueue::new(&file);
    for (at, into) in (0..).zip(bytes.chunks_mut(4096)) {
        queue.push(ReadRequest::new(at * 50 * PAGE, into), at);
    }
    assert_eq!(queue.len(), 64, "nobody has waited for anything yet");
    // All reads but a few are in flight. Those few are started only when there is nothing else to
    // do.
    assert!(group.charged() > 56 * PAGE, "{} are under way", group.charged() / PAGE);
    assert_eq!(group.stats().misses, 0, "and nothing was answered");
    disk.reorder(5);
    let mut order = Vec::new();
    while let Some((read, at)) = queue.wait() {
        assert!(!look_at(&read));
        order.push(at);
    }
    assert!(!order.is_sorted() && order.len() == 64, "as they are answered: {order:?}");
    let stats = group.stats();
    assert_eq!((stats.misses, stats.hits, stats.waits), (64, 0, 0));
}

#[test]
fn each_fault_is_one_reads_alone() {
    for fault in [Fault::Errno(5), Fault::Interrupted, Fault::Again, Fault::Short(512)] {
        // A build for a sanitizer takes ten times as long.
        for n in (1..150).step_by(if cfg!(debug_assertions) { 5 } else { 1 }) {
            let faulty = FaultyBackend::new(reordered(n), Schedule::Never);
            let (_mm, _group, file) = open(400, 150, faulty.clone());
            faulty.set_schedule(Schedule::Once(n, fault));
            let failed = read_random(&file, &mut Random::seeded(n), 60, 16);
            assert!(failed <= usize::from(fault == Fault::Errno(5)), "{fault:?} {n}: {failed} failed");
        }
    }
    let faulty = FaultyBackend::new(disk(1, LEN), Schedule::Never);
    let (_mm, group, file) = open(400, 150, faulty.clone());
    faulty.set_schedule(Schedule::From(1, Fault::Errno(5)));
    let (mut queue, mut bytes) = (ReadQueue::new(&file), vec![0xa5; 40 * 4096]);
    for (at, into) in (0..).zip(bytes.chunks_mut(4096)) {
        queue.push(ReadRequest::new(at * 50 * PAGE, into), ());
    }
    while let Some((read, ())) = queue.wait() {
        assert!(look_at(&read), "it cannot have been read");
    }
    drop(queue); // It has the file.
    faulty.set_schedule(Schedule::Never);
    assert_eq!(read_random(&file, &mut Random::seeded(0), 100, 16), 0);
    drop(file);
    eventually("a page outlived its file", || group.charged() == 0);
}

#[test]
fn with_all_pinned_each_read_is_told() {
    let (_mm, _group, file) = open(400, 16, disk(1, LEN));
    let pins: Vec<_> = (0..16).map(|page| file.page_at((page * 10) * PAGE).unwrap()).collect();
    let mut bytes = [0; 4 * 8];
    let mut queue = ReadQueue::new(&file);
    for (into, offset) in bytes.chunks_mut(8).zip([0, 5 << 20, 10 * PAGE, 6 << 20]) {
        queue.push(ReadRequest::new(offset, into), offset < 11 * PAGE);
    }
    while let Some((read, in_memory)) = queue.wait() {
        match read.result {
            Ok(8) => assert!(in_memory),
            Err(Error::LimitReached { .. }) => assert!(!in_memory),
            other => panic!("{other:?}"),
        }
    }
    drop(pins);
    assert_eq!(read_random(&file, &mut Random::seeded(0), 100, 16), 0);
}

#[test]
fn queues_are_dropped_full_by_the_thousand() {
    let faults = vec![Fault::Errno(5), Fault::Interrupted, Fault::Short(512)];
    // With ThreadSanitizer they take twenty seconds.
    let turns = if cfg!(pagefold_tsan) { 400 } else { 1_000 };
    let backends: [Box<dyn Backend>; 2] = [Box::new(reordered(7)), Box::new(ThreadPool::new(disk(1, LEN), 4).unwrap())];
    for (seed, backend) in (0..).zip(backends) {
        let schedule = Schedule::OneIn { n: 50, seed, faults: faults.clone() };
        let (_mm, group, file) = open(300, 120, FaultyBackend::new(backend, schedule));
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let file = file.clone();
                thread::spawn(move || {
                    let mut random = Random::seeded(seed);
                    for _ in 0..turns {
                        let mut bytes = vec![0xa5; 32 * 100];
                        let mut queue = ReadQueue::new(&file);
                        for into in bytes.chunks_mut(100) {
                            queue.push(ReadRequest::new(random.below(LEN), into), ());
                        }
                        for _ in 0..random.below(8) {
                            look_at(&queue.wait().unwrap().0);
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
        drop(file);
        eventually("a page outlived its file", || group.charged() == 0);
    }
}

#[test]
fn a_queue_can_go_to_another_thread_and_wait_for_others_loads() {
    let (_mm, group, file) = open(4_000, 2_000, ThreadPool::new(reordered(9), 2).unwrap());
    let other = group.open("f0").unwrap();
    for round in 0..100 {
        let mut bytes = vec![0xa5; 32 * 4096];
        other.prefetch(round * 64 * PAGE..(round * 64 + 16) * PAGE);
        thread::scope(|scope| {
            let mut queue = ReadQueue::new(&file);
            for (at, into) in (0..).zip(bytes.chunks_mut(4096)) {
                queue.push(ReadRequest::new((round * 64 + at) * PAGE, into), ());
            }
            let reader = scope.spawn(move || {
                while let Some((read, ())) = queue.wait() {
                    assert!(!look_at(&read));
                }
            });
            reader.join().unwrap();
        });
    }
}
