//! How swap finds the owner of a page, and what this costs tenants that don't own it.

use std::time::{Duration, Instant};

use pagefold::{Group, Pagefold, Protection, Space, SwapArea};
use sync::random::mix;

use crate::gated_disk::GatedDisk;
use crate::hooked::Answer;

const PAGE: u64 = 4096;

/// A page that differs from all others. It compresses to half of its size, with any algorithm, and
/// ends with `tenant`.
fn contents(tenant: u64, page: u64) -> Vec<u8> {
    let random = (0..PAGE / 16).map(|word| mix(page << 24 | word));
    random.chain((0..PAGE / 16).map(|_| tenant)).flat_map(u64::to_le_bytes).collect()
}

/// Returns a space with `pages` pages, all of them written, and its first address.
fn filled(group: &Group, tenant: u64, pages: u64) -> (Space, u64) {
    let space = group.space().unwrap();
    let base = space.map(pages * PAGE, Protection::ReadWrite).unwrap().start;
    (0..pages).for_each(|page| space.write_at(&contents(tenant, page), base + page * PAGE).unwrap());
    (space, base)
}

/// Removes a swap area that has most pages of one space, while `spaces` other spaces exist. Returns
/// how long the removal took.
fn remove_an_area_beside(spaces: u64) -> Duration {
    let area = SwapArea::memory(301 * PAGE);
    let mm = Pagefold::builder().memory("128MiB").swap_area(area).build().unwrap();
    let (tenant, others) = (mm.group("tenant").max(64 * PAGE).build().unwrap(), mm.group("others").build().unwrap());
    let map = |_| {
        let space = others.space().unwrap();
        space.map(PAGE, Protection::ReadWrite).unwrap();
        space
    };
    let idle: Vec<Space> = (0..spaces).map(map).collect();
    let (space, base) = filled(&tenant, 0, 300);
    tenant.set_max("8MiB").unwrap();
    let start = Instant::now();
    mm.remove_swap(0).unwrap();
    let taken = start.elapsed();
    for page in 0..300 {
        let mut bytes = vec![0; PAGE as usize];
        space.read_at(&mut bytes, base + page * PAGE).unwrap();
        assert!(bytes == contents(0, page), "page {page}");
    }
    drop(idle);
    taken
}

/// The pages of a removed area are found although there are many other spaces.
#[test]
fn an_area_is_removed_beside_many_spaces() {
    let _taken = remove_an_area_beside(1_500);
}

/// On a host with 2,000 tenants, removing a swap area of 100 GiB would have taken 19 hours: for
/// each page, every space of every tenant was searched for the page. When pages moved from
/// compressed memory to a disk, their owners were found in the same slow way, within the fault of
/// another thread; its longest write took 335 ms.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_removing_an_area_takes_no_longer_beside_many_spaces() {
    let (alone, beside) = (remove_an_area_beside(0), remove_an_area_beside(1_500));
    assert!(beside < 20 * alone.max(Duration::from_millis(2)), "{alone:?} alone, {beside:?} beside 1,500 spaces");
}

/// A tenant dropped its space. At this moment, another tenant's fault was moving one of the space's
/// compressed pages to a disk. The drop returned at once, although the memory and the slots were
/// still in use. The other tenant's fault then did all the work of freeing the space, which can be
/// terabytes to free and files to write back.
#[test]
fn a_space_is_torn_down_by_the_thread_that_drops_it() {
    const LEAVER: u64 = 7;
    const STAYER: u64 = 8;
    let disk = GatedDisk::with_file("/swap", 1001 * PAGE);
    let mm = Pagefold::builder().memory("8MiB").backend(disk.clone());
    let mm = mm.compressed_swap("400KiB").swap_area(SwapArea::path("/swap").overwrite(true)).build().unwrap();
    let group = |name| mm.group(name).max(64 * PAGE).build().unwrap();
    let (leaver, stayer) = (group("leaver"), group("stayer"));
    let (space, _) = filled(&leaver, LEAVER, 160);
    assert!(leaver.stats().swapped_bytes > 0 && mm.stats().swap[1].used_bytes == 0);
    // The compressed area becomes full. Its oldest pages, which are the first tenant's, move to the
    // disk.
    disk.hold_writes_of(LEAVER);
    let fault = Answer::of(move || filled(&stayer, STAYER, 600));
    disk.gate.wait_for_somebody();
    let drops = Answer::of(move || {
        drop(space);
        (leaver.charged(), leaver.stats().swapped_bytes)
    });
    drops.thread().await_sleep();
    disk.gate.open();
    assert_eq!(drops.wait(), Some((0, 0)), "bytes in memory and in swap once the space was dropped");
    assert!(fault.wait().is_some());
}
