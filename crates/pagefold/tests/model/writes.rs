//! What writes, and what is promised of it.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use pagefold::{Error, File};

use crate::pins::{CHANGES, GROWTHS, WRITES};
use crate::refusals::is_refusal;
use crate::support::{assert_same, bytes_on};
use crate::world::{FILE_PAGES, Open, World};

/// Bytes that come to the disk together.
pub(crate) const SECTOR: usize = 512;

/// The contents of each sector of a file, over time, as hashes. Zeros at a sector's end are
/// ignored, because the file may have ended there.
#[derive(Default)]
pub(crate) struct Earlier(HashMap<usize, Vec<u64>>);

impl Earlier {
    /// The sectors of `range`, as far as `bytes` go.
    pub(crate) fn note(&mut self, bytes: &[u8], range: Range<usize>) {
        let sectors = bytes.chunks(SECTOR).enumerate().take(range.end.div_ceil(SECTOR)).skip(range.start / SECTOR);
        for (at, sector) in sectors.filter(|_| !range.is_empty()) {
            self.0.entry(at).or_default().push(hash(sector));
        }
    }

    /// Returns whether the sector had the content `sector` at some time since it had the content
    /// `before`, that time included. `before` is its content on the disk. A page's writes are made
    /// one after another, so content older than `before` can't reappear.
    pub(crate) fn knows(&self, at: usize, sector: &[u8], before: &[u8]) -> bool {
        let were = self.0.get(&at).map_or(&[][..], Vec::as_slice);
        let since = were.iter().position(|&was| was == hash(before)).unwrap_or(0);
        were[since..].contains(&hash(sector))
    }
}

fn hash(sector: &[u8]) -> u64 {
    let end = sector.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    BuildHasherDefault::<DefaultHasher>::default().hash_one(&sector[..end])
}

impl World {
    pub(crate) fn write(&mut self) {
        let Some((number, file)) = self.pick(true) else { return };
        let beyond = if self.random.one_in(20) { self.random.below(30 * 4096) } else { 0 };
        let offset = (self.offset(number) + beyond).min(2 * FILE_PAGES * 4096);
        let len = self.size() as usize;
        let meets_pin = self.write_meets_pin(number, offset..offset + len as u64);
        if meets_pin && !self.random.one_in(WRITES) {
            return;
        }
        let new = self.new_bytes(offset, len);
        self.seen.writes += 1;
        self.seen.growths += u64::from(offset as usize + len > self.bytes(number).len());
        match self.ask(file.group(), 1, || file.write_at(&new, offset)) {
            Ok(()) => {
                assert!(!meets_pin, "a pinned page was written");
                self.put(number, &new, offset as usize);
            }
            Err(error) => {
                match error {
                    Error::PageBusy { .. } if meets_pin => self.seen.writes_refused += 1,
                    error => self.tolerate(&error),
                }
                self.seen.writes_failed += 1;
                // They might leave no room for reading.
                self.drop_pins();
                self.in_peace(|world| world.find_out_what_was_written(number, &file, &new, offset as usize));
            }
        }
        assert_eq!(file.len(), self.bytes(number).len() as u64);
    }

    /// A write failed. Finds out how many of its pages were written: they must be the first ones.
    fn find_out_what_was_written(&mut self, number: usize, file: &File, new: &[u8], offset: usize) {
        let before = self.bytes(number).clone();
        let first_page_end = (offset / 4096 + 1) * 4096 - offset;
        let possible = std::iter::once(0).chain((first_page_end..new.len()).step_by(4096));
        // A failed write may have made the file longer. This call makes Pagefold notice that: it
        // waits for the page with the old end, which write-back may hold.
        match file.page_at(((1 << 30) / 4096) * 4096) {
            Err(Error::PastEnd { .. }) => {}
            other => panic!("a page far past the end: {other:?}"),
        }
        let found = read_all(file);
        let gap_end = offset + first_page_end.min(new.len());
        if offset > before.len() && found.len() == gap_end && found[before.len()..].iter().all(|&byte| byte == 0) {
            self.change(number, before.len()..gap_end, |bytes| bytes.resize(gap_end, 0));
            assert_same(&found, self.bytes(number), "a write that failed");
            return;
        }
        for written in possible {
            let mut after = before.clone();
            if written > 0 {
                put(&mut after, &new[..written], offset);
            }
            if after == found {
                self.seen.writes_in_part += u64::from(written > 0);
                self.change(number, offset..offset + written, |bytes| *bytes = after);
                return;
            }
        }
        panic!(
            "f{number} after a write of {} bytes at {offset} that failed is neither as before nor written",
            new.len()
        );
    }

    pub(crate) fn change_page(&mut self) {
        let Some((number, file)) = self.pick(true) else { return };
        let page = self.offset(number) / 4096;
        let len = self.bytes(number).len();
        let start = page as usize * 4096;
        let meets_pin = self.is_pinned(number, page..page + 1);
        if meets_pin {
            assert!(file.try_page_mut_at(page * 4096).is_none(), "page {page} is pinned");
            if !self.random.one_in(CHANGES) {
                return;
            }
        }
        // The page and its copy.
        match self.ask(file.group(), 2, || file.page_mut_at(page * 4096)) {
            Ok(mut guard) => {
                assert!(!meets_pin, "page {page} is changed and pinned");
                let end = len.min(start + 4096);
                assert_same(&guard, &self.bytes(number)[start..end], &format!("f{number}, page {page} to be changed"));
                let from = self.random.below(guard.len() as u64) as usize;
                let new = self.new_bytes(start as u64, guard.len() - from);
                guard[from..].copy_from_slice(&new);
                drop(guard);
                self.put(number, &new, start + from);
                self.seen.pages_changed += 1;
            }
            Err(Error::PastEnd { .. }) => assert!(start >= len),
            Err(Error::PageBusy { .. }) if meets_pin => self.seen.changes_refused += 1,
            Err(error) => self.tolerate(&error),
        }
    }

    pub(crate) fn set_len(&mut self) {
        let Some((number, file)) = self.pick(true) else { return };
        let before = self.bytes(number).len();
        let len = match self.random.below(4) {
            0 => self.random.below(FILE_PAGES * 4096),
            1 => self.random.below(FILE_PAGES) * 4096,
            _ => (before as u64 + self.random.below(20_000)).saturating_sub(self.random.below(20_000)),
        };
        let meets_pin = self.length_meets_pin(number, len);
        // If the page is pinned, making the file longer waits for it, and cutting the file off
        // fails at once.
        if meets_pin && len >= before as u64 && !self.random.one_in(GROWTHS) {
            return;
        }
        match file.set_len(len) {
            Err(Error::PageBusy { .. }) if meets_pin => self.seen.lengths_refused += 1,
            other if meets_pin => panic!("from {before} to {len} bytes beside a pin: {other:?}"),
            Ok(()) => {
                self.change(number, len as usize..before, |bytes| bytes.resize(len as usize, 0));
                self.seen.cuts += u64::from((len as usize) < before);
            }
            Err(error) => {
                assert!(!is_refusal(&error), "{error}");
                self.tolerate(&error);
                self.seen.lengths_failed += 1;
                if let Error::ReadFailed { .. } = error {
                    // The file is longer now. Pagefold notices this as if another process had done
                    // it.
                    assert!(len > before as u64, "{error}");
                    let read = self.in_peace(|_| file.read_at(&mut [0], before as u64));
                    assert_eq!(read.expect("without faults"), 1);
                    self.change(number, before..before, |bytes| bytes.resize(len as usize, 0));
                }
            }
        }
        assert_eq!(file.len(), self.bytes(number).len() as u64);
    }

    /// Cutting a file off before or within a pinned page must fail.
    pub(crate) fn cut_pinned(&mut self, number: usize, page: usize) {
        let writer = self.open.iter().find(|open| open.number == number && open.writable);
        let file = writer.expect("the caller looked").file.clone();
        let len = self.bytes(number).len();
        let end = len.min((page + 1) * 4096) as u64;
        let cut = self.random.below(end);
        match file.set_len(cut) {
            Err(Error::PageBusy { .. }) => self.seen.cuts_refused += 1,
            other => panic!("cut off at {cut} with page {page} pinned: {other:?}"),
        }
        assert_eq!(file.len(), len as u64, "nothing is changed");
    }

    pub(crate) fn sync(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        if self.sync_open(at) {
            self.seen.syncs += 1;
            let (number, stats) = (self.open[at].number, self.open[at].file.stats());
            assert_eq!(stats.unclean_bytes, 0, "f{number} is synced");
            self.is_on_disk(number);
        } else {
            self.seen.syncs_failed += 1;
        }
    }

    /// Syncs through a handle. Each failure must be reported once.
    pub(crate) fn sync_open(&mut self, at: usize) -> bool {
        self.told_as_it_should(at, File::sync)
    }

    pub(crate) fn sync_range(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let number = self.open[at].number;
        let start = self.offset(number);
        let range = start..start + self.size();
        if self.told_as_it_should(at, |file| file.sync_range(range.clone())) {
            self.seen.ranges_synced += 1;
            self.range_is_on_disk(number, range);
        }
    }

    pub(crate) fn range_is_on_disk(&mut self, number: usize, range: Range<u64>) {
        let mut disk = bytes_on(&self.disk, format!("f{number}"));
        let bytes = self.bytes(number);
        disk.resize(disk.len().max(bytes.len()), 0); // Zeros at the end may be missing.
        let found = (range.start as usize).min(bytes.len())..(range.end as usize).min(bytes.len());
        let what = format!("f{number} from {} on, written", range.start);
        assert_same(&disk[found.clone()], &bytes[found], &what);
    }

    pub(crate) fn told_as_it_should(&mut self, at: usize, sync: impl FnOnce(&File) -> Result<(), Error>) -> bool {
        let Open { file, told, .. } = &mut self.open[at];
        let before = file.stats().write_errors;
        let result = sync(file);
        let after = file.stats().write_errors;
        let (surely, perhaps) = *told;
        *told = (before.max(surely), after);
        match result {
            Ok(()) => {
                assert!(before <= perhaps, "a failure that the handle wasn't told of");
                true
            }
            Err(error) => {
                assert!(after > surely, "told twice: {error}");
                let Error::WriteFailed { error, .. } = error else { panic!("{error}") };
                self.was_made(error);
                self.seen.failures_heard_later += u64::from(before > perhaps);
                false
            }
        }
    }

    fn put(&mut self, number: usize, new: &[u8], offset: usize) {
        self.change(number, offset..offset + new.len(), |bytes| put(bytes, new, offset));
    }

    pub(crate) fn is_on_disk(&mut self, number: usize) {
        self.earlier[number] = Earlier::default();
        let disk = bytes_on(&self.disk, format!("f{number}"));
        assert_same(&disk, self.bytes(number), &format!("f{number} on disk"));
    }
}

fn put(bytes: &mut Vec<u8>, new: &[u8], offset: usize) {
    if new.is_empty() {
        return;
    }
    bytes.resize(bytes.len().max(offset + new.len()), 0);
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("without faults");
    bytes
}
