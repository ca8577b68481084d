//! Memory that no file has, and more of it than there is room for: it goes to swap and comes back
//! as it was, or not at all.

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

use std::time::{Duration, Instant};

use pagefold::{Group, Pagefold, Protection, Space, SwapArea, SwapAreaStats};
use sync::random::mix;

const PAGE: u64 = 4096;
/// Pages that a group of the tests may have in memory.
const ROOM: u64 = 64;
/// And pages that a space, and the index of one mapping, are charged as.
const INDEX: u64 = 5;

/// A Pagefold with swap in memory for so many pages, and a group with [`ROOM`].
fn with_swap(slots: u64) -> (Pagefold, Group) {
    let mm = Pagefold::builder().memory("8MiB").swap_area(in_memory(slots)).build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    (mm, group)
}

fn in_memory(slots: u64) -> SwapArea {
    SwapArea::memory((slots + 1) * PAGE)
}

/// The bytes of a page in a version: no two are alike in any word.
fn contents(page: u64, version: u64) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|word| mix(mix(page << 24 | version) ^ word).to_le_bytes()).collect()
}

/// The same of a page that is easily compressed, to less than a half: its last three eighths alone
/// are like that, and of bytes of which half are always zeros, which takes more care to find.
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

/// A space with `pages` pages, all written in version 0. Says where they begin.
fn filled(group: &Group, pages: u64) -> (Space, u64) {
    let space = group.space().unwrap();
    let base = space.map(pages * PAGE, Protection::ReadWrite).unwrap().start;
    (0..pages).for_each(|page| write(&space, base, page, 0));
    (space, base)
}

fn used(mm: &Pagefold) -> u64 {
    mm.stats().swap.iter().map(|area| area.used_bytes / PAGE).sum()
}

/// Waits until no slot is in use. The background may be writing pages that were just unmapped.
#[track_caller]
fn eventually_free(mm: &Pagefold) {
    support::eventually("slots of no page are free", || used(mm) == 0);
}

/// What a group that has nothing any more still has, in memory, slots, and by its count of those;
/// once what the background was writing just then has been given back.
fn left(mm: &Pagefold, group: &Group) -> (u64, u64, u64) {
    let left = || (group.charged(), used(mm), group.stats().swapped_bytes);
    let start = Instant::now();
    while left() != (0, 0, 0) && start.elapsed() < support::WATCHDOG {
        std::thread::sleep(Duration::from_millis(1));
    }
    left()
}
