//! The memory that a mapping of a file takes on a machine with many CPUs. This test is alone in its
//! process, because it measures the whole heap, and pretends that there are more CPUs.
#![cfg(all(target_os = "linux", target_env = "gnu", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan))))]

use pagefold::{Advice, File, Pagefold, Protection, Space};
use test_disks::SimulatedDisk;

const CPUS: usize = 256;
const MAPPINGS: u64 = 4000;

/// Bytes in use on the heap, mapped ones included.
fn heap() -> u64 {
    // SAFETY: reads the allocator's counts.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Regression: Each CPU had a table of all mappings, with a handle of each. A mapping took 16 KiB
/// on a machine with 256 CPUs, and a space with one mapping took 32 KiB. 65,000 mappings would have
/// taken the whole budget of 1 GiB.
#[test]
fn a_mapping_takes_no_memory_for_each_cpu_and_what_it_takes_is_charged() {
    sync::cpu::pretend(CPUS);
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 1, 1 << 20);
    let mm = Pagefold::builder().memory("256MiB").backend(disk).build().unwrap();
    let group = mm.group("a").build().unwrap();
    let file = group.open("f").unwrap();
    let map = |space: &Space| space.map_file(&file, 0, 4096, Protection::Read).unwrap();
    let read = |space: &Space, at| space.read_at(&mut [0; 8], at).unwrap();
    // Allocates what is allocated only once.
    let space = group.space().unwrap();
    let first = map(&space);
    read(&space, first.start);
    let (heap_before, used) = (heap(), mm.used());
    // Half of them in spaces of their own.
    let mut spaces = Vec::new();
    for number in 0..MAPPINGS {
        if number % 2 == 0 {
            read(&space, map(&space).start);
        } else {
            spaces.push(group.space().unwrap());
            let space = &spaces[spaces.len() - 1];
            read(space, map(space).start);
        }
    }
    let (took, counted) = ((heap() - heap_before) / MAPPINGS, (mm.used() - used) / MAPPINGS);
    assert!(took <= counted, "{took} bytes each, {counted} charged");
    assert!(took < 12 << 10, "{took} bytes each");
    drop((space, spaces));
    assert!(mm.used() < used + (64 << 10), "{} bytes are still charged", mm.used() - used);
    misses_on_other_cpus_take_no_more(&mm, &file, &group.space().unwrap());
}

/// Regression: The readahead state of a handle was kept separately for every eight CPUs. 45,000
/// mappings, each of them read by 256 CPUs now and then, took the rest of a budget of 1 GiB, and no
/// page could be read any more.
fn misses_on_other_cpus_take_no_more(mm: &Pagefold, file: &File, space: &Space) {
    let mapped: Vec<_> = (0..400).map(|_| space.map_file(file, 0, 4096, Protection::Read).unwrap()).collect();
    let miss_each = || {
        for range in &mapped {
            file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
            space.read_at(&mut [0; 8], range.start).unwrap();
        }
    };
    miss_each();
    let (misses, metadata) = (file.stats().misses, mm.stats().metadata_bytes);
    for _ in 0..CPUS / 4 {
        std::thread::scope(|scope| _ = scope.spawn(miss_each));
    }
    assert!(file.stats().misses >= misses + 400 * CPUS as u64 / 4);
    let more = mm.stats().metadata_bytes.saturating_sub(metadata);
    // Each CPU may take a little, however many mappings there are.
    assert!(more < CPUS as u64 * 1024, "{more} bytes more");
}
