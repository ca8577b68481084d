//! Pages that are charged to another group, and the cost of groups.
#![cfg(not(pagefold_loom))]

mod support;

use pagefold::{Error, File, Group, Pagefold};
use std::thread;
use support::devices::Devices;
use support::{disk, eventually, manager, read, stop_at_end, within_limit};
use sync::atomic::{AtomicBool, Ordering};
use sync::random::Random;

const PAGE: u64 = 4096;

fn group(mm: &Pagefold, name: &str, pages: u64) -> Group {
    mm.group(name).max(pages * PAGE).build().unwrap()
}

fn pages(group: &Group) -> u64 {
    group.charged() / PAGE
}

#[test]
fn a_group_is_found_by_its_name_as_long_as_it_is_in_use() {
    let mm = manager(512, disk(1, 100 * PAGE));
    assert!(mm.find_group("a").is_none() && mm.groups().is_empty());
    let (a, b) = (group(&mm, "a", 50), group(&mm, "b", 60));
    let mut maxes: Vec<u64> = mm.groups().iter().map(Group::max).collect();
    maxes.sort_unstable();
    assert_eq!(maxes, [50 * PAGE, 60 * PAGE]);
    drop(b);
    assert!(mm.find_group("b").is_none());
    // A file's handle keeps its group alive.
    let file = a.open("f0").unwrap();
    drop(a);
    let found = mm.find_group("a").unwrap();
    read(&file, 0, 0, 10 * PAGE as usize).unwrap();
    assert!(pages(&found) >= 10);
    assert!(matches!(mm.group("a").build(), Err(Error::GroupExists { .. })));
    drop(file);
    let b = group(&mm, "b", 70);
    assert_eq!(mm.find_group("b").map(|group| group.max()), Some(70 * PAGE), "the new one");
    drop(b);
    drop(found);
    assert_eq!(mm.groups().len(), 0);
    let many: Vec<_> = (0..1000).map(|number| group(&mm, &format!("{number}"), 4)).collect();
    assert_eq!(mm.groups().len(), many.len());
}

#[test]
fn pages_change_their_group_and_stay_in_memory() {
    let mm = manager(512, disk(1, 100 * PAGE));
    let (a, b) = (group(&mm, "a", 200), group(&mm, "b", 200));
    let (file, other) = (a.open("f0").unwrap(), b.open("f0").unwrap());
    read(&file, 0, 0, 60 * PAGE as usize).unwrap();
    let before = pages(&a);
    assert!(before >= 60);
    // A range that touches 10 pages, two of them only in part.
    assert_eq!(file.charge_to(10 * PAGE + 1..19 * PAGE + 1, &b).unwrap(), 10 * PAGE);
    assert_eq!((pages(&a), pages(&b)), (before - 10, 10));
    assert_eq!(other.charge_to(0..u64::MAX, &b).unwrap(), (before - 10) * PAGE, "whichever handle says so");
    assert_eq!((pages(&a), pages(&b)), (0, before));
    assert_eq!(file.charge_to(0..u64::MAX, &b).unwrap(), 0, "they are there");
    let misses = a.stats().misses;
    read(&file, 0, 0, 60 * PAGE as usize).unwrap();
    assert_eq!(a.stats().misses, misses, "nothing left memory");
    drop((file, other));
    eventually("a page outlived its file", || pages(&b) == 0);
}

/// Regression: `charge_to` moved more pages to a group than the group's limit allows. For each page
/// beyond the limit, a page that had just moved was evicted from the group. So the call counted
/// pages that weren't in memory any more, and never returned `LimitReached`.
#[test]
fn pages_that_moved_are_still_there_and_what_has_no_room_is_an_error() {
    let mm = manager(512, disk(2, 100 * PAGE));
    let (a, b) = (group(&mm, "a", 200), group(&mm, "b", 30));
    let (file, its, theirs) = (a.open("f0").unwrap(), b.open("f1").unwrap(), b.open("f0").unwrap());
    read(&its, 1, 0, 30 * PAGE as usize).unwrap();
    read(&file, 0, 0, 80 * PAGE as usize).unwrap();
    let before = b.stats();
    assert_eq!(file.charge_to(0..10 * PAGE, &b).unwrap(), 10 * PAGE);
    assert!((10..20).contains(&(b.stats().evictions - before.evictions)), "{:?}", b.stats());
    let before = (a.stats().evictions, b.stats().evictions);
    for error in [file.charge_to(0..50 * PAGE, &b).unwrap_err(), a.hand_over(&b).unwrap_err()] {
        assert!(matches!(&error, Error::LimitReached { group, .. } if group == "b"), "{error}");
    }
    assert_eq!((a.stats().evictions, b.stats().evictions), before, "nothing goes for what can't fit");
    assert!(within_limit(&b) && pages(&b) >= 28, "{}", pages(&b));
    read(&theirs, 0, 0, 80 * PAGE as usize).unwrap();
    read(&its, 1, 0, 30 * PAGE as usize).unwrap();
}

#[test]
fn what_is_in_use_or_unclean_stays() {
    let devices = Devices::new(1);
    let device = devices.device(0);
    device.disk.add_generated("f0", 0, 100 * PAGE);
    let mm = manager(512, devices.clone());
    let (a, b, small) = (group(&mm, "a", 200), group(&mm, "b", 200), group(&mm, "small", 4));
    let _going_on = devices.going_on_at_last();
    let file = a.open_options().write(true).open("0/f0").unwrap();
    let pin = file.page_at(3 * PAGE).unwrap();
    // The page stays unclean until `sync`, however long the test takes, because the device is
    // stalled.
    let write = |file: &File, byte: u8| {
        device.stall(true);
        file.write_at(&[byte; 100], 5 * PAGE).unwrap();
    };
    let sync = || {
        device.stall(false);
        file.sync().unwrap();
    };
    write(&file, 7);
    assert_eq!(file.charge_to(3 * PAGE..4 * PAGE, &b).unwrap(), 0, "pinned");
    assert_eq!(file.charge_to(5 * PAGE..6 * PAGE, &b).unwrap(), 0, "unclean");
    drop(pin);
    assert_eq!(file.charge_to(3 * PAGE..4 * PAGE, &b).unwrap(), PAGE);
    sync();
    assert_eq!(file.charge_to(5 * PAGE..6 * PAGE, &b).unwrap(), PAGE);
    // When the page is unclean again, it is counted in its new group; after a sync it isn't counted
    // as unclean in any group.
    write(&b.open_options().write(true).open("0/f0").unwrap(), 8);
    assert_eq!((a.stats().unclean_bytes, b.stats().unclean_bytes), (0, PAGE));
    sync();
    assert_eq!((b.stats().unclean_bytes, b.charged()), (0, 2 * PAGE));
    // If a group writes to a page that is charged to another group, the page's charge moves to the
    // writing group.
    write(&file, 9);
    assert_eq!((a.stats().unclean_bytes, b.stats().unclean_bytes, b.charged()), (PAGE, 0, PAGE));
    sync();

    let its = small.open("0/f0").unwrap();
    let pins: Vec<_> = (10..14).map(|page| its.page_at(page * PAGE).unwrap()).collect();
    let error = file.charge_to(0..u64::MAX, &small).unwrap_err();
    assert!(matches!(&error, Error::LimitReached { group, .. } if group == "small"), "{error}");
    drop(pins);

    let elsewhere = manager(256, disk(1, 10 * PAGE));
    let stranger = elsewhere.group("stranger").build().unwrap();
    for error in [file.charge_to(0..PAGE, &stranger).unwrap_err(), a.hand_over(&stranger).unwrap_err()] {
        assert!(matches!(&error, Error::OtherPagefold { group } if group == "stranger"), "{error}");
    }
}

#[test]
fn a_group_hands_its_pages_over_before_it_ends() {
    let mm = manager(512, disk(2, 100 * PAGE));
    let (leaving, heir) = (group(&mm, "leaving", 200), group(&mm, "heir", 300));
    let (f0, f1) = (leaving.open("f0").unwrap(), leaving.open("f1").unwrap());
    read(&f0, 0, 0, 40 * PAGE as usize).unwrap();
    read(&f1, 1, 0, 30 * PAGE as usize).unwrap();
    let (stay0, stay1) = (heir.open("f0").unwrap(), heir.open("f1").unwrap());
    let before = pages(&leaving);
    assert_eq!(leaving.hand_over(&heir).unwrap(), before * PAGE);
    assert_eq!((pages(&leaving), pages(&heir)), (0, before));
    drop((f0, f1, leaving));
    let misses = heir.stats().misses;
    read(&stay0, 0, 0, 40 * PAGE as usize).unwrap();
    read(&stay1, 1, 0, 30 * PAGE as usize).unwrap();
    assert_eq!((heir.stats().misses, pages(&heir)), (misses, before), "all of them are there still");
}

/// Regression: `hand_over` made room in the heir for the memory of spaces, too, although this
/// memory doesn't move. So the heir lost pages in vain. If there was more of this memory than the
/// heir's limit, no room was made at all.
#[test]
fn room_is_made_only_for_the_pages_that_are_handed_over() {
    for (limit, moved) in [(64, 10), (100, 10)] {
        let mm = manager(512, disk(2, 100 * PAGE));
        mm.add_swap(pagefold::SwapArea::memory("1MiB")).unwrap();
        let (leaving, heir) = (group(&mm, "leaving", 200), group(&mm, "heir", limit));
        let space = leaving.space().unwrap();
        let area = space.map(60 * PAGE, pagefold::Protection::ReadWrite).unwrap();
        space.write_at(&vec![1; 60 * PAGE as usize], area.start).unwrap();
        let (ours, theirs) = (leaving.open("f0").unwrap(), heir.open("f1").unwrap());
        for file in [&ours, &theirs] {
            file.advise(0..1, pagefold::Advice::Random).unwrap();
        }
        read(&ours, 0, 0, 10 * PAGE as usize).unwrap();
        read(&theirs, 1, 0, limit as usize * PAGE as usize).unwrap();
        assert_eq!(leaving.hand_over(&heir).unwrap(), moved * PAGE, "limit {limit}");
        assert!(heir.stats().evictions < 2 * moved, "{:?}", heir.stats());
    }
}

/// Pages move back and forth between two groups that are short of memory, while they are read,
/// written, reclaimed and dropped.
#[test]
fn pages_change_groups_while_all_else_goes_on() {
    let mm = manager(512, disk(2, 120 * PAGE));
    let (a, b) = (group(&mm, "a", 60), group(&mm, "b", 70));
    let open = |group: &Group, path: &str| group.open_options().write(true).open(path).unwrap();
    let files: [File; 2] = [open(&a, "f0"), open(&b, "f0")];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = stop_at_end(&stop);
        let movers: Vec<_> = [&a, &b]
            .map(|to| {
                let (file, stop) = (&files[0], &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        match file.charge_to(0..u64::MAX, to) {
                            Ok(_) | Err(Error::LimitReached { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .into();
        let users: Vec<_> = (0..3_u64)
            .map(|seed| {
                let (files, a, b) = (&files, &a, &b);
                scope.spawn(move || {
                    let mut random = Random::seeded(seed);
                    for step in 0..4_000 {
                        let file = &files[random.below(2) as usize];
                        let page = random.below(120);
                        match random.below(16) {
                            0 => file.write_at(&[random.below(256) as u8; 64], page * PAGE + 4000).unwrap(),
                            1 => file.advise(page * PAGE..(page + 20) * PAGE, pagefold::Advice::DontNeed).unwrap(),
                            2 if step % 8 == 0 => file.sync().unwrap(),
                            _ => {
                                let mut bytes = [0; 64];
                                file.read_at(&mut bytes, page * PAGE).unwrap();
                            }
                        }
                        assert!(within_limit(a) && within_limit(b));
                    }
                })
            })
            .collect();
        users.into_iter().for_each(|user| user.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        movers.into_iter().for_each(|mover| mover.join().unwrap());
    });
    files[0].sync().unwrap();
    assert_eq!((a.stats().unclean_bytes, b.stats().unclean_bytes), (0, 0));
    drop(files);
    eventually("a page outlived its file", || pages(&a) + pages(&b) == 0);
}

#[test]
fn charges_in_stock_elsewhere_cost_no_eviction() {
    // A group of this size has charges in stocks on machines with up to about a hundred CPUs.
    let limit = 3_000;
    let mm = manager(4 * limit, disk(1, 2 * limit * PAGE));
    let tenant = group(&mm, "tenant", limit);
    let file = tenant.open("f0").unwrap();
    file.advise(0..0, pagefold::Advice::Random).unwrap();
    // Each of these threads leaves charges in the stock of the CPU on which it runs.
    for page in 0..limit {
        let file = &file;
        thread::scope(|scope| scope.spawn(|| file.page_at(page * PAGE).map(drop).unwrap()).join().unwrap());
    }
    assert_eq!((pages(&tenant), tenant.stats().evictions), (limit, 0));
    read(&file, 0, limit * PAGE, PAGE as usize).unwrap();
    assert!(tenant.stats().evictions > 0, "that was all");
}

/// Runs in a process of its own, because it measures the memory of the whole process.
#[test]
fn an_idle_group_costs_at_most_4_kib() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let done = child.args(["--exact", "what_idle_groups_cost", "--ignored", "--nocapture"]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("1 passed"), "{}\n{said}", done.status);
}

#[test]
#[ignore = "for a process of its own"]
fn what_idle_groups_cost() {
    const GROUPS: u64 = 2_000;
    let mm = manager(8_192, disk(1, PAGE));
    let one = mm.group("one").build().unwrap();
    let (used, resident) = (mm.stats().used_bytes, resident_bytes());
    let groups: Vec<Group> = (0..GROUPS).map(|number| group(&mm, &format!("group {number}"), 64)).collect();
    let charged = mm.stats().used_bytes - used;
    assert!(charged <= GROUPS * 4096, "{} bytes of the budget for each", charged / GROUPS);
    // The memory that the system gave for the groups, including that of the allocator and of
    // counters.
    let taken = resident_bytes().saturating_sub(resident);
    assert!(taken <= GROUPS * 4096, "{} bytes of memory for each", taken / GROUPS);
    drop(groups);
    assert_eq!(mm.stats().used_bytes, used, "and nothing when they are gone");
    drop(one);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    rss.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}
