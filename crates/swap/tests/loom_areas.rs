//! Models in which an area is removed, or added, while a thread swaps a page out to it.
//!
//! ```text
//!   swapping out                          removing
//!   CPU's copy: reader
//!   allocate: the slot is *taken*
//!   reader lets go                        each copy's order: waits for the reader
//!   write, note the slot
//!                                         each slot in use: its owner gives it up, or brings its page back;
//!                                         one that is still on its way is looked at again
//! ```
//! To allocate a slot, a thread must find the area in its copy's order, and hold that copy's lock.
//! Removal takes the area out of all orders before it looks at the slots. So every slot that is
//! ever allocated is allocated before that, and removal finds it.
//! ```text
//!   adding                                swapping out (CPU 0)               freeing (CPU 1)
//!   each copy's table
//!   CPU 0's order
//!                                         allocate, write, note the slot
//!                                                                            finds the area in its own table
//!   CPU 1's order
//! ```
#![cfg(pagefold_loom)]

use pagefold_swap::{AreaOptions, Need, NotBack, Note, Owner, Owners, PageOut, SlotId, Source, Swap, SwapOutError};
use sync::atomic::AtomicU64;
use sync::lock::Mutex;
use sync::{Arc, SharedBytes};
use test_disks::SimulatedDisk;

const PAGE: usize = 64;

/// A page, and where it is. The lock of `place` does the work of the page word.
struct Page {
    swap: Swap,
    place: Mutex<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Memory,
    Both(SlotId),
    Slot(SlotId),
}

/// The page's owner.
struct Holder(Arc<Page>);

impl Owners for Holder {
    fn bring_back(&self, _: Owner, slot: SlotId) -> Result<(), NotBack> {
        self.0.give(slot, Place::Slot(slot));
        Ok(())
    }

    fn move_slot(&self, _: Owner, _: SlotId, _: &mut dyn FnMut() -> Option<SlotId>) {}

    fn give_up_slot(&self, _: u32, slot: SlotId) {
        self.0.give(slot, Place::Both(slot));
    }
}

impl Page {
    fn give(&self, slot: SlotId, from: Place) {
        let mut place = self.place.lock();
        if *place == from {
            self.swap.free(slot).expect("the page's");
            *place = Place::Memory;
        }
    }

    fn swap_out(&self) -> Result<(), SwapOutError> {
        let bytes: Vec<_> = (0..PAGE / 8).map(|_| AtomicU64::new(7)).collect();
        let owner = Owner::new(1).unwrap();
        let page = PageOut { bytes: SharedBytes::new(&bytes), frame: 0, owner, group: 0 };
        let mut outcome = Ok(());
        self.swap.swap_out(&[page], Need::Usual, |_, result| match result {
            Ok(slot) => *self.place.lock() = Place::Both(slot),
            Err(error) => outcome = Err(error),
        });
        let mut place = self.place.lock();
        if let Place::Both(slot) = *place {
            self.swap.set_swapped(slot, owner, Note::default()).expect("the page's");
            *place = Place::Slot(slot);
        }
        outcome
    }
}

#[test]
fn removal_and_allocation() {
    sync::model(|| {
        let page = Arc::new(Page { swap: Swap::new(PAGE), place: Mutex::new(Place::Memory) });
        let source = Source::Memory { bytes: 2 * PAGE as u64 };
        let number = page.swap.add(&source, &SimulatedDisk::default(), AreaOptions::default()).unwrap();
        let theirs = Arc::clone(&page);
        let other = sync::thread::spawn("model", move || _ = theirs.swap_out()).unwrap();
        let removed = page.swap.remove(number, &Holder(Arc::clone(&page)));
        other.join().unwrap();
        assert!(removed.is_ok(), "{removed:?}");
        assert_eq!(*page.place.lock(), Place::Memory);
        assert_eq!(page.swap_out(), Err(SwapOutError::Full));
    });
}

#[test]
fn addition_and_use() {
    sync::model(|| {
        let page = Arc::new(Page { swap: Swap::new(PAGE), place: Mutex::new(Place::Memory) });
        let theirs = Arc::clone(&page);
        let other = sync::thread::spawn("model", move || _ = theirs.swap_out()).unwrap();
        let theirs = Arc::clone(&page);
        let freeing = sync::thread::spawn("model", move || {
            let _ = sync::cpu::current(); // A thread gets a CPU number when it first asks for it.
            let place = *theirs.place.lock();
            if let Place::Slot(slot) = place {
                theirs.give(slot, place);
            }
        })
        .unwrap();
        let source = Source::Memory { bytes: 2 * PAGE as u64 };
        page.swap.add(&source, &SimulatedDisk::default(), AreaOptions::default()).unwrap();
        other.join().unwrap();
        freeing.join().unwrap();
    });
}
