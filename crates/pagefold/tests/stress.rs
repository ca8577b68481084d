//! Threads that read, pin, drop, reopen and resize at the same time, with little memory.
//! ThreadSanitizer finds races in these runs; without it, they may find rare failures.
#![cfg(not(pagefold_loom))]

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use sync::atomic::{AtomicBool, Ordering};

use pagefold::{Advice, Error, File, Pagefold, ReadRequest};
use support::{WATCHDOG, check, disk, eventually, manager, read, stop_at_end};
use sync::random::Random;
use test_disks::{Fault, FaultyBackend, Schedule};

const LEN: u64 = 2 << 20;
/// How often each reader opens a file.
const OPENINGS: u64 = if cfg!(pagefold_tsan) { 8 } else { 40 };
/// What each writer writes.
const WRITES: u64 = if cfg!(pagefold_tsan) { 6_000 } else { 30_000 };

fn batch(file: &File, number: u64, random: &mut Random, reach: u64) -> Result<(), Error> {
    let mut bytes = [[0; 64]; 40];
    let mut batch: Vec<_> =
        bytes.iter_mut().map(|into| ReadRequest::new(random.below(reach) & !63, &mut into[..])).collect();
    file.read_batch(&mut batch);
    let mut result = Ok(());
    for request in batch {
        match request.result {
            Ok(n) => check(number, request.offset, &request.into[..n]),
            Err(error) => result = Err(error),
        }
    }
    result
}

/// Polls a future a few times, and then drops it, whether or not it has completed.
fn ask(file: &File, number: u64, page: u64) -> Result<(), Error> {
    let mut future = file.page_at_async(page * 4096);
    for _ in 0..3 {
        match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => return found.map(|pin| check(number, page * 4096, &pin)),
            Poll::Pending => std::thread::yield_now(),
        }
    }
    Ok(())
}

#[test]
fn everything_at_once() {
    let faults = vec![Fault::Errno(5), Fault::Interrupted, Fault::Short(512)];
    let disk = disk(2, LEN);
    disk.reorder(1);
    let mm = manager(150, FaultyBackend::new(disk, Schedule::OneIn { n: 500, seed: 1, faults }));
    let groups = [mm.group("a").max(100 * 4096).build().unwrap(), mm.group("b").max(90 * 4096).build().unwrap()];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = stop_at_end(&stop);
        let work = |thread: u64| {
            let group = &groups[thread as usize % 2];
            scope.spawn(move || {
                let mut random = Random::seeded(thread);
                for _ in 0..OPENINGS {
                    let number = random.below(2);
                    let Ok(file) = group.open(format!("f{number}")) else { continue };
                    for _ in 0..random.below(3_000) {
                        let reach = if random.one_in(2) { LEN } else { LEN / 16 };
                        let offset = random.below(reach);
                        let result = match random.below(20) {
                            0 => file.page_at(offset).map(|pin| check(number, offset & !4095, &pin)),
                            1 => file.advise(offset..offset + 40_000, Advice::DontNeed),
                            2 => {
                                file.prefetch(offset..offset + random.below(100_000));
                                Ok(())
                            }
                            3 => batch(&file, number, &mut random, reach),
                            4 => ask(&file, number, offset / 4096),
                            5 => (0..20).try_for_each(|at| read(&file, number, offset + at * 4096, 50).map(|_| ())),
                            _ => read(&file, number, offset, random.below(300) as usize).map(|_| ()),
                        };
                        match result {
                            Ok(()) | Err(Error::ReadFailed { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        };
        let readers: Vec<_> = (0..5).map(work).collect();
        let (mm, stop) = (&mm, &stop);
        let resizer = scope.spawn(move || {
            let mut random = Random::seeded(99);
            while !stop.load(Ordering::Relaxed) {
                match mm.resize((100 + random.below(100)) * 4096 + (256 << 10)) {
                    Ok(()) | Err(Error::BudgetBusy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                let _ = mm.stats().to_string();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        resizer.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    for group in &groups {
        eventually("a page outlived its file", || group.charged() == 0);
        assert!(group.stats().evictions > 0);
    }
}

const PAGES: u64 = 600;

/// The word that fills a page. It contains the page's number and the version.
fn stamp(page: u64, version: u64) -> u64 {
    page << 40 | version << 8 | 0x5a
}

/// Fails unless the page is as one writer left it: one word repeated, which may be followed by
/// zeros, if the page was cut off and extended since.
fn check_stamps(page: u64, bytes: &[u8]) {
    let words: Vec<_> = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let Some(&first) = words.first().filter(|&&first| first != 0) else {
        assert!(words.iter().all(|&word| word == 0), "page {page} has more behind zeros");
        return;
    };
    assert!(first >> 40 == page && first & 0xff == 0x5a, "page {page}: foreign bytes, {first:#x}");
    let end = words.iter().position(|&word| word != first).unwrap_or(words.len());
    let changes: Vec<_> = (1..words.len()).filter(|&at| words[at] != words[at - 1]).map(|at| (at, words[at])).collect();
    assert!(words[end..].iter().all(|&word| word == 0), "page {page} is a mixture: {first:#x}, then {changes:#x?}");
}

/// Threads read, write, change pages in place, pin, sync, cut off, grow, evict, and change limits,
/// on a real file.
#[test]
fn writers_and_everybody_else_at_once() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data");
    let mm = Pagefold::builder().memory("1500KiB").build().unwrap();
    let groups = [mm.group("a").max(200 * 4096).build().unwrap(), mm.group("b").build().unwrap()];
    let open = |group: usize| groups[group].open_options().write(true).create(true).open(&path).unwrap();
    let files = [open(0), open(1)];
    let stop = AtomicBool::new(false);
    let start_line = Barrier::new(8);
    let work = |thread: u64| {
        let mut random = Random::seeded(thread);
        let file = &files[thread as usize % 2];
        let mut version = 0;
        start_line.wait();
        // Each writer makes a fixed number of calls. The other threads go on until the writers are
        // done.
        while if thread < 3 { version < WRITES } else { !stop.load(Ordering::Relaxed) } {
            let start = Instant::now();
            let reach = if random.one_in(2) { PAGES } else { 40 };
            let page = random.below(reach);
            version += 1;
            let word = stamp(page, version << 4 | thread);
            let result = match (thread, random.below(16)) {
                (0..3, 0..12) => file.write_at(&word.to_le_bytes().repeat(512), page * 4096),
                (0..3, 12..14) => file.page_mut_at(page * 4096).map(|mut guard| {
                    if guard.len().is_multiple_of(8) {
                        check_stamps(page, &guard);
                        let len = guard.len();
                        guard.copy_from_slice(&word.to_le_bytes().repeat(len / 8));
                    }
                }),
                (0..3, _) => file.advise(page * 4096..(page + 50) * 4096, Advice::DontNeed),
                (3 | 4, 0..14) => {
                    let mut bytes = vec![0; 4096];
                    file.read_at(&mut bytes, page * 4096).map(|n| check_stamps(page, &bytes[..n]))
                }
                (3 | 4, _) => file.page_at(page * 4096).map(|pin| {
                    let before = pin.to_vec();
                    check_stamps(page, &before);
                    std::thread::sleep(Duration::from_micros(random.below(300)));
                    assert!(*pin == *before, "a pinned page has changed");
                }),
                (5, 0..10) => file.sync(),
                (5, _) => file.sync_range(page * 4096..(page + 100) * 4096),
                (6, _) => {
                    std::thread::sleep(Duration::from_millis(random.below(20)));
                    file.set_len(random.below(PAGES * 512) * 8)
                }
                (_, 0..8) => {
                    std::thread::sleep(Duration::from_millis(2));
                    groups[0].set_max((30 + random.below(200)) * 4096)
                }
                _ => {
                    std::thread::sleep(Duration::from_millis(2));
                    match mm.resize((150 + random.below(250)) * 4096 + (256 << 10)) {
                        Err(Error::BudgetBusy { .. }) => Ok(()),
                        result => result,
                    }
                }
            };
            match result {
                Ok(()) | Err(Error::PastEnd { .. }) => {}
                Err(Error::PageBusy { .. }) if thread == 6 => {}
                // For seconds the disk didn't take the unclean pages.
                Err(Error::LimitReached { .. }) if start.elapsed() >= sync::wait::PATIENCE => {}
                // For seconds another thread had it pinned, and no CPU.
                Err(Error::PageBusy { .. }) if start.elapsed() >= sync::wait::PATIENCE => {}
                Err(error) => panic!("{error}"),
            }
            assert!(start.elapsed() < WATCHDOG, "thread {thread} waited {:?} for one call", start.elapsed());
        }
    };
    std::thread::scope(|scope| {
        let _ends = stop_at_end(&stop);
        let work = &work;
        let mut threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || work(thread))).collect();
        let others = threads.split_off(3);
        let results: Vec<_> = threads.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        results.into_iter().chain(others.into_iter().map(|other| other.join())).for_each(|result| result.unwrap());
    });
    // Even if all of the above was cut off before it was written back, this write reaches the file.
    files[0].write_at(&stamp(0, WRITES << 4).to_le_bytes().repeat(512), 0).unwrap();
    files[0].sync().unwrap();
    let stats = mm.stats();
    assert!(stats.groups.iter().all(|group| group.unclean_bytes == 0), "{stats}");
    assert!(stats.files[0].unclean_bytes == 0 && stats.files[0].bytes_out > 0, "{stats}");
    let mut bytes = vec![0; files[0].len() as usize];
    files[1].read_exact_at(&mut bytes, 0).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes, "the file isn't what its readers see");
    bytes.chunks(4096).enumerate().for_each(|(page, bytes)| check_stamps(page as u64, bytes));
    drop(files);
    for group in &groups {
        eventually("pages are left", || group.charged() == 0);
    }
}
