//! Random writing, a power cut at a random call to the disk, and a look at what is left: all that a
//! `sync` promised, and of what was written later each word is as it was at some time since.
//!
//! `PAGEFOLD_SEEDS` is the number of cuts, or a range of their seeds.
#![cfg(not(pagefold_loom))]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, IoError};
use pagefold::{Error, File, Group};
use support::around::{Around, Wrapped};
use support::{bytes_on, disk, manager, version};
use sync::atomic::{AtomicU64, Ordering};
use sync::random::{Random, seeds};
use sync::{Arc, SharedBytes};
use test_disks::{Call, SimulatedDisk};

const THREADS: u64 = 8;
const FILE_LEN: u64 = 40 * 4096 - 1000;
/// Bytes that are written to memory, and taken from it, together.
const WORD: usize = 8;

/// The simulated disk, whose power is cut just before one of its calls; or in the middle of a
/// write, which then has written some of its pages.
#[derive(Clone)]
struct Doomed {
    disk: SimulatedDisk,
    calls: Arc<AtomicU64>,
    last: u64,
    seed: u64,
}

impl Doomed {
    fn next(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.last {
            self.disk.power_cut(self.seed);
        }
    }
}

impl Around for Doomed {
    fn before(&self, call: Call) -> Result<(), IoError> {
        if matches!(call, Call::Open | Call::Sync | Call::SetLen) {
            self.next();
        }
        Ok(())
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
        let result = file.sync();
        self.next();
        result
    }
}

/// A file, and what it was since it was last synced, that moment included.
struct Past {
    name: String,
    file: File,
    versions: Vec<Vec<u8>>,
    /// It had its name for good at the beginning, or was synced.
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

    /// One random thing. False when the power is off.
    fn step(&mut self, random: &mut Random, number: u64) -> bool {
        let len = self.now().len() as u64;
        let result = match random.below(20) {
            0..10 => {
                let offset = random.below(len + 6000).min(2 * FILE_LEN);
                let size = if random.one_in(2) { random.below(300) } else { random.below(20_000) };
                let new = version(number, offset, size as usize);
                self.write(&new, offset)
            }
            10..12 => self.change_page(random.below(len / 4096 + 1), number),
            12..14 => {
                let to = (len + random.below(9000)).saturating_sub(random.below(12_000));
                self.file.set_len(to).map(|()| self.note(|bytes| bytes.resize(to as usize, 0)))
            }
            14 => {
                let from = random.below(len + 1);
                self.file.sync_range(from..from + random.below(30_000))
            }
            15..18 => self.file.sync().map(|()| {
                self.there_for_sure = true;
                self.versions.drain(..self.versions.len() - 1);
            }),
            _ => self.file.read_at(&mut vec![0; 9000], random.below(len + 1)).map(drop),
        };
        match result {
            Ok(()) | Err(Error::PastEnd { .. }) => true,
            Err(Error::WriteFailed { .. } | Error::ReadFailed { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn change_page(&mut self, page: u64, number: u64) -> Result<(), Error> {
        let file = self.file.clone();
        let mut guard = file.page_mut_at(page * 4096)?;
        let new = version(number, page * 4096, guard.len() / 2);
        guard[..new.len()].copy_from_slice(&new);
        self.note(|bytes| bytes[page as usize * 4096..][..new.len()].copy_from_slice(&new));
        Ok(())
    }

    fn write(&mut self, new: &[u8], offset: u64) -> Result<(), Error> {
        let at = offset as usize;
        self.note(|bytes| {
            if !new.is_empty() {
                bytes.resize(bytes.len().max(at + new.len()), 0);
                bytes[at..at + new.len()].copy_from_slice(new);
            }
        });
        self.file.write_at(new, offset)
    }

    /// Fails if something is on the disk that wasn't in the file since it was last synced.
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
        for (at, word) in found.chunks(WORD).enumerate() {
            // Within a word that the file was cut off in, older bytes than those at the cut may be
            // followed by zeros.
            let ends = self.versions.iter().map(|bytes| bytes.len().saturating_sub(at * WORD).min(WORD));
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
            assert!(self.versions.iter().any(was), "{name}: the word at {} was never there", at * WORD);
        }
    }
}

fn open(group: &Group, disk: &SimulatedDisk, number: u64) -> Option<Past> {
    let name = format!("f{number}");
    let there_for_sure = disk.open(Path::new(&name), Access::Read).is_ok();
    let bytes = if there_for_sure { bytes_on(disk, &name) } else { Vec::new() };
    let file = group.open_options().write(true).create(true).open(&name).ok()?;
    Some(Past { name, file, versions: vec![bytes], there_for_sure })
}

/// Says whether there was a cut before all was over.
fn live_and_die(seed: u64) -> bool {
    let mut random = Random::seeded(seed);
    let disk = disk(2, FILE_LEN);
    let last = 4 + random.below(150); // The first three open the files.
    let doomed = Doomed { disk: disk.clone(), calls: Arc::default(), last, seed };
    let mm = manager(48 + random.below(100), Wrapped::new(&disk, doomed.clone()));
    let group = mm.group("a").build().unwrap();
    let mut files: Vec<_> = (0..3).filter_map(|number| open(&group, &disk, number)).collect();
    for number in 0..400 {
        let at = random.below(files.len() as u64) as usize;
        if files.is_empty() || !files[at].step(&mut random, seed << 20 | number) {
            break;
        }
    }
    let cut = doomed.calls.load(Ordering::Relaxed) >= last;
    if !cut {
        disk.power_cut(seed);
    }
    for past in &files {
        past.check(&disk);
        let error = past.file.sync().expect_err("the power was off");
        assert!(matches!(error, Error::WriteFailed { .. }), "{error}");
        let _ = past.file.read_at(&mut [0; 100_000], 0);
        let _ = past.file.set_len(1);
    }
    let found: Vec<_> = files.iter().map(|past| disk.open(Path::new(&past.name), Access::Read).is_ok()).collect();
    // A new beginning, with the same disk.
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
    drop(files); // The old ones can't do anything any more.
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
