//! Stamps in the written data: bytes that are read from a file show which thread wrote them, when,
//! and to which place.
//!
//! A file consists of *cells* of 16 bytes, at multiples of 16. Each write has a *stamp*, and writes
//! it to all of its cells. In each cell, the stamp consists of these bytes, little endian:
//!
//! | bytes | contents |
//! |---|---|
//! | 0 to 7 | version: when the write began, in ns since the run's start; a thread never uses a version twice |
//! | 8, 9 | thread |
//! | 10, 11 | group |
//! | 12 to 15 | checksum of bytes 0 to 11, of the cell's place in the file, and of a key that differs from run to run |
//!
//! A write changes only the requested bytes. A write of whole pages fills whole cells. A write of
//! 10 bytes changes only a part of one or two cells, and leaves their other bytes as they were.
//!
//! These are the checks:
//!
//! - C1. A whole cell that was read must hold either its bytes from before the run, or a stamp of
//!   this run for this place. The checksum of a stamp covers its other bytes, the place and the
//!   run, so it is wrong in a torn cell and in a stamp of another place or another run.
//! - C2. A thread reads its own last write, or a stamp of another thread (`WriteLog`).
//! - C3. If a write begins or ends inside a cell, the cell may hold parts of several writes
//!   (`MixedCells`). Reads don't check such a cell. A read that begins or ends inside a cell
//!   doesn't check that cell, either.
//! - C4. At the end, each byte that was written must come from a last write (`reread`), also in the
//!   cells that aren't checked because of C3.
//!
//! The checksum is [`mix`], as in `content`: a few multiplications for each cell.

use std::collections::HashSet;
use std::fmt;

use sync::lock::Mutex;
use sync::random::mix;

/// Bytes in a cell.
pub(crate) const CELL: u64 = 16;

/// Which thread wrote, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) version: u64,
    pub(crate) thread: u16,
    pub(crate) group: u16,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both are counted from 1 where users see them.
        let (thread, group) = (u32::from(self.thread) + 1, u32::from(self.group) + 1);
        write!(f, "what thread {thread} wrote for group {group} at {:.6} s", self.version as f64 / 1e9)
    }
}

/// Makes and recognises the stamps of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    key: u64,
}

impl Stamps {
    /// Creates stamps with a key. Runs with other keys take these stamps for random bytes.
    pub(crate) fn new(key: u64) -> Self {
        Self { key: mix(key) }
    }

    /// The key.
    pub(crate) fn key(self) -> u64 {
        self.key
    }

    /// Returns the part that all cells of a stamp have in common, and the thread and group.
    fn common(self, stamp: Stamp) -> (u64, u32) {
        let writer = u32::from(stamp.thread) | u32::from(stamp.group) << 16;
        (mix(self.key ^ mix(stamp.version ^ mix(u64::from(writer)))), writer)
    }

    /// Fills `into` with the bytes of `stamp` from `offset` on.
    pub(crate) fn fill(self, stamp: Stamp, offset: u64, into: &mut [u8]) {
        let (common, writer) = self.common(stamp);
        let cell = |number| cell_bytes(stamp.version, writer, common, number);
        let (first, skip) = (offset / CELL, (offset % CELL) as usize);
        let head = ((CELL as usize - skip) % CELL as usize).min(into.len());
        let (head, rest) = into.split_at_mut(head);
        head.copy_from_slice(&cell(first)[skip..][..head.len()]);
        let mut number = offset.div_ceil(CELL);
        let (cells, tail) = rest.as_chunks_mut();
        for bytes in cells {
            *bytes = cell(number);
            number += 1;
        }
        tail.copy_from_slice(&cell(number)[..tail.len()]);
    }

    /// Returns the stamp that cell `number` holds, if it is a stamp of this run and for this place.
    pub(crate) fn decode(self, number: u64, bytes: &[u8]) -> Option<Stamp> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (thread, rest) = rest.split_first_chunk()?;
        let (group, _) = rest.split_first_chunk()?;
        let stamp = Stamp {
            version: u64::from_le_bytes(*version),
            thread: u16::from_le_bytes(*thread),
            group: u16::from_le_bytes(*group),
        };
        let (common, writer) = self.common(stamp);
        (cell_bytes(stamp.version, writer, common, number) == *bytes).then_some(stamp)
    }
}

fn cell_bytes(version: u64, writer: u32, common: u64, number: u64) -> [u8; CELL as usize] {
    let checksum = mix(common ^ number) >> 32;
    (u128::from(version) | u128::from(writer) << 64 | u128::from(checksum) << 96).to_le_bytes()
}

/// Cells that hold, or may hold, parts of several writes. A thread records a cell here before it
/// writes a part of it.
#[derive(Debug, Default)]
pub(crate) struct MixedCells(Mutex<HashSet<u64>>);

impl MixedCells {
    /// Records the cells that a write of these bytes covers only partly.
    pub(crate) fn note(&self, offset: u64, end: u64) {
        if !offset.is_multiple_of(CELL) || !end.is_multiple_of(CELL) {
            let ends = [offset, end].into_iter().filter(|at| !at.is_multiple_of(CELL));
            self.0.lock().extend(ends.map(|at| at / CELL));
        }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.lock().contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { version: 0x0123_4567_89ab_cdef, thread: 3, group: 5 };

    #[test]
    fn any_range_agrees_with_the_whole() {
        let stamps = Stamps::new(7);
        let mut whole = vec![0; 4096];
        stamps.fill(STAMP, 0, &mut whole);
        for (offset, len) in
            [(0, 1), (1, 8), (15, 1), (15, 2), (16, 16), (3, 100), (5, 4000), (4095, 1), (8, 0), (0, 4096)]
        {
            let mut part = vec![0; len];
            stamps.fill(STAMP, offset as u64, &mut part);
            assert_eq!(part, whole[offset..offset + len], "{offset} + {len}");
        }
    }

    #[test]
    fn a_cell_tells_its_stamp_at_its_place_and_in_its_run_only() {
        let stamps = Stamps::new(7);
        let mut cell = [0; CELL as usize];
        stamps.fill(STAMP, 160, &mut cell);
        assert_eq!(stamps.decode(10, &cell), Some(STAMP));
        assert_eq!((stamps.decode(11, &cell), Stamps::new(8).decode(10, &cell)), (None, None));
        assert_eq!(stamps.decode(10, &cell[..15]), None);
        for bit in 0..CELL * 8 {
            let mut wrong = cell;
            wrong[bit as usize / 8] ^= 1 << (bit % 8);
            assert_eq!(stamps.decode(10, &wrong), None, "bit {bit}");
        }
    }

    #[test]
    fn only_cells_that_are_written_in_part_are_mixed() {
        let mixed = MixedCells::default();
        mixed.note(0, 4096);
        mixed.note(17, 48);
        mixed.note(160, 165);
        assert_eq!((0..300).filter(|&number| mixed.contains(number)).collect::<Vec<_>>(), [1, 10]);
    }
}
