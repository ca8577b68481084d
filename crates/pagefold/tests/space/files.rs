//! Mappings of files in a space, compared with reads and writes of the same files.

use std::ops::Range;

use pagefold::{Advice, Error, Pagefold, Protection, Space};
use sync::Arc;

use crate::support::bytes_on;
use crate::support::devices::Devices;
use crate::world::{MIB, PAGE, RW, World, join, threads};

fn byte(space: &Space, address: u64) -> Result<u8, Error> {
    let mut byte = [0];
    space.read_at(&mut byte, address).map(|()| byte[0])
}

fn is_past_end(error: &Error, at: u64) -> bool {
    let Error::AtAddress { address, area, .. } = error else { return false };
    matches!(error.cause(), Error::PastEnd { .. }) && *address == at && area.contains(&at)
}

#[test]
fn a_mapped_file_is_the_file() {
    let world = World::new("32MiB");
    let file = world.file("f", 10 * PAGE + 100);
    let space = world.group.space().unwrap();
    let area = space.map_file(&file, 2 * PAGE, 9 * PAGE, RW).unwrap();
    assert_eq!(area.end - area.start, 9 * PAGE);
    // A read through the space, across pages.
    let mut bytes = [0; 6000];
    space.read_at(&mut bytes, area.start + 3000).unwrap();
    assert!(bytes[..1096].iter().all(|&byte| byte == 3) && bytes[1096..5192].iter().all(|&byte| byte == 4));
    // Writes through the space and through the file.
    space.write_at(b"through the space", area.start + 4090).unwrap();
    let mut written = [0; 17];
    file.read_exact_at(&mut written, 2 * PAGE + 4090).unwrap();
    assert_eq!(&written, b"through the space");
    file.write_at(b"through the file", 5 * PAGE).unwrap();
    space.read_at(&mut written[..16], area.start + 3 * PAGE).unwrap();
    assert_eq!(&written[..16], b"through the file");
    // Numbers.
    file.write_at(&7_u64.to_ne_bytes(), 6 * PAGE).unwrap();
    assert_eq!(space.update_u64(area.start + 4 * PAGE, |before| Some(before * 6)).unwrap(), 7);
    let mut number = [0; 8];
    file.read_exact_at(&mut number, 6 * PAGE).unwrap();
    assert_eq!(u64::from_ne_bytes(number), 42);
    // The guards of two pages, the last of which is short.
    let page = space.page_at(area.start + 5 * PAGE + 77).unwrap();
    assert!(page.len() == 4096 && page.iter().all(|&byte| byte == 8));
    drop(page);
    assert_eq!(space.page_at(area.start + 8 * PAGE).unwrap().len(), 100);
    space.page_mut_at(area.start + 8 * PAGE).unwrap().fill(99);
    file.read_exact_at(&mut number, 10 * PAGE + 92).unwrap();
    assert_eq!(number, [99; 8]);
    // Listed.
    let listed = &space.areas()[0];
    let of = listed.file.as_ref().unwrap();
    assert_eq!((listed.range.clone(), of.offset), (area.clone(), 2 * PAGE));
    assert!(of.path.ends_with("f") && listed.dirty <= listed.resident && listed.resident >= 5 * PAGE, "{listed}");
    assert!(listed.to_string().contains("rw-s 00002000 "), "{listed}");
    // On the disk.
    space.sync(area.clone()).unwrap();
    assert_eq!(space.areas()[0].dirty, 0);
    let disk = std::fs::read(world.path("f")).unwrap();
    assert_eq!(&disk[2 * 4096 + 4090..][..17], b"through the space");
    assert_eq!(disk.len(), 10 * 4096 + 100);
    // Unmapping doesn't change the file.
    space.unmap(area.clone()).unwrap();
    assert!(matches!(byte(&space, area.start), Err(Error::NotMapped { .. })));
    file.read_exact_at(&mut written, 2 * PAGE + 4090).unwrap();
}

#[test]
fn past_the_end_is_an_error_at_the_access() {
    let world = World::new("32MiB");
    let file = world.file("f", 3 * PAGE + 5);
    let space = world.group.space().unwrap();
    // Longer than the file from the beginning.
    let area = space.map_file(&file, 0, 16 * PAGE, RW).unwrap();
    let last = area.start + 3 * PAGE;
    assert_eq!(byte(&space, last + 4).unwrap(), 4);
    for at in [last + 5, last + PAGE, area.end - 1] {
        assert!(is_past_end(&byte(&space, at).unwrap_err(), at / PAGE * PAGE));
        assert!(is_past_end(&space.write_at(&[1], at).unwrap_err(), at / PAGE * PAGE));
    }
    assert!(is_past_end(&space.update_u64(last, |_| Some(1)).unwrap_err(), last));
    for result in
        [space.page_at(area.end - 1).map(drop), space.page_mut_at(area.end - 1).map(drop), space.populate(area.clone())]
    {
        let error = result.unwrap_err();
        assert!(matches!(error.cause(), Error::PastEnd { .. }), "{error}");
    }
    assert_eq!(file.len(), 3 * PAGE + 5, "nothing made it longer");
    // The part before the file's end is written.
    assert!(space.write_at(&[9; 8], last).is_err());
    space.write_at(&[9; 5], last).unwrap();
    // The mapped file is truncated, first by us, then by another process.
    file.set_len(PAGE + 1).unwrap();
    assert_eq!(byte(&space, area.start + PAGE).unwrap(), 2);
    assert!(is_past_end(&byte(&space, area.start + PAGE + 1).unwrap_err(), area.start + PAGE));
    assert!(is_past_end(&space.write_at(&[1], area.start + 2 * PAGE).unwrap_err(), area.start + 2 * PAGE));
    file.sync().unwrap();
    std::fs::File::options().write(true).open(world.path("f")).unwrap().set_len(100).unwrap();
    file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    assert!(is_past_end(&byte(&space, area.start + PAGE).unwrap_err(), area.start + PAGE));
    // Another process extends the file, and the space finds the new bytes.
    std::fs::write(world.path("f"), vec![5; 8 * 4096]).unwrap();
    assert_eq!(byte(&space, area.start + 7 * PAGE).unwrap(), 5);
    space.write_at(&[6], area.start + 7 * PAGE + 1).unwrap();
}

#[test]
fn parts_of_a_mapping_go_their_own_ways() {
    let world = World::new("32MiB");
    let file = world.file("f", 64 * PAGE);
    let space = world.group.space().unwrap();
    let start = 64 * MIB;
    space.map_file_at(start..start + 64 * PAGE, &file, 0, RW).unwrap();
    space.unmap(start + 10 * PAGE..start + 20 * PAGE).unwrap();
    space.protect(start + 30 * PAGE..start + 40 * PAGE, Protection::Read).unwrap();
    space.advise(start + 35 * PAGE..start + 50 * PAGE, Advice::Random).unwrap();
    let refused = space.write_at(&[1], start + 31 * PAGE).unwrap_err();
    assert!(matches!(refused, Error::NotPermitted { ref area, .. } if *area == (start + 30 * PAGE..start + 35 * PAGE)));
    let page = |at: u64| byte(&space, start + at * PAGE).unwrap();
    assert!([0, 9, 20, 37, 63].into_iter().all(|at| page(at) == at as u8 + 1));
    let listed: Vec<_> = space
        .areas()
        .into_iter()
        .map(|area| ((area.range.start - start) / PAGE, area.file.unwrap().offset / PAGE, area.protection, area.advice))
        .collect();
    let (normal, random, read) = (Advice::Normal, Advice::Random, Protection::Read);
    let expected = [
        (0, 0, RW, normal),
        (20, 20, RW, normal),
        (30, 30, read, normal),
        (35, 35, read, random),
        (40, 40, RW, random),
        (50, 50, RW, normal),
    ];
    assert_eq!(listed, expected);
    // All of it becomes one area again, including the part that is another mapping of the same
    // file.
    space.map_file_at(start + 10 * PAGE..start + 20 * PAGE, &file, 10 * PAGE, RW).unwrap();
    space.protect(start..start + 64 * PAGE, RW).unwrap();
    space.advise(start..start + 64 * PAGE, Advice::Normal).unwrap();
    assert_eq!(space.areas().len(), 1);
    // Memory beside it isn't the same area.
    space.map_at(start + 64 * PAGE..start + 65 * PAGE, RW).unwrap();
    assert_eq!(space.areas().len(), 2);
}

#[test]
fn a_file_is_open_as_long_as_some_of_it_is_mapped() {
    let world = World::new("32MiB");
    let file = world.file("f", 4 * PAGE);
    let space = world.group.space().unwrap();
    let area = space.map_file(&file, 0, 4 * PAGE, RW).unwrap();
    space.write_at(b"kept", area.start).unwrap();
    drop(file);
    assert_eq!(byte(&space, area.start + 3 * PAGE).unwrap(), 4);
    let read_only = world.group.open(world.path("f")).unwrap();
    assert!(matches!(space.map_file(&read_only, 0, PAGE, RW), Err(Error::ReadOnly { .. })));
    let other = space.map_file(&read_only, 0, PAGE, Protection::Read).unwrap();
    let refused = space.protect(other.clone(), RW).unwrap_err();
    assert!(matches!(refused.cause(), Error::ReadOnly { .. }), "{refused}");
    drop(read_only);
    space.unmap(other).unwrap();
    space.unmap(area.start..area.start + 3 * PAGE).unwrap();
    // This unmaps the file's last page, so the file is closed, and thereby written.
    space.unmap(area.start + 3 * PAGE..area.end).unwrap();
    assert_eq!(&std::fs::read(world.path("f")).unwrap()[..4], b"kept");
    assert!(world.has_closed_files());
    // The same with the whole space.
    let file = world.file("g", PAGE);
    let area = space.map_file(&file, 0, PAGE, RW).unwrap();
    space.write_at(b"kept", area.start).unwrap();
    drop((file, space));
    assert_eq!(&std::fs::read(world.path("g")).unwrap()[..4], b"kept");
    assert!(world.is_freed());
}

#[test]
fn bad_mappings_are_told_and_change_nothing() {
    let world = World::new("32MiB");
    let file = world.file("f", 4 * PAGE);
    let space = world.group.space().unwrap();
    let bad = |result: Result<Range<u64>, Error>| {
        assert!(matches!(result, Err(Error::BadAddress { .. })), "{result:?}");
    };
    bad(space.map_file(&file, 1, PAGE, RW));
    bad(space.map_file(&file, 0, 0, RW));
    bad(space.map_file(&file, u64::MAX, PAGE, RW));
    bad(space.map_file(&file, 0, u64::MAX, RW));
    let other = World::new("32MiB");
    bad(space.map_file(&other.file("g", PAGE), 0, PAGE, RW));
    assert!(matches!(space.map_file_at(0..5, &file, 0, RW), Err(Error::BadAddress { .. })));
    space.map_at(64 * MIB..65 * MIB, RW).unwrap();
    let mapped = space.map_file_at(63 * MIB..65 * MIB, &file, 0, RW);
    assert!(matches!(mapped, Err(Error::Mapped { .. })));
    // A very large offset in the file.
    let area = space.map_file(&file, 1 << 62, PAGE, RW).unwrap();
    assert!(byte(&space, area.start).is_err() && space.write_at(&[1], area.start).is_err());
    space.advise(area.clone(), Advice::WillNeed).unwrap();
    space.advise(area.clone(), Advice::Cold).unwrap();
    space.sync(area.clone()).unwrap();
    space.unmap(area).unwrap();
    for (range, to) in [(64 * MIB..65 * MIB, 64 * MIB + PAGE), (64 * MIB..65 * MIB, 5), (64 * MIB..65 * MIB, u64::MAX)]
    {
        assert!(matches!(space.move_to(range, to), Err(Error::BadAddress { .. })));
    }
    assert!(matches!(space.move_to(63 * MIB..64 * MIB, 80 * MIB), Err(Error::NotMapped { .. })));
    assert!(matches!(space.grow(64 * MIB..65 * MIB, MIB), Err(Error::BadAddress { .. })));
    assert!(matches!(space.grow(64 * MIB..65 * MIB, 1 << 50), Err(Error::BadAddress { .. })));
    assert!(matches!(space.grow(63 * MIB..64 * MIB, 3 * MIB), Err(Error::NotMapped { .. })));
    space.map_at(66 * MIB..67 * MIB, RW).unwrap();
    assert!(matches!(space.grow(64 * MIB..65 * MIB, 3 * MIB), Err(Error::Mapped { range }) if range.start == 65 * MIB));
    assert_eq!(space.areas().len(), 2);
    assert!(matches!(space.page_at(5), Err(Error::NotMapped { .. })));
    assert!(matches!(space.page_at(u64::MAX), Err(Error::NotMapped { .. })));
    assert!(matches!(space.advise(0..PAGE, Advice::Cold), Err(Error::NotMapped { .. })));
}

#[test]
fn memory_grows_and_moves_with_what_is_in_it() {
    let world = World::new("32MiB");
    let file = world.file("f", 64 * PAGE);
    let space = world.group.space().unwrap();
    let start = 64 * MIB;
    space.map_at(start..start + 4 * PAGE, RW).unwrap();
    space.map_file_at(start + 4 * PAGE..start + 8 * PAGE, &file, 8 * PAGE, RW).unwrap();
    (0..4).for_each(|page| space.write_at(&[50 + page as u8], start + page * PAGE + 9).unwrap());
    space.protect(start + PAGE..start + 2 * PAGE, Protection::Read).unwrap();
    // When a file's mapping grows, the added addresses map the file's next pages.
    assert_eq!(space.grow(start..start + 8 * PAGE, 10 * PAGE).unwrap(), start..start + 10 * PAGE);
    assert_eq!(byte(&space, start + 9 * PAGE).unwrap(), 14);
    let to = 3 << 30;
    space.map_at(to + 10 * PAGE..to + 11 * PAGE, RW).unwrap(); // Allocates the index there.
    let charged = world.group.charged();
    space.move_to(start..start + 10 * PAGE, to).unwrap();
    assert_eq!(world.group.charged(), charged, "moving takes no memory");
    assert!(matches!(byte(&space, start + 9), Err(Error::NotMapped { .. })));
    assert!((0..4).all(|page| byte(&space, to + page * PAGE + 9).unwrap() == 50 + page as u8));
    assert!((4..10).all(|page| byte(&space, to + page * PAGE).unwrap() == 5 + page as u8));
    assert!(matches!(space.write_at(&[1], to + PAGE), Err(Error::NotPermitted { .. })));
    space.write_at(&[77], to + 5 * PAGE).unwrap();
    let mut there = [0];
    file.read_exact_at(&mut there, 9 * PAGE).unwrap();
    assert_eq!(there, [77]);
    // Moves a part of it again. When the old addresses are mapped again, they read as zeros.
    let moved = space.move_anywhere(to..to + 2 * PAGE).unwrap();
    assert_eq!((byte(&space, moved.start + 9).unwrap(), byte(&space, moved.start + PAGE + 9).unwrap()), (50, 51));
    space.map_at(to..to + 2 * PAGE, RW).unwrap();
    assert_eq!(byte(&space, to + 9).unwrap(), 0);
    assert!(matches!(space.move_to(moved.clone(), to), Err(Error::Mapped { .. })));
    assert_eq!(byte(&space, moved.start + 9).unwrap(), 50);
    drop((space, file));
    assert!(world.is_freed());
}

#[test]
fn a_page_that_is_held_stays() {
    let world = World::new("32MiB");
    let space = world.group.space().unwrap();
    let area = space.map(8 * PAGE, RW).unwrap();
    assert!(space.page_at(area.start).unwrap().iter().all(|&byte| byte == 0));
    let charged = world.group.charged();
    assert!(space.page_at(area.end - 1).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(world.group.charged(), charged, "looking takes no memory");
    space.write_at(&[1; 4096], area.start).unwrap();
    let held = space.page_at(area.start + 7).unwrap();
    for result in [space.unmap(area.clone()), space.move_to(area.clone(), 3 << 30)] {
        assert!(matches!(result, Err(Error::AddressBusy { address }) if address == area.start), "{result:?}");
    }
    space.protect(area.clone(), Protection::Read).unwrap();
    assert!(held.iter().all(|&byte| byte == 1));
    drop(held);
    space.protect(area.clone(), RW).unwrap();
    let mut held = space.page_mut_at(area.start + PAGE).unwrap();
    held[5] = 6;
    assert_eq!(byte(&space, area.start + PAGE + 5).unwrap(), 0, "not before it is dropped");
    drop(held);
    assert_eq!(byte(&space, area.start + PAGE + 5).unwrap(), 6);
    space.protect(area.clone(), Protection::Read).unwrap();
    assert!(matches!(space.page_mut_at(area.start), Err(Error::NotPermitted { .. })));
    // A guard of a file's page stays valid after the file is unmapped and closed.
    let file = world.file("f", 2 * PAGE);
    let mapped = space.map_file(&file, 0, 2 * PAGE, RW).unwrap();
    let held = space.page_at(mapped.start + PAGE).unwrap();
    drop(file);
    space.unmap(mapped).unwrap();
    assert!(held.iter().all(|&byte| byte == 2));
    drop(held);
    space.unmap(area).unwrap();
    drop(space);
    assert!(world.is_freed());
}

#[test]
fn advice_moves_pages_in_and_out() {
    // Dirty pages stay dirty while the device takes no writes.
    let devices = Devices::new(1);
    let device = devices.device(0);
    device.disk.add_bytes("f", vec![7; 64 * PAGE as usize]);
    let mm = Pagefold::builder().memory("64MiB").backend(devices.clone()).build().unwrap();
    let group = mm.group("a").build().unwrap();
    let _going_on = devices.going_on_at_last();
    let file = group.open_options().write(true).open("0/f").unwrap();
    let space = group.space().unwrap();
    device.stall(true);
    let area = space.map_file(&file, 0, 64 * PAGE, RW).unwrap();
    let state = || (space.areas()[0].resident / PAGE, space.areas()[0].dirty / PAGE);
    space.populate(area.clone()).unwrap();
    assert_eq!(state(), (64, 0));
    space.write_at(&[1; 3 * 4096], area.start).unwrap();
    assert_eq!(state(), (64, 3));
    space.advise(area.clone(), Advice::DontNeed).unwrap();
    assert_eq!(state(), (3, 3), "the file doesn't have them yet");
    device.stall(false);
    space.advise(area.clone(), Advice::PageOut).unwrap();
    assert_eq!(state(), (0, 0));
    assert_eq!(bytes_on(&device.disk, "f")[..3 * 4096], [1; 3 * 4096]);
    space.advise(area.start..area.start + 8 * PAGE, Advice::WillNeed).unwrap();
    (0..8).for_each(|page| assert!(byte(&space, area.start + page * PAGE).is_ok()));
    space.advise(area, Advice::DontNeed).unwrap();
    // In memory that belongs to no file, the bytes are lost.
    let own = space.map(PAGE, RW).unwrap();
    space.write_at(&[1], own.start).unwrap();
    for advice in [Advice::WillNeed, Advice::Cold, Advice::PageOut, Advice::Random] {
        space.advise(own.clone(), advice).unwrap();
        assert_eq!(byte(&space, own.start).unwrap(), 1);
    }
    space.advise(own.clone(), Advice::DontNeed).unwrap();
    assert_eq!(byte(&space, own.start).unwrap(), 0);
}

#[test]
fn cold_pages_are_evicted_before_others() {
    let world = World::new("1MiB");
    let file = world.file("f", 512 * PAGE);
    let space = world.group.space().unwrap();
    let area = space.map_file(&file, 0, 512 * PAGE, Protection::Read).unwrap();
    let read = |pages: Range<u64>| pages.for_each(|page| assert!(byte(&space, area.start + page * PAGE).is_ok()));
    let part = |pages: Range<u64>| area.start + pages.start * PAGE..area.start + pages.end * PAGE;
    space.advise(area.clone(), Advice::Random).unwrap();
    (0..4).for_each(|_| read(0..200));
    space.advise(part(100..200), Advice::Cold).unwrap();
    read(300..380);
    let resident = |pages: Range<u64>| {
        let listed = space.areas();
        assert_eq!(listed.len(), 1);
        space.protect(part(pages.clone()), Protection::None).unwrap();
        let found = space.areas().into_iter().find(|area| area.range == part(pages.clone())).unwrap().resident / PAGE;
        space.protect(part(pages), Protection::Read).unwrap();
        found
    };
    let (warm, cold) = (resident(0..100), resident(100..200));
    // 280 pages where 256 have room.
    assert!(warm == 100 && cold <= 76, "{warm} of 100 others are there, and {cold} cold ones");
}

/// When `protect` or `unmap` of a mapped file has returned, no write through the mapping may still
/// change the file.
#[test]
fn nothing_is_written_to_a_file_once_its_mapping_is_gone() {
    let world = World::new("32MiB");
    let file = world.file("f", PAGE);
    let space = world.group.space().unwrap();
    let start = 64 * MIB;
    let (theirs, stop) = (space.clone(), Arc::new(sync::atomic::AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let writer = threads(1, move |_| {
        let mut turn = 0_u64;
        while !stopped.load(sync::atomic::Ordering::Relaxed) {
            turn += 1;
            let _ = theirs.write_at(&[turn as u8; 4096], start);
        }
    });
    for turn in 0..500 {
        space.map_file_at(start..start + PAGE, &file, 0, RW).unwrap();
        sync::thread::yield_now();
        match turn % 2 {
            0 => space.protect(start..start + PAGE, Protection::Read).unwrap(),
            _ => space.unmap(start..start + PAGE).unwrap(),
        }
        let mut copies = [[0; 4096]; 2];
        for copy in &mut copies {
            file.read_exact_at(copy, 0).unwrap();
            sync::thread::yield_now();
        }
        assert!(copies[0] == copies[1], "written after its end");
        if turn % 2 == 0 {
            space.unmap(start..start + PAGE).unwrap();
        }
    }
    stop.store(true, sync::atomic::Ordering::Relaxed);
    join(writer);
}
