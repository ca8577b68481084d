//! Pins and hot pages: which thread or group has to wait, or pay, for what another does.

use sync::Arc;

use pagefold::{Error, File, Group, Pagefold};

use crate::hooked::{Gate, Hooked, MOMENT, fill};
use crate::meanwhile::{meanwhile, touch};
use crate::support::{disk, eventually, manager, read, within_limit};

/// The bugs below need readers that are fast enough, which they aren't every time.
const ROUNDS: usize = 4;

/// Pages that had been pinned went to main, the list of what is used most, and three threads kept
/// reading them when the pins were gone. Reclaim spared them each time it came by, and a read met
/// `LimitReached` with nothing pinned.
#[test]
fn pages_that_are_hot_are_not_pinned() {
    let mm = manager(4096, disk(1, 64 << 20));
    let file = mm.group("tenant").max(16 * 4096).build().unwrap().open("f0").unwrap();
    let pins: Vec<_> = (0..16).map(|page| file.page_at(page * 4096).unwrap()).collect();
    assert!(matches!(file.page_at(100 * 4096), Err(Error::LimitReached { .. })));
    meanwhile(
        3,
        |_| touch(&file, 16),
        || {
            std::thread::sleep(MOMENT);
            drop(pins);
            read(&file, 0, 100 * 4096, 8).unwrap();
        },
    );
}

/// Group `a` is charged for 64 pages, its limit, which went to main because they were pinned; none
/// is any more. Threads of group `b` keep them hot while `check` looks at `a`.
fn with_pages_kept_hot_by_another_group(check: impl Fn(&Pagefold, Group, File)) {
    for _ in 0..ROUNDS {
        let mm = manager(4096, disk(1, 64 << 20));
        let (a, b) = (mm.group("a").max(64 * 4096).build().unwrap(), mm.group("b").build().unwrap());
        let (ours, theirs) = (a.open("f0").unwrap(), b.open("f0").unwrap());
        touch(&ours, 64);
        let pinned_by_a_neighbour = |page: u64| {
            // In memory by now, and paid for by us, even if it was evicted for what another CPU has
            // in stock.
            let _loaded = ours.page_at(page * 4096).unwrap();
            theirs.page_at(page * 4096).unwrap()
        };
        let pins: Vec<_> = (0..64).map(pinned_by_a_neighbour).collect();
        assert!(matches!(ours.page_at(100 * 4096), Err(Error::LimitReached { .. })));
        meanwhile(
            4,
            |_| touch(&theirs, 64),
            || {
                std::thread::sleep(MOMENT);
                drop(pins);
                check(&mm, a, ours);
            },
        );
    }
}

/// The group that loads a page pays for it, also when only a neighbour uses it. The neighbour's
/// reads kept all pages of a group hot, so the group's limit couldn't be lowered below them.
#[test]
fn a_limit_can_be_lowered_below_pages_that_a_neighbour_uses() {
    with_pages_kept_hot_by_another_group(|_, group, _file| {
        group.set_max(16 * 4096).unwrap();
        assert!(within_limit(&group), "{} bytes charged, nothing pinned, the limit is 16 pages", group.charged());
    });
}

/// For the same reason the group couldn't read anything else: `LimitReached`, because of what a
/// neighbour read.
#[test]
fn a_group_whose_pages_a_neighbour_uses_can_read_others() {
    with_pages_kept_hot_by_another_group(|_, _group, file| {
        read(&file, 0, 200 * 4096, 8).unwrap();
    });
}

/// And when the group was dropped, taking its pages out of memory gave up on those in use just
/// then. They stayed, charged to a group without a handle.
#[test]
fn a_group_that_goes_leaves_no_page_that_a_neighbour_reads() {
    with_pages_kept_hot_by_another_group(|mm, group, file| {
        drop((file, group));
        // A thread that has one of its pages in hand may be without a CPU just now.
        eventually("the group is still there", || mm.stats().groups.iter().all(|group| group.name != "a"));
    });
}

/// With all of its limit pinned, a group gets its error after a few tries, unless pages are under
/// way that might help. Pages of any group counted: one slow read of a neighbour made each such
/// error take four seconds and 400 tries.
#[test]
fn a_neighbours_slow_load_does_not_delay_an_error() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let backend = Hooked::new(
        move |offset, into| {
            if offset == 1000 * 4096 {
                held.pass();
            }
            Ok(fill(offset, into, 8 << 20, 1))
        },
        || Ok(8 << 20),
    );
    let mm = manager(256, backend);
    let (a, b) = (mm.group("a").max(8 * 4096).build().unwrap(), mm.group("b").build().unwrap());
    let (ours, theirs) = (a.open("file").unwrap(), b.open("file").unwrap());
    let _pins: Vec<_> = (0..8).map(|page| ours.page_at(page * 4096).unwrap()).collect();
    let tries = || {
        let before = a.stats().direct_reclaims;
        assert!(matches!(ours.page_at(9 * 4096), Err(Error::LimitReached { .. })));
        a.stats().direct_reclaims - before
    };
    let alone = tries();
    let loader = std::thread::spawn(move || theirs.read_at(&mut [0; 8], 1000 * 4096));
    gate.wait_for_somebody();
    let beside = tries();
    gate.open();
    loader.join().unwrap().unwrap();
    assert!(beside < 10 * alone, "{alone} tries alone, {beside} while a neighbour loads a page");
}

/// Misses of a neighbour that reads the same 300 pages over and over, while group `a`, with a page
/// in each extent that it may have pinned, reads a sparse file and needs room for its page map.
fn misses_of_a_neighbour(pinned: bool) -> u64 {
    let mm = Pagefold::builder().memory("4MiB").backend(disk(2, 64 << 30)).build().unwrap();
    let (a, b) = (mm.group("a").max("1MiB").build().unwrap(), mm.group("b").build().unwrap());
    let (ours, theirs) = (a.open("f0").unwrap(), b.open("f1").unwrap());
    let mut pins = Vec::new();
    for page in 0..900 {
        theirs.read_at(&mut [0; 8], page * 4096).unwrap();
        if page % 32 == 5 {
            pins.push(ours.page_at(page * 4096).unwrap());
        }
    }
    if !pinned {
        pins.clear();
    }
    let mut before = 0;
    for chunk in 1..1000_u64 {
        if chunk == 100 {
            before = b.stats().misses;
        }
        let _ = ours.read_at(&mut [0; 8], chunk << 21);
        touch(&theirs, 300);
    }
    b.stats().misses - before
}

/// To make room for page maps, an extent of frames was emptied, all of it but for a pinned page,
/// which made the work useless; then the next. One tenant's few pins cost its neighbours their hot
/// pages, again and again.
#[test]
fn a_few_pins_do_not_cost_a_neighbour_his_pages() {
    let (without, with) = (misses_of_a_neighbour(false), misses_of_a_neighbour(true));
    assert!(with < 3 * without.max(300), "{without} misses, {with} with a pin in each extent");
}

/// A shrinking budget was tried on sixteen extents, and given up when each of them had a pin in it.
/// A budget with eighteen pins in 15,000 pages reported that it was busy, although it had extents
/// without a pin.
#[test]
fn a_budget_shrinks_where_nothing_is_pinned() {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 30)).build().unwrap();
    let file = mm.group("tenant").build().unwrap().open("f0").unwrap();
    let mut pins = Vec::new();
    for page in 0..15_000 {
        let pin = file.page_at(page * 4096).unwrap();
        if page % 512 == 9 && page < 18 * 512 {
            pins.push(pin);
        }
    }
    mm.resize("56MiB").unwrap();
    assert!(mm.stats().used_bytes <= 56 << 20);
}
