//! How a space allocates addresses, and reuses them after they are unmapped.

use pagefold::{Error, Group, Pagefold, Protection, SwapArea};

use crate::gated_disk::GatedDisk;
use crate::hooked::Answer;
use crate::meanwhile::{cpus, share_a_cpu};
use crate::support::{disk, eventually};

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
const RW: Protection = Protection::ReadWrite;

fn tenant() -> (Pagefold, Group) {
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 1 << 20)).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    (mm, group)
}

/// One thread mapped buffers, and another one unmapped them. Unmapped addresses were reused only by
/// the CPU that had unmapped them, and only for ranges of the same length. Here they were never
/// reused, so all 128 TiB were used up.
#[test]
fn what_another_thread_unmaps_is_mapped_again() {
    let (_mm, group) = tenant();
    let space = group.space().unwrap();
    let (give, get) = std::sync::mpsc::sync_channel(4);
    let theirs = space.clone();
    let unmapper = std::thread::spawn(move || {
        let mut highest = 0;
        while let Ok(area) = get.recv() {
            let area: std::ops::Range<u64> = area;
            highest = highest.max(area.end);
            theirs.unmap(area).unwrap();
        }
        highest
    });
    for round in 0..20_000 {
        give.send(space.map((1 + round % 1037) * PAGE, RW).unwrap()).unwrap();
    }
    drop(give);
    // A region for each CPU, and what was in flight.
    let regions = 2 + cpus();
    let highest = unmapper.join().unwrap();
    assert!(highest <= regions * GIB, "{highest:#x}");
}

/// Ranges of all sizes are mapped and unmapped. Adjacent unmapped ranges must be merged, so that
/// larger ranges fit in them.
#[test]
fn ranges_that_come_back_grow_together() {
    let (_mm, group) = tenant();
    let space = group.space().unwrap();
    let (mut random, mut mapped) = (sync::random::Random::seeded(3), Vec::new());
    for round in 0..20_000_u64 {
        if mapped.len() > 200 || round % 3 == 2 {
            let at = random.below(mapped.len() as u64) as usize;
            space.unmap(mapped.swap_remove(at)).unwrap();
        } else {
            // The ranges become larger over time, so none fits in a single unmapped range.
            mapped.push(space.map((1 + random.below(1 + round / 4)) * PAGE, RW).unwrap());
        }
    }
    let highest = mapped.iter().map(|area| area.end).max().unwrap();
    let regions = 6 + cpus();
    assert!(highest <= regions * GIB, "{highest:#x}");
}

/// When `move_anywhere` failed, the addresses that it had allocated for the target weren't freed. A
/// loop that retried until a page was no longer pinned used up a gigabyte of addresses in 16,384
/// tries.
#[test]
fn moves_that_fail_give_their_addresses_back() {
    let (_mm, group) = tenant();
    let space = group.space().unwrap();
    // Each CPU allocates from a gigabyte of its own, so the moves run on a thread that stays on one
    // CPU.
    let moves = || {
        share_a_cpu();
        let area = space.map(160 << 20, RW).unwrap();
        space.write_at(&[1], area.start).unwrap();
        let guard = space.page_at(area.start).unwrap();
        for _ in 0..30 {
            assert!(matches!(space.move_anywhere(area.clone()), Err(Error::AddressBusy { .. })));
        }
        drop(guard);
        space.move_anywhere(area).unwrap()
    };
    let moved = std::thread::scope(|scope| scope.spawn(moves).join().unwrap());
    assert!(moved.end <= 3 * GIB, "{moved:x?}");
}

/// While a move was in progress, `map` found its target mapped, and removed the target from the
/// free addresses. Then the move failed. The target wasn't mapped any more, but no `map` was given
/// its addresses again.
#[test]
fn the_target_of_a_move_that_fails_is_free_again() {
    let disk = GatedDisk::with_file("/swap", 1001 * PAGE);
    let area = SwapArea::path("/swap").overwrite(true);
    let mm = Pagefold::builder().memory("8MiB").backend(disk.clone()).swap_area(area).build().unwrap();
    let space = mm.group("tenant").max(64 * PAGE).build().unwrap().space().unwrap();
    let (base, target) = (3 * GIB, GIB);
    space.map_at(base..base + 300 * PAGE, RW).unwrap();
    for page in 0..300 {
        let bytes: Vec<u8> = (0..PAGE / 8).flat_map(|word| sync::random::mix(page << 9 | word).to_le_bytes()).collect();
        space.write_at(&bytes, base + page * PAGE).unwrap();
    }
    // Each page is an area of its own, so the list of areas says which pages are in swap.
    let odd = (1..300).step_by(2).map(|page| base + page * PAGE);
    odd.for_each(|page| space.protect(page..page + PAGE, Protection::Read).unwrap());
    let in_swap = space.areas().into_iter().find(|area| area.swapped == PAGE).unwrap().range.start;
    disk.fail_reads();
    let [reads, moves] = [space.clone(), space.clone()];
    let read = Answer::of(move || reads.read_at(&mut [0; 8], in_swap));
    disk.gate.wait_for_somebody();
    // The move waits for the page that is being read.
    let moved = Answer::of(move || moves.move_to(in_swap..in_swap + PAGE, target));
    let byte = || space.read_at(&mut [0], target);
    eventually("the target isn't mapped", || !matches!(byte(), Err(Error::NotMapped { .. })));
    let elsewhere = space.map(PAGE, RW).unwrap();
    assert_ne!(elsewhere.start, target);
    disk.gate.open();
    assert!(matches!(read.wait(), Some(Err(error)) if matches!(error.cause(), Error::SwapReadFailed { .. })));
    assert!(matches!(moved.wait(), Some(Err(error)) if matches!(error.cause(), Error::SwapReadFailed { .. })));
    [elsewhere, base..base + 300 * PAGE].into_iter().for_each(|area| space.unmap(area).unwrap());
    space.map((1 << 47) - GIB, RW).unwrap();
}

/// A caller mapped a terabyte at the lowest addresses that `map` gives out. The next `map` of a
/// page searched for a free address page by page: a quarter of a billion steps, each of which
/// allocated memory for the index.
#[test]
fn addresses_of_the_callers_choice_are_passed_over_at_once() {
    let (mm, group) = tenant();
    let space = group.space().unwrap();
    space.map_at(GIB..1 << 40, Protection::None).unwrap();
    let before = mm.stats().metadata_bytes;
    let area = space.map(PAGE, RW).unwrap();
    assert!(area.start >= 1 << 40 || area.end <= GIB, "{area:x?}");
    assert!(mm.stats().metadata_bytes < before + (128 << 10));
    // `map` may give out addresses that were mapped by `map_at`, once they are unmapped.
    space.unmap(GIB..1 << 40).unwrap();
    let all: u64 = (1 << 47) - 2 * GIB;
    space.unmap(area).unwrap();
    space.map(all, Protection::None).unwrap();
}

/// All free addresses can be mapped, in whatever pieces they were unmapped.
#[test]
fn all_addresses_can_be_had_again() {
    let (_mm, group) = tenant();
    let space = group.space().unwrap();
    let half: u64 = 1 << 46;
    for _ in 0..3 {
        let mut areas: Vec<_> = (0..64).map(|_| space.map(half / 64, Protection::None).unwrap()).collect();
        areas.push(space.map(half / 2, Protection::None).unwrap());
        let more = space.map(half, Protection::None);
        assert!(matches!(more, Err(Error::NoAddresses { .. })), "{more:?}");
        areas.into_iter().for_each(|area| space.unmap(area).unwrap());
    }
    let area = space.map(2 * half - 2 * GIB, Protection::None).unwrap();
    space.unmap(area).unwrap();
}

/// `map` must never return address 0, which callers take for "no address". After memory had been
/// mapped at 0 by `map_at`, and unmapped, the next `map` returned 0.
#[test]
fn address_zero_is_given_out_to_no_caller() {
    let (_mm, group) = tenant();
    let space = group.space().unwrap();
    for range in [0..PAGE, 0..2 * GIB, GIB - PAGE..GIB + PAGE] {
        space.map_at(range.clone(), RW).unwrap();
        space.unmap(range.clone()).unwrap();
        let areas = [PAGE, range.end - range.start].map(|len| space.map(len, RW).unwrap());
        assert!(areas.iter().all(|area| area.start >= GIB), "{areas:x?}");
        areas.into_iter().for_each(|area| space.unmap(area).unwrap());
    }
    // And none is lost.
    space.map((1 << 47) - GIB, RW).unwrap();
}
