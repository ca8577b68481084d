//! Swap areas that begin with any bytes. Pagefold must accept exactly the files whose header
//! describes an area that fits into the file. Pages that are swapped out to such an area must come
//! back unchanged, and nothing may be written behind the area.

use pagefold::{Group, Pagefold, Protection, SwapArea};
use test_disks::SimulatedDisk;

/// Bytes of a header before its checksum.
const CHECKED: usize = 32;
const PAGE: u64 = 4096;
const PATH: &str = "/swap";

/// The first byte, `how`, says whether the area may be overwritten (bit 0), whether the header's
/// checksum is made right (bit 1), and how long the file is (the other bits).
pub(crate) fn run(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let mut file = bytes.to_vec();
    if how & 2 != 0 && file.len() >= CHECKED + 4 {
        let checksum = crc32fast::hash(&file[..CHECKED]);
        file[CHECKED..CHECKED + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    // With bit 2, the file has whole pages: 2 * (how >> 3), so 0 to 62. Otherwise it has only the
    // given bytes, and may end within a page.
    if how & 4 != 0 {
        file.resize(usize::from(how >> 3) * 2 * PAGE as usize, 0);
    }
    let overwrites = how & 1 != 0;
    let slots = if overwrites { Some(file.len() as u64 / PAGE).filter(|&slots| slots > 1) } else { slots_of(&file) };
    let disk = SimulatedDisk::default();
    disk.add_bytes(PATH, file.clone());
    let fold = Pagefold::builder().memory(1_u64 << 20).backend(disk).build().expect("a budget that is large enough");
    let group = fold.group("a").max(64_u64 << 10).build().expect("a new name");
    let added = fold.add_swap(SwapArea::path(PATH).overwrite(overwrites));
    assert_eq!(added.is_ok(), slots.is_some(), "{added:?}, and the slots of the header are {slots:?}");
    let (Ok(number), Some(slots)) = (added, slots) else {
        assert!(contents(&group) == file, "the file was refused, and changed");
        return;
    };
    let room = fold.stats().swap[0].bytes;
    assert!((PAGE..slots * PAGE).contains(&room), "room for {room} bytes in {slots} slots, one of them the header's");
    swap_out_and_in(&group);
    fold.remove_swap(number).expect("nothing is in it any more");
    let after = contents(&group);
    assert_eq!((after.len(), slots_of(&after)), (file.len(), Some(slots)), "the area has another size");
    let end = (slots * PAGE) as usize;
    assert!(after[end..] == file[end..], "something was written behind the area");
}

/// The number of slots, the header's included, if these bytes begin with a valid header of an area
/// that fits into them.
fn slots_of(file: &[u8]) -> Option<u64> {
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| file[at + byte]));
    let is_valid = file.len() >= CHECKED + 4
        && file.starts_with(b"PGFDSWAP")
        && (u32_at(8), u64::from(u32_at(12))) == (1, PAGE)
        && u32_at(CHECKED) == crc32fast::hash(&file[..CHECKED]);
    let slots = || u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
    is_valid.then(slots).filter(|slots| (2..=file.len() as u64 / PAGE).contains(slots))
}

fn contents(group: &Group) -> Vec<u8> {
    let file = group.open(PATH).expect("no area uses it");
    let mut bytes = vec![0; file.len() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).expect("the disk fails never"), bytes.len());
    bytes
}

/// Writes to more memory than the group may have, and reads it.
fn swap_out_and_in(group: &Group) {
    let space = group.space().expect("there is room for an empty space");
    let base = space.map(32 * PAGE, Protection::ReadWrite).expect("there is room for a few pages").start;
    let written =
        (0..32_u64).take_while(|page| space.write_at(&page.to_le_bytes(), base + page * PAGE).is_ok()).count();
    for page in 0..written as u64 {
        let mut word = [0; 8];
        if space.read_at(&mut word, base + page * PAGE).is_ok() {
            assert_eq!(u64::from_le_bytes(word), page, "what comes back from swap isn't what went there");
        }
    }
}
