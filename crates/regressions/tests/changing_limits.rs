//! Limits and budgets that change while others build groups, read, or look at statistics.

use std::time::{Duration, Instant};

use pagefold::{Advice, Pagefold};
use sync::random::Random;

use crate::meanwhile::{meanwhile, meanwhile_in_rounds, touch};
use crate::support::{disk, eventually, manager, within_limit};

/// A call that lowers a limit waits at least this long for pages that other threads have isolated.
const LANDING: Duration = Duration::from_millis(100);

/// Reclaim sorted the groups by how full they were, while other threads changed that. The standard
/// library's sort may panic if the order contradicts itself, and did so within a tenant's read.
#[test]
fn reads_do_not_panic_while_the_fullness_of_groups_changes() {
    const READS: u64 = 60_000;
    let count = 48;
    let backend = disk(count, 4 << 20);
    let mm = Pagefold::builder().memory(400 * 4096 + (512 << 10)).backend(backend).build().unwrap();
    let groups: Vec<_> =
        (0..count).map(|i| mm.group(&format!("g{i}")).max((64 + 4 * (i % 7)) * 4096).build().unwrap()).collect();
    let files: Vec<_> = groups.iter().enumerate().map(|(i, group)| group.open(format!("f{i}")).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let files = &files;
            scope.spawn(move || {
                let mut random = Random::seeded(thread);
                for _ in 0..READS {
                    let file = &files[random.below(count) as usize];
                    // A read may fail because its group is at its limit. It only has to return.
                    let _ = file.read_at(&mut [0; 16], random.below(1024) * 4096);
                }
            });
        }
    });
    assert!(groups.iter().all(within_limit));
}

/// Reclaim kept every page that had been used since reclaim last looked at it. While two threads
/// kept reading their hot pages, `set_max` found no page to evict, and returned although the group
/// was far above its new limit.
#[test]
fn a_lowered_limit_holds_though_all_pages_are_hot() {
    let mm = manager(4096, disk(1, 64 << 20));
    let group = mm.group("tenant").max(2048 * 4096).build().unwrap();
    let file = group.open("f0").unwrap();
    touch(&file, 2048);
    meanwhile(
        2,
        |_| touch(&file, 200),
        || {
            for page in 2048..10_000 {
                file.read_at(&mut [0; 8], page * 4096).unwrap(); // So that the hot pages get into main.
            }
            for pages in [512, 256, 128, 64, 32, 16] {
                let is_kept = || {
                    let start = Instant::now();
                    group.set_max(pages * 4096).unwrap();
                    let too_early = || panic!("{} bytes charged, the limit is {pages} pages", group.charged());
                    within_limit(&group) || start.elapsed() < LANDING && too_early()
                };
                // A thread that got no CPU has pages isolated, and reclaim waits only so long.
                eventually("a limit isn't kept", is_kept);
            }
        },
    );
}

/// An operator tried to shrink a budget that was full of pinned pages; this fails, and restores the
/// old budget. Meanwhile a tenant built a group without a limit. The group took the temporary,
/// small budget as its limit, and kept this limit after the old budget was restored.
#[test]
fn an_unlimited_group_built_while_a_resize_fails_gets_the_whole_budget() {
    const RESIZES: u64 = 20;
    let mm = manager(4096, disk(1, 64 << 20));
    let whole = mm.budget() / 4096 * 4096;
    let file = mm.group("pins").build().unwrap().open("f0").unwrap();
    let _pins: Vec<_> = (0..3500).map(|page| file.page_at(page * 4096).unwrap()).collect();
    let build = |thread| {
        // While the budget is small, there is no room for a new group, so `build` may fail.
        let Ok(group) = mm.group(&format!("new{thread}")).build() else { return };
        eventually("the limit isn't the whole budget", || group.max() == whole);
    };
    meanwhile(3, build, || {
        for _ in 0..RESIZES {
            assert!(mm.resize("1MiB").is_err());
        }
    });
}

/// A group kept in two words whether it had a limit of its own, and the limit itself. A resize read
/// the first word before `set_max` wrote both, and then wrote the second word. So the tenant's
/// limit of eight pages became the whole budget.
#[test]
fn a_limit_being_set_survives_a_resize() {
    const ROUNDS: u64 = 1_000;
    let backend = disk(1, 1 << 20);
    let mm = Pagefold::builder().memory("16MiB").memory_max("32MiB").backend(backend).build().unwrap();
    let resize = |_| {
        mm.resize("32MiB").unwrap();
        mm.resize("31MiB").unwrap();
    };
    meanwhile_in_rounds(1, resize, |rounds| {
        for _ in 0..ROUNDS {
            let groups: Vec<_> = (0..64).map(|i| mm.group(&format!("g{i}")).build().unwrap()).collect();
            groups.iter().for_each(|group| group.set_max(8 * 4096).unwrap());
            rounds.await_one_of_each(); // So no resize from before is under way.
            assert!(groups.iter().all(|group| group.max() == 8 * 4096), "a limit became the budget");
        }
    });
}

/// A thread that summed up the hits held a reference to each open handle for a moment, and so to
/// the handle's file and group. A tenant dropped all its handles and built its group again. This
/// failed with the error that the group still existed, because another thread was just reading
/// statistics.
#[test]
fn who_reads_statistics_keeps_no_group_alive() {
    let mm = manager(256, disk(1, 1 << 20));
    meanwhile(
        1,
        |_| drop(mm.stats()),
        || {
            for round in 0..2000 {
                let group = mm.group("tenant").build();
                let group = group.unwrap_or_else(|error| panic!("round {round}: {error}"));
                let file = group.open("f0").unwrap();
                file.read_at(&mut [0; 8], 0).unwrap();
                file.close().unwrap();
            }
        },
    );
}

/// A group was dropped while a handle of another group had pinned a page that was charged to the
/// dropped group, so the page outlived its group. When the page was evicted later, the table of
/// groups wasn't cleaned up. A new group with the same name was then listed beside the old one.
#[test]
fn a_group_whose_last_page_goes_later_is_not_listed_beside_its_successor() {
    let mm = manager(256, disk(1, 1 << 20));
    let (one, other) = (mm.group("one").build().unwrap(), mm.group("other").build().unwrap());
    let (ours, theirs) = (one.open("f0").unwrap(), other.open("f0").unwrap());
    ours.read_at(&mut [0; 8], 0).unwrap();
    let pin = theirs.page_at(0).unwrap();
    drop((ours, one));
    drop(pin);
    theirs.advise(0..1 << 20, Advice::DontNeed).unwrap();
    let _successor = mm.group("one").build().unwrap();
    let stats = mm.stats();
    assert_eq!(stats.groups.iter().filter(|group| group.name == "one").count(), 1, "{stats}");
}
