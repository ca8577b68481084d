//! Memory of a space, used by one thread and by several at once.

use std::ops::Range;

use pagefold::{Area, Error, Group, Pagefold, Protection, Space};
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::random::Random;

use crate::world::{MIB, PAGE, join, threads};

fn group() -> (Pagefold, Group) {
    let mm = Pagefold::builder().memory("64MiB").build().unwrap();
    let group = mm.group("a").build().unwrap();
    (mm, group)
}

fn areas(space: &Space) -> Vec<(Range<u64>, Protection, u64)> {
    space.areas().into_iter().map(|Area { range, protection, resident, .. }| (range, protection, resident)).collect()
}

#[test]
fn memory_is_zeros_then_what_was_written_then_gone() {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    let area = space.map(5 * MIB + 1, Protection::ReadWrite).unwrap();
    assert_eq!(area.end - area.start, 5 * MIB + PAGE);
    let mut bytes = [1; 10_000];
    let charged = group.charged();
    space.read_at(&mut bytes, area.start + 77).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert_eq!(group.charged(), charged, "reading takes no memory");
    let written: Vec<u8> = (0..10_000).map(|i| i as u8).collect();
    space.write_at(&written, area.start + 77).unwrap();
    space.read_at(&mut bytes, area.start + 77).unwrap();
    assert_eq!(bytes[..], written);
    assert_eq!(areas(&space), [(area.clone(), Protection::ReadWrite, 3 * PAGE)]);
    assert_eq!(space.update_u64(area.start + 4096, |before| Some(before + 1)).unwrap() + 1, {
        let mut word = [0; 8];
        space.read_at(&mut word, area.start + 4096).unwrap();
        u64::from_ne_bytes(word)
    });
    space.discard(area.start..area.start + 2 * PAGE).unwrap();
    space.read_at(&mut bytes[..1], area.start + 77).unwrap();
    assert_eq!(bytes[0], 0);
    space.unmap(area.clone()).unwrap();
    let read = space.read_at(&mut bytes[..1], area.start);
    assert!(matches!(read, Err(Error::NotMapped { address, .. }) if address == area.start));
    assert_eq!(areas(&space), []);
    drop(space);
    assert_eq!(group.charged(), 0);
}

#[test]
fn any_part_can_be_unmapped_and_protected() {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    let (start, rw) = (64 * MIB, Protection::ReadWrite);
    space.map_at(start..start + 8 * MIB, rw).unwrap();
    space.unmap(start + 2 * MIB..start + 4 * MIB).unwrap();
    space.protect(start + PAGE..start + 2 * PAGE, Protection::Read).unwrap();
    space.protect(start + 5 * MIB..start + 6 * MIB, Protection::None).unwrap();
    let expected = [
        (start..start + PAGE, rw, 0),
        (start + PAGE..start + 2 * PAGE, Protection::Read, 0),
        (start + 2 * PAGE..start + 2 * MIB, rw, 0),
        (start + 4 * MIB..start + 5 * MIB, rw, 0),
        (start + 5 * MIB..start + 6 * MIB, Protection::None, 0),
        (start + 6 * MIB..start + 8 * MIB, rw, 0),
    ];
    assert_eq!(areas(&space), expected);
    let refused = space.write_at(&[1], start + PAGE + 5).unwrap_err();
    assert!(
        matches!(&refused, Error::NotPermitted { address, area, protection: Protection::Read }
            if *address == start + PAGE && *area == (start + PAGE..start + 2 * PAGE)),
        "{refused}"
    );
    assert!(matches!(space.read_at(&mut [0], start + 5 * MIB), Err(Error::NotPermitted { .. })));
    // A write to two pages, of which only the first may be written: the first one is written.
    assert!(space.write_at(&[7; 4097], start).is_err());
    let mut byte = [0];
    space.read_at(&mut byte, start + 4095).unwrap();
    assert_eq!(byte, [7]);
    // Merged again.
    space.map_at(start + 2 * MIB..start + 4 * MIB, rw).unwrap();
    space.protect(start..start + 8 * MIB, rw).unwrap();
    assert_eq!(areas(&space), [(start..start + 8 * MIB, rw, PAGE)]);
}

#[test]
fn bad_requests_are_told_and_change_nothing() {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    space.map_at(64 * MIB..65 * MIB, Protection::Read).unwrap();
    let before = areas(&space);
    let top = 1_u64 << 47;
    for range in [0..0, 5..PAGE, 0..5, PAGE..PAGE, Range { start: 2 * PAGE, end: PAGE }, top..top + PAGE, 0..u64::MAX] {
        let bad = |result: Result<(), Error>| assert!(matches!(result, Err(Error::BadAddress { .. })), "{range:?}");
        bad(space.map_at(range.clone(), Protection::Read));
        bad(space.unmap(range.clone()));
        bad(space.protect(range.clone(), Protection::Read));
        bad(space.discard(range.clone()));
        bad(space.populate(range.clone()));
    }
    for len in [0, top + 1, u64::MAX] {
        assert!(matches!(space.map(len, Protection::Read), Err(Error::BadAddress { .. })));
    }
    assert!(matches!(space.map_at(63 * MIB..66 * MIB, Protection::Read), Err(Error::Mapped { .. })));
    assert!(matches!(space.unmap(64 * MIB..66 * MIB), Err(Error::NotMapped { address, .. }) if address == 65 * MIB));
    assert!(matches!(space.protect(63 * MIB..65 * MIB, Protection::None), Err(Error::NotMapped { .. })));
    assert!(matches!(space.populate(64 * MIB..65 * MIB), Err(Error::NotPermitted { .. })));
    assert!(matches!(space.read_at(&mut [0; 8], u64::MAX - 3), Err(Error::NotMapped { .. })));
    assert!(matches!(space.write_at(&[0; 8], u64::MAX - 3), Err(Error::NotMapped { .. })));
    assert!(matches!(space.update_u64(64 * MIB + 4, |_| None), Err(Error::BadAddress { .. })));
    assert_eq!(areas(&space), before);
}

#[test]
fn the_limit_answers_and_what_is_unmapped_makes_room() {
    let mm = Pagefold::builder().memory("64MiB").build().unwrap();
    let group = mm.group("small").max("256KiB").build().unwrap();
    let space = group.space().unwrap();
    let area = space.map(MIB, Protection::ReadWrite).unwrap();
    space.write_at(&[1], area.start).unwrap();
    let room = 1 + ((256 << 10) - group.charged()) / PAGE; // What the index leaves.
    assert!(room > 50, "{room}");
    let refused =
        (0..).find_map(|page| space.write_at(&[1], area.start + page * PAGE).err().map(|error| (page, error)));
    let (page, error) = refused.unwrap();
    assert!(page == room && matches!(error.cause(), Error::LimitReached { .. }), "{page}: {error}");
    let Error::AtAddress { address, area: within, .. } = &error else { panic!("{error}") };
    assert_eq!((*address, within), (area.start + room * PAGE, &area), "{error}");
    assert_eq!(group.charged(), 256 << 10);
    let mut bytes = [0];
    space.read_at(&mut bytes, area.start + (room - 1) * PAGE).unwrap();
    assert_eq!(bytes, [1], "what is there stays");
    space.unmap(area.start..area.start + PAGE).unwrap();
    space.write_at(&[1], area.end - 1).unwrap();
    drop(space);
    assert_eq!(group.charged(), 0);
}

#[test]
fn more_areas_than_memory_for_them_are_refused() {
    let mm = Pagefold::builder().memory("2MiB").build().unwrap();
    let group = mm.group("a").build().unwrap();
    let space = group.space().unwrap();
    let mapped = |at: u64| (at << 30) + PAGE..(at << 30) + 2 * PAGE;
    let refused = (1..100_000).find(|&at| space.map_at(mapped(at), Protection::ReadWrite).is_err()).unwrap();
    assert_eq!(space.areas().len() as u64, refused - 1);
    space.write_at(&[1], mapped(1).start).unwrap_err();
    drop(space);
    let file_bytes = mm.stats();
    drop((group, file_bytes));
    let again = mm.group("b").build().unwrap().space().unwrap();
    again.write_at(&[1], again.map(PAGE, Protection::ReadWrite).unwrap().start).unwrap();
}

/// Threads change neighbouring pages of one area at the same time. In the end, each page and the
/// list of areas must be right.
#[test]
fn disjoint_splits_of_one_area_end_right() {
    let (_mm, group) = group();
    for turn in 0..50 {
        let space = group.space().unwrap();
        // All threads' pages are in the same 2 MiB, and at first in the same area.
        let start = 128 * MIB;
        space.map_at(start..start + 2 * MIB, Protection::ReadWrite).unwrap();
        let theirs = space.clone();
        join(threads(4, move |thread| {
            for at in 0..32 {
                let page = start + ((at * 4 + thread) * 4) * PAGE;
                match (at + turn) % 2 {
                    0 => theirs.unmap(page..page + 2 * PAGE).unwrap(),
                    _ => theirs.protect(page..page + 2 * PAGE, Protection::Read).unwrap(),
                }
            }
        }));
        let mut expected = Vec::new();
        for at in 0..128 {
            let page = start + at * 4 * PAGE;
            if (at / 4 + turn) % 2 == 1 {
                expected.push((page..page + 2 * PAGE, Protection::Read, 0));
            }
            expected.push((page + 2 * PAGE..page + 4 * PAGE, Protection::ReadWrite, 0));
        }
        assert_eq!(areas(&space), expected);
    }
}

/// Threads map, unmap and use the same pages. No read may return another page's bytes, and nothing
/// may stay allocated in the end.
#[test]
fn threads_at_the_same_pages_see_zeros_or_what_was_written_there() {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    let (start, pages) = (64 * MIB, 8);
    let theirs = space.clone();
    let at_work = threads(3, move |seed| {
        let mut random = Random::seeded(seed);
        for _ in 0..if cfg!(pagefold_tsan) { 40_000 } else { 200_000 } {
            let page = start + random.below(pages) * PAGE;
            let mark = page.to_ne_bytes();
            let mut bytes = [0; 16];
            match random.below(8) {
                0 => drop(theirs.map_at(page..page + PAGE, Protection::ReadWrite)),
                1 => drop(theirs.unmap(page..page + PAGE)),
                2 => drop(theirs.protect(page..page + PAGE, Protection::Read)),
                3 => drop(theirs.protect(page..page + PAGE, Protection::ReadWrite)),
                4..=5 => drop(theirs.write_at(&[mark, mark].concat(), page + 4000)),
                _ => {
                    if theirs.read_at(&mut bytes, page + 4000).is_ok() {
                        assert!(bytes == [0; 16] || bytes[..] == [mark, mark].concat(), "{bytes:?}");
                    }
                }
            }
        }
    });
    join(at_work);
    for page in 0..pages {
        let _ = space.unmap(start + page * PAGE..start + (page + 1) * PAGE);
    }
    assert_eq!(areas(&space), []);
    drop(space);
    assert_eq!(group.charged(), 0, "something was left in memory");
}

/// When `protect` has returned, no write that began before may still change the page.
#[test]
fn nothing_is_written_once_protect_has_returned() {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    let area = space.map(PAGE, Protection::ReadWrite).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (theirs, stopped, address) = (space.clone(), Arc::clone(&stop), area.start);
    let writer = threads(1, move |_| {
        let mut turn = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            turn += 1;
            let _ = theirs.write_at(&[turn as u8; 4096], address);
        }
    });
    for _ in 0..2000 {
        space.protect(area.clone(), Protection::Read).unwrap();
        let mut copies = [[0; 4096]; 2];
        for copy in &mut copies {
            space.read_at(copy, area.start).unwrap();
            sync::thread::yield_now();
        }
        assert!(copies[0] == copies[1], "written after protect");
        space.protect(area.clone(), Protection::ReadWrite).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    join(writer);
}
