//! Budgets that are so small that frames and page maps compete for the last bytes.

use std::time::Duration;

use pagefold::{Error, Pagefold, Protection, ReadRequest, WriteRequest};
use sync::random::Random;

use crate::hooked::{Hooked, fill};
use crate::support::{bytes_on, check, disk, manager, read, version};

/// When a page map needed memory, reclaim freed frames for one chunk only. But the states of a
/// segment need memory, too, so the page map didn't fit. Other frames could take the freed memory
/// first, and each further try failed in the same way. This is most likely in a nearly full budget
/// with several files.
#[test]
fn the_smallest_budgets_are_enough_for_several_files() {
    const LEN: u64 = 64 << 20;
    for (page_size, extra) in [(4096, 0), (4096, 1000), (16 << 10, 0), (64 << 10, 0), (2 << 20, 0)] {
        let memory = 16 * (page_size + 64) + (64 << 10) + extra;
        let mm = Pagefold::builder().memory(memory).page_size(page_size).backend(disk(6, LEN)).build().unwrap();
        let group = mm.group("tenant").build().unwrap();
        let files: Vec<_> = (0..6).map_while(|i| group.open(format!("f{i}")).ok()).collect();
        assert!(files.len() > 1, "{page_size}: {} files can be opened", files.len());
        let mut random = Random::seeded(5);
        for _ in 0..((16 << 20) / page_size).clamp(50, 3000) {
            let number = random.below(files.len() as u64);
            let result = read(&files[number as usize], number, random.below(LEN), 100);
            assert!(result.is_ok(), "pages of {page_size}: {result:?}");
        }
    }
}

/// A tenant pinned one page in each extent, and then read a sparse file. Because of the pins, no
/// whole extent can be freed for the page map. Memory within the page map can be reused only if all
/// pages of a chunk are evicted. So unless reclaim evicts such pages, reads fail with
/// `LimitReached`, although most of the budget isn't pinned.
#[test]
fn maps_find_room_with_a_pin_in_each_extent() {
    let mm = Pagefold::builder().memory("4MiB").backend(disk(1, 64 << 30)).build().unwrap();
    let file = mm.group("tenant").build().unwrap().open("f0").unwrap();
    let mut pins = Vec::new();
    for page in 0..900 {
        let pin = file.page_at(page * 4096).unwrap();
        if page % 32 == 5 {
            pins.push(pin);
        }
    }
    for chunk in 1..3000 {
        read(&file, 0, chunk << 21, 8).unwrap_or_else(|error| panic!("part {chunk} of the map: {error}"));
    }
}

/// A load in flight keeps its extent in use, as a pin does, but only for a while. With 64 loads in
/// about 250 frames, on a slow device, nearly every extent contains one. Reads of a sparse file
/// must still get memory for its page map.
#[test]
fn maps_find_room_with_a_load_under_way_in_each_extent() {
    const LEN: u64 = 64 << 30;
    let slow = Hooked::new(
        |offset, into| {
            std::thread::sleep(Duration::from_millis(5));
            Ok(fill(offset, into, LEN, 1))
        },
        || Ok(LEN),
    );
    let mm = Pagefold::builder().memory("1MiB").backend(slow).build().unwrap();
    let file = mm.group("tenant").build().unwrap().open("file").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..64 {
            let file = &file;
            scope.spawn(move || {
                let mut random = Random::seeded(thread);
                for _ in 0..50 {
                    file.read_at(&mut [0; 8], random.below(LEN) & !4095).unwrap();
                }
            });
        }
    });
}

/// Each guard that changes a page holds a copy of the page, which was charged to no group: a group
/// with a limit of 64 MiB used 113 MiB with 14,000 such guards.
#[test]
fn copies_of_pages_that_are_changed_are_charged() {
    let mm = manager(1024, disk(1, 512 * 4096));
    let group = mm.group("tenant").max("1MiB").build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let space = group.space().unwrap();
    let heap = space.map(512 * 4096, Protection::ReadWrite).unwrap();
    let used = mm.stats().used_bytes;
    let guards: Vec<_> = (0..512).map_while(|page| file.page_mut_at(page * 4096).ok()).collect();
    assert!((120..=128).contains(&guards.len()), "{} pages and copies in 256 pages", guards.len());
    assert!(mm.stats().used_bytes >= used + guards.len() as u64 * 4096, "the budget has them, too");
    assert!(matches!(file.page_mut_at(300 * 4096), Err(Error::LimitReached { .. })));
    drop(guards);
    let guards: Vec<_> = (0..512).map_while(|page| space.page_mut_at(heap.start + page * 4096).ok()).collect();
    assert!((110..=128).contains(&guards.len()), "{} pages and copies in 256 pages", guards.len());
    drop(guards);
    drop((space, file));
    assert_eq!(group.charged(), 0, "all is given back");
}

/// Each guard of a page that was never written allocated a page of zeros. All such guards must
/// share one page of zeros.
#[test]
fn guards_of_memory_without_pages_take_none() {
    let mm = manager(1024, disk(1, 4096));
    let space = mm.group("tenant").build().unwrap().space().unwrap();
    let heap = space.map(2 * 4096, Protection::Read).unwrap();
    let guards = [0, 1].map(|page| space.page_at(heap.start + page * 4096).unwrap());
    assert_eq!(guards[0].as_ptr(), guards[1].as_ptr());
    assert!(guards[0].iter().all(|&byte| byte == 0));
}

/// A batch that needs more pages than the group may have must still complete, a part at a time. It
/// must neither fail nor wait for its own pages.
#[test]
fn a_batch_of_more_pages_than_the_budget_has_is_done_whole() {
    const PAGES: usize = 500;
    let disk = disk(1, PAGES as u64 * 4096);
    let mm = manager(32, disk.clone());
    let group = mm.group("tenant").max(20 * 4096).build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let mut bytes = vec![0; PAGES * 4096];
    let offset = |at: usize| (at * 7 % PAGES * 4096) as u64;
    for _ in 0..2 {
        let into = bytes.chunks_mut(4096).enumerate();
        let mut batch: Vec<_> = into.map(|(at, into)| ReadRequest::new(offset(at), into)).collect();
        file.read_batch(&mut batch);
        for request in &batch {
            assert_eq!(*request.result.as_ref().unwrap(), 4096);
            check(0, request.offset, request.into);
        }
    }
    let bytes = version(1, 0, PAGES * 4096);
    let from = |at| &bytes[offset(at) as usize..][..4096];
    let mut batch: Vec<_> = (0..PAGES).map(|at| WriteRequest::new(offset(at), from(at))).collect();
    file.write_batch(&mut batch);
    assert!(batch.iter().all(|request| request.result.is_ok()));
    file.sync().unwrap();
    assert!(bytes_on(&disk, "f0") == bytes);
}
