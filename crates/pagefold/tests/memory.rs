//! How much memory the system reports for this process. There is only one test in this file,
//! because the numbers are those of the whole process.
#![cfg(not(any(pagefold_loom, pagefold_tsan)))]

mod support;

use pagefold::Pagefold;
use support::{disk, read};
use sync::random::Random;

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn the_process_takes_what_the_budget_says_and_gives_it_back() {
    let before = resident();
    let mm = Pagefold::builder().memory("64MiB").memory_max("256MiB").backend(disk(1, 1 << 30)).build().unwrap();
    let file = mm.group("a").build().unwrap().open("f0").unwrap();
    let mut random = Random::seeded(1);
    let mut use_all = || {
        for _ in 0..100_000 {
            read(&file, 0, random.below(1 << 30) & !7, 8).unwrap();
        }
        resident().saturating_sub(before)
    };
    // Beside the budget: the allocator's slack, stacks, page tables.
    let slack = 6 << 20;
    let at_64 = use_all();
    assert!(at_64 < (64 << 20) + slack, "{at_64} bytes in a budget of 64 MiB");
    mm.resize("16MiB").unwrap();
    let shrunk = resident() - before;
    assert!(shrunk < (16 << 20) + slack, "{shrunk} bytes after shrinking to 16 MiB");
    let at_16 = use_all();
    assert!(at_16 < (16 << 20) + slack, "{at_16} bytes in a budget of 16 MiB");
    mm.resize("200MiB").unwrap();
    let at_200 = use_all();
    assert!(at_200 > 150 << 20 && at_200 < (200 << 20) + slack, "{at_200} bytes in a budget of 200 MiB");
    drop((file, mm));
    let left = resident().saturating_sub(before);
    assert!(left < slack, "{left} bytes left behind");
}
