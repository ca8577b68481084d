//! The memory that a space takes, and that is charged for it. This test is alone in its process,
//! because it measures the whole heap.
#![cfg(all(target_os = "linux", target_env = "gnu", not(any(pagefold_loom, pagefold_tsan))))]

use pagefold::{Pagefold, Protection, Space};

/// Bytes in use on the heap, mapped ones included.
fn heap() -> u64 {
    // SAFETY: reads the allocator's counts.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Regression: A space was charged 2 KiB, but took more than 7 KiB on a machine with two CPUs, and
/// 40 KiB on one with 88. So a group with a small limit could make spaces until the machine had no
/// memory left. Now the memory that grows with the number of CPUs is allocated at its first use,
/// and all of it is charged to the group.
#[test]
fn what_spaces_take_is_charged_to_their_group() {
    const COUNT: u64 = 1000;
    let mm = Pagefold::builder().memory("64MiB").build().unwrap();
    let group = mm.group("a").build().unwrap();
    // Allocates what is allocated only once, such as this thread's block of counters.
    (0..200).for_each(|_| drop(group.space().unwrap()));
    let (heap_before, charged, metadata) = (heap(), group.charged(), mm.stats().metadata_bytes);
    let spaces: Vec<Space> = (0..COUNT).map(|_| group.space().unwrap()).collect();
    let (took, charged_each) = ((heap() - heap_before) / COUNT, (group.charged() - charged) / COUNT);
    assert!(took <= charged_each, "{took} bytes each, {charged_each} charged");
    assert!(took <= (mm.stats().metadata_bytes - metadata) / COUNT, "the budget doesn't count it");
    // With something mapped.
    let areas: Vec<_> = spaces.iter().map(|space| space.map(4096, Protection::ReadWrite).unwrap()).collect();
    let (took, charged_each) = ((heap() - heap_before) / COUNT, (group.charged() - charged) / COUNT);
    assert!(took <= charged_each, "{took} bytes each, {charged_each} charged");
    drop((spaces, areas));
    assert_eq!(group.charged(), charged);
    // The limit holds.
    let small = mm.group("b").max("256KiB").build().unwrap();
    let made: Vec<Space> = (0..1000).map_while(|_| small.space().ok()).collect();
    assert!(made.len() <= 64, "{} spaces in 256 KiB", made.len());
}
