//! Writes at random, and cuts the power at a random call to the disk. Then everything that a `sync`
//! made durable must be on the disk. Each word that was written later must have one of the values
//! that it had since the last sync.
//!
//! `PAGEFOLD_SEEDS` is the number of cuts, or a range of their seeds.
#![cfg(not(pagefold_loom))]

mod support;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, IoError};
use pagefold::{Error, File, Group, Protection, Space, WriteRequest};
use support::around::{Around, Wrapped};
use support::{bytes_on, disk, manager, version};
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::random::{Random, seeds};
use sync::{Arc, SharedBytes};
use test_disks::{Call, SimulatedDisk};

const THREADS: u64 = 8;
const FILE_LEN: u64 = 40 * 4096 - 1000;
/// The number of bytes that are copied to and from memory as a unit.
const WORD: usize = 8;
/// The pages of a file that may be mapped.
const MAPPED_PAGES: u64 = 48;
const EIO: IoError = IoError::Os(5);

/// The simulated disk. Its power is cut just before one of its calls, or in the middle of a write,
/// which has then written only some of its pages.
#[derive(Clone)]
struct Doomed {
    disk: SimulatedDisk,
    /// The number of calls so far. Locked until the power is off, if this is the last one.
    calls: Arc<Mutex<u64>>,
    last: u64,
    seed: u64,
    /// The inode of the file whose next sync fails and loses written bytes. The lock is held while
    /// any file is synced.
    loses: Arc<Mutex<Option<u64>>>,
}

impl Doomed {
    fn is_off(&self) -> bool {
        *self.calls.lock() >= self.last
    }

    fn next(&self) {
        let mut calls = self.calls.lock();
        *calls += 1;
        if *calls == self.last {
            self.disk.power_cut(self.seed);
        }
    }
}

impl Around for Doomed {
    fn before(&self, call: Call) -> Result<(), IoError> {
        if matches!(call, Call::Open | Call::Sync | Call::SetLen) {
            self.next();
        }
        // The simulated disk would let a file be opened again.
        if call == Call::Open && self.is_off() { Err(EIO) } else { Ok(()) }
    }

    fn write(
        &self,
        file: &dyn BackingFile,
        offset: u64,
        from: &[SharedBytes<'_>],
        len: usize,
    ) -> Result<usize, IoError> {
        let half = (len / 2).next_multiple_of(4096).min(len);
        let written = file.write(offset, from, half)?;
        self.next();
        if half == len { Ok(written) } else { file.write(offset, from, len) }
    }

    fn sync(&self, file: &dyn BackingFile) -> Result<(), IoError> {
        let mut loses = self.loses.lock();
        if loses.take_if(|inode| *inode == file.identity().inode).is_some() {
            self.disk.fail_syncs(1, self.seed ^ *self.calls.lock());
        }
        let result = file.sync();
        drop(loses);
        self.next();
        result
    }
}

/// A file, and all its contents since it was last synced, including those at that time.
struct Past {
    name: String,
    /// `None` after the last handle was dropped.
    file: Option<File>,
    /// Where the file's first pages are mapped.
    mapped: Option<Range<u64>>,
    /// A sync has failed since the file was mapped, which the next sync through the mapping must
    /// report.
    untold: bool,
    /// The last handle was dropped since the file was synced. What was written before may be lost
    /// by a sync that fails (B7 in `writeback`).
    left: bool,
    versions: Vec<Vec<u8>>,
    /// For each page that was synced after the whole file was: the version in which it was last
    /// synced.
    synced: BTreeMap<u64, usize>,
    inode: u64,
    /// The file existed at the start, or was synced, so a power cut can't remove it.
    there_for_sure: bool,
}

impl Past {
    fn now(&self) -> &Vec<u8> {
        self.versions.last().expect("never empty")
    }

    fn note(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut now = self.now().clone();
        change(&mut now);
        self.versions.push(now);
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("opened before the call")
    }

    /// Makes one random call. Returns false if the power is off, which is the only reason for which
    /// a call may fail.
    fn step(&mut self, doomed: &Doomed, group: &Group, space: &Space, random: &mut Random, number: u64) -> bool {
        match self.call(doomed, group, space, random, number) {
            Ok(()) => true,
            Err(error) => {
                let is_due = matches!(
                    error.cause(),
                    Error::WriteFailed { error: EIO, .. }
                        | Error::ReadFailed { error: EIO, .. }
                        | Error::OpenFailed { .. }
                );
                assert!(is_due && doomed.is_off(), "{}: {error}", self.name);
                false
            }
        }
    }

    fn call(
        &mut self,
        doomed: &Doomed,
        group: &Group,
        space: &Space,
        random: &mut Random,
        number: u64,
    ) -> Result<(), Error> {
        let len = self.now().len() as u64;
        // A call to a mapping doesn't need a handle.
        if let Some(mapped) = self.mapped.clone().filter(|_| random.below(4) == 0) {
            return self.call_mapping(doomed, space, mapped, random, number);
        }
        if self.file.is_none() {
            self.open_again(group)?;
        }
        match random.below(23) {
            0..10 => {
                let offset = random.below(len + 6000).min(2 * FILE_LEN);
                let size = if random.one_in(2) { random.below(300) } else { random.below(20_000) };
                let new = version(number, offset, size as usize);
                self.write(&new, offset, random.one_in(4))
            }
            10..12 => self.change_page(random.below(len / 4096 + 1), number),
            12..14 => {
                let to = (len + random.below(9000)).saturating_sub(random.below(12_000));
                self.file().set_len(to).map(|()| self.note(|bytes| bytes.resize(to as usize, 0)))
            }
            14 => {
                let from = random.below(len + 1);
                let range = from..from + random.below(30_000);
                self.file().sync_range(range.clone()).map(|()| self.were_synced(range))
            }
            15 if !self.left => self.sync_with_loss(doomed),
            16 => self.file().clone().close().map(|()| self.was_synced()),
            15 | 17 => self.file().sync().map(|()| self.was_synced()),
            18 => self.open_again(group),
            // The last handle, unless the file is mapped.
            19 => {
                self.file = None;
                self.left |= self.mapped.is_none();
                Ok(())
            }
            20 => self.file.take().expect("opened").close().map(|()| self.was_synced()),
            21 if self.mapped.is_none() => {
                let mapped = space.map_file(self.file(), 0, MAPPED_PAGES * 4096, Protection::ReadWrite)?;
                (self.mapped, self.untold) = (Some(mapped), false);
                Ok(())
            }
            _ => self.read(random.below(len + 1)),
        }
    }

    /// Makes one random call to the file's mapping.
    fn call_mapping(
        &mut self,
        doomed: &Doomed,
        space: &Space,
        mapped: Range<u64>,
        random: &mut Random,
        number: u64,
    ) -> Result<(), Error> {
        let reach = (self.now().len() as u64).min(MAPPED_PAGES * 4096);
        let offset = random.below(reach + 1);
        let size = random.below(20_000).min(reach - offset);
        match random.below(8) {
            0..4 => {
                let new = version(number, offset, size as usize);
                self.note(|bytes| bytes[offset as usize..][..new.len()].copy_from_slice(&new));
                space.write_at(&new, mapped.start + offset)
            }
            4..6 => {
                // Whole pages of the mapping, perhaps past the end of the file.
                let first = random.below(MAPPED_PAGES);
                let end = first + 1 + random.below(MAPPED_PAGES - first).min(8);
                let pages = mapped.start + first * 4096..mapped.start + end * 4096;
                let mut result = space.sync(pages.clone());
                if std::mem::take(&mut self.untold) && !doomed.is_off() {
                    let is_told = |error: &Error| matches!(error.cause(), Error::WriteFailed { error: EIO, .. });
                    assert!(result.as_ref().is_err_and(is_told), "{}: {result:?}", self.name);
                    result = space.sync(pages);
                }
                result?;
                self.were_synced(first * 4096..end * 4096);
                Ok(())
            }
            6 => {
                let mut bytes = vec![0xa5; size as usize];
                space.read_at(&mut bytes, mapped.start + offset)?;
                assert!(
                    bytes == self.now()[offset as usize..][..bytes.len()],
                    "{}: other bytes at {offset}",
                    self.name
                );
                Ok(())
            }
            _ => {
                self.mapped = None;
                self.left |= self.file.is_none();
                space.unmap(mapped)
            }
        }
    }

    fn was_synced(&mut self) {
        self.left = false;
        self.there_for_sure = true;
        self.versions.drain(..self.versions.len() - 1);
        self.synced.clear();
    }

    /// The pages that the range touches were synced. If there are none, nothing is guaranteed.
    fn were_synced(&mut self, range: Range<u64>) {
        let end = range.end.min(self.now().len() as u64);
        for page in range.start / 4096..end.div_ceil(4096) {
            self.there_for_sure = true;
            self.synced.insert(page, self.versions.len() - 1);
        }
    }

    /// Syncs while the disk loses written bytes. Exactly one sync must report this, and the next
    /// one must write the bytes again. If there was nothing to sync, nothing is lost.
    fn sync_with_loss(&mut self, doomed: &Doomed) -> Result<(), Error> {
        *doomed.loses.lock() = Some(self.inode);
        let mut result = self.file().sync();
        let is_lost = doomed.loses.lock().take().is_none();
        if is_lost && result.is_ok() {
            result = self.file().sync(); // The flusher synced just after the call.
        }
        self.untold |= is_lost;
        if is_lost && !doomed.is_off() {
            assert!(matches!(result, Err(Error::WriteFailed { error: EIO, .. })), "{}: {result:?}", self.name);
            result = self.file().sync();
        }
        result.map(|()| self.was_synced())
    }

    /// Goes on with another handle. If there is no other one, the file may have been closed, and is
    /// then read from the disk.
    fn open_again(&mut self, group: &Group) -> Result<(), Error> {
        let file = group.open_options().write(true).open(&self.name)?;
        assert_eq!(file.len(), self.now().len() as u64, "{}", self.name);
        self.file = Some(file);
        Ok(())
    }

    fn read(&self, offset: u64) -> Result<(), Error> {
        let mut bytes = vec![0; 9000];
        let n = self.file().read_at(&mut bytes, offset)?;
        let there = &self.now()[offset as usize..];
        assert!(bytes[..n] == there[..there.len().min(9000)], "{}: other bytes at {offset}", self.name);
        Ok(())
    }

    fn change_page(&mut self, page: u64, number: u64) -> Result<(), Error> {
        let file = self.file().clone();
        let is_past_end = page * 4096 >= self.now().len() as u64;
        let mut guard = match file.page_mut_at(page * 4096) {
            Err(Error::PastEnd { .. }) if is_past_end => return Ok(()),
            result => result?,
        };
        assert!(!is_past_end, "{} has no page {page}", self.name);
        let new = version(number, page * 4096, guard.len() / 2);
        guard[..new.len()].copy_from_slice(&new);
        self.note(|bytes| bytes[page as usize * 4096..][..new.len()].copy_from_slice(&new));
        Ok(())
    }

    fn write(&mut self, new: &[u8], offset: u64, in_batch: bool) -> Result<(), Error> {
        let at = offset as usize;
        self.note(|bytes| {
            if !new.is_empty() {
                bytes.resize(bytes.len().max(at + new.len()), 0);
                bytes[at..at + new.len()].copy_from_slice(new);
            }
        });
        if !in_batch {
            return self.file().write_at(new, offset);
        }
        let mut batch = [WriteRequest::new(offset, new)];
        self.file().write_batch(&mut batch);
        let [request] = batch;
        request.result
    }

    /// The versions that a page may have on the disk.
    fn since(&self, page: u64) -> &[Vec<u8>] {
        &self.versions[self.synced.get(&page).copied().unwrap_or(0)..]
    }

    /// Fails if the disk has something that wasn't in the file at any time since its last sync.
    fn check(&self, disk: &SimulatedDisk) {
        let name = &self.name;
        if disk.open(Path::new(name), Access::Read).is_err() {
            assert!(!self.there_for_sure, "{name} is gone");
            return;
        }
        let found = bytes_on(disk, name);
        let lens = self.versions.iter().map(Vec::len);
        let (min, max) = (lens.clone().min().unwrap_or(0), lens.max().unwrap_or(0));
        assert!((min..=max).contains(&found.len()), "{name} has {} bytes, not {min} to {max}", found.len());
        for &page in self.synced.keys() {
            let ends = self.since(page).iter().map(|bytes| bytes.len().min((page as usize + 1) * 4096));
            let min = ends.min().unwrap_or(0);
            assert!(found.len() >= min, "{name} has {} bytes, and page {page} was synced up to {min}", found.len());
        }
        for (at, word) in found.chunks(WORD).enumerate() {
            // If the file was cut off within a word, the bytes of the word before the cut may be
            // from an older version, followed by zeros.
            let since = self.since((at * WORD) as u64 / 4096);
            let ends = since.iter().map(|bytes| bytes.len().saturating_sub(at * WORD).min(WORD));
            let ends: Vec<_> = ends.chain([WORD]).collect();
            let was = |bytes: &Vec<u8>| {
                let there = bytes.get(at * WORD..).unwrap_or_default();
                ends.iter().any(|&end| {
                    let mut then = [0; WORD];
                    let there = &there[..there.len().min(end)];
                    then[..there.len()].copy_from_slice(there);
                    then[..word.len()] == *word
                })
            };
            assert!(since.iter().any(was), "{name}: the word at {} was never there", at * WORD);
        }
    }
}

fn open(group: &Group, disk: &SimulatedDisk, number: u64) -> Past {
    let name = format!("f{number}");
    let there_for_sure = disk.open(Path::new(&name), Access::Read).is_ok();
    let bytes = if there_for_sure { bytes_on(disk, &name) } else { Vec::new() };
    let file = group.open_options().write(true).create(true).open(&name).unwrap();
    let inode = disk.open(Path::new(&name), Access::Read).unwrap().identity().inode;
    Past {
        name,
        file: Some(file),
        mapped: None,
        untold: false,
        left: false,
        versions: vec![bytes],
        synced: BTreeMap::new(),
        inode,
        there_for_sure,
    }
}

/// Returns whether the power was cut before all steps were done.
fn live_and_die(seed: u64) -> bool {
    let mut random = Random::seeded(seed);
    let disk = disk(2, FILE_LEN);
    let last = 4 + random.below(250); // The first three open the files.
    let doomed = Doomed { disk: disk.clone(), calls: Arc::default(), last, seed, loses: Arc::default() };
    let mm = manager(48 + random.below(100), Wrapped::new(&disk, doomed.clone()));
    let group = mm.group("a").build().unwrap();
    let space = group.space().unwrap();
    let mut files: Vec<_> = (0..3).map(|number| open(&group, &disk, number)).collect();
    for number in 0..400 {
        let at = random.below(files.len() as u64) as usize;
        if !files[at].step(&doomed, &group, &space, &mut random, seed << 20 | number) {
            break;
        }
    }
    let cut = doomed.is_off();
    if !cut {
        disk.power_cut(seed);
    }
    disk.fail_syncs(0, seed); // A scheduled failure may still be pending.
    for past in &files {
        past.check(&disk);
        if let Some(mapped) = past.mapped.clone() {
            let _ = space.write_at(&[1; 100], mapped.start);
            let _ = space.sync(mapped);
        }
        let Some(file) = &past.file else { continue };
        let error = file.sync().expect_err("the power was off");
        assert!(matches!(error, Error::WriteFailed { .. }), "{error}");
        let _ = file.read_at(&mut [0; 100_000], 0);
        let _ = file.set_len(1);
    }
    let found: Vec<_> = files.iter().map(|past| disk.open(Path::new(&past.name), Access::Read).is_ok()).collect();
    // Opens the same disk again.
    let again = manager(64, disk.clone());
    let group = again.group("a").build().unwrap();
    for (past, _) in files.iter().zip(found).filter(|(_, found)| *found) {
        let file = group.open_options().write(true).open(&past.name).unwrap();
        let mut bytes = vec![0; file.len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == bytes_on(&disk, &past.name), "{}", past.name);
        file.write_at(&[1], 0).unwrap();
        file.close().unwrap();
    }
    let written = bytes_on(&disk, "f0");
    drop((files, space)); // The old handles and mappings can't do anything any more.
    assert!(written == bytes_on(&disk, "f0"));
    cut
}

#[test]
fn what_sync_promised_survives_a_power_cut() {
    let seeds = seeds(400);
    let (next, cuts) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| live_and_die(seed))) {
                        Ok(cut) => cuts.fetch_add(u64::from(cut), Ordering::Relaxed),
                        Err(panic) => {
                            eprintln!("repeat with: PAGEFOLD_SEED={seed} cargo test -p pagefold --test power_cut");
                            next.store(seeds.end, Ordering::Relaxed);
                            resume_unwind(panic)
                        }
                    };
                }
            });
        }
    });
    let cuts = cuts.into_inner();
    println!("{cuts} cuts in the middle of {} runs", seeds.end - seeds.start);
    assert!(seeds.end - seeds.start < 100 || cuts * 2 > seeds.end - seeds.start, "most come too late");
}
