//! Limits and budgets that change while others build groups, read, or look at statistics.

use std::time::Duration;

use pagefold::{Advice, Pagefold};
use sync::random::Random;

use crate::meanwhile::{meanwhile, touch};
use crate::support::{disk, eventually, manager, within_limit};

/// Reclaim sorted the groups by how full they are, while other threads changed that. The standard
/// library's sort panics when it meets an order that contradicts itself: a tenant's read did.
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
                    // The group's limit may be met for a moment: here it is enough that a read
                    // comes back.
                    let _ = file.read_at(&mut [0; 16], random.below(1024) * 4096);
                }
            });
        }
    });
    assert!(groups.iter().all(within_limit));
}

/// Reclaim spared every page that had been used since it last looked. With a hot set that two
/// threads kept reading, `set_max` found nothing that could go, and returned with the group far
/// beyond its new limit.
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
                group.set_max(pages * 4096).unwrap();
                assert!(within_limit(&group), "{} bytes charged, the limit is {pages} pages", group.charged());
            }
        },
    );
}

/// An operator tried to shrink a budget that pins held, which fails; meanwhile another tenant built
/// a group without a limit. The group took the small budget for the budget, wasn't told when the
/// old budget was put back, and was stuck there.
#[test]
fn an_unlimited_group_built_while_a_resize_fails_gets_the_whole_budget() {
    const RESIZES: u64 = 20;
    let mm = manager(4096, disk(1, 64 << 20));
    let whole = mm.budget() / 4096 * 4096;
    let file = mm.group("pins").build().unwrap().open("f0").unwrap();
    let _pins: Vec<_> = (0..3500).map(|page| file.page_at(page * 4096).unwrap()).collect();
    let build = |thread| {
        // The small budget has no room for a group at all: that may be said.
        let Ok(group) = mm.group(&format!("new{thread}")).build() else { return };
        eventually("the limit isn't the whole budget", || group.max() == whole);
    };
    meanwhile(3, build, || {
        for _ in 0..RESIZES {
            assert!(mm.resize("1MiB").is_err());
        }
    });
}

/// That a group has no limit of its own, and what its limit is, were two words. A resize that had
/// read the first before `set_max` wrote it wrote the second after: a tenant's limit of eight pages
/// became the whole budget.
#[test]
fn a_limit_being_set_survives_a_resize() {
    const ROUNDS: u64 = 1_000;
    let backend = disk(1, 1 << 20);
    let mm = Pagefold::builder().memory("16MiB").memory_max("32MiB").backend(backend).build().unwrap();
    let resize = |_| {
        mm.resize("32MiB").unwrap();
        mm.resize("31MiB").unwrap();
    };
    meanwhile(1, resize, || {
        for _ in 0..ROUNDS {
            let groups: Vec<_> = (0..64).map(|i| mm.group(&format!("g{i}")).build().unwrap()).collect();
            groups.iter().for_each(|group| group.set_max(8 * 4096).unwrap());
            std::thread::sleep(Duration::from_micros(50));
            assert!(groups.iter().all(|group| group.max() == 8 * 4096), "a limit became the budget");
        }
    });
}

/// A thread that added up the hits held each open handle for a moment, and with it the handle's
/// file and group. A tenant dropped all its handles and built its group again, and was told that
/// the group still existed, because another thread was reading statistics.
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

/// A group was dropped while another group had a page of it pinned, so that page outlived the
/// group. When the page was dropped at last, no thread swept the table of groups: the name was
/// listed twice as soon as there was a new group of that name.
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
