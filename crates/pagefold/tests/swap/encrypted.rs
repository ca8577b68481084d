//! Encrypted areas. The device must not see any bytes of a page. A read must return the page as it
//! was last written, or fail.

use super::faults::{is_corrupt, on_disk_with, overwrite, raw, swapped_out};
use super::*;

fn encrypted(slots: u64) -> (test_disks::SimulatedDisk, Pagefold, Group) {
    let (disk, _, mm, group) = on_disk_with(slots, SwapArea::encrypted);
    (disk, mm, group)
}

#[test]
fn nothing_of_a_page_is_on_the_disk() {
    let (disk, mm, group) = encrypted(1000);
    let (space, base) = swapped_out(&group, 40);
    assert!(mm.stats().swap[0].is_encrypted);
    let raw = raw(&disk);
    let words: std::collections::HashSet<_> = raw.chunks(8).collect();
    for page in 0..40 {
        let found = contents(page, 0).chunks(8).filter(|word| **word != [0; 8] && words.contains(word)).count();
        assert_eq!(found, 0, "of page {page}");
    }
    assert!(raw[PAGE as usize..].iter().filter(|&&byte| byte != 0).count() > 40 * PAGE as usize * 9 / 10);
    (0..40).for_each(|page| check(&space, base, page, 0));
    drop(space);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

/// The device returns older contents of some slots, by itself or because an attacker restored them.
/// Each such read must fail.
#[test]
fn a_disk_put_back_in_time_is_found_out() {
    let (disk, mm, group) = encrypted(1000);
    let (space, base) = swapped_out(&group, 40);
    let before = raw(&disk);
    for version in 1..3 {
        (0..40).for_each(|page| write(&space, base, page, version));
        let others = space.map(2 * ROOM * PAGE, Protection::ReadWrite).unwrap();
        (0..2 * ROOM).for_each(|page| write(&space, others.start, page, 9));
        space.unmap(others).unwrap();
    }
    let now = raw(&disk);
    let slots = (1..1001).filter(|slot| before[slot * 4096..][..4096] != now[slot * 4096..][..4096]);
    let changed: Vec<usize> = slots.collect();
    assert!(changed.len() > 20, "{} slots were used again", changed.len());
    changed.iter().for_each(|&slot| overwrite(&disk, slot, &before[slot * 4096..][..4096]));
    let mut lost = 0;
    for page in 0..40 {
        let mut bytes = vec![0; PAGE as usize];
        match space.read_at(&mut bytes, base + page * PAGE) {
            Ok(_) => assert!(bytes == contents(page, 2), "an old page {page} came back"),
            Err(error) => {
                assert!(matches!(error, pagefold::Error::SwapCorrupt { .. }), "{error}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0);
    changed.iter().for_each(|&slot| overwrite(&disk, slot, &now[slot * 4096..][..4096]));
    (0..40).for_each(|page| check(&space, base, page, 2));
    drop(space);
    eventually_free(&mm);
}

#[test]
fn a_flipped_bit_and_exchanged_slots_are_found() {
    let (disk, _, group) = encrypted(1000);
    let (space, base) = swapped_out(&group, 40);
    let before = raw(&disk);
    let slot = |slot: usize| &before[slot * 4096..][..4096];
    let used: Vec<usize> = (1..1001).filter(|&at| slot(at).iter().any(|&byte| byte != 0)).collect();
    used.iter().zip(used.iter().cycle().skip(1)).for_each(|(&to, &from)| overwrite(&disk, to, slot(from)));
    assert!((0..40).filter(|&page| is_corrupt(&space, base, page)).count() >= 30);
    for &at in &used {
        let mut bytes = slot(at).to_vec();
        bytes[at * 13 % 4096] ^= 0x10;
        overwrite(&disk, at, &bytes);
    }
    assert!((0..40).filter(|&page| is_corrupt(&space, base, page)).count() >= 30);
    used.iter().for_each(|&at| overwrite(&disk, at, slot(at)));
    (0..40).for_each(|page| check(&space, base, page, 0));
}

/// Moves pages from an encrypted area to another one, and from a compressed area to an encrypted
/// one.
#[test]
fn pages_go_on_to_other_areas_and_come_back() {
    let mm = Pagefold::builder().memory("8MiB").swap_area(SwapArea::compressed("256KiB").encrypted()).build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let first = mm.add_swap(in_memory(1000).encrypted()).unwrap();
    let (space, base) = filled(&group, 4 * ROOM);
    assert!(!mm.stats().swap[0].is_encrypted, "compressed pages stay in memory");
    mm.add_swap(in_memory(1000)).unwrap();
    group.set_max(8 * ROOM * PAGE).unwrap();
    mm.remove_swap(first).unwrap();
    (0..4 * ROOM).for_each(|page| check(&space, base, page, 0));
}

#[test]
fn what_an_encrypted_area_takes_is_charged_and_comes_back() {
    let mm = Pagefold::builder().memory("8MiB").build().unwrap();
    let taken = |area: SwapArea| {
        let before = mm.stats().used_bytes;
        let number = mm.add_swap(area).unwrap();
        let taken = mm.stats().used_bytes - before;
        mm.remove_swap(number).unwrap();
        assert_eq!(mm.stats().used_bytes, before);
        taken
    };
    let more = taken(in_memory(999).encrypted()) - taken(in_memory(999));
    assert_eq!(more, 1000 * 24 + 65 * 4096, "nonces, tags, and a buffer");
    let small = Pagefold::builder().memory("1MiB").build().unwrap();
    let refused = small.add_swap(in_memory(1 << 16).encrypted());
    assert!(refused.is_err(), "it has no room for the tables");
}
