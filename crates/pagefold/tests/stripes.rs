//! Groups on a machine with many CPUs, whose pages lie in several stripes. In a process of its own,
//! which pretends to have these CPUs.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

mod support;

use std::sync::{Mutex, Once};
use std::thread;

use pagefold::{Advice, File, Group, Pagefold};
use support::disk;

const PAGE: u64 = 4096;
const CPUS: usize = 88;
/// Enough for all stripes, of which there is one for each four CPUs.
const PAGES_OF_FIRST: u64 = 1500;

/// A budget of 64 MiB, and a file of 32 MiB.
fn manager() -> Pagefold {
    static MANY_CPUS: Once = Once::new();
    MANY_CPUS.call_once(|| sync::cpu::pretend(CPUS));
    Pagefold::builder().memory(64 << 20).backend(disk(1, 8192 * PAGE)).build().unwrap()
}

/// Runs `what` in a thread of that CPU.
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

/// A group that has its stripes, with all of its pages in the first of them.
fn striped(mm: &Pagefold) -> (Group, File) {
    let group = mm.group("a").build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    on(0, || read(&file, 0..PAGES_OF_FIRST));
    (group, file)
}

/// Regression: looks at empty stripes counted as looks at pages. So reclaim gave up before it came
/// to the stripe that had pages left, and the limit was exceeded without a reason.
#[test]
fn a_lower_limit_holds_wherever_the_pages_are() {
    let mm = manager();
    let (group, file) = striped(&mm);
    on(CPUS - 1, || read(&file, PAGES_OF_FIRST..PAGES_OF_FIRST + 90));
    on(0, || group.set_max(4 * PAGE).unwrap());
    assert!(group.charged() <= 4 * PAGE, "{} bytes", group.charged());
}

/// Regression: of a walk over all pages, most looks went to the same few pages of small stripes. So
/// it ended before it came to the pages that were not in use.
#[test]
fn a_page_that_can_go_is_found_in_a_stripe_full_of_pinned_ones() {
    let mm = manager();
    let (group, file) = striped(&mm);
    // A few pages in each of the other stripes, all in use.
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

/// Regression: what each stripe expected was averaged, the empty ones included. So a tenant whose
/// thread stayed on one CPU was told a twentieth of what more memory would save it.
#[test]
fn what_more_memory_saves_does_not_depend_on_empty_stripes() {
    let mm = manager();
    let (group, file) = striped(&mm);
    group.set_max(2000 * PAGE).unwrap();
    // A loop of a little more than the limit, which fits if a tenth is added.
    on(0, || (0..30).for_each(|_| read(&file, 0..2100)));
    let stats = group.stats();
    assert!(stats.more_memory_saves > 0.5, "{stats:?}");
}

/// Regression: a budget that was lowered left charges in the CPUs' stocks. They counted as the
/// group's, which gave up all of its pages at its next miss.
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
