//! Swap readahead. A thread that reads pages in the order in which they were swapped out must need
//! few requests; for other orders, no page may be read in vain.

use super::faults::{is_corrupt, overwrite, slot_of};
use super::*;
use pagefold::io::Backend;
use pagefold::{Advice, Error};
use sync::Arc;
use sync::random::Random;
use test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};

/// The number of pages that the group may have in memory; `PAGES` is the number of all pages.
const LIMIT: u64 = 1024;
const PAGES: u64 = 4096;

struct OnDisk {
    disk: SimulatedDisk,
    mm: Pagefold,
    group: Group,
    space: Space,
    base: u64,
}

/// A space with four times as many pages as its group may have, all written once. Swap is on a
/// simulated disk, and a little less than half of it is used.
fn on_disk(backend: impl FnOnce(SimulatedDisk) -> Box<dyn Backend>) -> OnDisk {
    let disk = SimulatedDisk::default();
    disk.add_bytes("/swap", vec![0; (10_000 * PAGE) as usize]);
    let area = SwapArea::path("/swap").overwrite(true);
    let mm = Pagefold::builder().memory("16MiB").backend(backend(disk.clone())).swap_area(area).build().unwrap();
    let group = mm.group("a").max(LIMIT * PAGE).build().unwrap();
    let (space, base) = filled(&group, PAGES);
    OnDisk { disk, mm, group, space, base }
}

fn plain() -> OnDisk {
    on_disk(|disk| Box::new(disk))
}

impl OnDisk {
    /// Checks these pages, in this order. Returns how many requests this took, and how many pages
    /// were swapped in.
    fn read(&self, pages: impl IntoIterator<Item = u64>) -> (u64, u64) {
        let count = || (self.disk.stats().requests, self.group.stats().swap_ins);
        let before = count();
        pages.into_iter().for_each(|page| check(&self.space, self.base, page, 0));
        let after = count();
        assert!(self.group.charged() <= self.group.max());
        (after.0 - before.0, after.1 - before.1)
    }

    /// Call this after everything was unmapped. Nothing may be left, not even frames of pages that
    /// wait to be put on a list, once the group needs these frames.
    fn check_gone(&self) {
        let few = 16 * PAGE;
        self.group.set_max(few).unwrap();
        support::eventually("what is unmapped leaves memory and swap", || {
            (used(&self.mm), self.group.stats().swapped_bytes) == (0, 0) && self.group.charged() <= few
        });
    }
}

#[test]
fn reading_all_in_order_again_and_again_makes_few_requests() {
    // When a thread moves to another CPU, a few pages stay behind in the old CPU's batch. They are
    // evicted later than their neighbours, which breaks the order of slots.
    let _one_cpu = sync::one_cpu::stay_on_this_cpu();
    let it = plain();
    it.read(0..PAGES); // Swaps all pages in, and lets reclaim see the order.
    let (requests, came) = it.read((0..3).flat_map(|_| 0..PAGES));
    assert!(came > 2 * PAGES && requests < came / 8, "{requests} requests for {came} pages: {}", it.mm.stats());
    let stats = it.group.stats();
    // Reclaim writes a page when it first evicts the page, which may be in any round. Later
    // evictions write nothing, because swapped-in pages keep their slots. Otherwise, each round
    // would write each page.
    let written = stats.swap_bytes_out / PAGE;
    assert!(written < PAGES + PAGES / 8, "{written} pages written: {stats:?}");
    assert!(stats.swap_read_along > came / 2, "{stats:?}");
    assert_eq!(stats.swap_read_along_wasted, 0, "{stats:?}");
    it.space.unmap(it.base..it.base + PAGES * PAGE).unwrap();
    it.check_gone();
}

#[test]
fn reading_backwards_makes_few_requests() {
    let it = plain();
    it.read((0..PAGES).rev());
    let (requests, came) = it.read((0..PAGES).rev());
    assert!(requests < came / 8, "{requests} requests for {came} pages: {}", it.mm.stats());
}

#[test]
fn the_order_of_slots_is_what_matters_and_not_that_of_addresses() {
    let it = plain();
    let mut random = Random::seeded(5);
    let mut order: Vec<u64> = (0..PAGES).collect();
    (1..order.len()).rev().for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
    for version in [1, 0] {
        order.iter().for_each(|&page| write(&it.space, it.base, page, version));
    }
    let (requests, came) = it.read(order.iter().copied());
    assert!(requests < came / 8, "{requests} requests for {came} pages: {}", it.mm.stats());
}

#[test]
fn reading_at_random_brings_hardly_anything_in_vain() {
    let it = plain();
    let mut random = Random::seeded(7);
    let (requests, came) = it.read((0..4 * PAGES).map(|_| random.below(PAGES)));
    let stats = it.group.stats();
    assert!(requests > PAGES && stats.swap_read_along * 100 <= came, "{requests} requests, {stats:?}");
    let (group, before) = (&it.group, stats.swap_read_along);
    it.space.advise(it.base..it.base + PAGES * PAGE, Advice::Random).unwrap();
    it.read(0..PAGES);
    assert_eq!(group.stats().swap_read_along, before, "who says that he reads at random is believed");
}

#[test]
fn what_came_along_and_is_unmapped_leaves_nothing() {
    let it = plain();
    it.read(0..PAGES);
    let along = || it.group.stats().swap_read_along;
    let comes_along = |&page: &u64| {
        let before = along();
        it.read([page]);
        along() >= before + 16
    };
    (PAGES / 4..PAGES).find(comes_along).expect("many pages come along with one");
    let before = it.group.stats();
    it.space.unmap(it.base..it.base + PAGES * PAGE).unwrap();
    it.check_gone();
    let unused = it.group.stats().swap_read_along_wasted - before.swap_read_along_wasted;
    assert!((16..=128).contains(&unused), "{unused} were read along and not used");
}

#[test]
fn a_page_that_isnt_what_was_written_fails_nobody_beside_it() {
    const DAMAGED: u64 = 2000;
    let it = plain();
    it.read(0..PAGES);
    let address = it.base + DAMAGED * PAGE;
    it.space.advise(address..address + PAGE, Advice::PageOut).unwrap();
    let mut bytes = contents(DAMAGED, 0);
    bytes[1234] ^= 0x10;
    let slot = slot_of(&it.disk, DAMAGED, 0).expect("it is on the disk");
    overwrite(&it.disk, slot, &bytes);
    for _ in 0..2 {
        it.read(0..DAMAGED);
        assert!(is_corrupt(&it.space, it.base, DAMAGED));
        it.read(DAMAGED + 1..PAGES);
    }
    assert!(it.group.stats().swap_read_along > PAGES / 2, "{:?}", it.group.stats());
}

#[test]
fn a_request_that_fails_is_made_again_for_the_wanted_page_alone() {
    let mut faulty = None;
    let it = on_disk(|disk| {
        let backend = Arc::new(FaultyBackend::new(disk, Schedule::Never));
        faulty = Some(Arc::clone(&backend));
        Box::new(backend)
    });
    it.read(0..PAGES);
    let faulty = faulty.unwrap();
    faulty.set_schedule(Schedule::OneIn { n: 4, seed: 3, faults: vec![Fault::Errno(5), Fault::Short(512)] });
    let mut failed = 0;
    for page in (0..2).flat_map(|_| 0..PAGES) {
        let mut into = vec![0; PAGE as usize];
        match it.space.read_at(&mut into, it.base + page * PAGE) {
            Ok(()) => assert!(into == contents(page, 0), "page {page} has other bytes"),
            Err(error) => {
                assert!(matches!(error.cause(), Error::SwapReadFailed { .. }), "{error}");
                failed += 1;
            }
        }
    }
    faulty.set_schedule(Schedule::Never);
    let (_, came) = it.read(0..PAGES);
    let stats = it.group.stats();
    assert!(failed > 0 && came > PAGES / 2 && stats.swap_read_along > PAGES / 4, "{failed} failed, {stats:?}");
}
