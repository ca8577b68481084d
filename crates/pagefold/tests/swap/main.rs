//! Anonymous memory that is larger than the budget or the limit. It goes to swap. When it is read,
//! it must have the right bytes, or the read must fail.

#[path = "../support/mod.rs"]
mod support;

mod along;
mod areas;
mod compressed;
#[cfg(feature = "encrypted-swap")]
mod encrypted;
mod faults;
#[cfg(not(feature = "encrypted-swap"))]
mod not_encrypted;
mod pages;
mod seeds;
mod words;

use std::time::{Duration, Instant};

use pagefold::{Group, Pagefold, Protection, Space, SwapArea, SwapAreaStats};
use sync::random::mix;

const PAGE: u64 = 4096;
/// The number of pages that a group of these tests may have in memory.
const ROOM: u64 = 64;
/// The number of further pages that a group needs for a space, for the index of one mapping, and
/// for the words of the mapping's pages.
const INDEX: u64 = 6;

/// Returns a Pagefold with `slots` slots in memory, and a group with [`ROOM`] pages.
fn with_swap(slots: u64) -> (Pagefold, Group) {
    let mm = Pagefold::builder().memory("8MiB").swap_area(in_memory(slots)).build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    (mm, group)
}

fn in_memory(slots: u64) -> SwapArea {
    SwapArea::memory((slots + 1) * PAGE)
}

/// The bytes of a version of a page. Any two versions or pages differ in each word.
fn contents(page: u64, version: u64) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|word| mix(mix(page << 24 | version) ^ word).to_le_bytes()).collect()
}

/// As above, for a page that compresses to less than a half. The first five eighths of the page
/// repeat one byte. In each byte of the rest, four bits are always zero, which only a slower
/// algorithm finds.
fn sparse(page: u64, version: u64) -> Vec<u8> {
    let mut bytes = contents(page, version);
    let (same, others) = bytes.split_at_mut(PAGE as usize * 5 / 8);
    same.fill(version as u8);
    others.iter_mut().for_each(|byte| *byte &= 0x0f);
    bytes
}

fn write(space: &Space, base: u64, page: u64, version: u64) {
    space.write_at(&contents(page, version), base + page * PAGE).unwrap();
}

#[track_caller]
fn check(space: &Space, base: u64, page: u64, version: u64) {
    let mut bytes = vec![0xa5; PAGE as usize];
    space.read_at(&mut bytes, base + page * PAGE).unwrap();
    assert!(bytes == contents(page, version), "page {page} isn't what version {version} of it is");
}

/// Returns a space with `pages` pages, all of them written in version 0, and their first address.
fn filled(group: &Group, pages: u64) -> (Space, u64) {
    let space = group.space().unwrap();
    let base = space.map(pages * PAGE, Protection::ReadWrite).unwrap().start;
    (0..pages).for_each(|page| write(&space, base, page, 0));
    (space, base)
}

fn used(mm: &Pagefold) -> u64 {
    mm.stats().swap.iter().map(|area| area.used_bytes / PAGE).sum()
}

/// Waits until no slot is in use. Background threads may still be writing pages that were just
/// unmapped.
#[track_caller]
fn eventually_free(mm: &Pagefold) {
    support::eventually("slots of no page are free", || used(mm) == 0);
}

/// What a group still has after everything was dropped: bytes in memory, slots in use, and bytes in
/// swap by its own count. Waits until background threads have returned what they were writing.
fn left(mm: &Pagefold, group: &Group) -> (u64, u64, u64) {
    let left = || (group.charged(), used(mm), group.stats().swapped_bytes);
    let start = Instant::now();
    while left() != (0, 0, 0) && start.elapsed() < support::WATCHDOG {
        std::thread::sleep(Duration::from_millis(1));
    }
    left()
}
