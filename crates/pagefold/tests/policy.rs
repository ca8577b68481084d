//! Which pages the policy keeps, measured by how many pages are read from the device again.
#![cfg(not(pagefold_loom))]

mod support;

use pagefold::{Advice, File, Group, Pagefold};
use support::disk;

const PAGE: u64 = 4096;
/// Pages that the group may have.
const ROOM: u64 = 8192;

fn open(len: u64) -> (Pagefold, Group, File) {
    let mm = Pagefold::builder().memory(4 * ROOM * PAGE).backend(disk(1, len * PAGE)).build().unwrap();
    let group = mm.group("a").max(ROOM * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    (mm, group, file)
}

/// Returns how many percent of the accesses load a page. Only the second half of the accesses is
/// counted.
fn missed(group: &Group, file: &File, accesses: u64, mut page: impl FnMut(u64) -> u64) -> u64 {
    let mut before = 0;
    for access in 0..accesses {
        if access == accesses / 2 {
            before = group.stats().bytes_in;
        }
        file.read_at(&mut [0; 8], page(access) * PAGE).unwrap();
    }
    (group.stats().bytes_in - before) * 100 / PAGE / (accesses - accesses / 2)
}

/// Two readers read a file from front to back, again and again, one 64 pages behind the other. The
/// file is twice as large as memory, so half of it can be kept.
fn missed_going_round(advice: Advice) -> u64 {
    let (_mm, group, file) = open(2 * ROOM);
    file.advise(0..1, advice).unwrap();
    let page = |access: u64| (access / 2 + 2 * ROOM - 64 * (access % 2)) % (2 * ROOM);
    missed(&group, &file, 28 * ROOM, page)
}

#[test]
fn of_a_file_that_is_read_round_and_round_a_part_stays() {
    // 25 is the least.
    let missed = missed_going_round(Advice::Random);
    assert!(missed <= 30, "{missed} %");
}

#[test]
fn what_is_read_ahead_doesnt_push_it_out() {
    let missed = missed_going_round(Advice::Normal);
    assert!(missed <= 35, "{missed} %");
}

#[test]
fn what_was_used_long_ago_gives_way() {
    let (_mm, group, file) = open(20 * ROOM);
    file.advise(0..1, Advice::Random).unwrap();
    let mut random = 1_u64;
    let hot = ROOM * 9 / 10;
    let missed = missed(&group, &file, 54 * ROOM, |access| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        access / (9 * ROOM) * hot + (random >> 33) % hot
    });
    // Each page is used ten times; 10 is the least.
    assert!(missed <= 33, "{missed} %");
}

/// Regression: Pages had been read ahead and were then used all the time. When memory became short
/// for the first time, reclaim took these uses for a single use right after the load, and evicted
/// the pages.
#[test]
fn what_was_read_ahead_and_is_used_stays_when_memory_gets_short() {
    let (_mm, group, file) = open(4 * ROOM);
    let hot = ROOM / 2;
    let read = |page: u64| file.read_at(&mut [0; 8], page * PAGE).map(drop).unwrap();
    (0..4 * hot).for_each(|access| read(access % hot));
    file.advise(hot..hot + 1, Advice::Random).unwrap();
    let mut again = 0;
    for access in 0..2 * ROOM {
        read(ROOM + access);
        let before = group.stats().misses;
        read(access * 7 % hot);
        again += group.stats().misses - before;
    }
    assert!(again <= hot / 8, "{again} of {hot} pages were read again");
}
