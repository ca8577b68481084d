//! Pages are swapped out and in.

use super::*;
use pagefold::Error;

#[test]
fn what_doesnt_fit_goes_out_and_comes_back_as_it_was() {
    let (mm, group) = with_swap(1000);
    let (space, base) = filled(&group, 8 * ROOM);
    assert!(group.charged() <= group.max());
    for turn in 0..3 {
        (0..8 * ROOM - 1).for_each(|page| check(&space, base, page, turn));
        (0..8 * ROOM - 1).for_each(|page| write(&space, base, page, turn + 1));
    }
    let stats = group.stats();
    assert!(stats.swap_outs >= 20 * ROOM && stats.swap_ins >= 20 * ROOM && stats.same_filled == 0, "{stats:?}");
    assert_eq!(stats.swapped_bytes, used(&mm) * PAGE);
    assert!(mm.stats().to_string().contains("swap 0 (memory): "), "{}", mm.stats());
    #[cfg(feature = "prometheus")]
    assert!(mm.stats().to_prometheus().contains("pagefold_group_swap_ins_total{group=\"a\"}"));
    drop(space);
    assert_eq!((used(&mm), group.charged(), group.stats().swapped_bytes), (0, 0, 0));
}

#[test]
fn pages_of_one_word_take_no_slot() {
    let (mm, group) = with_swap(1000);
    let space = group.space().unwrap();
    let base = space.map(8 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    let fill = |page: u64| [0, 0xab, 0xff, 7][page as usize % 4];
    (0..8 * ROOM).for_each(|page| space.write_at(&[fill(page); PAGE as usize], base + page * PAGE).unwrap());
    for page in 0..8 * ROOM {
        let mut bytes = [1; PAGE as usize];
        space.read_at(&mut bytes, base + page * PAGE).unwrap();
        assert_eq!(bytes, [fill(page); PAGE as usize], "page {page}");
    }
    let stats = group.stats();
    assert_eq!((used(&mm), stats.swap_outs), (0, stats.same_filled));
    assert!(stats.swap_outs >= 8 * ROOM);
}

#[test]
fn a_page_that_is_only_read_keeps_its_slot_and_isnt_written_again() {
    let disk = test_disks::SimulatedDisk::default();
    disk.add_bytes("/swap", vec![0; (4000 * PAGE) as usize]);
    let area = SwapArea::path("/swap").overwrite(true);
    let mm = Pagefold::builder().memory("8MiB").backend(disk.clone()).swap_area(area).build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let (space, base) = filled(&group, 4 * ROOM);
    let outs = group.stats().swap_outs;
    for _ in 0..4 {
        (0..4 * ROOM).for_each(|page| check(&space, base, page, 0));
    }
    assert!(group.stats().swap_outs > outs + 8 * ROOM);
    // Each slot in use was written once, and so was the area's header. The pages are used in a
    // loop, of which reclaim keeps a part in memory. Which pages these are, and when each of them
    // is evicted, depends on the thread's CPU.
    let written = disk.stats().bytes_written;
    assert_eq!(written, (1 + used(&mm)) * PAGE, "{:?}", mm.stats());
    // Pages that are changed are written again, and have only one slot each.
    (0..4 * ROOM).for_each(|page| space.write_at(&[1], base + page * PAGE).unwrap());
    (0..4 * ROOM).for_each(|page| space.write_at(&[2], base + page * PAGE).unwrap());
    assert!(disk.stats().bytes_written > written + 4 * ROOM * PAGE);
    assert!(used(&mm) <= 4 * ROOM);
    drop(space);
    eventually_free(&mm);
}

#[test]
fn what_is_unmapped_or_discarded_leaves_no_slot() {
    let (mm, group) = with_swap(1000);
    let (space, base) = filled(&group, 8 * ROOM);
    let before = used(&mm);
    space.unmap(base..base + 2 * ROOM * PAGE).unwrap();
    space.discard(base + 2 * ROOM * PAGE..base + 4 * ROOM * PAGE).unwrap();
    assert!(used(&mm) <= before - 3 * ROOM, "{} of {before}", used(&mm));
    let mut byte = [1];
    space.read_at(&mut byte, base + 3 * ROOM * PAGE).unwrap();
    assert_eq!(byte, [0]);
    (4 * ROOM..8 * ROOM).for_each(|page| check(&space, base, page, 0));
    assert!(matches!(space.read_at(&mut byte, base), Err(Error::NotMapped { .. })));
    let area = space.areas().into_iter().find(|area| area.range.start > base).unwrap();
    assert_eq!((area.resident + area.swapped) / PAGE, 4 * ROOM, "{area}");
}

#[test]
fn protection_holds_for_pages_in_swap() {
    let (_mm, group) = with_swap(1000);
    let (space, base) = filled(&group, 4 * ROOM);
    let all = base..base + 4 * ROOM * PAGE;
    space.protect(all.clone(), Protection::None).unwrap();
    assert!(matches!(space.read_at(&mut [0], base), Err(Error::NotPermitted { .. })));
    space.protect(all, Protection::Read).unwrap();
    assert!(matches!(space.write_at(&[0], base), Err(Error::NotPermitted { .. })));
    (0..4 * ROOM).for_each(|page| check(&space, base, page, 0));
}

#[test]
fn files_give_way_when_swap_is_full_and_then_the_limit_answers() {
    let disk = support::disk(1, 100 * PAGE);
    let mm = Pagefold::builder().memory("8MiB").backend(disk).swap_area(in_memory(40)).build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    (0..40).for_each(|page| assert_eq!(support::read(&file, 0, page * PAGE, 4096).unwrap(), 4096));
    let space = group.space().unwrap();
    let base = space.map((8 * ROOM - 1) * PAGE, Protection::ReadWrite).unwrap().start;
    let refused = (0..8 * ROOM - 1).find_map(|page| {
        let result = space.write_at(&contents(page, 0), base + page * PAGE);
        result.err().map(|error| (page, error))
    });
    let (page, error) = refused.expect("there is no room for all");
    assert!(matches!(error.cause(), Error::LimitReached { group, .. } if group == "a"), "{error}");
    assert_eq!(page, 40 + ROOM, "all slots and all memory are used, the files' as well");
    // Once slots are freed, writes succeed again. Nothing was lost.
    space.unmap(base..base + 20 * PAGE).unwrap();
    (20..page).for_each(|page| check(&space, base, page, 0));
    (page..page + 10).for_each(|page| write(&space, base, page, 0));
    (20..page + 10).for_each(|page| check(&space, base, page, 0));
    support::read(&file, 0, 0, 4096).unwrap();
}

#[test]
fn slots_kept_in_vain_are_found_when_there_are_no_others() {
    let (_mm, group) = with_swap(3 * ROOM + 16);
    let (space, base) = filled(&group, 2 * ROOM);
    // Each page is swapped in by a read, and keeps its slot while there are enough; then the page
    // is changed, so the slot is useless.
    for page in 0..2 * ROOM {
        check(&space, base, page, 0);
        write(&space, base, page, 1);
    }
    let more = space.map(2 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    (0..2 * ROOM).for_each(|page| write(&space, more, page, 5));
    (0..2 * ROOM).for_each(|page| check(&space, base, page, 1));
    (0..2 * ROOM).for_each(|page| check(&space, more, page, 5));
}

#[test]
fn a_group_has_no_more_slots_than_it_may() {
    let (mm, group) = with_swap(1000);
    assert!(matches!(mm.group("x").swap_max("much").build(), Err(Error::BadSize(_))));
    let small = mm.group("b").max((ROOM + INDEX) * PAGE).swap_max(10 * PAGE).build().unwrap();
    let space = small.space().unwrap();
    let base = space.map(8 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    let zeros = space.map(4 * ROOM * PAGE, Protection::ReadWrite).unwrap();
    let write = |page: u64| space.write_at(&contents(page, 0), base + page * PAGE);
    let refused = (0..8 * ROOM).find(|&page| write(page).is_err()).unwrap();
    assert_eq!(refused, ROOM + 10);
    assert_eq!(small.stats().swapped_bytes, 10 * PAGE);
    // Other groups aren't affected. With a higher swap limit, this group can write again.
    filled(&group, 4 * ROOM);
    small.set_swap_max(20 * PAGE).unwrap();
    (refused..refused + 10).for_each(|page| write(page).unwrap());
    assert!(write(refused + 10).is_err());
    // With no room left, the group exchanges pages.
    (0..refused + 10).for_each(|page| check(&space, base, page, 0));
    assert_eq!((small.stats().swapped_bytes, small.charged()), (20 * PAGE, small.max()));
    // The group also exchanges pages when its swap limit is far below what it uses.
    small.set_swap_max(0).unwrap();
    (0..refused + 10).for_each(|page| check(&space, base, page, 0));
    assert!(small.stats().swapped_bytes <= 20 * PAGE);
    // Pages that repeat one word need no slot, so the limit doesn't apply to them.
    drop(space);
    let space = small.space().unwrap();
    space.map_at(zeros.clone(), Protection::ReadWrite).unwrap();
    space.populate(zeros).unwrap();
    assert!(small.charged() <= small.max());
}

/// All pages of a group but one are pinned, and the group has used all its slots.
#[test]
fn the_last_page_that_is_not_pinned_is_exchanged() {
    let (mm, _group) = with_swap(1000);
    let small = mm.group("b").max((ROOM + INDEX) * PAGE).swap_max(4 * PAGE).build().unwrap();
    let space = small.space().unwrap();
    let base = space.map(8 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    (0..ROOM + 4).for_each(|page| write(&space, base, page, 0));
    let pins: Vec<_> = (0..ROOM - 1).map(|page| space.page_at(base + page * PAGE).unwrap()).collect();
    for _ in 0..3 {
        (ROOM - 1..ROOM + 4).for_each(|page| check(&space, base, page, 0));
    }
    drop(pins);
}

#[test]
fn slots_kept_in_vain_are_in_nobodys_way_at_a_groups_limit() {
    let (mm, _group) = with_swap(40 * ROOM);
    let small = mm.group("b").max((ROOM + INDEX) * PAGE).swap_max(3 * ROOM * PAGE).build().unwrap();
    let space = small.space().unwrap();
    let base = space.map((8 * ROOM - 1) * PAGE, Protection::ReadWrite).unwrap().start;
    let write = |page: u64, version: u64| space.write_at(&contents(page, version), base + page * PAGE);
    let used = 4 * ROOM - ROOM / 8;
    (0..used).for_each(|page| write(page, 0).unwrap());
    // Each page is read, so that it keeps its slot, and then changed, so that the slot is useless.
    for page in 0..used {
        check(&space, base, page, 0);
        write(page, 1).unwrap();
    }
    let refused = (used..8 * ROOM - 1).find(|&page| write(page, 1).is_err()).unwrap();
    assert_eq!(refused, 4 * ROOM, "{:?}", small.stats());
    (0..refused).for_each(|page| check(&space, base, page, 1));
}

#[test]
fn pages_change_places_when_all_memory_and_all_slots_are_in_use() {
    let (mm, group) = with_swap(200);
    let space = group.space().unwrap();
    let base = space.map((8 * ROOM - 1) * PAGE, Protection::ReadWrite).unwrap().start;
    let is_refused = |page: u64| space.write_at(&contents(page, 0), base + page * PAGE).is_err();
    let pages = (0..8 * ROOM - 1).find(|&page| is_refused(page)).expect("there is no room for all");
    let full = used(&mm);
    assert_eq!((pages, full * PAGE), (full + ROOM, mm.stats().swap[0].bytes), "{:?}", mm.stats());
    let changing = |thread: u64| {
        let space = space.clone();
        move || {
            for version in 0..3 {
                (thread..pages).step_by(4).for_each(|page| check(&space, base, page, version));
                (thread..pages).step_by(4).for_each(|page| write(&space, base, page, version + 1));
                (0..pages).for_each(|page| assert!(space.read_at(&mut [0], base + page * PAGE).is_ok()));
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|thread| sync::thread::spawn("changing", changing(thread)).unwrap()).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    (0..pages).for_each(|page| check(&space, base, page, 3));
    assert_eq!((used(&mm), group.charged()), (full, group.max()));
    assert!(is_refused(pages), "there is no more room than before");
    drop(space);
    assert_eq!((used(&mm), group.charged(), group.stats().swapped_bytes), (0, 0, 0));
}

#[test]
fn pages_of_one_word_are_read_though_there_is_no_memory_for_them() {
    let (mm, _) = with_swap(1000);
    let group = mm.group("b").max((ROOM + INDEX) * PAGE).swap_max(0).build().unwrap();
    let space = group.space().unwrap();
    let base = space.map((8 + ROOM) * PAGE, Protection::ReadWrite).unwrap().start;
    let fill = |page: u64| vec![page as u8; PAGE as usize];
    (0..8).for_each(|page| space.write_at(&fill(page), base + page * PAGE).unwrap());
    (8..8 + ROOM).for_each(|page| write(&space, base, page, 0));
    for page in 0..8 {
        let mut part = [99; 100];
        space.read_at(&mut part, base + page * PAGE + 1001).unwrap();
        assert_eq!(part, [page as u8; 100]);
        let refused = space.write_at(&[1], base + page * PAGE).unwrap_err();
        assert!(matches!(refused.cause(), Error::LimitReached { .. }), "{refused}");
    }
    (8..8 + ROOM).for_each(|page| check(&space, base, page, 0));
}

#[test]
fn the_budget_shrinks_by_way_of_swap() {
    let mm = Pagefold::builder().memory("8MiB").swap_area(in_memory(4000)).build().unwrap();
    let group = mm.group("a").build().unwrap();
    let (space, base) = filled(&group, 1500);
    mm.resize("2MiB").unwrap();
    assert!(mm.stats().used_bytes <= 2 << 20);
    (0..1500).for_each(|page| check(&space, base, page, 0));
    mm.resize("8MiB").unwrap();
    (0..1500).for_each(|page| check(&space, base, page, 0));
}

#[test]
fn pages_in_swap_move_and_are_held() {
    let (mm, group) = with_swap(1000);
    let (space, base) = filled(&group, 8 * ROOM);
    let part = base + 3 * PAGE..base + 43 * PAGE;
    let to = space.move_anywhere(part.clone()).unwrap().start;
    assert!(matches!(space.read_at(&mut [0], part.start), Err(Error::NotMapped { .. })));
    (0..8 * ROOM - 1).for_each(|page| match page {
        3..43 => check(&space, to - 3 * PAGE, page, 0),
        _ => check(&space, base, page, 0),
    });
    // After the unmap, none of these pages is left in memory or in a slot.
    space.unmap(to..to + 40 * PAGE).unwrap();
    for page in 100..300 {
        assert!(space.page_at(base + page * PAGE).unwrap()[..] == contents(page, 0)[..]);
        space.page_mut_at(base + page * PAGE).unwrap().copy_from_slice(&contents(page, 1));
    }
    (100..300).for_each(|page| check(&space, base, page, 1));
    // A move of more pages than fit in memory must fail, and leave the pages where they are.
    let error = space.move_anywhere(base + 100 * PAGE..base + 300 * PAGE).unwrap_err();
    assert!(matches!(error.cause(), Error::LimitReached { .. }), "{error}");
    (100..300).for_each(|page| check(&space, base, page, 1));
    drop(space);
    assert_eq!((used(&mm), group.charged(), group.stats().swapped_bytes), (0, 0, 0));
}
