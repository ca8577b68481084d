//! Swap areas that begin with any bytes. If Pagefold accepts such an area, pages that are swapped
//! out to it must come back unchanged.

use pagefold::{Pagefold, Protection, SwapArea};
use test_disks::SimulatedDisk;

/// Bytes of a header before its checksum.
const CHECKED: usize = 32;
const PAGE: u64 = 4096;

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
    let disk = SimulatedDisk::default();
    disk.add_bytes("/swap", file);
    let area = SwapArea::path("/swap").overwrite(how & 1 != 0);
    let fold = Pagefold::builder().memory(1_u64 << 20).backend(disk).build().expect("a budget that is large enough");
    let Ok(number) = fold.add_swap(area) else { return };
    let group = fold.group("a").max(64_u64 << 10).build().expect("a new name");
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
    drop(space);
    fold.remove_swap(number).expect("nothing is in it any more");
}
