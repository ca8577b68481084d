//! Hits: reads of resident pages that take no lock. After any change of a mapping, the next read
//! must see the change.

use pagefold::{Error, Protection, Space};
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};

use crate::world::{MIB, PAGE, RW, World, join, threads};

/// Reads the first byte of a page twice. The first read records that the page is used, so the
/// second one is a hit.
fn hit(space: &Space, address: u64) -> Result<u8, Error> {
    let mut byte = [0];
    space.read_at(&mut byte, address)?;
    space.read_at(&mut byte, address)?;
    Ok(byte[0])
}

fn is_refused(space: &Space, address: u64) -> bool {
    match hit(space, address) {
        Err(Error::NotPermitted { address: at, .. } | Error::NotMapped { address: at, .. }) => at == address,
        _ => false,
    }
}

#[test]
fn a_hit_knows_what_is_mapped_and_permitted_now() {
    let world = World::new("8MiB");
    let space = world.group.space().unwrap();
    let file = world.file("f", 64 * PAGE);
    // The first and third area consist of whole granules; the others begin and end within a
    // granule.
    let areas = [
        (64 * MIB..68 * MIB, None),
        (80 * MIB + PAGE..80 * MIB + 4 * PAGE, None),
        (96 * MIB..100 * MIB, Some(&file)),
        (112 * MIB + 3 * PAGE..112 * MIB + 9 * PAGE, Some(&file)),
    ];
    for (range, file) in areas {
        let map = || match file {
            Some(file) => space.map_file_at(range.clone(), file, PAGE, RW).unwrap(),
            None => {
                space.map_at(range.clone(), RW).unwrap();
                space.write_at(&[2; PAGE as usize], range.start).unwrap();
            }
        };
        map();
        let address = range.start;
        assert_eq!(hit(&space, address).unwrap(), 2);
        space.protect(range.clone(), Protection::None).unwrap();
        assert!(is_refused(&space, address));
        space.protect(range.clone(), Protection::Read).unwrap();
        assert_eq!(hit(&space, address).unwrap(), 2);
        let moved = space.move_anywhere(range.clone()).unwrap();
        assert!(is_refused(&space, address));
        assert_eq!(hit(&space, moved.start).unwrap(), 2);
        space.unmap(moved.clone()).unwrap();
        assert!(is_refused(&space, moved.start));
        map();
        assert_eq!(hit(&space, address).unwrap(), 2);
        space.unmap(range).unwrap();
        assert!(is_refused(&space, address));
    }
    // The file now ends within page 1, so half of this page can be read, and nothing of the next
    // one.
    let range = space.map_file(&file, 0, 64 * PAGE, Protection::Read).unwrap();
    assert_eq!((hit(&space, range.start + PAGE).unwrap(), hit(&space, range.start + 2 * PAGE).unwrap()), (2, 3));
    file.set_len(PAGE + 100).unwrap();
    assert_eq!(hit(&space, range.start + PAGE + 99).unwrap(), 2);
    for past_end in [range.start + PAGE + 100, range.start + 2 * PAGE] {
        let refused = hit(&space, past_end).unwrap_err();
        assert!(matches!(refused.cause(), Error::PastEnd { .. }), "{refused}");
    }
}

/// Files that are mapped one after another get the same place in the table of mappings, and perhaps
/// the same memory for their page words.
#[test]
fn the_next_mapping_is_another_one() {
    let world = World::new("8MiB");
    let space = world.group.space().unwrap();
    let start = 64 * MIB;
    let mut before = None;
    for number in 1..6_u64 {
        let range = start + number * PAGE..start + (number + 8) * PAGE;
        {
            let file = world.file(&number.to_string(), 16 * PAGE);
            space.map_file_at(range.clone(), &file, number * PAGE, Protection::Read).unwrap();
        }
        // The address that was read last isn't mapped any more, although the new mapping's part of
        // the file would include it.
        assert!(before.is_none_or(|before| is_refused(&space, before)));
        assert_eq!(u64::from(hit(&space, range.start).unwrap()), number + 1);
        assert_eq!(u64::from(hit(&space, range.end - 1).unwrap()), number + 8);
        before = Some(range.start);
        space.unmap(range).unwrap();
    }
    assert!(world.has_closed_files(), "all are closed");
}

#[test]
fn hits_are_counted_for_the_file_that_was_mapped() {
    let world = World::new("8MiB");
    let space = world.group.space().unwrap();
    let files = [world.file("a", 4 * PAGE), world.file("b", 4 * PAGE)];
    for (file, hits) in files.iter().zip([5, 7]) {
        let range = space.map_file(file, 0, 4 * PAGE, Protection::Read).unwrap();
        hit(&space, range.start).unwrap();
        let before = file.stats().hits;
        (0..hits).for_each(|_| _ = hit(&space, range.start).unwrap());
        assert_eq!(file.stats().hits - before, 2 * hits);
        space.unmap(range).unwrap();
        assert_eq!(file.stats().hits - before, 2 * hits, "unmapped");
    }
    let all: u64 = files.iter().map(|file| file.stats().hits).sum();
    assert_eq!(world.group.stats().hits, all);
    drop(space);
    assert_eq!(world.group.stats().hits, all);
}

#[test]
fn an_offset_that_no_file_has_is_refused() {
    let world = World::new("8MiB");
    let space = world.group.space().unwrap();
    let file = world.file("f", 4 * PAGE);
    let last = u64::MAX - PAGE + 1;
    assert!(
        matches!(space.map_file(&file, last, 2 * PAGE, RW), Err(Error::BadAddress { address, .. }) if address == last)
    );
    let range = space.map_file(&file, 1 << 62, 2 * PAGE, RW).unwrap();
    assert!(matches!(hit(&space, range.start + PAGE).unwrap_err().cause(), Error::PastEnd { .. }));
}

/// Two files, and pages of the space's own, are mapped at an address in turn. A reader must see one
/// of them, or fail. It must never see a page that is mapped only elsewhere, or that may not be
/// read.
#[test]
fn readers_see_what_is_mapped_while_mappings_change() {
    const SECRET: u8 = 99;
    let world = World::new("8MiB");
    let space = world.group.space().unwrap();
    let files = [world.file("a", 8 * PAGE), world.file("b", 8 * PAGE)];
    let (here, elsewhere) = (64 * MIB..64 * MIB + PAGE, 64 * MIB - 2 * PAGE..64 * MIB + PAGE * 6);
    let stop = Arc::new(AtomicBool::new(false));
    let readers = {
        let (space, stop, here) = (space.clone(), Arc::clone(&stop), here.clone());
        threads(2, move |_| {
            let mut seen = [0_u64; 256];
            while !stop.load(Ordering::Relaxed) {
                let mut bytes = [0; 16];
                match space.read_at(&mut bytes, here.start + 64) {
                    Ok(()) => {
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn: {bytes:?}");
                        seen[usize::from(bytes[0])] += 1;
                    }
                    Err(Error::NotMapped { .. } | Error::NotPermitted { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            // The first bytes that may be seen are those of page 1 of one file (2), of page 5 of
            // the other (6), of memory that wasn't written yet (0), and of memory that was (7).
            let others = seen.iter().enumerate().filter(|(byte, count)| ![2, 6, 0, 7].contains(byte) && **count > 0);
            assert_eq!(others.count(), 0, "{seen:?}");
        })
    };
    for round in 0..400_u64 {
        let file = &files[(round % 2) as usize];
        space.map_file_at(here.clone(), file, [PAGE, 5 * PAGE][(round % 2) as usize], Protection::Read).unwrap();
        hit(&space, here.start).unwrap();
        space.unmap(here.clone()).unwrap();
        // This mapping gets the same place in the table. With it, `here` would be page 2 of the
        // file.
        space.map_file_at(elsewhere.clone(), file, 0, Protection::None).unwrap();
        space.unmap(elsewhere.clone()).unwrap();
        space.map_at(here.clone(), RW).unwrap();
        space.write_at(&[7; PAGE as usize], here.start).unwrap();
        hit(&space, here.start).unwrap();
        space.protect(here.clone(), Protection::None).unwrap();
        space.unmap(here.clone()).unwrap();
        let secret = 80 * MIB..80 * MIB + PAGE;
        space.map_at(secret.clone(), RW).unwrap();
        space.write_at(&[SECRET; PAGE as usize], secret.start).unwrap();
        hit(&space, secret.start).unwrap();
        space.protect(secret.clone(), Protection::None).unwrap();
        space.move_to(secret, here.start).unwrap();
        space.unmap(here.clone()).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    join(readers);
}
