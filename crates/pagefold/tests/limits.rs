//! Limits must hold, and calls at a limit must fail with the right errors.
#![cfg(not(pagefold_loom))]

mod support;

use std::time::{Duration, Instant};
use sync::atomic::{AtomicBool, Ordering};

use pagefold::{Error, Pagefold};
use support::{WATCHDOG, disk, manager, read, stop_at_end, within_limit};
use sync::random::Random;

/// With everything pinned, the answer is an error.
fn answers_with_everything_pinned(patience: Duration) {
    let mm = manager(256, disk(1, 1 << 20));
    let group = mm.group("tenant").max(16 * 4096).build().unwrap();
    let file = group.open("f0").unwrap();
    let pins: Vec<_> = (0..16).map(|page| file.page_at(page * 4096).unwrap()).collect();
    let start = Instant::now();
    let error = file.page_at(16 * 4096).unwrap_err();
    assert!(matches!(&error, Error::LimitReached { group, .. } if group == "tenant"), "{error}");
    assert!(start.elapsed() < patience, "the answer took {:?}", start.elapsed());
    assert!(error.to_string().contains("tenant") && error.to_string().contains("64 KiB"), "{error}");
    drop(pins);
    read(&file, 0, 16 * 4096, 4096).unwrap();
    assert!(within_limit(&group));
}

#[test]
fn with_everything_pinned_the_answer_is_an_error() {
    answers_with_everything_pinned(WATCHDOG);
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_with_everything_pinned_the_answer_comes_soon() {
    answers_with_everything_pinned(Duration::from_secs(30));
}

#[test]
fn with_the_whole_budget_pinned_by_one_group_another_gets_an_error() {
    let mm = manager(64, disk(1, 4 << 20));
    let (hog, other) = (mm.group("hog").build().unwrap(), mm.group("other").build().unwrap());
    let file = hog.open("f0").unwrap();
    let mut pins = Vec::new();
    let error = loop {
        match file.page_at(pins.len() as u64 * 4096) {
            Ok(pin) => pins.push(pin),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::LimitReached { group, .. } if group == "hog"), "{error}");
    assert!(pins.len() > 32);
    let theirs = other.open("f0").unwrap();
    let error = theirs.page_at(900 * 4096).unwrap_err();
    assert!(matches!(&error, Error::LimitReached { group, .. } if group == "other"), "{error}");
    assert!(read(&theirs, 0, 3 * 4096, 100).is_ok(), "pages that are there can be read");
}

#[test]
fn limits_hold_under_many_threads() {
    let mm = manager(300, disk(2, 8 << 20));
    let small = mm.group("small").max(40 * 4096).build().unwrap();
    let large = mm.group("large").build().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = stop_at_end(&stop);
        let watch = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(within_limit(&small) && within_limit(&large));
                assert!(mm.stats().used_bytes <= mm.budget());
            }
        });
        let readers: Vec<_> = (0..6_u64)
            .map(|thread| {
                let (group, number) = if thread % 2 == 0 { (&small, 0) } else { (&large, 1) };
                scope.spawn(move || {
                    let file = group.open(format!("f{number}")).unwrap();
                    let mut random = Random::seeded(thread);
                    for _ in 0..4_000 {
                        let len = 1 + random.below(9_000) as usize;
                        read(&file, number, random.below(8 << 20), len).unwrap();
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        watch.join().unwrap();
    });
    assert!(small.stats().peak_bytes <= small.max());
    assert!(small.stats().evictions > 1000 && large.stats().evictions > 1000);
    assert!(mm.stats().peak_bytes <= mm.budget());
}

#[test]
fn a_sparse_file_of_a_tebibyte_stays_in_a_small_budget() {
    let disk = disk(1, 1 << 40);
    let mm = Pagefold::builder().memory("32MiB").backend(disk).build().unwrap();
    let file = mm.group("a").build().unwrap().open("f0").unwrap();
    let mut random = Random::seeded(3);
    for _ in 0..40_000 {
        read(&file, 0, random.below(1 << 40) & !7, 8).unwrap();
    }
    let stats = mm.stats();
    assert!(stats.peak_bytes <= 32 << 20, "{stats}");
    assert!(stats.map_bytes > 4 << 20, "page maps are counted: {stats}");
    // The sparse file's page map must give memory back for a file that is in use.
    assert!(stats.metadata_bytes < 30 << 20, "frames are left: {stats}");
}

#[test]
fn a_quiet_group_keeps_its_pages_beside_a_hog() {
    let mm = manager(2_000, disk(2, 64 << 20));
    let quiet = mm.group("quiet").max(500 * 4096).build().unwrap();
    let hog = mm.group("hog").build().unwrap();
    let (ours, theirs) = (quiet.open("f0").unwrap(), hog.open("f1").unwrap());
    for page in 0..300 {
        read(&ours, 0, page * 4096, 8).unwrap();
    }
    for page in 0..16_000 {
        read(&theirs, 1, page * 4096, 8).unwrap();
    }
    let before = quiet.stats().misses;
    for page in 0..300 {
        read(&ours, 0, page * 4096, 8).unwrap();
    }
    assert_eq!(quiet.stats().misses, before, "the hog uses more of its limit, so it gives way");
}

#[test]
fn a_hot_set_survives_a_scan() {
    let (budget, hot) = (4_096_u64, 2_048_u64);
    let mm = manager(budget, disk(2, 10 * 4_096 * 4_096));
    let group = mm.group("a").build().unwrap();
    let (used, scanned) = (group.open("f0").unwrap(), group.open("f1").unwrap());
    let mut random = Random::seeded(5);
    let mut hits = 0;
    for step in 0..40 * budget {
        let page = random.below(hot);
        let before = used.stats().misses;
        let measured = step >= 20 * budget && step.is_multiple_of(16);
        let mut buf = [0; 8];
        used.read_at(&mut buf, page * 4096).unwrap();
        if measured {
            hits += u64::from(used.stats().misses == before);
        }
        scanned.read_at(&mut buf, step % (10 * budget) * 4096).unwrap();
    }
    let rate = hits as f64 / (20.0 * budget as f64 / 16.0);
    assert!(rate > 0.95, "hit rate on the hot set: {rate}");
}

#[test]
fn too_little_memory_is_an_error_that_says_how_much_is_needed() {
    for (memory, what) in [("4KiB", "too small"), ("12 parsecs", "isn't a size"), ("0", "too small")] {
        let error = Pagefold::builder().memory(memory).build().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    for page_size in ["3000", "1KiB", "4MiB", "0"] {
        let error = Pagefold::builder().memory("64MiB").page_size(page_size).build().unwrap_err();
        assert!(error.to_string().contains("page size"), "{error}");
    }
    let mm = manager(100, disk(1, 1));
    assert!(matches!(mm.group("a").max("1KiB").build(), Err(Error::TooSmall { .. })));
    let _a = mm.group("a").build().unwrap();
    assert!(matches!(mm.group("a").build(), Err(Error::GroupExists { .. })));
    assert!(matches!(mm.resize("1PiB"), Err(Error::BudgetTooLarge { .. })));
}

/// Regression: A budget with more pages than there can be frames was accepted, but could never be
/// filled.
#[test]
fn a_budget_that_is_impossible_is_an_error() {
    for (memory, page_size) in [("99999TiB", 4096), ("4097GiB", 4096), ("3PiB", 2 << 20)] {
        let error = Pagefold::builder().memory(memory).page_size(page_size).build().unwrap_err();
        assert!(matches!(error, Error::BudgetTooLarge { size, max } if size > max), "{error}");
    }
}

#[test]
fn a_budget_does_without_huge_pages() {
    let mm = Pagefold::builder().memory("8MiB").huge_pages(false).backend(disk(1, 16 << 20)).build().unwrap();
    let file = mm.group("a").build().unwrap().open("f0").unwrap();
    (0..4096).for_each(|page| assert_eq!(read(&file, 0, page * 4096, 100).unwrap(), 100));
    assert!(mm.stats().used_bytes <= 8 << 20);
}

#[test]
fn every_page_size_works() {
    for shift in 12..=21 {
        let page_size = 1_u64 << shift;
        let mm = Pagefold::builder()
            .memory(40 * (page_size + 64) + (256 << 10))
            .page_size(page_size)
            .backend(disk(1, 60 * page_size + 100))
            .build()
            .unwrap();
        let file = mm.group("a").build().unwrap().open("f0").unwrap();
        for page in 0..60 {
            read(&file, 0, page * page_size + page_size - 20, 40).unwrap();
        }
        assert_eq!(file.page_at(60 * page_size).unwrap().len(), 100);
        assert!(mm.stats().peak_bytes <= mm.budget());
    }
}

#[test]
fn nodes_of_a_numa_machine_share_the_budget() {
    let mm = Pagefold::builder().memory("8MiB").numa_nodes(3).backend(disk(1, 32 << 20)).build().unwrap();
    let file = mm.group("a").build().unwrap().open("f0").unwrap();
    for page in 0..8_192 {
        read(&file, 0, page * 4096, 16).unwrap();
    }
    let stats = mm.stats();
    assert!(stats.groups[0].peak_bytes > 7 << 20, "all nodes' frames are used: {stats}");
}
