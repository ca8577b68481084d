//! The memory that ten thousand groups, files and spaces take, and that the budget counts for them.
//! This test is alone in its process, because it measures the whole heap, and pretends how many
//! CPUs there are.
#![cfg(all(target_os = "linux", target_env = "gnu", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan))))]

use pagefold::{Group, Pagefold, Protection};
use test_disks::SimulatedDisk;

/// Objects of each kind.
const COUNT: usize = 10_000;
const CPUS: usize = 2;
const PAGE: u64 = 4096;

/// Bytes in use on the heap, mapped ones included.
fn heap() -> u64 {
    // SAFETY: reads the allocator's counts.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// What `COUNT` objects take, and what the budget counts for them, except frames. In bytes.
#[derive(Clone, Copy)]
struct Cost {
    took: u64,
    counted: u64,
}

impl Cost {
    /// Checks that at most `uncounted` bytes of each object aren't counted.
    fn check(self, what: &str, uncounted: u64) {
        let [took, counted] = [self.took, self.counted].map(|bytes| bytes / COUNT as u64);
        println!("{what}: {took} bytes each, {counted} counted");
        assert!(took <= counted + uncounted, "{what}: {took} bytes each, {counted} counted");
    }
}

/// Makes `COUNT` objects.
fn make<T>(mm: &Pagefold, make: impl Fn(usize) -> T) -> (Vec<T>, Cost) {
    let counted = || mm.stats().metadata_bytes;
    let mut made = Vec::with_capacity(COUNT);
    let (heap_before, counted_before) = (heap(), counted());
    made.extend((0..COUNT).map(make));
    let cost = Cost { took: heap() - heap_before, counted: counted() - counted_before };
    (made, cost)
}

/// Bytes of a group that the budget doesn't count. A group takes up to 2,330 bytes, and counts as
/// 2,048.
const UNCOUNTED_OF_A_GROUP: u64 = 320;

/// Makes `COUNT` objects of each kind, checks what they take, and drops them.
fn crowd(mm: &Pagefold) {
    let open = |groups: &[Group], file: usize| {
        let options = groups[file].open_options().write(file.is_multiple_of(2));
        options.open(format!("f{file}")).unwrap()
    };
    let (groups, of_groups) = make(mm, |group| mm.group(&format!("g{group}")).build().unwrap());
    let (files, of_files) = make(mm, |file| open(&groups, file));
    let (spaces, of_spaces) = make(mm, |space| groups[space].space().unwrap());
    let (mapped, of_mapped) = make(mm, |space| spaces[space].map(PAGE, Protection::ReadWrite).unwrap());
    of_groups.check("groups", UNCOUNTED_OF_A_GROUP);
    of_files.check("files", 0);
    of_spaces.check("spaces", 0);
    of_mapped.check("mappings", 0);
    let stats = mm.stats();
    assert_eq!((stats.groups.len(), stats.files.len()), (COUNT, COUNT));
    assert!(stats.used_bytes <= stats.budget_bytes, "{} of {}", stats.used_bytes, stats.budget_bytes);
    drop((mapped, spaces, files, groups));
}

#[test]
fn what_ten_thousand_of_each_take_is_counted() {
    sync::cpu::pretend(CPUS);
    let disk = SimulatedDisk::default();
    (0..COUNT).for_each(|file| disk.add_generated(format!("f{file}"), file as u64, PAGE));
    let mm = Pagefold::builder().memory("1GiB").backend(disk).build().unwrap();
    // Tables keep their size when their elements are gone. So the first crowd leaves something, and
    // the next one mustn't leave more.
    crowd(&mm);
    let left = mm.stats().metadata_bytes;
    crowd(&mm);
    assert_eq!(mm.stats().metadata_bytes, left, "a crowd that is gone is still counted");
}
