//! Pins and hot pages: which thread or group has to wait, or loses pages, because of another one.

use sync::Arc;

use pagefold::{Error, File, Group, Pagefold};

use crate::hooked::{Gate, Hooked, fill};
use crate::meanwhile::{meanwhile_in_rounds, touch};
use crate::support::{disk, eventually, manager, read, within_limit};

/// The bugs below show only if the readers are fast enough, which isn't so in each round.
const ROUNDS: usize = 4;

/// Pages were in the LRU list *main*, because they had been pinned. After the pins were dropped,
/// three threads kept reading these pages. Reclaim kept them each time, because they had been used,
/// and a read failed with `LimitReached` although nothing was pinned.
#[test]
fn pages_that_are_hot_are_not_pinned() {
    let mm = manager(4096, disk(1, 64 << 20));
    let file = mm.group("tenant").max(16 * 4096).build().unwrap().open("f0").unwrap();
    let pins: Vec<_> = (0..16).map(|page| file.page_at(page * 4096).unwrap()).collect();
    assert!(matches!(file.page_at(100 * 4096), Err(Error::LimitReached { .. })));
    meanwhile_in_rounds(
        3,
        |_| touch(&file, 16),
        |rounds| {
            rounds.await_one_of_each(); // Each page was used.
            drop(pins);
            read(&file, 0, 100 * 4096, 8).unwrap();
        },
    );
}

/// Fills the limit of group `a` with 64 pages, which are in *main* because they were pinned; then
/// drops the pins. Threads of group `b` keep the pages hot while `check` runs.
fn with_pages_kept_hot_by_another_group(check: impl Fn(&Pagefold, Group, File)) {
    for _ in 0..ROUNDS {
        let mm = manager(4096, disk(1, 64 << 20));
        let (a, b) = (mm.group("a").max(64 * 4096).build().unwrap(), mm.group("b").build().unwrap());
        let (ours, theirs) = (a.open("f0").unwrap(), b.open("f0").unwrap());
        touch(&ours, 64);
        let pinned_by_a_neighbour = |page: u64| {
            // The page may have been evicted since `touch`, because other CPUs have charges in
            // stock. This pin loads the page, and keeps it in memory and charged to group `a`,
            // until the neighbour has pinned it, too.
            let _loaded = ours.page_at(page * 4096).unwrap();
            theirs.page_at(page * 4096).unwrap()
        };
        let pins: Vec<_> = (0..64).map(pinned_by_a_neighbour).collect();
        assert!(matches!(ours.page_at(100 * 4096), Err(Error::LimitReached { .. })));
        meanwhile_in_rounds(
            4,
            |_| touch(&theirs, 64),
            |rounds| {
                rounds.await_one_of_each(); // Each page was used.
                drop(pins);
                check(&mm, a, ours);
            },
        );
    }
}

/// A page is charged to the group that loaded it, even if only a neighbour uses it. Here the
/// neighbour's reads kept all pages of a group hot, so the group's limit couldn't be lowered below
/// them.
#[test]
fn a_limit_can_be_lowered_below_pages_that_a_neighbour_uses() {
    with_pages_kept_hot_by_another_group(|_, group, _file| {
        group.set_max(16 * 4096).unwrap();
        assert!(within_limit(&group), "{} bytes charged, nothing pinned, the limit is 16 pages", group.charged());
    });
}

/// As above: the group couldn't read anything else, but failed with `LimitReached`, because its
/// neighbour's reads kept its pages hot.
#[test]
fn a_group_whose_pages_a_neighbour_uses_can_read_others() {
    with_pages_kept_hot_by_another_group(|_, _group, file| {
        read(&file, 0, 200 * 4096, 8).unwrap();
    });
}

/// As above: when the group was dropped, its pages were to be evicted, but pages in use at that
/// moment were skipped. They stayed in memory, charged to a group without a handle.
#[test]
fn a_group_that_goes_leaves_no_page_that_a_neighbour_reads() {
    with_pages_kept_hot_by_another_group(|mm, group, file| {
        drop((file, group));
        // A thread may hold one of the group's pages, and get no CPU for a while.
        eventually("the group is still there", || mm.stats().groups.iter().all(|group| group.name != "a"));
    });
}

/// When a group's limit is full of pinned pages, a call fails after a few tries. It tries for
/// longer if pages are being loaded or written, because these may soon be evicted. But pages of all
/// groups counted for this. So during one slow load of a neighbour, each such call took four
/// seconds and 400 tries to fail.
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

/// Returns the misses of group `b`, which reads the same 300 pages again and again. Meanwhile group
/// `a` reads a sparse file, so it needs room for its page map. If `pinned`, `a` has a page pinned
/// in each extent.
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

/// To make room for page maps, all pages of an extent were evicted except a pinned one. Because of
/// the pin, the extent couldn't be used after all, and the next extent was tried. So a few pins of
/// one tenant cost its neighbours their hot pages again and again.
#[test]
fn a_few_pins_do_not_cost_a_neighbour_his_pages() {
    let (without, with) = (misses_of_a_neighbour(false), misses_of_a_neighbour(true));
    assert!(with < 3 * without.max(300), "{without} misses, {with} with a pin in each extent");
}

/// To shrink the budget, sixteen extents were tried. If each of them contained a pinned page,
/// `resize` failed. So a budget of 15,000 pages with eighteen pins couldn't be shrunk, although
/// most extents had no pin.
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
