//! Devices that fail, are full, return wrong bytes, or vanish. No page may be lost except those on
//! a device that lost them, no read may return another page's bytes, and other groups must
//! continue.

use super::*;
use pagefold::io::{Access, Backend as _, IoError, write_full};
use pagefold::{Error, RemoveError};
use sync::{Arc, SharedBytes};
use test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Swap in a file on a simulated disk, whose calls can be made to fail.
fn on_disk(slots: u64) -> (SimulatedDisk, Arc<FaultyBackend>, Pagefold, Group) {
    on_disk_with(slots, |area| area)
}

/// As above, with an area that `change` modifies before it is added.
pub(super) fn on_disk_with(
    slots: u64,
    change: impl FnOnce(SwapArea) -> SwapArea,
) -> (SimulatedDisk, Arc<FaultyBackend>, Pagefold, Group) {
    let disk = SimulatedDisk::default();
    disk.add_bytes("/swap", vec![0; ((slots + 1) * PAGE) as usize]);
    let faulty = Arc::new(FaultyBackend::new(disk.clone(), Schedule::Never));
    let area = change(SwapArea::path("/swap").overwrite(true));
    let mm = Pagefold::builder().memory("8MiB").backend(Arc::clone(&faulty)).swap_area(area).build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    (disk, faulty, mm, group)
}

/// The file that swap is in.
pub(super) fn raw(disk: &SimulatedDisk) -> Vec<u8> {
    support::bytes_on(disk, "/swap")
}

/// The slot on the disk that has this page.
pub(super) fn slot_of(disk: &SimulatedDisk, page: u64, version: u64) -> Option<usize> {
    let (bytes, wanted) = (raw(disk), contents(page, version));
    bytes.chunks(PAGE as usize).position(|slot| slot == wanted)
}

pub(super) fn overwrite(disk: &SimulatedDisk, slot: usize, bytes: &[u8]) {
    let file = disk.open("/swap".as_ref(), Access::Write).unwrap();
    let mut bytes = bytes.to_vec();
    write_full(&*file, slot as u64 * PAGE, &[SharedBytes::of(&mut bytes).unwrap()], PAGE as usize).unwrap();
}

/// Swaps out pages 0 to `pages` by using other pages, so that the first ones have to be read from
/// the disk.
pub(super) fn swapped_out(group: &Group, pages: u64) -> (Space, u64) {
    let (space, base) = filled(group, pages);
    let others = space.map(2 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    for _ in 0..3 {
        (0..2 * ROOM).for_each(|page| write(&space, others, page, 9));
    }
    // A page that is swapped in needs a frame. Some frames are free, so that no other page has to
    // be evicted.
    space.unmap(others + (2 * ROOM - 8) * PAGE..others + 2 * ROOM * PAGE).unwrap();
    (space, base)
}

pub(super) fn is_corrupt(space: &Space, base: u64, page: u64) -> bool {
    let address = base + page * PAGE;
    let mut bytes = [0xa5; 64];
    let result = space.read_at(&mut bytes, address);
    assert_eq!(bytes, [0xa5; 64], "bytes of it came");
    matches!(result, Err(Error::SwapCorrupt { address: at, .. }) if at == address)
}

#[test]
fn a_flipped_bit_fails_that_page_alone_until_it_is_overwritten() {
    let (disk, _, mm, group) = on_disk(1000);
    let (space, base) = swapped_out(&group, 40);
    let slot = slot_of(&disk, 7, 0).expect("it is on the disk");
    let mut bytes = contents(7, 0);
    bytes[1234] ^= 0x10;
    overwrite(&disk, slot, &bytes);
    assert!(is_corrupt(&space, base, 7) && is_corrupt(&space, base, 7));
    assert!(matches!(space.write_at(&[1], base + 7 * PAGE), Err(Error::SwapCorrupt { .. })), "the rest is unknown");
    (0..40).filter(|&page| page != 7).for_each(|page| check(&space, base, page, 0));
    write(&space, base, 7, 1);
    check(&space, base, 7, 1);
    drop(space);
    eventually_free(&mm);
}

#[test]
fn slots_that_exchanged_their_contents_and_stale_ones_are_found() {
    let (disk, _, _, group) = on_disk(1000);
    let (space, base) = swapped_out(&group, 40);
    let [a, b] = [3, 4].map(|page| slot_of(&disk, page, 0).unwrap());
    overwrite(&disk, a, &contents(4, 0));
    overwrite(&disk, b, &contents(3, 0));
    assert!(is_corrupt(&space, base, 3) && is_corrupt(&space, base, 4));
    space.discard(base + 3 * PAGE..base + 5 * PAGE).unwrap();
    // Simulates a write that the device lost: the slot has its old contents.
    (5..10).for_each(|page| check(&space, base, page, 0));
    (5..10).for_each(|page| write(&space, base, page, 1));
    // Swaps `page` out by using other pages. These are so few that each of them is used again soon,
    // so reclaim keeps them rather than `page`. Writes in the background may take a while, so this
    // is repeated.
    let others = space.map(2 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    let slot_of_new = |page| {
        let push = |round: u64| (0..2 * ROOM).for_each(|page| write(&space, others, page, 9 + round));
        let found = (0..10).find_map(|round| {
            push(round);
            slot_of(&disk, page, 1)
        });
        found.expect("it was written again")
    };
    let slot = slot_of_new(6);
    overwrite(&disk, slot, &contents(6, 0));
    assert!(is_corrupt(&space, base, 6));
    check(&space, base, 5, 1);
    // A torn write.
    let slot = slot_of_new(8);
    let mut torn = contents(8, 1);
    torn[512..1024].fill(0);
    overwrite(&disk, slot, &torn);
    assert!(is_corrupt(&space, base, 8));
    space.unmap(base + 8 * PAGE..base + 9 * PAGE).unwrap();
    check(&space, base, 9, 1);
}

#[test]
fn an_error_on_read_is_told_and_the_page_comes_back_later() {
    let (_, faulty, mm, group) = on_disk(1000);
    let (space, base) = swapped_out(&group, 40);
    faulty.set_schedule(Schedule::From(1, Fault::Errno(EIO)));
    let mut byte = [0xa5];
    let failed = space.read_at(&mut byte, base + 5 * PAGE).unwrap_err();
    assert!(matches!(failed, Error::SwapReadFailed { error: IoError::IO, .. }), "{failed:?}");
    assert!(failed.to_string().contains("from the swap area /swap: "), "{failed}");
    assert_eq!(byte, [0xa5]);
    let stuck = mm.remove_swap(0).unwrap_err();
    assert!(matches!(stuck, Error::SwapInUse(RemoveError::Stuck { error: Some(IoError::IO), .. })), "{stuck:?}");
    assert!(stuck.to_string().ends_with(&IoError::IO.to_string()), "{stuck}");
    assert_eq!(stuck.kind(), IoError::IO.kind());
    faulty.set_schedule(Schedule::Never);
    check(&space, base, 5, 0);
    for (page, fault) in [Fault::Short(512), Fault::Interrupted, Fault::Again].into_iter().cycle().take(40).enumerate()
    {
        faulty.set_schedule(Schedule::Once(1, fault));
        check(&space, base, page as u64, 0);
    }
}

#[test]
fn what_cant_be_written_stays_and_goes_elsewhere() {
    for fault in [Fault::Errno(EIO), Fault::Errno(ENOSPC)] {
        let (_, faulty, mm, group) = on_disk(1000);
        let (space, base) = filled(&group, ROOM / 2);
        faulty.set_schedule(Schedule::From(1, fault));
        let more = space.map(8 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
        let refused = (0..8 * ROOM).find_map(|page| space.write_at(&contents(page, 1), more + page * PAGE).err());
        let refused = refused.expect("there is no room for all");
        assert!(matches!(refused.cause(), Error::LimitReached { .. }), "{fault:?}: {refused}");
        eventually_free(&mm); // The slots of writes that failed.
        // Elsewhere.
        mm.add_swap(in_memory(1000)).unwrap();
        (0..8 * ROOM).for_each(|page| write(&space, more, page, 1));
        (0..ROOM / 2).for_each(|page| check(&space, base, page, 0));
        (0..8 * ROOM).for_each(|page| check(&space, more, page, 1));
    }
}

#[test]
fn a_device_that_vanishes_takes_its_pages_and_no_others() {
    let (disk, _, mm, group) = on_disk(1000);
    let (space, base) = swapped_out(&group, 40);
    disk.power_cut(1);
    let gone = (0..40).filter(|&page| space.read_at(&mut [0], base + page * PAGE).is_err()).count();
    assert_eq!(gone, 40);
    mm.add_swap(in_memory(1000)).unwrap();
    let more = space.map(4 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    (0..4 * ROOM).for_each(|page| write(&space, more, page, 1));
    (0..4 * ROOM).for_each(|page| check(&space, more, page, 1));
    assert!(mm.remove_swap(0).is_err(), "they can't be brought back");
    space.unmap(base..base + 40 * PAGE).unwrap();
}

#[test]
fn a_page_that_cant_come_back_leaves_others_their_places() {
    const MAX: u64 = 20;
    let (disk, _, mm, other) = on_disk(1000);
    let group = mm.group("b").max((ROOM + INDEX) * PAGE).swap_max(MAX * PAGE).build().unwrap();
    let (space, base) = filled(&group, ROOM + MAX);
    let page = (0..ROOM + MAX).find(|&page| slot_of(&disk, page, 0).is_some()).expect("some are on the disk");
    overwrite(&disk, slot_of(&disk, page, 0).unwrap(), &contents(page, 7));
    let (spare, spare_base) = filled(&other, 4 * ROOM);
    let more = space.map(2 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    // All of this runs on one thread, so ThreadSanitizer can find little here. It gets fewer turns.
    for turn in 0..if cfg!(pagefold_tsan) { ROOM / 2 } else { 2 * ROOM } {
        // Another group frees slots, so the slot reserve is never used up.
        spare.discard(spare_base + turn * PAGE..spare_base + (turn + 1) * PAGE).unwrap();
        let read = space.read_at(&mut [0], base + page * PAGE);
        assert!(read.is_err(), "page {page} isn't what was written");
        let _ = space.write_at(&contents(turn, 1), more + turn * PAGE);
        assert!(group.stats().swapped_bytes <= (MAX + 8) * PAGE, "{:?}", group.stats());
    }
    // Every page that can come back does.
    (0..ROOM + MAX).filter(|&other| other != page).for_each(|page| check(&space, base, page, 0));
}

/// Call 1 fails in the first run, call 2 in the second run, and so on, until a run makes fewer
/// calls. This is done for a single failing call, and for all calls from there on. Each access must
/// return the right page or fail, and when the device works again, all pages must be there.
#[test]
fn whichever_call_fails_no_page_is_lost() {
    const MORE: u64 = 16;
    // All of this runs on one thread, so ThreadSanitizer can find little here, and it would take
    // half a minute. It tests only every eighth call.
    const CALLS: u64 = if cfg!(pagefold_tsan) { 8 } else { 1 };
    let (mut runs, mut injected) = (0, 0);
    for fault in [Fault::Errno(EIO), Fault::Errno(ENOSPC), Fault::Interrupted, Fault::Short(1000)] {
        for for_ever in [false, true] {
            let mut call = 1;
            loop {
                let (_, faulty, mm, group) = on_disk(1000);
                let (space, base) = filled(&group, ROOM);
                let before = faulty.calls();
                faulty.set_schedule(match for_ever {
                    false => Schedule::Once(call, fault),
                    true => Schedule::lasting(call, fault),
                });
                let more = space.map(MORE * PAGE, Protection::ReadWrite).unwrap().start;
                let written = |page| space.write_at(&contents(page, 1), more + page * PAGE).is_ok();
                let versions: Vec<u64> = (0..MORE).map(|page| u64::from(written(page))).collect();
                for page in (0..ROOM).step_by(7) {
                    let _ = space.read_at(&mut [0; 8], base + page * PAGE);
                    let _ = space.write_at(&contents(page, 0), base + page * PAGE);
                }
                let calls = faulty.calls() - before;
                runs += u64::from(faulty.fired_total() > 0);
                injected += faulty.fired_total();
                faulty.set_schedule(Schedule::Never);
                (0..ROOM).for_each(|page| check(&space, base, page, 0));
                (0..MORE)
                    .zip(&versions)
                    .filter(|(_, version)| **version == 1)
                    .for_each(|(page, _)| check(&space, more, page, 1));
                drop(space);
                assert_eq!(left(&mm, &group), (0, 0, 0), "{fault:?} at call {call}");
                call += CALLS;
                if calls < call {
                    break;
                }
            }
        }
    }
    println!("faults injected: {injected} in {runs} runs");
}
