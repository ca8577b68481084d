use super::*;
use crate::{AreaOptions, Note, Owner, PageOut, Source, Swap, SwapInError, SwapOutError};
use io::SimulatedDisk;
use sync::random::{Random, mix};

const PAGE: usize = 4096;
type Bytes = Vec<AtomicU64>;

#[derive(Debug)]
struct Plenty;

impl Memory for Plenty {
    fn try_charge(&self, _: u64) -> bool {
        true
    }

    fn uncharge(&self, _: u64) {}
}

/// A page of which `random` of 512 words are random, and the others small numbers.
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
        if area.write(slot, SharedBytes::new(&bytes)) {
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
    let empty = CompressedInfo { original_bytes: 0, compressed_bytes: 0, memory_bytes: 0, ..info };
    assert_eq!(area.info(), empty);
}

#[test]
fn places_survive_packing() {
    for chunk in [0, 1, u32::MAX] {
        for block in [0, 511, (1 << BLOCK_BITS) - 1] {
            for len in [1, 3 << 19, (1 << LEN_BITS) - 1] {
                let place = Place { chunk, block, len };
                assert_eq!(unpack(pack(place)), Some(place));
            }
        }
    }
    assert_eq!(unpack(0), None);
}

/// Whatever rots: `SwapCorrupt`, or the page, and never a panic.
#[test]
fn no_flipped_bit_of_compressed_bytes_goes_unnoticed() {
    let swap = Swap::new(PAGE);
    let source = Source::Compressed { limit: 1 << 20, reserve: 0, memory: Arc::new(Plenty) };
    swap.add(&source, &SimulatedDisk::default(), AreaOptions::default()).unwrap();
    let bytes = page(9, 100);
    let owner = Owner::new(7).unwrap();
    let mut slot = Err(SwapOutError::Full);
    let out = PageOut { bytes: SharedBytes::new(&bytes), frame: 1, owner, group: 2 };
    swap.swap_out(&[out], |_, result| slot = result);
    let slot = slot.unwrap();
    swap.set_swapped(slot, owner, Note::new(2, 0)).unwrap();
    let into = page(0, 0);
    let len = swap.areas()[0].compressed.as_ref().unwrap().compressed_bytes as usize;
    assert!((800..2_000).contains(&len), "{len} bytes");
    let rot = |bit| swap.with_area(slot, |area| area.compressed().unwrap().rot(slot.number(), bit));
    let mut random = Random::seeded(1);
    for bit in (0..200).chain((0..2_000).map(|_| random.below(len as u64 * 8) as usize)) {
        rot(bit);
        let read = swap.swap_in(slot, owner, SharedBytes::new(&into));
        // A bit may be one that nothing depends on; then it is the page in spite of it.
        assert!(read == Err(SwapInError::SwapCorrupt { page: owner }) || same(&into, &bytes), "bit {bit}: {read:?}");
        rot(bit);
        assert_eq!(swap.swap_in(slot, owner, SharedBytes::new(&into)), Ok(()));
        assert!(same(&into, &bytes));
    }
}
