//! The memory that the index of a space takes: for whom it is charged, when it is freed, and what
//! calls on unmapped ranges cost.

use std::ops::Range;
use std::time::{Duration, Instant};

use pagefold::{Advice, Error, File, Group, Pagefold, Protection, Space};

use crate::meanwhile::cpu_time;
use crate::support::{disk, eventually, stop_at_end, when_free};

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
const TOP: u64 = 1 << 47;
const RW: Protection = Protection::ReadWrite;

/// Returns a budget of 64 MiB, a tenant with a limit of 1 MiB, and a victim's file of which 8 MiB
/// are in memory.
fn neighbours() -> (Pagefold, Group, File) {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 8 << 20)).build().unwrap();
    let tenant = mm.group("tenant").max("1MiB").build().unwrap();
    let victim = mm.group("victim").build().unwrap().open("f0").unwrap();
    for page in 0..2048 {
        victim.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
    (mm, tenant, victim)
}

/// Bytes of the budget that aren't pages.
fn metadata(mm: &Pagefold) -> u64 {
    mm.stats().metadata_bytes
}

fn is_intact(victim: &File) -> bool {
    let misses = victim.stats().misses;
    (0..2048).for_each(|page| victim.read_at(&mut [0; 8], page * PAGE).map(drop).unwrap());
    victim.stats().misses == misses
}

/// A tenant with a limit of 1 MiB asked to unmap 64 TiB of an empty space. The call allocated the
/// index for the whole range before it checked whether anything was mapped there: more than a
/// gigabyte, in a budget of 64 MiB. All pages of all other tenants were evicted. The call failed
/// with `BudgetBusy` instead of `NotMapped`, and all reads of other tenants failed until the space
/// was dropped.
#[test]
fn a_request_for_what_is_not_mapped_takes_nothing() {
    let (mm, tenant, victim) = neighbours();
    let space = tenant.space().unwrap();
    // The lock allocates its tables when two ranges are held at once, and charges them when it is
    // taken next. This happens here, so that it doesn't change the counts below.
    for _ in 0..2 {
        space.move_to(GIB..GIB + PAGE, 2 * GIB).unwrap_err();
    }
    let before = (metadata(&mm), tenant.charged());
    for range in [0..1 << 46, 0..TOP, PAGE..TOP - PAGE, GIB + PAGE..GIB + 2 * PAGE] {
        let not_mapped =
            |result: Result<(), Error>| assert!(matches!(result, Err(Error::NotMapped { .. })), "{result:?}");
        not_mapped(space.unmap(range.clone()));
        not_mapped(space.protect(range.clone(), Protection::Read));
        not_mapped(space.discard(range.clone()));
        not_mapped(space.populate(range.clone()));
        not_mapped(space.sync(range.clone()));
        for advice in [Advice::Normal, Advice::WillNeed, Advice::DontNeed, Advice::PageOut] {
            not_mapped(space.advise(range.clone(), advice));
        }
        if range.end < TOP / 2 {
            not_mapped(space.move_to(range.clone(), range.end));
            not_mapped(space.move_anywhere(range.clone()).map(drop));
            not_mapped(space.grow(range.clone(), range.end - range.start + PAGE).map(drop));
        }
    }
    assert_eq!((metadata(&mm), tenant.charged()), before);
    assert!(is_intact(&victim));
}

/// As above, by mapping the whole space, which is allowed and should cost next to nothing. Each
/// gigabyte took an index of 20 KiB and a segment of page words. One space that mapped 128 TiB used
/// up all segments, so no file could be opened, and no other space could be used.
#[test]
fn a_run_of_whole_regions_costs_an_entry_for_each() {
    let (mm, tenant, victim) = neighbours();
    let space = tenant.space().unwrap();
    let before = metadata(&mm);
    space.map_at(0..TOP, RW).unwrap();
    assert!(metadata(&mm) < before + (64 << 10), "{} KiB", (metadata(&mm) - before) >> 10);
    let other = mm.group("other").build().unwrap();
    let (own, area) = (other.space().unwrap(), 5 * GIB..6 * GIB);
    own.map_at(area.clone(), RW).unwrap();
    own.write_at(&[1], area.start).unwrap();
    // All of it is there.
    for address in [0, 77 * GIB + 5, TOP - 1] {
        let mut byte = [1];
        space.read_at(&mut byte, address).unwrap();
        assert_eq!(byte, [0]);
        space.write_at(&[7], address).unwrap();
        space.read_at(&mut byte, address).unwrap();
        assert_eq!(byte, [7]);
    }
    space.protect(GIB..TOP, Protection::Read).unwrap();
    assert!(matches!(space.write_at(&[7], TOP - 1), Err(Error::NotPermitted { .. })));
    assert_eq!(space.areas().len(), 2);
    space.unmap(PAGE..TOP).unwrap();
    assert_eq!(space.areas()[0].range, 0..PAGE);
    assert!(is_intact(&victim));
}

/// The memory of an index was charged to no group. A tenant with a limit of 1 MiB that mapped
/// single pages far apart took the whole budget. Now the index is charged to the space's group, and
/// freed when the pages are unmapped.
#[test]
fn an_index_is_charged_to_its_group_and_comes_back() {
    let (mm, tenant, victim) = neighbours();
    let space = tenant.space().unwrap();
    let (empty, before) = (tenant.charged(), metadata(&mm));
    let at = |number: u64| number * GIB + PAGE..number * GIB + 2 * PAGE;
    let refused = (1..10_000).map(|number| (number, space.map_at(at(number), RW))).find(|(_, mapped)| mapped.is_err());
    let (number, error) = refused.expect("the limit is never reached");
    assert!(matches!(error, Err(Error::LimitReached { .. })), "{error:?}");
    assert!(tenant.charged() <= tenant.max() && metadata(&mm) < before + (2 << 20));
    assert!(is_intact(&victim));
    (1..number).for_each(|number| space.unmap(at(number)).unwrap());
    // Some may be kept for the next mapping.
    assert!(tenant.charged() <= empty + (256 << 10), "{} KiB stay", tenant.charged() >> 10);
    // What is kept is freed when memory is needed.
    let area = space.map(1 << 20, RW).unwrap();
    let written = (area.start..area.end).step_by(4096).take_while(|&at| space.write_at(&[1], at).is_ok()).count();
    assert!(written > 230, "{written}");
    drop(space);
    eventually("charges are left", || tenant.charged() == 0);
    assert!(is_intact(&victim));
}

/// Ranges of all sizes were mapped and unmapped for an hour. For each 2 MiB of addresses in which a
/// range had begun or ended, 4 KiB of index stayed until the space was dropped. They filled the
/// budget.
#[test]
fn mapping_and_unmapping_leaves_nothing_behind() {
    let (mm, tenant, victim) = neighbours();
    let space = tenant.space().unwrap();
    let mut random = sync::random::Random::seeded(1);
    let before = metadata(&mm);
    for _ in 0..3000 {
        let area = space.map((1 + random.below(1000)) * PAGE, RW).unwrap();
        space.write_at(&[1], area.start).unwrap();
        space.unmap(area).unwrap();
    }
    assert!(metadata(&mm) < before + (512 << 10), "{} KiB stay", (metadata(&mm) - before) >> 10);
    assert!(space.areas().is_empty() && is_intact(&victim));
}

/// While one page of a range is being changed through a guard, tries to unmap, protect and move the
/// range. All these calls must fail. Returns how long they took, and how many reads of another page
/// of the range failed meanwhile.
///
/// If `is_of_file`, the range maps a file, and the guard was obtained from the file.
fn refuse_changes_beside_a_guard(is_of_file: bool) -> (Duration, u64) {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let space = group.space().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let area = match is_of_file {
        true => space.map_file(&file, 0, 16 * PAGE, RW).unwrap(),
        false => space.map(16 * PAGE, RW).unwrap(),
    };
    space.write_at(&[7; 16 * 4096], area.start).unwrap();
    let (started, theirs, first) = (Instant::now(), space.clone(), area.start);
    let guard = match is_of_file {
        true => file.page_mut_at(16 * PAGE - 1).unwrap(),
        false => space.page_mut_at(area.end - 1).unwrap(),
    };
    let reader = move |stop: &sync::atomic::AtomicBool| {
        let mut refused = 0;
        while !stop.load(sync::atomic::Ordering::Relaxed) {
            refused += u64::from(theirs.read_at(&mut [0; 8], first).is_err());
        }
        refused
    };
    let stop = sync::atomic::AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let _ends = stop_at_end(&stop);
        let reader = scope.spawn(|| reader(&stop));
        let busy = |result: Result<(), Error>| assert!(matches!(result, Err(Error::AddressBusy { .. })), "{result:?}");
        busy(space.unmap(area.clone()));
        busy(space.protect(area.clone(), Protection::Read));
        busy(space.move_anywhere(area.clone()).map(drop));
        stop.store(true, sync::atomic::Ordering::Relaxed);
        reader.join().unwrap()
    });
    let time = started.elapsed();
    drop(guard);
    space.unmap(area).unwrap();
    (time, refused)
}

/// One page of a range was being changed through a guard. Unmapping the range failed after four
/// seconds, as it should. But meanwhile every read of any other page of the range failed, as if
/// nothing were mapped there.
#[test]
fn a_range_that_cannot_be_unmapped_stays_readable() {
    for is_of_file in [false, true] {
        let refused = refuse_changes_beside_a_guard(is_of_file).1;
        assert_eq!(refused, 0, "reads of another page were refused; of a file: {is_of_file}");
    }
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_changes_of_a_range_beside_a_guard_are_refused_soon() {
    for is_of_file in [false, true] {
        let (time, _) = refuse_changes_beside_a_guard(is_of_file);
        assert!(time < Duration::from_secs(2), "the guard's page was waited for: {time:?}, of a file: {is_of_file}");
    }
}

/// A range with several pinned pages was discarded. The call waited two seconds for each pinned
/// page that was an area of its own, and held the range's lock all that time.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_discard_waits_once_for_all_guards() {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let space = mm.group("tenant").build().unwrap().space().unwrap();
    let pages: Vec<_> = (0..8).map(|page| GIB + page * PAGE..GIB + (page + 1) * PAGE).collect();
    for page in &pages {
        space.map_at(page.clone(), RW).unwrap();
        space.write_at(&[7], page.start).unwrap();
    }
    let guards: Vec<_> = pages.iter().map(|page| space.page_at(page.start).unwrap()).collect();
    let started = Instant::now();
    let refused = space.discard(GIB..GIB + 8 * PAGE).unwrap_err();
    assert!(matches!(refused.cause(), Error::AddressBusy { .. }), "{refused}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(guards);
}

/// A move created a new mapping for each run of pages with the same protection. The records of
/// these mappings stayed charged.
#[test]
fn a_mapping_with_many_protections_moves_as_one() {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let (space, file) = (group.space().unwrap(), group.open_options().write(true).open("f0").unwrap());
    space.map_file_at(GIB..GIB + 200 * PAGE, &file, 0, RW).unwrap();
    for page in (0..200).step_by(2) {
        space.protect(GIB + page * PAGE..GIB + (page + 1) * PAGE, Protection::Read).unwrap();
    }
    let there_and_back = || {
        space.move_to(GIB..GIB + 200 * PAGE, 2 * GIB).unwrap();
        space.move_to(2 * GIB..2 * GIB + 200 * PAGE, GIB).unwrap();
    };
    there_and_back();
    let before = group.charged();
    (0..10).for_each(|_| there_and_back());
    assert!(group.charged() <= before + 2 * 4096, "{} bytes more", group.charged() - before);
    assert!(space.write_at(&[1], GIB).is_err());
    space.write_at(&[1], GIB + PAGE).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, PAGE).unwrap();
    assert_eq!(byte, [1]);
}

/// An access that is refused returns the area around the address. The search for the area began at
/// the start of the address's gigabyte: if neighbouring pages had different protections, each
/// refused access went through up to a quarter of a million entries.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_refusal_takes_no_longer_among_many_areas() {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let space = mm.group("tenant").build().unwrap().space().unwrap();
    space.map_at(GIB..2 * GIB, RW).unwrap();
    let refuse = |space: &Space, address: u64| {
        let refused = || (0..200).for_each(|_| drop(space.write_at(&[1], address).unwrap_err()));
        cpu_time(refused).0
    };
    let last = 2 * GIB - 2 * PAGE;
    space.protect(last..last + PAGE, Protection::Read).unwrap();
    let alone = refuse(&space, last);
    for page in (GIB..GIB + (128 << 20)).step_by(2 * PAGE as usize) {
        space.protect(page..page + PAGE, Protection::Read).unwrap();
    }
    let among_many = refuse(&space, last);
    assert!(among_many < 20 * alone + Duration::from_millis(5), "{alone:?}, then {among_many:?}");
}

/// To map a file, a call searched a table for a free place, from the table's start and under a
/// lock. So the more files were mapped, the longer it took to map one more.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_mapping_a_file_takes_no_longer_among_many() {
    let mm = Pagefold::builder().memory("256MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let (space, file) = (group.space().unwrap(), group.open("f0").unwrap());
    let map_some = || {
        let map = |_| space.map_file(&file, 0, PAGE, Protection::Read).unwrap();
        cpu_time(|| (0..1000).map(map).collect::<Vec<_>>())
    };
    let (few, first) = map_some();
    let more: Vec<_> = (0..10).map(|_| map_some().1).collect();
    let (many, last) = map_some();
    assert!(many < 10 * few + Duration::from_millis(20), "{few:?}, then {many:?}");
    // Places are used again.
    first.into_iter().chain(last).chain(more.into_iter().flatten()).for_each(|area| space.unmap(area).unwrap());
    assert!(map_some().0 < 10 * few + Duration::from_millis(20));
}

/// The table's places of unmapped files are reused: mapping as many files again takes no more
/// memory.
#[test]
fn places_of_unmapped_files_are_used_again() {
    let mm = Pagefold::builder().memory("256MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let (space, file) = (group.space().unwrap(), group.open("f0").unwrap());
    let map_some =
        || (0..12_000).map(|_| space.map_file(&file, 0, PAGE, Protection::Read).unwrap()).collect::<Vec<_>>();
    let areas = map_some();
    let before = metadata(&mm);
    areas.into_iter().for_each(|area| space.unmap(area).unwrap());
    map_some();
    assert!(metadata(&mm) < before + (256 << 10), "{} KiB more", (metadata(&mm) - before) >> 10);
}

/// When a file is unmapped, its place in the table is kept for the next mapping. The place has some
/// memory and a counter, and a process has only two million counters. After the unmapping, neither
/// was charged to any group. So a tenant could use up all counters by mapping and unmapping files
/// in one space after another.
#[test]
fn places_of_mapped_files_are_charged_until_the_space_goes() {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("f0").unwrap();
    let rest = [0, 1].map(|_| {
        let space = group.space().unwrap();
        let before = metadata(&mm);
        let areas: Vec<_> = (0..1000).map(|_| space.map_file(&file, 0, PAGE, Protection::Read).unwrap()).collect();
        areas.into_iter().for_each(|area| space.unmap(area).unwrap());
        let kept = metadata(&mm) - before;
        assert!(kept > 1000 * 100, "{kept} bytes for 1,000 places");
        drop(space);
        metadata(&mm)
    });
    assert_eq!(rest[0], rest[1], "all is given back with the space");
}

/// Makes every call with invalid ranges, and with ranges in which nothing is mapped.
#[test]
fn ranges_at_the_ends_of_the_integers() {
    let (mm, tenant, _victim) = neighbours();
    let (space, file) = (tenant.space().unwrap(), tenant.open("f0").unwrap());
    let ends = [0, 1, PAGE - 1, PAGE, GIB, TOP - PAGE, TOP - 1, TOP, TOP + PAGE, u64::MAX - PAGE + 1, u64::MAX];
    let before = metadata(&mm);
    for start in ends {
        let _ = space.read_at(&mut [0; 8], start).unwrap_err();
        let _ = space.write_at(&[0; 8], start).unwrap_err();
        let _ = space.update_u64(start, |_| None).unwrap_err();
        let _ = space.page_at(start).map(drop).unwrap_err();
        let _ = space.page_mut_at(start).map(drop).unwrap_err();
        for end in ends {
            let range = Range { start, end };
            let is_range = start < end && end <= TOP && start % PAGE == 0 && end % PAGE == 0;
            let told = |result: Result<(), Error>| match result {
                Err(Error::BadAddress { .. }) if !is_range => {}
                Err(Error::NotMapped { .. }) if is_range => {}
                other => panic!("{range:x?}: {other:?}"),
            };
            told(space.unmap(range.clone()));
            told(space.protect(range.clone(), RW));
            told(space.discard(range.clone()));
            told(space.populate(range.clone()));
            told(space.sync(range.clone()));
            for advice in [Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::Cold] {
                told(space.advise(range.clone(), advice));
            }
            for other in ends {
                let error = space.move_to(range.clone(), other).unwrap_err();
                assert!(
                    matches!(error, Error::BadAddress { .. } | Error::NotMapped { .. }),
                    "{range:x?}, {other:x}: {error}"
                );
                let error = space.grow(range.clone(), other).unwrap_err();
                assert!(
                    matches!(error, Error::BadAddress { .. } | Error::NotMapped { .. }),
                    "{range:x?}, {other:x}: {error}"
                );
                if let Err(error) = space.map_file_at(range.clone(), &file, other, Protection::Read) {
                    assert!(matches!(error, Error::BadAddress { .. }), "{range:x?}, {other:x}: {error}");
                } else {
                    space.unmap(range.clone()).unwrap();
                }
            }
            match space.map_at(range.clone(), Protection::None) {
                Ok(()) if is_range => space.unmap(range.clone()).unwrap(),
                Err(Error::BadAddress { .. }) if !is_range => {}
                other => panic!("{range:x?}: {other:?}"),
            }
        }
        match space.map(start, RW) {
            Ok(area) => space.unmap(area).unwrap(),
            Err(error) => assert!(matches!(error, Error::BadAddress { .. } | Error::NoAddresses { .. }), "{error}"),
        }
        if let Ok(area) = space.map_file(&file, 0, start, Protection::Read) {
            space.unmap(area).unwrap();
        }
    }
    assert!(space.areas().is_empty() && metadata(&mm) < before + (256 << 10));
}

/// A mapping needed several tables, and failed when there was no memory for all of them. The tables
/// that it had allocated already stayed until the space was dropped: they were empty, and not on
/// the list of tables to free.
#[test]
fn a_mapping_that_fails_leaves_no_tables() {
    let (_mm, tenant, _victim) = neighbours();
    let space = tenant.space().unwrap();
    let area = space.map(1 << 20, RW).unwrap();
    let pages: Vec<u64> = (area.start..area.end).step_by(4096).collect();
    let written = pages.iter().take_while(|&&at| space.write_at(&[1], at).is_ok()).count();
    let full = tenant.charged();
    assert!(tenant.max() - full < 4096, "{full}");
    // There is memory for some of the tables that a mapping needs, but never for all of them.
    for room in 0..5 {
        for &at in &pages[..room] {
            space.discard(at..at + PAGE).unwrap();
        }
        let before = tenant.charged();
        let refused = (10..40).map(|gib| space.map_at(512 * gib * GIB + PAGE..512 * (gib + 1) * GIB - PAGE, RW));
        let refused = refused.filter(|mapped| matches!(mapped, Err(Error::LimitReached { .. }))).count();
        assert_eq!(refused, 30, "with room for {room} pages");
        assert!(tenant.charged() <= before, "{room}: {} KiB stay", (tenant.charged() - before) >> 10);
        for &at in &pages[..room] {
            space.write_at(&[1], at).unwrap();
        }
    }
    assert!(written > 200);
}

/// A thread wrote to a region for the first time while another thread unmapped the region. After
/// the unmap, the writer allocated the region's table, and the tables above it. These tables were
/// never freed, whether or not the write succeeded.
#[test]
fn first_touches_that_come_late_leave_no_tables() {
    let (_mm, tenant, _victim) = neighbours();
    let space = tenant.space().unwrap();
    let empty = tenant.charged();
    let region = sync::atomic::AtomicU64::new(0);
    let order = sync::atomic::Ordering::SeqCst;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut last, mut now) = (0, 0);
            while now != u64::MAX {
                if now != last {
                    let _ = space.write_at(&[1], now + 77 * PAGE);
                    last = now;
                }
                now = region.load(order);
            }
        });
        for number in 1..30_000_u64 {
            let range = number * GIB..(number + 1) * GIB;
            space.map_at(range.clone(), RW).unwrap();
            region.store(range.start, order);
            (0..number % 300).for_each(|_| std::hint::spin_loop());
            // The writer may hold a page, and get no CPU for a while.
            when_free(|| space.unmap(range.clone())).unwrap();
        }
        region.store(u64::MAX, order);
    });
    assert!(tenant.charged() <= empty + (256 << 10), "{} KiB stay", (tenant.charged() - empty) >> 10);
}

/// Three regions were unmapped together. The tables at both ends were already on the list of tables
/// to free, because parts of them had been unmapped before. So the call put nothing on the list,
/// and the table of the region in between was never freed.
#[test]
fn a_region_amid_what_is_unmapped_goes_too() {
    let (_mm, tenant, _victim) = neighbours();
    let space = tenant.space().unwrap();
    let empty = tenant.charged();
    for number in (1..).step_by(3).take(200) {
        let all = number * GIB..(number + 3) * GIB;
        space.map_at(all.clone(), RW).unwrap();
        space.write_at(&[1], all.start + GIB).unwrap();
        space.unmap(all.start..all.start + PAGE).unwrap();
        space.unmap(all.end - PAGE..all.end).unwrap();
        space.unmap(all.start + PAGE..all.end - PAGE).unwrap();
    }
    assert!(tenant.charged() <= empty + (256 << 10), "{} KiB stay", (tenant.charged() - empty) >> 10);
}

/// After an unmap, only three kinds of tables were checked and freed: those at the two ends of the
/// range, and those of regions with a table. Other tables in the middle of the range stayed charged
/// until the space was dropped.
#[test]
fn parts_amid_what_is_unmapped_go_too() {
    const PART: u64 = 512 * GIB;
    let (_mm, tenant, _victim) = neighbours();
    let space = tenant.space().unwrap();
    let empty = tenant.charged();
    space.map_at(PART..200 * PART, RW).unwrap();
    for number in 2..199 {
        space.protect(number * PART + GIB..number * PART + 2 * GIB, Protection::Read).unwrap();
    }
    assert!(tenant.charged() >= empty + 197 * 4096);
    space.unmap(PART..200 * PART).unwrap();
    assert!(tenant.charged() <= empty + (256 << 10), "{} bytes", tenant.charged() - empty);
}
