use std::collections::HashMap;

use sync::random::{Random, mix};
use test_disks::SimulatedDisk;

use super::*;
use crate::{
    AreaOptions, GaveWay, Need, NotBack, Note, Owner, Owners, PageOut, SlotId, Source, Swap, SwapInError, SwapOutError,
};

const PAGE: usize = 4096;
type Bytes = Vec<AtomicU64>;

#[derive(Debug)]
struct Plenty;

impl Memory for Plenty {
    fn try_charge(&self, _: u64) -> bool {
        true
    }

    fn uncharge(&self, _: u64) {}

    fn max(&self) -> u64 {
        u64::MAX
    }
}

/// Returns a page with `random` of 512 words random, and small numbers in the others.
fn page(number: u64, random: u64) -> Bytes {
    let word = |word| if word < random { mix(number << 20 ^ word) } else { number + word / 7 };
    (0..PAGE as u64 / 8).map(|at| AtomicU64::new(word(at))).collect()
}

fn same(a: &Bytes, b: &Bytes) -> bool {
    a.iter().zip(b).all(|(a, b)| a.load(Ordering::Relaxed) == b.load(Ordering::Relaxed))
}

#[test]
fn pages_come_back_and_those_that_dont_shrink_are_refused() {
    let area = Compressed::new(1 << 20, 0, PAGE, Arc::new(Plenty)).unwrap();
    for (slot, random) in (0..).zip((0..=512).step_by(8)) {
        let bytes = page(3, random);
        let into = page(0, 0);
        assert!(!area.read(slot, SharedBytes::new(&into)), "nothing is there");
        if area.write(slot, SharedBytes::new(&bytes), Need::Usual) {
            assert!(random < 400);
            assert!(area.read(slot, SharedBytes::new(&into)) && same(&into, &bytes));
        } else {
            assert!(random > 300, "{random} of 512 words are random");
        }
    }
    let info = area.info();
    assert!(
        info.incompressible > 10 && info.no_room == 0 && info.compressed_bytes * 4 < info.original_bytes * 3,
        "{info:?}"
    );
    (0..=64).for_each(|slot| area.forget(slot));
    area.release_idle();
    let kept = BlockPool::chunk_cost(PAGE);
    let empty = CompressedInfo { original_bytes: 0, compressed_bytes: 0, memory_bytes: kept, lz4_pages: 0, ..info };
    assert_eq!(area.info(), empty);
}

/// Regression: when an area of compressed pages became full for the first time, no page was marked
/// as old yet. The first fault that needed room looked at all of the area's slots, and marked all
/// pages, before it found an old page. The larger the area, the longer that fault waited. One call
/// should look at no more than `LOOKS_MAX` slots.
#[test]
fn one_search_for_old_pages_looks_at_a_bounded_number_of_slots() {
    let area = Compressed::new(128 << 20, 0, PAGE, Arc::new(Plenty)).unwrap();
    assert!(area.places.len() > LOOKS_MAX);
    let bytes = page(3, 0);
    for slot in [1, area.places.len() as u32 - 1] {
        assert!(area.write(slot, SharedBytes::new(&bytes), Need::Usual));
    }
    let searched = || {
        let mut found = Vec::new();
        area.spill(64, true, |slot, _| {
            found.push(slot);
            Ok(Fate::Stays)
        });
        (found, area.clock.lock().next)
    };
    assert_eq!(searched(), (vec![], LOOKS_MAX), "pages that were just met are new");
    let found: Vec<u32> = (0..8).flat_map(|_| searched().0).collect();
    assert!(found.contains(&1) && found.contains(&(area.places.len() as u32 - 1)), "{found:?}");
}

#[test]
fn places_survive_packing() {
    for chunk in [0, 1, (1 << CHUNK_BITS) - 1] {
        for block in [0, 511, (1 << BLOCK_BITS) - 1] {
            for len in [1, 3 << 19, (1 << LEN_BITS) - 1] {
                let place = Place { chunk, block, len };
                assert_eq!(unpack(pack(place)), Some(place));
                assert_eq!(unpack(pack(place) | OLD | TRIED | TIGHT), Some(place));
            }
        }
    }
    assert_eq!(unpack(0), None);
}

/// Returns a page whose first half repeats one word, and whose second half has random bytes of 16
/// values.
fn text(number: u64) -> Bytes {
    let word = |at| if at < 256 { number } else { mix(number << 20 ^ at) & 0x0f0f_0f0f_0f0f_0f0f };
    (0..PAGE as u64 / 8).map(|at| AtomicU64::new(word(at))).collect()
}

#[test]
#[cfg(feature = "zstd")]
fn tightened_pages_take_less_and_come_back() {
    let area = Compressed::new(1 << 20, 0, PAGE, Arc::new(Plenty)).unwrap();
    let pages: Vec<Bytes> =
        (0..100).map(|number| if number % 3 == 0 { page(number, 256) } else { text(number) }).collect();
    for (slot, page) in (0..).zip(&pages) {
        assert!(area.write(slot, SharedBytes::new(page), Need::Usual));
    }
    let before = area.info();
    assert_eq!((before.lz4_pages, before.zstd_pages), (100, 0));
    let tighten = |slot, page| area.tighten(slot, SharedBytes::new(page), &mut area.clock.lock().compressor);
    for (slot, page) in (0..).zip(&pages) {
        assert_eq!(tighten(slot, page), slot % 3 > 0, "random words don't shrink further");
        assert!(!tighten(slot, page), "once is enough");
    }
    let after = area.info();
    assert_eq!((after.lz4_pages, after.zstd_pages, after.original_bytes), (34, 66, before.original_bytes));
    assert!(after.compressed_bytes * 4 < before.compressed_bytes * 3, "{before:?} {after:?}");
    for (slot, page) in (0..).zip(&pages) {
        let into = text(1000);
        assert!(area.read(slot, SharedBytes::new(&into)) && same(&into, page));
    }
    (0..100).for_each(|slot| area.forget(slot));
    area.release_idle();
    let empty = area.info();
    assert_eq!((empty.original_bytes, empty.compressed_bytes, empty.lz4_pages, empty.zstd_pages), (0, 0, 0, 0));
    assert_eq!(empty.memory_bytes, BlockPool::chunk_cost(PAGE), "the one that is kept");
}

/// The owner of pages in slots.
#[derive(Default)]
struct Holder {
    slots: Mutex<HashMap<Owner, SlotId>>,
    /// How many pages were held for spilling.
    asked: AtomicU64,
}

impl Holder {
    fn slot(&self, number: u64) -> SlotId {
        self.slots.lock()[&Owner::new(number).unwrap()]
    }

    /// Swaps a page out. Returns false if there is no room for it.
    fn swap_out(&self, swap: &Swap, number: u64, bytes: &Bytes) -> bool {
        let owner = Owner::new(number).unwrap();
        let out = PageOut { bytes: SharedBytes::new(bytes), frame: 1, owner, group: 2 };
        let mut written = Err(SwapOutError::Full);
        swap.swap_out(&[out], Need::Usual, |_, slot| written = slot);
        written.inspect(|&slot| {
            swap.set_swapped(slot, owner, Note::new(2, number)).unwrap();
            self.slots.lock().insert(owner, slot);
        }) != Err(SwapOutError::Full)
    }

    /// Spills, and returns how many pages were asked for.
    fn spill(&self, swap: &Swap) -> u64 {
        let before = self.asked.load(Ordering::Relaxed);
        swap.spill(self);
        self.asked.load(Ordering::Relaxed) - before
    }
}

impl Owners for Holder {
    fn bring_back(&self, _: Owner, _: SlotId) -> Result<(), NotBack> {
        Err(NotBack::NoMemory)
    }

    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut slots = self.slots.lock();
        if slots.get(&owner) == Some(&slot)
            && let Some(new) = moved()
        {
            slots.insert(owner, new);
        }
    }

    fn give_up_slot(&self, _: u32, _: SlotId) {}
}

fn compressed_swap(limit: u64) -> Swap {
    let swap = Swap::new(PAGE);
    let source = Source::Compressed { limit, reserve: 0, memory: Arc::new(Plenty) };
    let first = AreaOptions { priority: 1, ..AreaOptions::default() };
    assert!(matches!(swap.add(&source, &SimulatedDisk::default(), first), Ok(0)));
    swap
}

fn add_memory(swap: &Swap, pages: u64) {
    let memory = Source::Memory { bytes: pages * PAGE as u64 };
    swap.add(&memory, &SimulatedDisk::default(), AreaOptions::default()).unwrap();
}

fn info(swap: &Swap) -> CompressedInfo {
    swap.areas()[0].compressed.clone().unwrap()
}

/// Regression: an error needed the name of an area, which was looked up in the statistics of all
/// areas. To collect the statistics, a thread locks each chunk of each compressed area: a million
/// chunks in an area of 64 GiB.
#[test]
fn the_name_of_an_area_is_found_without_the_lock_of_a_chunk() {
    let (swap, pages) = (compressed_swap(70_000), Holder::default());
    assert!(pages.swap_out(&swap, 0, &page(0, 100)));
    swap.with_area(pages.slot(0), |area| {
        let _chunk = area.compressed().unwrap().pool.lock_first_chunk();
        assert_eq!(swap.area_name(0).as_deref(), Some("compressed"));
    });
    assert_eq!(swap.area_name(1), None);
}

#[test]
fn when_it_is_full_pages_that_were_there_longest_go_on() {
    let swap = compressed_swap(70_000);
    add_memory(&swap, 400);
    let pages = Holder::default();
    let is_compressed = |number| pages.slot(number).area() == 0;
    for number in 0..300 {
        pages.spill(&swap);
        assert!(pages.swap_out(&swap, number, &page(number, 100)));
    }
    let info = info(&swap);
    assert!(info.spilled > 150 && info.no_room < 30, "{info:?}");
    assert!((0..100).all(|number| !is_compressed(number)), "all of the first ones went on");
    assert!((280..300).filter(|&number| is_compressed(number)).count() >= 18, "the last ones are there");
    for number in 0..300 {
        let (owner, into) = (Owner::new(number).unwrap(), page(0, 0));
        let slot = pages.slot(number);
        let note = swap.swap_in(slot, owner, SharedBytes::new(&into));
        assert_eq!(note, Ok(Note::new(2, number)), "what was remembered goes along");
        assert!(same(&into, &page(number, 100)));
        swap.free(slot).unwrap();
    }
    swap.drain();
    assert!(swap.areas().iter().all(|area| area.used == 0));
}

/// The pages in this test shrink to half of their size with LZ4, and no further with Zstandard.
/// There is no other area. So each page should be recompressed once, in vain. Each call of `spill`
/// should try at most 64 pages, because a fault waits for the call.
#[test]
fn where_pages_cant_go_on_few_are_tried_in_vain_at_a_time() {
    let (swap, pages) = (compressed_swap(1 << 20), Holder::default());
    let held = (0..).find(|&number| !pages.swap_out(&swap, number, &page(number, 256))).unwrap();
    assert!(held > 300, "{held} pages");
    let mut asked = 0;
    for _ in 0..40 {
        let of_one = pages.spill(&swap);
        assert!(of_one <= 64, "{of_one} of {held} pages at once");
        asked += of_one;
        assert!(!pages.swap_out(&swap, held, &page(held, 256)), "there is no room for it");
    }
    assert_eq!((asked, info(&swap).zstd_pages), (held, 0));
}

#[test]
#[cfg(feature = "zstd")]
fn beside_a_full_device_cold_pages_take_less_as_they_do_without_one() {
    let (swap, pages) = (compressed_swap(1 << 20), Holder::default());
    add_memory(&swap, 10);
    // Every fourth page takes no less.
    let contents = |number| if number % 4 == 0 { page(number, 256) } else { text(number) };
    let held = (0..).find(|&number| !pages.swap_out(&swap, number, &contents(number))).unwrap();
    assert!(held > 300 && swap.areas()[1].used == swap.areas()[1].slots, "{held} pages");
    pages.spill(&swap);
    let first = info(&swap);
    assert!(first.zstd_pages > 40 && first.spilled == 0, "{first:?}");
    for number in 0..held {
        let into = page(0, 0);
        let read = swap.swap_in(pages.slot(number), Owner::new(number).unwrap(), SharedBytes::new(&into));
        assert!(read.is_ok() && same(&into, &contents(number)));
    }
}

/// Memory whose maximum may become smaller.
#[derive(Debug)]
struct Shrinking(AtomicU64);

impl Memory for Shrinking {
    fn try_charge(&self, _: u64) -> bool {
        true
    }

    fn uncharge(&self, _: u64) {}

    fn max(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An owner of pages. Each time that it holds a page for a spilling thread, it acts as a second
/// thread, which lowers the budget and wants pages to move.
struct Beside<'a> {
    swap: &'a Swap,
    pages: &'a Holder,
    heard: Mutex<Vec<GaveWay>>,
}

impl Owners for Beside<'_> {
    fn bring_back(&self, owner: Owner, slot: SlotId) -> Result<(), NotBack> {
        self.pages.bring_back(owner, slot)
    }

    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        let gave_way = self.swap.give_way(self.pages);
        self.heard.lock().push(gave_way);
        self.pages.move_slot(owner, slot, moved);
    }

    fn give_up_slot(&self, frame: u32, slot: SlotId) {
        self.pages.give_up_slot(frame, slot);
    }
}

/// Regression: if a thread wanted to move pages out of an area that exceeded its limit, while
/// another thread was spilling, the first thread was told that no page could move.
#[test]
fn a_thread_learns_that_pages_can_move_when_another_one_has_spilled() {
    let memory = Arc::new(Shrinking(AtomicU64::new(16 << 20)));
    let (swap, pages) = (Swap::new(PAGE), Holder::default());
    let source = Source::Compressed { limit: 1 << 20, reserve: 0, memory: Arc::<Shrinking>::clone(&memory) };
    let first = AreaOptions { priority: 1, ..AreaOptions::default() };
    swap.add(&source, &SimulatedDisk::default(), first).unwrap();
    assert!((0..300).all(|number| pages.swap_out(&swap, number, &page(number, 256))));
    let beside = Beside { swap: &swap, pages: &pages, heard: Mutex::default() };
    assert_eq!(swap.give_way(&beside), GaveWay::Nothing, "the area is within its limit");
    memory.0.store(8 << 20, Ordering::Relaxed);
    assert_eq!(swap.give_way(&beside), GaveWay::Nothing, "there is no other area");
    add_memory(&swap, 400);
    while swap.give_way(&beside) == GaveWay::Some {}
    let info = info(&swap);
    assert!(info.spilled > 0 && info.memory_bytes <= info.limit_bytes && info.limit_bytes == 1 << 19, "{info:?}");
    let heard = beside.heard.lock();
    // Busy as long as the area exceeds its limit, and nothing to do from then on.
    assert_eq!(heard.first(), Some(&GaveWay::Busy));
    let mut later = heard.iter().skip_while(|&&gave_way| gave_way == GaveWay::Busy);
    assert!(later.all(|&gave_way| gave_way == GaveWay::Nothing), "{heard:?}");
}

/// Any flipped bit leads to `SwapCorrupt`, or to the right page, and never to a panic.
#[test]
fn no_flipped_bit_of_compressed_bytes_goes_unnoticed() {
    let (swap, pages, bytes) = (compressed_swap(1 << 20), Holder::default(), text(7));
    let (owner, into) = (Owner::new(7).unwrap(), page(0, 0));
    assert!(pages.swap_out(&swap, 7, &bytes));
    let slot = pages.slot(7);
    let in_area = |look: &dyn Fn(&Compressed)| swap.with_area(slot, |area| look(area.compressed().unwrap()));
    let rot = |bit| in_area(&|area| area.rot(slot.number(), bit));
    let tightens = cfg!(feature = "zstd");
    for is_tight in [false, true].into_iter().take(1 + usize::from(tightens)) {
        if is_tight {
            in_area(&|area| {
                assert!(area.tighten(slot.number(), SharedBytes::new(&bytes), &mut area.clock.lock().compressor));
            });
        }
        let CompressedInfo { compressed_bytes: len, zstd_pages, .. } = info(&swap);
        assert!(zstd_pages == u64::from(is_tight) && (800..2_600).contains(&len), "{len} bytes");
        let mut random = Random::seeded(1);
        for bit in (0..200).chain((0..2_000).map(|_| random.below(len * 8) as usize)) {
            rot(bit);
            let read = swap.swap_in(slot, owner, SharedBytes::new(&into));
            // The result may not depend on a flipped bit; then the page is right in spite of it.
            assert!(
                read == Err(SwapInError::SwapCorrupt { page: owner }) || same(&into, &bytes),
                "bit {bit}: {read:?}"
            );
            rot(bit);
            assert!(swap.swap_in(slot, owner, SharedBytes::new(&into)).is_ok());
            assert!(same(&into, &bytes));
        }
    }
}
