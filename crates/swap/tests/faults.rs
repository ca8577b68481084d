//! Devices that return wrong bytes, fail, or become full. Each page is read back as it was written,
//! or not at all. A failure affects no other page.
#![cfg(not(pagefold_loom))]

mod support;

use io::{Access, Backend as _, IoError};
use pagefold_swap::{AreaOptions, Need, SlotId, Source, Swap, SwapInError, SwapOutError};
use support::*;
use sync::SharedBytes;
use test_disks::{Call, Fault, FaultKind, FaultyBackend, Schedule, SimulatedDisk};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn simulated(pages: u64) -> (SimulatedDisk, Swap) {
    let disk = SimulatedDisk::default();
    let swap = with_areas(&disk, &disk, &[pages * PAGE as u64]);
    (disk, swap)
}

fn read_raw(disk: &SimulatedDisk, slot: SlotId) -> Bytes {
    let file = disk.open("/swap0".as_ref(), Access::Read).unwrap();
    let into = blank();
    io::read_full(&*file, u64::from(slot.number()) * PAGE as u64, SharedBytes::new(&into)).unwrap();
    into
}

fn write_raw(disk: &SimulatedDisk, slot: SlotId, bytes: &Bytes) {
    let file = disk.open("/swap0".as_ref(), Access::Write).unwrap();
    io::write_full(&*file, u64::from(slot.number()) * PAGE as u64, &[SharedBytes::new(bytes)], PAGE).unwrap();
}

fn is_corrupt(swap: &Swap, slot: SlotId, page: u64) -> bool {
    let into = blank();
    let result = swap.swap_in(slot, owner(page), SharedBytes::new(&into));
    result == Err(SwapInError::SwapCorrupt { page: owner(page) })
}

#[test]
fn a_flipped_bit_is_found_and_the_neighbours_come_back() {
    let (disk, swap) = simulated(100);
    let slots: Vec<_> = out(&swap, &[1, 2, 3], 0).into_iter().map(Result::unwrap).collect();
    let bytes = read_raw(&disk, slots[1]);
    SharedBytes::new(&bytes).copy_from(1234, &[0]);
    write_raw(&disk, slots[1], &bytes);
    assert!(is_corrupt(&swap, slots[1], 2));
    check_in(&swap, slots[0], 1, 0);
    check_in(&swap, slots[2], 3, 0);
    // The slot still belongs to the page, so the owner can free it.
    swap.free(slots[1]).unwrap();
}

#[test]
fn slots_that_exchanged_their_contents_are_found() {
    let (disk, swap) = simulated(100);
    let slots: Vec<_> = out(&swap, &[1, 2], 0).into_iter().map(Result::unwrap).collect();
    let both = [read_raw(&disk, slots[0]), read_raw(&disk, slots[1])];
    write_raw(&disk, slots[0], &both[1]);
    write_raw(&disk, slots[1], &both[0]);
    assert!(is_corrupt(&swap, slots[0], 1) && is_corrupt(&swap, slots[1], 2));
}

#[test]
fn older_contents_and_older_numbers_are_found() {
    let (disk, swap) = simulated(2);
    let old = out(&swap, &[1], 0)[0].unwrap();
    let old_bytes = read_raw(&disk, old);
    swap.free(old).unwrap();
    let new = out(&swap, &[1], 1)[0].unwrap();
    assert_eq!((old.number(), old.generation() + 1), (new.number(), new.generation()));
    assert!(is_corrupt(&swap, old, 1), "an older number");
    assert!(is_corrupt(&swap, new, 2), "another page's number");
    check_in(&swap, new, 1, 1);
    write_raw(&disk, new, &old_bytes);
    assert!(is_corrupt(&swap, new, 1), "the device lost the write");
}

#[test]
fn the_same_bytes_under_another_number_are_found() {
    // The device returns the bytes of another slot. They are bytes of the same page, from an
    // earlier write.
    let (disk, swap) = simulated(100);
    let first = out(&swap, &[1], 0)[0].unwrap();
    let second = out(&swap, &[1], 7)[0].unwrap();
    write_raw(&disk, second, &read_raw(&disk, first));
    assert!(is_corrupt(&swap, second, 1));
}

#[test]
fn a_device_that_vanishes_gives_errors_and_no_bytes() {
    let (disk, swap) = simulated(100);
    let slot = out(&swap, &[1], 0)[0].unwrap();
    disk.truncate("/swap0", PAGE as u64).unwrap();
    assert!(is_corrupt(&swap, slot, 1), "cut off: zeros came");
    disk.power_cut(1);
    let into = blank();
    let gone = swap.swap_in(slot, owner(1), SharedBytes::new(&into));
    assert_eq!(gone, Err(SwapInError::ReadFailed { page: owner(1), error: IoError::IO }));
    assert_eq!(out(&swap, &[2], 0), [Err(SwapOutError::WriteFailed { area: 0, error: IoError::IO })]);
}

#[test]
fn an_error_on_read_is_that_reads_alone() {
    let disk = SimulatedDisk::default();
    let faulty = FaultyBackend::new(disk.clone(), Schedule::Never);
    let swap = with_areas(&disk, &faulty, &[100 * PAGE as u64]);
    let slot = out(&swap, &[1], 0)[0].unwrap();
    faulty.set_schedule(Schedule::Once(1, Fault::Errno(EIO)));
    let into = blank();
    let failed = swap.swap_in(slot, owner(1), SharedBytes::new(&into));
    assert_eq!(failed, Err(SwapInError::ReadFailed { page: owner(1), error: IoError::IO }));
    check_in(&swap, slot, 1, 0);
    for fault in [Fault::Short(512), Fault::Interrupted, Fault::Again, Fault::Short(100)] {
        faulty.set_schedule(Schedule::Once(1, fault));
        check_in(&swap, slot, 1, 0);
    }
}

/// For each fault: call 1 fails in the first run, call 2 in the second run, and so on, until a run
/// ends before the call that should fail. Each run is made twice: once only this call fails, and
/// once all later calls fail as well.
#[test]
fn whichever_call_fails_no_page_and_no_slot_is_lost() {
    let faults = [
        Fault::Errno(EIO),
        Fault::Errno(ENOSPC),
        Fault::Interrupted,
        Fault::Short(4096),
        Fault::Short(700),
        Fault::ShortThenErrno(8192, ENOSPC),
        Fault::ShortThenErrno(4096, EIO),
    ];
    let disk = SimulatedDisk::default();
    let faulty = FaultyBackend::new(disk.clone(), Schedule::Never);
    for fault in faults {
        for for_ever in [false, true] {
            for call in 1.. {
                let swap = with_areas(&disk, &faulty, &[20 * PAGE as u64, 30 * PAGE as u64]);
                faulty.set_schedule(if for_ever {
                    Schedule::lasting(call, fault)
                } else {
                    Schedule::Once(call, fault)
                });
                let mut there = Vec::new();
                let mut lost_places = 0;
                for batch in 0..4 {
                    let numbers: Vec<u64> = (batch * 10..batch * 10 + 10).collect();
                    for (number, slot) in numbers.iter().zip(out(&swap, &numbers, 2)) {
                        match slot {
                            Ok(slot) => there.push((*number, slot)),
                            Err(_) => lost_places += 1,
                        }
                    }
                }
                let calls = faulty.calls();
                faulty.set_schedule(Schedule::Never);
                let may_fail = for_ever && fault != Fault::Interrupted;
                assert!(may_fail || lost_places == 0, "{fault:?} at call {call}: it wasn't tried elsewhere");
                there.iter().for_each(|&(number, slot)| check_in(&swap, slot, number, 2));
                swap.drain();
                let used: u64 = swap.areas().iter().map(|area| area.used).sum();
                assert_eq!(used, there.len() as u64, "{fault:?} at call {call}: slots of failed writes are free");
                if calls < call {
                    break;
                }
            }
        }
    }
    assert!(FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::Again).all(|kind| faulty.fired(kind) > 0));
    assert!(faulty.calls_of(Call::Write) > 0);
}

#[test]
fn a_full_disk_takes_what_it_can_and_the_rest_goes_elsewhere() {
    let disk = SimulatedDisk::default();
    let swap = with_areas(&disk, &disk, &[]);
    // A sparse file: it has its full length, but its disk has room for only 11 pages.
    let full = SimulatedDisk::default();
    full.set_capacity(11 * PAGE as u64);
    full.add_bytes("/sparse", vec![]);
    full.grow("/sparse", 1000 * PAGE as u64).unwrap();
    let first = AreaOptions { priority: 1, overwrite: true, ..AreaOptions::default() };
    swap.add(&Source::Path("/sparse".into()), &full, first).unwrap();
    let second = AreaOptions { overwrite: true, ..AreaOptions::default() };
    swap.add(&Source::Memory { bytes: 1 << 20 }, &disk, second).unwrap();
    let numbers: Vec<u64> = (0..40).collect();
    let slots: Vec<_> = out(&swap, &numbers, 0).into_iter().map(Result::unwrap).collect();
    numbers.iter().zip(&slots).for_each(|(&number, &slot)| check_in(&swap, slot, number, 0));
    let more = out(&swap, &[50, 51], 0);
    assert!(more.iter().all(|slot| slot.is_ok_and(|slot| slot.area() == 1)), "{more:?}");
    swap.drain();
    assert_eq!(swap.areas().iter().map(|area| area.used).sum::<u64>(), 42);
}

/// A device that refuses a write if the bytes change during the write. During each write, the
/// device itself changes one word of the page `victim`.
#[derive(Clone)]
struct Watchful {
    disk: SimulatedDisk,
    says_so: bool,
    victim: sync::Arc<Bytes>,
    refused: sync::Arc<sync::atomic::AtomicU64>,
}

struct WatchfulFile {
    file: Box<dyn io::BackingFile>,
    of: Watchful,
}

impl io::Backend for Watchful {
    fn name(&self) -> &'static str {
        "watchful"
    }

    fn open(&self, path: &std::path::Path, access: Access) -> Result<Box<dyn io::BackingFile>, IoError> {
        Ok(Box::new(WatchfulFile { file: self.disk.open(path, access)?, of: self.clone() }))
    }
}

impl io::BackingFile for WatchfulFile {
    fn identity(&self) -> io::Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn needs_stable_bytes(&self) -> bool {
        self.of.says_so
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let look = || {
            let mut bytes = vec![0; from.iter().map(SharedBytes::len).sum()];
            let mut start = 0;
            for slice in from {
                slice.copy_to(0, &mut bytes[start..start + slice.len()]);
                start += slice.len();
            }
            bytes
        };
        let before = look();
        self.of.victim[100].fetch_add(1, sync::atomic::Ordering::SeqCst);
        if before != look() {
            self.of.refused.fetch_add(1, sync::atomic::Ordering::SeqCst);
            return Err(IoError::IO);
        }
        self.file.write(offset, from, len)
    }
}

/// Regression: one page of a run changed while the device wrote the run, so the device refused the
/// write. The other pages of the run then stayed in memory, and the area counted as broken. Only
/// the changed page should be affected. A device that reports that it needs stable bytes should get
/// copies from the start, and refuse no write. Any other device should refuse one write, and get
/// copies from then on.
#[test]
fn a_page_that_changes_while_it_is_written_does_not_spoil_its_neighbours() {
    for says_so in [true, false] {
        let disk = SimulatedDisk::default();
        let victim = sync::Arc::new(contents(5, 0));
        let watchful = Watchful { disk: disk.clone(), says_so, victim, refused: sync::Arc::default() };
        let swap = with_areas(&disk, &watchful, &[1000 * PAGE as u64]);
        for round in 0..10 {
            let numbers: Vec<u64> = (0..10).map(|page| round * 10 + page).collect();
            let bytes: Vec<Bytes> = numbers.iter().map(|&number| contents(number, 0)).collect();
            let page_of = |at: usize| if at == 5 { &*watchful.victim } else { &bytes[at] };
            let pages: Vec<_> = (0..10).map(|at| page(page_of(at), numbers[at])).collect();
            let mut slots = vec![Err(SwapOutError::Full); 10];
            swap.swap_out(&pages, Need::Usual, |at, result| slots[at] = result);
            for (at, slot) in slots.into_iter().enumerate() {
                let slot = slot.unwrap();
                if at == 5 {
                    swap.free(slot).unwrap(); // As the owner of a changed page does.
                } else {
                    swap.set_swapped(slot, owner(numbers[at]), pagefold_swap::Note::new(group(numbers[at]), 0))
                        .unwrap();
                    check_in(&swap, slot, numbers[at], 0);
                }
            }
        }
        assert_eq!(watchful.refused.load(sync::atomic::Ordering::SeqCst), u64::from(!says_so));
    }
}
