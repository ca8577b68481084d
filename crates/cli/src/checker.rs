//! Checks whether the bytes that a thread read are the bytes that it should read.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use sync::Arc;

use crate::content::{Content, Mismatch, first_difference};
use crate::stamp::{CELL, MixedCells, Stamp, Stamps};
use crate::write_log::WriteLog;

/// Bytes that are compared at a time.
const BLOCK: u64 = 4096;

/// Why bytes that were read are wrong.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// A byte of a file that isn't written to.
    Byte(Mismatch),
    /// Neither the bytes before the run nor bytes that a thread wrote to this place.
    Foreign { offset: u64, found: Vec<u8> },
    /// Older bytes than the reading thread itself had written.
    Stale { offset: u64, found: Option<Stamp>, written: Stamp },
    /// The bytes to compare with can't be read.
    Unknown(io::Error),
}

/// The contents of the file before the run.
#[derive(Clone, Debug)]
pub(crate) enum Before {
    /// Content that this command created, up to a length, and zeros beyond.
    Made { content: Content, len: u64 },
    /// The bytes are read from the file through the kernel. Where the run has already written bytes
    /// back, the kernel returns the new bytes instead of those from before the run.
    Kernel(Arc<std::fs::File>),
}

impl Before {
    /// Fills `into` with the file's earlier bytes from `offset` on.
    pub(crate) fn fill(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let there = match self {
            Self::Made { content, len } => {
                let there = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(into.len());
                content.fill(offset, &mut into[..there]);
                there
            }
            Self::Kernel(file) => read_up_to(file, offset, into)?,
        };
        into[there..].fill(0);
        Ok(())
    }
}

/// Reads like `read_exact_at`, but stops without an error at the end of the file. Returns the
/// number of bytes read.
pub(crate) fn read_up_to(file: &std::fs::File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The data that one thread compares with.
#[derive(Debug)]
pub(crate) struct Checker {
    before: Before,
    /// In a run that writes.
    written: Option<Written>,
    expected: Vec<u8>,
}

/// The state of a thread's checks in a run that writes.
#[derive(Debug)]
struct Written {
    stamps: Stamps,
    thread: u16,
    mixed: Arc<MixedCells>,
    /// False with `Before::Kernel`: the bytes that the kernel returns may have been written during
    /// the run.
    before_is_sure: bool,
}

/// The contents of a range that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Before,
    Stamp(Stamp),
    /// A part of a cell, from which nothing follows.
    Unclear,
}

impl Checker {
    /// Creates a checker for a file that isn't written to.
    pub(crate) fn new(before: Before) -> Self {
        Self { before, written: None, expected: Vec::new() }
    }

    /// Creates a checker for thread number `thread` of a run that writes.
    pub(crate) fn with_writes(before: Before, stamps: Stamps, thread: u16, mixed: Arc<MixedCells>) -> Self {
        let before_is_sure = matches!(before, Before::Made { .. });
        Self { before, written: Some(Written { stamps, thread, mixed, before_is_sure }), expected: Vec::new() }
    }

    /// Checks `read`, the bytes that a thread has read from `offset` on. `log` has the same
    /// thread's writes.
    pub(crate) fn check(&mut self, offset: u64, read: &[u8], log: &WriteLog) -> Result<(), Wrong> {
        if let (Before::Made { content, .. }, None) = (&self.before, &self.written) {
            return content.check(offset, read).map_or(Ok(()), |mismatch| Err(Wrong::Byte(mismatch)));
        }
        if self.expected.len() < read.len() {
            self.expected.resize(read.len(), 0);
        }
        let expected = &mut self.expected[..read.len()];
        self.before.fill(offset, expected).map_err(Wrong::Unknown)?;
        let Some(written) = &self.written else {
            return first_difference(offset, expected, read).map_or(Ok(()), |mismatch| Err(Wrong::Byte(mismatch)));
        };
        let end = offset + read.len() as u64;
        let bytes = |range: Range<u64>| (range.start - offset) as usize..(range.end - offset) as usize;
        let mut at = offset;
        while at < end {
            let block = at..end.min((at / BLOCK + 1) * BLOCK);
            let (read, before) = (&read[bytes(block.clone())], &expected[bytes(block.clone())]);
            let (found, len) = written.look(at, read, before);
            let range = at..at + len;
            match found {
                Some(found) => written.check_age(range, found, log)?,
                None => written.check_foreign(&self.before, range, &read[..len as usize])?,
            }
            at += len;
        }
        Ok(())
    }
}

impl Written {
    /// Classifies the bytes at the start of `read`, which is a block or the rest of a block.
    /// Returns their class, and how many bytes have this class. The classes are:
    ///
    /// - `Before`: the bytes from before the run;
    /// - `Stamp`: a stamp of this run;
    /// - `Unclear`: `read` has only a part of the first cell (`CELL` bytes);
    /// - `None`: `read` has the whole first cell, but the cell is neither from before the run nor a
    ///   stamp.
    fn look(&self, at: u64, read: &[u8], before: &[u8]) -> (Option<Found>, u64) {
        let cell_len = (CELL - at % CELL).min(read.len() as u64);
        if cell_len < CELL {
            return (Some(Found::Unclear), cell_len);
        }
        let len = read.len() / CELL as usize * CELL as usize;
        let (read, before) = (&read[..len], &before[..len]);
        if self.before_is_sure && read == before {
            return (Some(Found::Before), len as u64);
        }
        let (cell, cell_before) = (&read[..CELL as usize], &before[..CELL as usize]);
        let Some(stamp) = self.stamps.decode(at / CELL, cell) else {
            return ((cell == cell_before).then_some(Found::Before), CELL);
        };
        // Usually one stamp covers the whole block.
        let mut same = [0; BLOCK as usize];
        let same = &mut same[..len];
        self.stamps.fill(stamp, at, same);
        let equal = if same == read { len } else { read.iter().zip(same).take_while(|(a, b)| **a == **b).count() };
        (Some(Found::Stamp(stamp)), equal as u64 / CELL * CELL)
    }

    /// Checks a cell that equals neither the bytes from before the run nor a stamp. A mixed cell
    /// (`MixedCells`) is always accepted.
    ///
    /// With `Before::Kernel`, the bytes to compare with were read from the file at the time of the
    /// check. By then, write-back may have replaced the bytes from before the run. So this function
    /// reads the file again. It accepts the cell if the file now holds the cell's bytes. It also
    /// accepts the cell if the file now holds a stamp: then the bytes from before the run are gone,
    /// and the cell can't be compared with them.
    fn check_foreign(&self, before: &Before, cell: Range<u64>, read: &[u8]) -> Result<(), Wrong> {
        let number = cell.start / CELL;
        if self.mixed.contains(number) {
            return Ok(());
        }
        if let Before::Kernel(_) = before {
            let mut now = vec![0; read.len()];
            before.fill(cell.start, &mut now).map_err(Wrong::Unknown)?;
            if now == read || self.stamps.decode(number, &now).is_some() {
                return Ok(());
            }
        }
        Err(Wrong::Foreign { offset: cell.start, found: read.to_vec() })
    }

    /// Checks C2: the bytes aren't older than the thread's own last write.
    fn check_age(&self, range: Range<u64>, found: Found, log: &WriteLog) -> Result<(), Wrong> {
        let (stamp, stale_if) = match found {
            Found::Unclear => return Ok(()),
            Found::Stamp(stamp) if stamp.thread != self.thread => return Ok(()),
            Found::Stamp(stamp) => (Some(stamp), Some(stamp.version)),
            Found::Before => (None, None),
        };
        for (piece, last) in log.within(range).filter(|(_, last)| Some(last.stamp.version) != stale_if) {
            let cells = piece.start / CELL..piece.end.div_ceil(CELL);
            let unmixed = cells.into_iter().find(|&number| !self.mixed.contains(number));
            if let Some(number) = unmixed {
                let offset = (number * CELL).max(piece.start);
                return Err(Wrong::Stale { offset, found: stamp, written: last.stamp });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_log::Write;

    const LEN: usize = 64 << 10;

    /// A file in memory, and thread 0, whose log has its writes.
    struct Model {
        file: Vec<u8>,
        log: WriteLog,
        stamps: Stamps,
        mixed: Arc<MixedCells>,
        checker: Checker,
        version: u64,
    }

    impl Model {
        fn new() -> Self {
            let (content, stamps, mixed) = (Content::new(9), Stamps::new(4), Arc::new(MixedCells::default()));
            let mut file = vec![0; LEN];
            content.fill(0, &mut file);
            let before = Before::Made { content, len: LEN as u64 };
            let checker = Checker::with_writes(before, stamps, 0, Arc::clone(&mixed));
            Self { file, log: WriteLog::default(), stamps, mixed, checker, version: 0 }
        }

        fn write(&mut self, thread: u16, offset: usize, len: usize) {
            self.version += 1;
            let stamp = Stamp { version: self.version, thread, group: 0 };
            self.mixed.note(offset as u64, (offset + len) as u64);
            self.stamps.fill(stamp, offset as u64, &mut self.file[offset..offset + len]);
            if thread == 0 {
                self.log.record(offset as u64..(offset + len) as u64, Write { stamp, done_ns: self.version });
            }
        }

        fn check(&mut self, offset: usize, len: usize) -> Result<(), Wrong> {
            self.checker.check(offset as u64, &self.file[offset..offset + len], &self.log)
        }
    }

    #[test]
    fn any_mix_of_sizes_is_right() {
        let mut model = Model::new();
        let mut random = sync::random::Random::seeded(1);
        let mut place = |aligned: u64| {
            let offset = random.below(LEN as u64) / aligned * aligned;
            let len_max = 1 << random.below(14);
            let len = (random.below(len_max) / aligned * aligned).min(LEN as u64 - offset);
            (offset as usize, len as usize, random.below(2) as u16)
        };
        for turn in 0..3_000 {
            let (offset, len, thread) = place([1, 16, 512, 4096][turn % 4]);
            model.write(thread, offset, len);
            let (offset, len, _) = place([1, 16, 512, 4096][turn / 4 % 4]);
            model.check(offset, len).unwrap();
        }
        model.check(0, LEN).unwrap();
    }

    #[test]
    fn what_belongs_elsewhere_is_noticed() {
        let mut model = Model::new();
        model.write(1, 4096, 8192);
        model.file.copy_within(4096..8192, 8192);
        assert!(matches!(model.check(0, LEN), Err(Wrong::Foreign { offset: 8192, .. })));
        let mut model = Model::new();
        model.file[5000] ^= 1;
        assert!(matches!(model.check(0, LEN), Err(Wrong::Foreign { offset: 4992, .. })));
        let mut model = Model::new();
        model.write(1, 0, 4096);
        model.file[512..1024].fill(0);
        assert!(matches!(model.check(0, LEN), Err(Wrong::Foreign { offset: 512, .. })));
    }

    #[test]
    fn what_is_older_than_the_own_write_is_noticed() {
        let mut model = Model::new();
        model.write(1, 0, 4096);
        let others = model.file[..4096].to_vec();
        model.write(0, 0, 4096);
        let first = model.file[..4096].to_vec();
        model.write(0, 1024, 512);
        model.check(0, LEN).unwrap();
        model.file[..4096].copy_from_slice(&first);
        assert!(matches!(model.check(0, LEN), Err(Wrong::Stale { offset: 1024, found: Some(_), .. })));
        Content::new(9).fill(0, &mut model.file[..4096]);
        assert!(matches!(model.check(0, LEN), Err(Wrong::Stale { offset: 0, found: None, .. })));
        // Another thread's write may have come later.
        model.file[..4096].copy_from_slice(&others);
        model.check(0, LEN).unwrap();
    }
}
