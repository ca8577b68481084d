//! Groups on a machine with many CPUs, whose pages are in several stripes. These tests are in a
//! process of their own, which pretends to have so many CPUs.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

mod support;

use std::sync::{Mutex, Once};
use std::thread;

use pagefold::{Advice, File, Group, Pagefold};
use support::disk;

const PAGE: u64 = 4096;
const CPUS: usize = 88;
/// So many pages that a group gets all its stripes. There is one stripe for every four CPUs.
const PAGES_OF_FIRST: u64 = 1500;

/// Returns a budget of 64 MiB, on a disk with a file of 32 MiB.
fn manager() -> Pagefold {
    static MANY_CPUS: Once = Once::new();
    MANY_CPUS.call_once(|| sync::cpu::pretend(CPUS));
    Pagefold::builder().memory(64 << 20).backend(disk(1, 8192 * PAGE)).build().unwrap()
}

/// Runs `what` on a thread of this CPU.
fn on<T: Send>(cpu: usize, what: impl FnOnce() -> T + Send) -> T {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    let mut what = Some(what);
    loop {
        // Each new thread is on the next CPU.
        let done = thread::scope(|scope| {
            let body = || (sync::cpu::current() == cpu).then(|| what.take().unwrap()());
            scope.spawn(body).join().unwrap()
        });
        if let Some(done) = done {
            return done;
        }
    }
}

fn read(file: &File, pages: std::ops::Range<u64>) {
    pages.for_each(|page| file.read_exact_at(&mut [0; 8], page * PAGE).unwrap());
}

/// Returns a group that has all its stripes, with all its pages in the first one.
fn striped(mm: &Pagefold) -> (Group, File) {
    let group = mm.group("a").build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    on(0, || read(&file, 0..PAGES_OF_FIRST));
    (group, file)
}

/// Regression: Each look at an empty stripe counted as a look at a page. So reclaim reached its
/// limit of looks before it came to the only stripe with pages left, and gave up; the group stayed
/// above its limit.
#[test]
fn a_lower_limit_holds_wherever_the_pages_are() {
    let mm = manager();
    let (group, file) = striped(&mm);
    on(CPUS - 1, || read(&file, PAGES_OF_FIRST..PAGES_OF_FIRST + 90));
    on(0, || group.set_max(4 * PAGE).unwrap());
    assert!(group.charged() <= 4 * PAGE, "{} bytes", group.charged());
}

/// Regression: When reclaim walked over all pages, it looked at the same few pages of small stripes
/// most of the time. So the walk ended before it came to the pages that were not in use.
#[test]
fn a_page_that_can_go_is_found_in_a_stripe_full_of_pinned_ones() {
    let mm = manager();
    let (group, file) = striped(&mm);
    // Puts a few pages into each of the other stripes, all of them pinned.
    let mut next = PAGES_OF_FIRST;
    let mut pins = Vec::new();
    for stripe in 1..CPUS / 4 {
        let pages = next..next + 4;
        next = pages.end;
        pins.extend(on(4 * stripe, || pages.map(|page| file.page_at(page * PAGE).unwrap()).collect::<Vec<_>>()));
    }
    pins.extend(on(0, || (0..PAGES_OF_FIRST - 3).map(|page| file.page_at(page * PAGE).unwrap()).collect::<Vec<_>>()));
    on(0, || group.set_max(next * PAGE).unwrap());
    for page in next..next + 20 {
        on(0, || read(&file, page..page + 1));
    }
}

/// Regression: The estimate of what more memory would save was an average over all stripes,
/// including empty ones. If a tenant's thread stayed on one CPU, the result was a twentieth of the
/// right one.
#[test]
fn what_more_memory_saves_does_not_depend_on_empty_stripes() {
    let mm = manager();
    let (group, file) = striped(&mm);
    group.set_max(2000 * PAGE).unwrap();
    // A loop that is a little longer than the limit; it fits if a tenth is added to the limit.
    on(0, || (0..30).for_each(|_| read(&file, 0..2100)));
    let stats = group.stats();
    assert!(stats.more_memory_saves > 0.5, "{stats:?}");
}

/// Regression: After the budget was lowered, charges stayed in the CPUs' stocks, and counted as the
/// group's. At its next miss, the group lost all its pages.
#[test]
fn a_smaller_budget_costs_no_page_for_charges_in_stock() {
    let mm = manager();
    let (group, file) = striped(&mm);
    // All but the last CPU have charges in stock.
    for cpu in 0..CPUS - 1 {
        on(cpu, || read(&file, PAGES_OF_FIRST + cpu as u64..PAGES_OF_FIRST + cpu as u64 + 1));
    }
    mm.resize("4MiB").unwrap();
    let before = group.stats();
    on(CPUS - 1, || read(&file, 4000..4001));
    let after = group.stats();
    assert!(after.evictions - before.evictions <= 256, "{before:?}\n{after:?}");
}
