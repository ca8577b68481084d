//! Code that the tests share: pages whose bytes depend on the page's number and version, and an
//! owner of such pages.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it, and nobody else any")]

use std::collections::HashMap;
use std::time::Duration;

use pagefold_swap::{
    AreaOptions, Need, NotBack, Note, Owner, Owners, PageOut, SlotId, SlotState, Source, Swap, SwapOutError,
};
use sync::SharedBytes;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::random::mix;
use test_disks::SimulatedDisk;

pub const PAGE: usize = 4096;

/// How long a test waits for an event before it fails. Much longer than the event takes on the
/// busiest machine.
pub const WATCHDOG: Duration = Duration::from_secs(120);

pub type Bytes = Vec<AtomicU64>;

pub fn owner(number: u64) -> Owner {
    Owner::new(number).expect("35 bits")
}

/// Returns the contents of an owner's page in a version. The contents of any two pages, or of two
/// versions of a page, differ in every word.
pub fn contents(owner: u64, version: u64) -> Bytes {
    (0..PAGE as u64 / 8).map(|word| AtomicU64::new(mix(mix(owner << 20 | version) ^ word))).collect()
}

pub fn blank() -> Bytes {
    (0..PAGE / 8).map(|_| AtomicU64::new(0xdb)).collect()
}

pub fn same(a: &Bytes, b: &Bytes) -> bool {
    a.iter().zip(b).all(|(a, b)| a.load(Ordering::Relaxed) == b.load(Ordering::Relaxed))
}

pub fn group(owner: u64) -> u32 {
    owner as u32 % 3
}

pub fn page(bytes: &Bytes, number: u64) -> PageOut<'_> {
    PageOut { bytes: SharedBytes::new(bytes), frame: number as u32, owner: owner(number), group: group(number) }
}

/// Areas in files of `bytes` bytes on a simulated disk.
pub fn with_areas(disk: &SimulatedDisk, backend: &dyn io::Backend, bytes: &[u64]) -> Swap {
    let swap = Swap::new(PAGE);
    for (at, &bytes) in bytes.iter().enumerate() {
        let path = format!("/swap{at}");
        disk.add_bytes(&path, vec![0; bytes as usize]);
        let options = AreaOptions { overwrite: true, ..AreaOptions::default() };
        swap.add(&Source::Path(path.into()), backend, options).expect("an area");
    }
    swap
}

/// Writes the pages `numbers`, in version `version`, to slots, and records those that were written
/// as swapped. Returns the result for each page.
pub fn out(swap: &Swap, numbers: &[u64], version: u64) -> Vec<Result<SlotId, SwapOutError>> {
    let bytes: Vec<Bytes> = numbers.iter().map(|&number| contents(number, version)).collect();
    let pages: Vec<PageOut<'_>> = bytes.iter().zip(numbers).map(|(bytes, &number)| page(bytes, number)).collect();
    let mut results = vec![Err(SwapOutError::Full); pages.len()];
    swap.swap_out(&pages, Need::Usual, |at, result| results[at] = result);
    for (&number, slot) in numbers.iter().zip(&results) {
        if let Ok(slot) = *slot {
            assert_eq!(swap.lookup(slot), Ok(SlotState::Cached { frame: number as u32 }));
            swap.set_swapped(slot, owner(number), Note::new(group(number), version)).expect("it is ours");
        }
    }
    results
}

/// Reads a page back, and checks that it has the contents of this version.
pub fn check_in(swap: &Swap, slot: SlotId, number: u64, version: u64) {
    let into = blank();
    swap.swap_in(slot, owner(number), SharedBytes::new(&into)).expect("it is there");
    assert!(same(&into, &contents(number, version)), "page {number} has other bytes");
}

/// The owner of all pages. `slots` has the pages that are in slots. There is room in memory for
/// `room` more pages.
pub struct Pages<'a> {
    pub swap: &'a Swap,
    pub slots: Mutex<HashMap<Owner, SlotId>>,
    pub room: AtomicU64,
    pub version: u64,
}

impl Owners for Pages<'_> {
    fn bring_back(&self, owner: Owner, slot: SlotId) -> Result<(), NotBack> {
        let mut slots = self.slots.lock();
        assert_eq!(slots.get(&owner), Some(&slot), "the owner of the slot");
        let room = self.room.load(Ordering::Relaxed);
        self.room.store(room.checked_sub(1).ok_or(NotBack::NoMemory)?, Ordering::Relaxed);
        let into = blank();
        self.swap.swap_in(slot, owner, SharedBytes::new(&into)).map_err(|_| NotBack::Failed(None))?;
        assert!(same(&into, &contents(owner.number(), self.version)));
        slots.remove(&owner);
        self.swap.free(slot).expect("it is ours");
        Ok(())
    }

    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        let mut slots = self.slots.lock();
        if slots.get(&owner) == Some(&slot)
            && let Some(new) = moved()
        {
            slots.insert(owner, new);
        }
    }

    fn give_up_slot(&self, frame: u32, slot: SlotId) {
        assert_eq!(self.slots.lock().remove(&owner(u64::from(frame))), Some(slot));
        self.swap.free(slot).expect("it is ours");
    }
}
