//! Checks the file at the end of a run that writes: the file is closed, read once more without
//! Pagefold, and compared with the last writes of the threads.
//!
//! Each thread knows its own last write to every byte. If several threads wrote a byte, the file
//! must hold the byte of one of these last writes. A last write doesn't count if it returned before
//! another thread's last write began, because the later write must have replaced it. If two writes
//! overlapped in time, either may have come last, and this may differ from page to page, because
//! only a write to a single page is atomic.

use std::fs::File;
use std::ops::Range;

use anyhow::{Context, anyhow};
use pagefold::io::{Access, Backend, BackingFile, read_full};
use sync::SharedBytes;
use sync::atomic::AtomicU64;
use test_disks::SimulatedDisk;

use crate::checker::{Before, read_up_to};
use crate::content::first_difference;
use crate::failure::Failure;
use crate::signals;
use crate::stamp::{CELL, Stamps};
use crate::subject::Subject;
use crate::write_log::{Write, WriteLog};

/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;

/// How the file is read.
pub(crate) enum Source {
    /// By `pread`.
    System(File),
    /// Memory without a file, which only Pagefold can read.
    Memory(Subject),
    /// From a simulated disk.
    Simulated { file: Box<dyn BackingFile>, chunk: Vec<AtomicU64> },
}

impl Source {
    /// Opens a file of a simulated disk after a simulated power cut.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn after_power_cut(disk: &SimulatedDisk, path: &std::path::Path, seed: u64) -> anyhow::Result<Self> {
        disk.power_cut(seed);
        let file = disk.open(path, Access::Read).context("can't open the file after a power cut")?;
        Ok(Self::Simulated { file, chunk: (0..CHUNK / 8).map(|_| AtomicU64::new(0)).collect() })
    }

    fn len(&self) -> anyhow::Result<u64> {
        match self {
            Self::System(file) => Ok(std::io::Seek::seek(&mut &*file, std::io::SeekFrom::End(0))?),
            Self::Memory(memory) => Ok(memory.len()),
            Self::Simulated { file, .. } => Ok(file.len()?),
        }
    }

    /// Returns the number of bytes read.
    fn read(&self, offset: u64, into: &mut [u8]) -> anyhow::Result<usize> {
        match self {
            Self::System(file) => Ok(read_up_to(file, offset, into)?),
            Self::Memory(memory) => Ok(memory.read_at(into, offset)?),
            Self::Simulated { file, chunk } => {
                let bytes = SharedBytes::new(chunk);
                let got = read_full(&**file, offset, bytes)?.min(into.len());
                bytes.copy_to(0, &mut into[..got]);
                Ok(got)
            }
        }
    }
}

/// The expected contents of the file.
pub(crate) struct Expected<'a> {
    /// The bytes that no write covered. `None` if they aren't known; then they aren't compared.
    pub(crate) before: Option<Before>,
    pub(crate) stamps: Stamps,
    pub(crate) logs: &'a [WriteLog],
    /// The file's length.
    pub(crate) len: u64,
    /// Bytes in a page.
    pub(crate) page_bytes: u64,
}

impl Expected<'_> {
    /// Compares the file with the expectation, and returns the number of bytes compared. `progress`
    /// gets the number of bytes processed so far.
    ///
    /// # Errors
    /// The first byte that is wrong; a file that is shorter, or can't be read; Ctrl-C.
    pub(crate) fn compare(&self, source: &Source, mut progress: impl FnMut(u64)) -> Result<u64, Failure> {
        let len = source.len().context("can't tell the length of the file")?;
        if len < self.len || (self.before.is_some() && len > self.len) {
            return Err(anyhow!("it has {len} bytes, and should have {}", self.len).into());
        }
        let (mut found, mut expected) = (vec![0; CHUNK as usize], vec![0; CHUNK as usize]);
        let (mut at, mut compared) = (0, 0);
        while at < self.len {
            signals::check()?;
            let chunk = at..self.len.min(at + CHUNK);
            at = chunk.end;
            progress(at);
            let pieces = self.pieces(chunk.clone());
            if self.before.is_none() && pieces.is_empty() {
                continue;
            }
            let found = &mut found[..(chunk.end - chunk.start) as usize];
            let got = source.read(chunk.start, found).with_context(|| format!("can't read it at {}", chunk.start))?;
            if got < found.len() {
                return Err(
                    anyhow!("it ends at {}, and should have {} bytes", chunk.start + got as u64, self.len).into()
                );
            }
            for range in cut(chunk.clone(), &pieces, self.page_bytes) {
                let found = &found[(range.start - chunk.start) as usize..(range.end - chunk.start) as usize];
                compared += self.compare_piece(range, found, &mut expected[..found.len()])?;
            }
        }
        Ok(compared)
    }

    fn pieces(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.logs.iter().flat_map(|log| log.within(range.clone())).map(|(piece, _)| piece).collect()
    }

    /// Compares a range that each thread's last writes cover either entirely or not at all. Returns
    /// the number of bytes compared.
    fn compare_piece(&self, range: Range<u64>, found: &[u8], expected: &mut [u8]) -> Result<u64, anyhow::Error> {
        let last = self.last_writes(&range);
        if last.is_empty() {
            let Some(before) = &self.before else { return Ok(0) };
            before.fill(range.start, expected)?;
            if let Some(wrong) = first_difference(range.start, expected, found) {
                let held = self.describe(wrong.offset, range.start, found);
                return Err(anyhow!("byte {} holds {held}, but nobody wrote there", wrong.offset));
            }
            return Ok(range.end - range.start);
        }
        let mut wrong = range.start;
        for write in &last {
            self.stamps.fill(write.stamp, range.start, expected);
            match first_difference(range.start, expected, found) {
                None => return Ok(range.end - range.start),
                Some(mismatch) => wrong = wrong.max(mismatch.offset),
            }
        }
        let wanted: Vec<_> = last.iter().map(|write| write.stamp.to_string()).collect();
        let held = self.describe(wrong, range.start, found);
        Err(anyhow!("byte {wrong} holds {held}, instead of {}", wanted.join(", or ")))
    }

    /// Returns the writes to a range that may have been the last one (see the module).
    fn last_writes(&self, range: &Range<u64>) -> Vec<Write> {
        let mut last: Vec<_> =
            self.logs.iter().filter_map(|log| log.within(range.clone()).next()).map(|(_, last)| last).collect();
        let began_last = last.iter().map(|write| write.stamp.version).max().unwrap_or(0);
        last.retain(|write| write.done_ns >= began_last);
        last
    }

    /// Describes the cell around `at` in `found`, whose first byte is at `start`.
    fn describe(&self, at: u64, start: u64, found: &[u8]) -> String {
        let cell = (at / CELL * CELL).max(start);
        let bytes = &found[(cell - start) as usize..];
        let bytes = &bytes[..bytes.len().min(CELL as usize)];
        match self.stamps.decode(cell / CELL, bytes).filter(|_| cell.is_multiple_of(CELL)) {
            Some(stamp) => stamp.to_string(),
            None => format!("{:#04x}", found[(at - start) as usize]),
        }
    }
}

/// Cuts a range at the bounds of pieces and of pages.
fn cut(range: Range<u64>, pieces: &[Range<u64>], page_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut ends: Vec<u64> = pieces.iter().flat_map(|piece| [piece.start, piece.end]).collect();
    ends.extend([range.start, range.end]);
    let pages = range.start / page_bytes + 1..range.end.div_ceil(page_bytes);
    ends.extend(pages.map(|page| page * page_bytes));
    ends.sort_unstable();
    ends.dedup();
    let starts = ends.clone();
    starts.into_iter().zip(ends.into_iter().skip(1)).map(|(start, end)| start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::stamp::Stamp;
    use std::os::unix::fs::FileExt;

    const LEN: u64 = 10_000;

    fn write(thread: u16, began: u64, done_ns: u64) -> Write {
        Write { stamp: Stamp { version: began, thread, group: 0 }, done_ns }
    }

    /// Compares a file that holds these writes, in this order, with the logs of the threads. The
    /// logs have only the writes for which `logged` is true.
    fn compare(writes: &[(Range<u64>, Write, bool)]) -> Result<u64, String> {
        let (stamps, content) = (Stamps::new(5), Content::new(1));
        let mut bytes = vec![0; LEN as usize];
        content.fill(0, &mut bytes);
        let mut logs = vec![WriteLog::default(), WriteLog::default()];
        for (range, write, logged) in writes {
            stamps.fill(write.stamp, range.start, &mut bytes[range.start as usize..range.end as usize]);
            if *logged {
                logs[usize::from(write.stamp.thread)].record(range.clone(), *write);
            }
        }
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let before = Some(Before::Made { content, len: LEN });
        let expected = Expected { before, stamps, logs: &logs, len: LEN, page_bytes: 4096 };
        expected.compare(&Source::System(file), |_| {}).map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_byte_is_that_of_the_last_write() {
        let all =
            [(0..5000, write(0, 10, 20), true), (100..133, write(1, 30, 40), true), (7..9, write(0, 50, 60), true)];
        assert_eq!(compare(&all), Ok(LEN));
    }

    #[test]
    fn one_of_two_writes_at_the_same_time_came_last() {
        let (a, b) = (write(0, 10, 30), write(1, 20, 40));
        assert_eq!(compare(&[(0..4096, a, true), (0..4096, b, true)]), Ok(LEN));
        assert_eq!(compare(&[(0..4096, b, true), (0..4096, a, true)]), Ok(LEN));
        // `a` came last in the first page, `b` in the second.
        assert_eq!(compare(&[(0..8192, b, true), (0..8192, a, true), (4096..8192, b, false)]), Ok(LEN));
        let error = compare(&[(0..4096, write(1, 40, 50), true), (0..4096, a, true)]).unwrap_err();
        assert!(
            error.starts_with("byte 0 holds what thread 1 wrote") && error.contains("instead of what thread 2"),
            "{error}"
        );
    }

    #[test]
    fn what_nobody_wrote_is_as_before() {
        let error = compare(&[(0..4096, write(0, 1, 2), true), (4090..4100, write(0, 1, 2), false)]).unwrap_err();
        assert!(error.starts_with("byte 4096 holds 0x") && error.ends_with("but nobody wrote there"), "{error}");
    }

    #[test]
    fn the_length_counts() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10).unwrap();
        let expected = Expected { before: None, stamps: Stamps::new(5), logs: &[], len: 11, page_bytes: 4096 };
        let error = expected.compare(&Source::System(file), |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "it has 10 bytes, and should have 11");
    }
}
