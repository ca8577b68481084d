//! Tests of swap areas: which files are accepted as areas, which area gets a page, and how areas
//! are removed.
#![cfg(not(pagefold_loom))]

mod support;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use io::{Access, Backend, BackingFile, Identity, IoError, Posix};
use pagefold_swap::{
    AddError, AreaOptions, HeaderError, NotBack, NotExchanged, Owner, Owners, Placement, PlacementReason, Position,
    RemoveError, SlotId, Source, Swap, SwapOutError,
};
use support::*;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::{Arc, SharedBytes};
use test_disks::SimulatedDisk;

const OVERWRITE: AreaOptions = AreaOptions { priority: 0, placement: None, overwrite: true, encrypted: false };

fn add(swap: &Swap, disk: &SimulatedDisk, path: &str, options: AreaOptions) -> Result<u32, AddError> {
    swap.add(&Source::Path(path.into()), disk, options)
}

fn memory(swap: &Swap, pages: u64, priority: i32) -> u32 {
    let source = Source::Memory { bytes: pages * PAGE as u64 };
    swap.add(&source, &SimulatedDisk::default(), AreaOptions { priority, ..OVERWRITE }).unwrap()
}

#[test]
fn what_isnt_an_area_is_left_alone() {
    let disk = SimulatedDisk::default();
    let swap = Swap::new(PAGE);
    disk.add_bytes("/diary", vec![7; 10 * PAGE]);
    let refused = add(&swap, &disk, "/diary", AreaOptions::default()).unwrap_err();
    assert!(matches!(refused, AddError::BadHeader { error: HeaderError::NotSwap, .. }), "{refused}");
    assert!(refused.to_string().contains("/diary") && refused.to_string().contains("overwrite"));
    let into = blank();
    let file = disk.open("/diary".as_ref(), io::Access::Read).unwrap();
    io::read_full(&*file, 0, sync::SharedBytes::new(&into)).unwrap();
    assert!(into.iter().all(|word| word.load(sync::atomic::Ordering::Relaxed) == 0x0707_0707_0707_0707));

    let number = add(&swap, &disk, "/diary", OVERWRITE).unwrap();
    assert!(matches!(add(&swap, &disk, "/diary", OVERWRITE), Err(AddError::InUse { .. })));
    let nobody = Pages { swap: &swap, slots: Mutex::default(), room: 0.into(), version: 0 };
    swap.remove(number, &nobody).unwrap();
    add(&swap, &disk, "/diary", AreaOptions::default()).expect("it is one now");
    swap.remove(0, &nobody).unwrap();

    let other_size = Swap::new(2 * PAGE);
    let refused = add(&other_size, &disk, "/diary", AreaOptions::default()).unwrap_err();
    assert!(matches!(refused, AddError::OtherPageSize { found: 4096, page_size: 8192, .. }), "{refused}");
    disk.truncate("/diary", 9 * PAGE as u64).unwrap();
    let refused = add(&swap, &disk, "/diary", AreaOptions::default()).unwrap_err();
    assert!(matches!(refused, AddError::Truncated { wanted: 40_960, .. }), "{refused}");
    assert_eq!(swap.areas(), []);
}

#[test]
fn areas_without_room_for_a_page_are_refused() {
    let disk = SimulatedDisk::default();
    let swap = Swap::new(PAGE);
    for bytes in [0, 1, PAGE, 2 * PAGE - 1] {
        disk.add_bytes("/small", vec![0; bytes]);
        let refused = add(&swap, &disk, "/small", OVERWRITE).unwrap_err();
        assert!(matches!(refused, AddError::TooSmall { min: 8192, .. }), "{refused}");
    }
    let missing = add(&swap, &disk, "/missing", OVERWRITE).unwrap_err();
    assert!(matches!(missing, AddError::OpenFailed { error: io::IoError::NOT_FOUND, .. }), "{missing}");
    disk.add_generated("/huge", 1, u64::MAX / 2);
    let refused = add(&swap, &disk, "/huge", OVERWRITE).unwrap_err();
    assert!(matches!(refused, AddError::TooLarge { .. }), "{refused}");
    let refused = swap.add(&Source::Memory { bytes: u64::MAX }, &disk, OVERWRITE).unwrap_err();
    assert!(matches!(refused, AddError::NoMemory { .. }), "{refused}");
}

#[test]
fn a_file_of_the_machine_has_no_name_and_is_its_owners() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let swap = Swap::new(PAGE);
    let source = Source::Unlinked { at: directory.path().into(), bytes: 64 * PAGE as u64 };
    let number = swap.add(&source, &Posix::default(), OVERWRITE).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "it has a name");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let ours = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path.starts_with(directory.path())));
    let modes: Vec<u32> = ours.map(|fd| std::fs::metadata(fd.path()).unwrap().mode() & 0o777).collect();
    assert!(!modes.is_empty() && modes.iter().all(|&mode| mode == 0o600), "{modes:?}");

    let all: Vec<u64> = (0..63).collect();
    let slots: Vec<_> = out(&swap, &all, 1).into_iter().map(Result::unwrap).collect();
    assert_eq!(out(&swap, &[99], 1), [Err(SwapOutError::Full)]);
    all.iter().zip(&slots).for_each(|(&page, &slot)| check_in(&swap, slot, page, 1));
    let held = all.iter().map(|&page| owner(page)).zip(slots).collect();
    let pages = Pages { swap: &swap, slots: Mutex::new(held), room: 63.into(), version: 1 };
    swap.remove(number, &pages).unwrap();
}

#[test]
fn higher_priorities_first_and_equal_ones_in_turn() {
    let swap = Swap::new(PAGE);
    let [low, high, other_high] =
        [(203, -1), (102, 5), (102, 5)].map(|(pages, priority)| memory(&swap, pages, priority));
    let mut used = HashMap::new();
    let mut batches = Vec::new();
    for batch in 0..40 {
        let numbers: Vec<u64> = (batch * 10..batch * 10 + 10).collect();
        let slots = out(&swap, &numbers, 0);
        if batch < 20 {
            assert!(slots.iter().flatten().all(|slot| slot.area() != low), "batch {batch}: {slots:?}");
            batches.push(slots[0].unwrap().area());
        }
        slots.into_iter().flatten().for_each(|slot| *used.entry(slot.area()).or_insert(0) += 1);
    }
    // Of each area, the header takes one slot. The area `low` reserves three more slots, the others
    // one each.
    assert_eq!(used, HashMap::from([(low, 199), (high, 100), (other_high, 100)]));
    // Each CPU has its own round robin. So if this thread moves to another CPU, it may use the same
    // area twice in a row. That happens seldom.
    let turns = batches.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= 10, "{batches:?}");
}

#[test]
fn removal_brings_pages_back_or_says_what_is_missing() {
    let swap = Swap::new(PAGE);
    let number = memory(&swap, 2000, 0);
    let numbers: Vec<u64> = (0..1500).collect();
    let slots = out(&swap, &numbers, 4).into_iter().map(Result::unwrap);
    let slots: HashMap<_, _> = numbers.iter().map(|&number| owner(number)).zip(slots).collect();
    // Some are in memory as well.
    numbers.iter().filter(|&number| number % 10 == 0).for_each(|&number| {
        swap.set_cached(slots[&owner(number)], number as u32).unwrap();
    });
    let mut pages = Pages { swap: &swap, slots: Mutex::new(slots), room: 1000.into(), version: 4 };
    let missing = swap.remove(number, &pages);
    let left = pages.slots.lock().len();
    assert_eq!(missing, Err(RemoveError::NoMemory { area: number, missing_bytes: (left * PAGE) as u64 }));
    assert_eq!(swap.areas()[0].number, number);
    // It is in use as before.
    let slot = out(&swap, &[5000], 4)[0].unwrap();
    pages.slots.lock().insert(owner(5000), slot);
    pages.room = u64::MAX.into();
    swap.remove(number, &pages).unwrap();
    assert!(pages.slots.lock().is_empty());
    assert_eq!((swap.areas(), swap.lookup(slot)), (vec![], Err(pagefold_swap::StaleSlot(slot))));
    assert_eq!(swap.remove(number, &pages), Err(RemoveError::Unknown { area: number }));
    assert_eq!(swap.remove(4711, &pages), Err(RemoveError::Unknown { area: 4711 }));
    assert_eq!(out(&swap, &[1], 0), [Err(SwapOutError::Full)]);
}

/// The owner of pages, whose backend panics when the first page is brought back.
struct Panicking<'a> {
    pages: Pages<'a>,
    has_panicked: AtomicBool,
}

impl Owners for Panicking<'_> {
    fn bring_back(&self, owner: Owner, slot: SlotId) -> Result<(), NotBack> {
        assert!(self.has_panicked.swap(true, Ordering::Relaxed), "on purpose");
        self.pages.bring_back(owner, slot)
    }

    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        self.pages.move_slot(owner, slot, moved);
    }

    fn give_up_slot(&self, frame: u32, slot: SlotId) {
        self.pages.give_up_slot(frame, slot);
    }
}

/// Regression: a backend panicked while an area was being removed. The area got no more pages, and
/// couldn't be removed: each later removal reported that the area was in use.
#[test]
fn an_area_whose_removal_panics_is_in_use_as_before() {
    let swap = Swap::new(PAGE);
    let number = memory(&swap, 100, 0);
    let slots = Mutex::new(HashMap::from([(owner(1), out(&swap, &[1], 0)[0].unwrap())]));
    let pages = Pages { swap: &swap, slots, room: u64::MAX.into(), version: 0 };
    let pages = Panicking { pages, has_panicked: AtomicBool::new(false) };
    assert!(catch_unwind(AssertUnwindSafe(|| swap.remove(number, &pages))).is_err());
    let slot = out(&swap, &[2], 0)[0].expect("the area gets pages");
    pages.pages.slots.lock().insert(owner(2), slot);
    swap.remove(number, &pages).unwrap();
    assert_eq!(swap.areas(), []);
}

/// Regression: while swap was full, every fault that found no free slot searched all slots of all
/// areas for outdated slots that pages had kept: 25 million slots in 100 GiB. A search should look
/// at a bounded number of slots, and begin where the last search ended.
#[test]
fn a_search_for_kept_slots_is_bounded_and_goes_on() {
    let swap = Swap::new(PAGE);
    for pages in [1000, 300] {
        memory(&swap, pages, 0);
    }
    let numbers: Vec<u64> = (0..1200).collect();
    let slots: Vec<SlotId> = out(&swap, &numbers, 0).into_iter().map(Result::unwrap).collect();
    slots.iter().zip(&numbers).for_each(|(&slot, &number)| swap.set_cached(slot, number as u32).unwrap());
    let (mut position, mut visited) = (Position::default(), Vec::new());
    for search in 0..13 {
        let before = visited.len();
        swap.look_for_cached(&mut position, 100, |slot, frame| {
            assert_eq!(slots[frame as usize], slot);
            visited.push(frame);
            ControlFlow::Continue(())
        });
        assert!(visited.len() - before <= 100, "search {search}");
    }
    visited.sort_unstable();
    assert_eq!(visited, (0..1200).collect::<Vec<u32>>(), "each of them once in a round of 1,300 slots");
    let mut times = 0;
    swap.look_for_cached(&mut position, u32::MAX, |_, _| {
        times += 1;
        ControlFlow::Break(())
    });
    assert_eq!(times, 1);
    // A search also ends if there is no area.
    let without = Swap::new(PAGE);
    without.look_for_cached(&mut position, u32::MAX, |_, _| panic!("no area"));
}

#[test]
fn there_are_as_many_areas_as_numbers() {
    let swap = Swap::new(PAGE);
    (0..32).for_each(|expected| assert_eq!(memory(&swap, 4, 0), expected));
    let refused = swap.add(&Source::Memory { bytes: 1 << 20 }, &SimulatedDisk::default(), OVERWRITE);
    assert!(matches!(refused, Err(AddError::TooMany { max: 32 })));
    let nobody = Pages { swap: &swap, slots: Mutex::default(), room: 0.into(), version: 0 };
    swap.remove(17, &nobody).unwrap();
    assert_eq!(memory(&swap, 4, 0), 17);
}

#[test]
fn placement_is_said_or_found_out() {
    let swap = Swap::new(PAGE);
    let options = AreaOptions { placement: Some(Placement::Sequential), ..OVERWRITE };
    swap.add(&Source::Memory { bytes: 1 << 20 }, &SimulatedDisk::default(), options).unwrap();
    memory(&swap, 4, 0);
    // No block device has the number of a simulated disk.
    let disk = SimulatedDisk::default();
    disk.add_bytes("swap", vec![0; 1 << 20]);
    swap.add(&Source::Path("swap".into()), &disk, OVERWRITE).unwrap();
    let placements: Vec<_> = swap.areas().into_iter().map(|area| (area.placement, area.placement_reason)).collect();
    let expected = [
        (Placement::Sequential, PlacementReason::Requested),
        (Placement::PerCpu, PlacementReason::Memory),
        (Placement::PerCpu, PlacementReason::UnknownDisk),
    ];
    assert_eq!(placements, expected);
}

/// A disk whose writes can be made to wait.
#[derive(Clone, Default)]
struct Stalling {
    disk: SimulatedDisk,
    needs_stable_bytes: bool,
    /// Whether the disk reads by copying. An area doesn't treat such a disk as a device, so the
    /// disk never counts as stalled.
    reads_by_copy: bool,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    is_closed: bool,
    /// The number of writes that wait.
    waiting: usize,
}

struct StallingFile {
    file: Box<dyn BackingFile>,
    of: Stalling,
}

impl Stalling {
    fn stall(&self, stalled: bool) {
        self.gate.0.lock().is_closed = stalled;
        self.gate.1.notify_all();
    }

    /// Waits until this many writes wait.
    fn await_writes(&self, writes: usize) {
        let start = Instant::now();
        while self.gate.0.lock().waiting < writes {
            assert!(start.elapsed() < WATCHDOG, "the writes don't reach the device");
            thread::yield_now();
        }
    }
}

impl Backend for Stalling {
    fn name(&self) -> &'static str {
        "stalling"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(StallingFile { file: self.disk.open(path, access)?, of: self.clone() }))
    }
}

impl BackingFile for StallingFile {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn needs_stable_bytes(&self) -> bool {
        self.of.needs_stable_bytes
    }

    fn reads_by_copy(&self) -> bool {
        self.of.reads_by_copy
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let mut gate = self.of.gate.0.lock();
        gate.waiting += 1;
        while gate.is_closed {
            self.of.gate.1.wait(&mut gate);
        }
        gate.waiting -= 1;
        drop(gate);
        self.file.write(offset, from, len)
    }
}

/// Waits for a thread and returns its result. Fails if the thread takes too long.
fn join_in_time<T>(thread: JoinHandle<T>) -> T {
    let start = Instant::now();
    while !thread.is_finished() {
        assert!(start.elapsed() < WATCHDOG, "it waits for a device that doesn't answer");
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

/// Waits until area 0 is stalled.
fn await_stall(swap: &Swap) {
    let start = Instant::now();
    while !swap.areas()[0].is_stalled {
        assert!(start.elapsed() < WATCHDOG, "the area whose device doesn't answer isn't found to be stalled");
        thread::yield_now();
    }
}

/// The number of buffers that an area has for copies of pages.
const COPIES: u64 = 4;

/// Regression: a disk with an area stopped answering. One swapping thread after the other wrote to
/// this area and waited for the disk, although another area had room. They should have used the
/// other area.
#[test]
fn pages_go_elsewhere_while_a_device_does_not_answer() {
    let stalling = Stalling::default();
    let swap = Arc::new(with_areas(&stalling.disk, &stalling, &[100 * PAGE as u64]));
    let slower = memory(&swap, 3, -1);
    let out_of = |number: u64| {
        let swap = Arc::clone(&swap);
        thread::spawn(move || out(&swap, &[number], 0)[0])
    };
    stalling.stall(true);
    let stuck = out_of(1);
    await_stall(&swap);
    assert!(!swap.areas()[1].is_stalled);
    for number in 2..4 {
        let slot = join_in_time(out_of(number)).unwrap();
        assert_eq!(slot.area(), slower);
        check_in(&swap, slot, number, 0);
    }
    // The other area is full now, so this thread has to wait for the stalled disk.
    let waits = out_of(4);
    stalling.stall(false);
    for (number, thread) in [(1, stuck), (4, waits)] {
        let slot = join_in_time(thread).unwrap();
        assert_eq!(slot.area(), 0);
        check_in(&swap, slot, number, 0);
    }
    assert!(!swap.areas()[0].is_stalled);
    assert_eq!(out(&swap, &[5], 0)[0].unwrap().area(), 0, "it answers again");
}

/// Regression: a thread waited for a buffer for its copy of a page, but got none, because writes to
/// a device that didn't answer held all buffers. The end of this wait counted as progress of the
/// device. So the area didn't count as stalled any more, and further threads waited for its
/// buffers.
#[test]
fn a_wait_for_a_buffer_is_no_progress_of_a_device_that_does_not_answer() {
    let stalling = Stalling { needs_stable_bytes: true, ..Stalling::default() };
    let swap = Arc::new(with_areas(&stalling.disk, &stalling, &[100 * PAGE as u64]));
    let out_of = |number: u64| {
        let swap = Arc::clone(&swap);
        thread::spawn(move || out(&swap, &[number], 0)[0])
    };
    stalling.stall(true);
    let stuck: Vec<_> = (0..COPIES).map(out_of).collect();
    stalling.await_writes(COPIES as usize);
    await_stall(&swap);
    let other = memory(&swap, 3, -1);
    let in_other = [10, 11].map(|number| join_in_time(out_of(number)).unwrap());
    assert!(in_other.iter().all(|slot| slot.area() == other), "{in_other:?}");
    assert_eq!(join_in_time(out_of(12)), Err(SwapOutError::Full), "one area is full, and the other has no buffer");
    assert!(swap.areas()[0].is_stalled, "its device hasn't answered");
    swap.free(in_other[0]).unwrap();
    assert_eq!(join_in_time(out_of(13)).unwrap().area(), other);
    stalling.stall(false);
    for (number, thread) in (0..).zip(stuck) {
        let slot = join_in_time(thread).unwrap();
        assert_eq!(slot.area(), 0);
        check_in(&swap, slot, number, 0);
    }
    assert!(!swap.areas()[0].is_stalled);
}

/// Regression: an exchange tried one page after another, and waited for a buffer of the same area
/// for each of them. It should wait once, and not try that area again.
#[test]
fn an_exchange_does_not_try_an_area_again_in_which_it_waited_for_a_buffer() {
    let stalling = Stalling { needs_stable_bytes: true, ..Stalling::default() };
    let swap = Arc::new(with_areas(&stalling.disk, &stalling, &[100 * PAGE as u64]));
    let in_slot = out(&swap, &[100], 0)[0].unwrap();
    stalling.stall(true);
    let out_of = |number: u64| {
        let swap = Arc::clone(&swap);
        thread::spawn(move || out(&swap, &[number], 0)[0])
    };
    let stuck: Vec<_> = (0..COPIES).map(out_of).collect();
    stalling.await_writes(COPIES as usize);
    let bytes = contents(101, 0);
    let mut in_vain = 0;
    let mut exchange = || swap.swap_out_for(in_slot, &page(&bytes, 101), &mut in_vain);
    let full = Err(NotExchanged { error: SwapOutError::Full, another_may_fit: false });
    assert_eq!(exchange(), full, "no buffer became free");
    stalling.stall(false);
    stuck.into_iter().for_each(|thread| assert_eq!(join_in_time(thread).unwrap().area(), 0));
    assert_eq!(exchange(), full, "the only area isn't tried again");
    assert_eq!(in_vain, 1);
    assert!(swap.swap_out_for(in_slot, &page(&bytes, 101), &mut 0).is_ok());
}

/// Regression: an area had no free buffer for a run of slots. The thread that was swapping out
/// waited for one, and then waited again for each further run of its pages, although another area
/// had room for all of them. It should wait once, and then use the other area.
///
/// Here no two free slots of the area are adjacent, so each page is a run of its own. As soon as
/// the first page is refused, the buffers become free. A thread that tried the area for its further
/// pages would write them there.
#[test]
fn one_wait_for_a_buffer_is_enough_for_all_pages_of_a_call() {
    /// More pages than an allocation of slots returns at once.
    const PAGES: u64 = 80;
    let kinds = [(false, COPIES), (true, 1)];
    for (encrypted, buffers) in kinds.into_iter().take(1 + usize::from(cfg!(feature = "encryption"))) {
        let stalling = Stalling { needs_stable_bytes: true, reads_by_copy: true, ..Stalling::default() };
        stalling.disk.add_bytes("/swap", vec![0; 400 * PAGE]);
        let swap = Arc::new(Swap::new(PAGE));
        let options = AreaOptions { encrypted, ..OVERWRITE };
        swap.add(&Source::Path("/swap".into()), &stalling, options).unwrap();
        let other = memory(&swap, 2 * PAGES, -1);
        let room = swap.areas()[0].slots;
        let mut slots: Vec<SlotId> =
            out(&swap, &(0..room).collect::<Vec<_>>(), 0).into_iter().map(Result::unwrap).collect();
        slots.sort_unstable_by_key(|slot| slot.number());
        slots.iter().step_by(2).for_each(|&slot| swap.free(slot).unwrap());
        swap.drain();
        let out_of = |numbers: Vec<u64>| {
            let swap = Arc::clone(&swap);
            thread::spawn(move || out(&swap, &numbers, 0))
        };

        stalling.stall(true);
        let stuck: Vec<_> = (0..buffers).map(|number| out_of(vec![1000 + number])).collect();
        stalling.await_writes(buffers as usize);
        let used = || swap.areas()[0].used;
        let before = used();
        let waits = out_of((2000..2000 + PAGES).collect());
        // First the thread has slots for its pages, and then it frees the first one.
        let mut most = before;
        while used() >= most && !waits.is_finished() {
            most = most.max(used());
        }
        stalling.stall(false);
        let areas: Vec<u32> = join_in_time(waits).into_iter().map(|slot| slot.unwrap().area()).collect();
        assert!(areas.iter().all(|&area| area == other), "encrypted: {encrypted}, {areas:?}");
        stuck.into_iter().for_each(|thread| assert_eq!(join_in_time(thread)[0].unwrap().area(), 0));
    }
}
