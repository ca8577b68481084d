//! Tests of writes to the simulated disk, against a simple model of the permitted results.

use std::collections::HashSet;

use io::{read_full, write_full};
use sync::atomic::AtomicU64;

use super::*;

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// Returns pages of bytes that no other version has.
fn version(number: u64, pages: usize) -> Vec<AtomicU64> {
    (0..pages * PAGE / 8).map(|at| AtomicU64::new(mix(number) ^ at as u64)).collect()
}

fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
    let mut bytes = vec![0; words.len() * 8];
    SharedBytes::new(words).copy_to(0, &mut bytes);
    bytes
}

fn write(file: &dyn BackingFile, page: usize, number: u64, len: usize) -> Result<Vec<u8>, IoError> {
    let words = version(number, len.div_ceil(PAGE));
    let slices: Vec<_> = words.chunks(PAGE / 8).map(SharedBytes::new).collect();
    write_full(file, (page * PAGE) as u64, &slices, len)?;
    Ok(bytes_of(&words)[..len].to_vec())
}

fn read_all(file: &dyn BackingFile) -> Vec<u8> {
    let len = file.len().unwrap() as usize;
    let words = version(0, len.div_ceil(PAGE) + 1);
    assert_eq!(read_full(file, 0, SharedBytes::new(&words)), Ok(len));
    bytes_of(&words)[..len].to_vec()
}

/// The contents of a file, and its permitted contents after a power cut.
struct Model {
    now: Vec<u8>,
    synced: Vec<u8>,
    lens: Vec<usize>,
    /// All contents of each sector since the last sync, in order, padded with zeros.
    sectors: Vec<Vec<Vec<u8>>>,
}

impl Model {
    fn new(bytes: Vec<u8>) -> Self {
        let mut model = Self { now: bytes, synced: vec![], lens: vec![], sectors: vec![] };
        model.sync();
        model
    }

    fn sync(&mut self) {
        self.synced.clone_from(&self.now);
        (self.lens, self.sectors) = (vec![], vec![]);
        self.note();
    }

    fn note(&mut self) {
        self.lens.push(self.now.len());
        let sectors = self.now.len().div_ceil(SECTOR).max(self.sectors.len());
        self.sectors.resize_with(sectors, || vec![vec![0; SECTOR]]);
        for (number, versions) in self.sectors.iter_mut().enumerate() {
            let mut sector = self.now.iter().copied().skip(number * SECTOR).take(SECTOR).collect::<Vec<_>>();
            sector.resize(SECTOR, 0);
            if self.lens.len() == 1 {
                versions.clear();
            }
            versions.push(sector);
        }
    }

    fn write(&mut self, start: usize, bytes: &[u8]) {
        // The writes are made page by page, because the disk may also write each page separately.
        for (number, bytes) in bytes.chunks(PAGE).enumerate() {
            let start = start + number * PAGE;
            self.now.resize(self.now.len().max(start + bytes.len()), 0);
            self.now[start..start + bytes.len()].copy_from_slice(bytes);
            self.note();
        }
    }

    fn check_after_cut(&self, found: &[u8], context: &str) {
        assert!(self.lens.contains(&found.len()), "{context}: {} bytes", found.len());
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let known = |version: &Vec<u8>| {
                let zeros = sector.iter().zip(version).all(|(found, was)| found == was || *found == 0);
                version[..sector.len()] == *sector || (zeros && self.cut_since(number))
            };
            assert!(self.sectors[number].iter().any(known), "{context}: sector {number} is none of its versions");
        }
    }

    /// Returns whether the file was truncated within or before the sector.
    fn cut_since(&self, sector: usize) -> bool {
        self.lens.iter().any(|&len| len < (sector + 1) * SECTOR)
    }
}

/// Performs some random operations on one file and then cuts the power. Returns the file's contents
/// afterwards.
fn live_and_die(seed: u64) -> Option<Vec<u8>> {
    let mut random = Random::seeded(seed);
    let disk = SimulatedDisk::default();
    let first = bytes_of(&version(seed, 5))[..random.below(20_000) as usize].to_vec();
    disk.add_bytes("f", first.clone());
    let file = disk.open(Path::new("f"), Access::Write).unwrap();
    let mut model = Model::new(first);
    for step in 0..random.below(25) {
        let context = format!("seed {seed}, step {step}");
        match random.below(10) {
            0..6 => {
                let page = random.below(7) as usize;
                let whole = (1 + random.below(3) as usize) * PAGE;
                // A part page, if it is at the file's end.
                let part = random.one_in(2) && page * PAGE + whole > model.now.len();
                let len = if part { whole - random.below(PAGE as u64 - 1) as usize } else { whole };
                let bytes = write(&*file, page, seed ^ (step + 1) << 20, len).unwrap();
                model.write(page * PAGE, &bytes);
            }
            6..9 => {
                let len = random.below(30_000) as usize;
                file.set_len(len as u64).unwrap();
                model.now.resize(len, 0);
                model.note();
            }
            _ => {
                file.sync().unwrap();
                model.sync();
            }
        }
        assert!(read_all(&*file) == model.now, "{context}: not what was written");
    }
    disk.power_cut(seed);
    assert_eq!([file.len().err(), file.sync().err(), file.set_len(0).err()], [Some(IoError::IO); 3]);
    assert_eq!(write(&*file, 0, 0, PAGE).err(), Some(IoError::IO));
    let file = disk.open(Path::new("f"), Access::Write).unwrap();
    let found = read_all(&*file);
    model.check_after_cut(&found, &format!("seed {seed}"));
    if model.lens.len() == 1 {
        assert!(found == model.synced, "seed {seed}: synced bytes lost");
    }
    // Bytes past the end must be zeros when the file is extended. The file's contents after the
    // first cut are then synced, so they must survive a second cut.
    file.set_len(found.len() as u64 + 5000).unwrap();
    assert!(read_all(&*file)[found.len()..].iter().all(|&byte| byte == 0), "seed {seed}: old bytes past the end");
    file.set_len(found.len() as u64).unwrap();
    file.sync().unwrap();
    disk.power_cut(seed + 1);
    assert!(read_all(&*disk.open(Path::new("f"), Access::Read).unwrap()) == found, "seed {seed}: second cut");
    Some(found)
}

#[test]
fn after_a_power_cut_each_sector_is_one_of_its_versions() {
    for seed in 0..2000 {
        live_and_die(seed);
    }
}

#[test]
fn a_seed_says_all() {
    for seed in 0..20 {
        assert_eq!(live_and_die(seed), live_and_die(seed));
    }
}

/// Writes three pages and syncs; then writes page 1 twice, page 2 once, and one and a half more
/// pages.
fn half_written(disk: &SimulatedDisk) -> [Vec<u8>; 4] {
    let file = disk.open(Path::new("f"), Access::CreateNew).unwrap();
    let synced = write(&*file, 0, 1, 3 * PAGE).unwrap();
    file.sync().unwrap();
    let first = write(&*file, 1, 2, PAGE).unwrap();
    let second = write(&*file, 1, 3, 2 * PAGE).unwrap();
    let more = write(&*file, 3, 4, PAGE + 2000).unwrap();
    [synced, first, second, more]
}

#[test]
fn what_was_synced_is_there_and_everything_else_may_be_lost_kept_or_torn() {
    let (mut fates, mut lens) = (HashSet::new(), HashSet::new());
    for seed in 0..1000 {
        let disk = SimulatedDisk::default();
        let [synced, first, second, more] = half_written(&disk);
        disk.power_cut(seed);
        let found = read_all(&*disk.open(Path::new("f"), Access::Read).unwrap());
        assert!(found[..PAGE] == synced[..PAGE], "seed {seed}");
        let is = |number: usize, bytes: &[u8]| {
            found[PAGE..][number * SECTOR..][..SECTOR] == bytes[number * SECTOR..][..SECTOR]
        };
        let fate: Vec<_> = (0..8)
            .map(|number| match () {
                () if is(number, &synced[PAGE..]) => 0,
                () if is(number, &first) => 1,
                () if is(number, &second) => 2,
                () => panic!("seed {seed}: foreign bytes"),
            })
            .collect();
        fates.extend([fate[0], if fate.iter().any(|&one| one != fate[0]) { 3 } else { 4 }]);
        lens.insert(found.len());
        for (at, &byte) in found[3 * PAGE..].iter().enumerate() {
            assert!(byte == more[at] || byte == 0, "seed {seed}");
        }
    }
    assert_eq!(fates, HashSet::from([0, 1, 2, 3, 4]), "lost, old, new, torn, whole");
    assert_eq!(lens, HashSet::from([3 * PAGE, 4 * PAGE, 4 * PAGE + 2000]));
}

#[test]
fn a_new_file_has_its_name_for_good_once_it_is_synced() {
    let gone = |sync: bool| {
        let lost = |seed: &u64| {
            let disk = SimulatedDisk::default();
            let file = disk.open(Path::new("new"), Access::Create).unwrap();
            if sync {
                file.sync().unwrap();
            }
            disk.power_cut(*seed);
            disk.open(Path::new("new"), Access::Read).is_err()
        };
        (0..100).filter(lost).count()
    };
    assert!((20..80).contains(&gone(false)));
    assert_eq!(gone(true), 0);
}

#[test]
fn access_is_what_was_asked_for() {
    let disk = SimulatedDisk::default();
    let error = |access| disk.open(Path::new("f"), access).err();
    assert_eq!([Access::Read, Access::Write].map(error), [Some(IoError::NOT_FOUND); 2]);
    assert_eq!([Access::CreateNew, Access::CreateNew].map(error), [None, Some(IoError::EXISTS)]);
    assert_eq!([Access::Create, Access::Write, Access::Read].map(error), [None; 3]);
    let file = disk.open(Path::new("f"), Access::Read).unwrap();
    assert_eq!(write(&*file, 0, 1, PAGE).err(), Some(IoError::BAD_FILE));
    assert_eq!([file.sync(), file.set_len(1)], [Err(IoError::BAD_FILE); 2]);
}

#[test]
fn a_full_disk_takes_what_fits_and_room_heals_it() {
    let disk = SimulatedDisk::default();
    disk.add_generated("given", 1, 3 * PAGE as u64);
    disk.set_capacity(4 * PAGE as u64);
    let given = disk.open(Path::new("given"), Access::Write).unwrap();
    let new = disk.open(Path::new("new"), Access::Create).unwrap();
    let words = version(1, 5);
    assert_eq!(new.write(0, &[SharedBytes::new(&words)], 5 * PAGE), Ok(4 * PAGE));
    assert_eq!(write(&*new, 4, 1, PAGE).err(), Some(IoError::NO_SPACE));
    // Bytes that already have space on the disk can be overwritten: both the bytes with which a
    // file was created, and bytes that were written later.
    write(&*new, 0, 2, 4 * PAGE).unwrap();
    write(&*given, 0, 3, 3 * PAGE).unwrap();
    assert_eq!(write(&*given, 3, 3, 1).err(), Some(IoError::NO_SPACE));
    assert_eq!((new.len(), given.len()), (Ok(4 * PAGE as u64), Ok(3 * PAGE as u64)));
    new.set_len(3 * PAGE as u64 + 1).unwrap();
    assert_eq!(write(&*given, 3, 3, 1).err(), Some(IoError::NO_SPACE));
    new.set_len(3 * PAGE as u64).unwrap();
    write(&*given, 3, 3, 1).unwrap();
    disk.set_capacity(5 * PAGE as u64);
    write(&*new, 9, 3, PAGE).unwrap();
    assert_eq!(write(&*new, 3, 3, PAGE).err(), Some(IoError::NO_SPACE));
}

#[test]
fn what_a_power_cut_loses_gives_its_room_back() {
    for seed in 0..50 {
        let disk = SimulatedDisk::default();
        disk.set_capacity(3 * PAGE as u64);
        let lost = disk.open(Path::new("lost"), Access::Create).unwrap();
        write(&*lost, 0, 1, 3 * PAGE).unwrap();
        drop(lost);
        disk.power_cut(seed);
        let left = disk.open(Path::new("lost"), Access::Read).map_or(0, |file| read_all(&*file).len() / PAGE);
        let probe = disk.open(Path::new("probe"), Access::Create).unwrap();
        let room = (0..).find(|&page| write(&*probe, page, 1, PAGE).is_err()).unwrap();
        assert_eq!(left + room, 3, "seed {seed}");
    }
}

#[test]
fn a_failed_sync_loses_writes_and_a_later_one_does_not_bring_them_back() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimulatedDisk::default();
        let file = disk.open(Path::new("f"), Access::Create).unwrap();
        let old = write(&*file, 0, 1, PAGE).unwrap();
        file.sync().unwrap();
        let new = write(&*file, 0, 2, PAGE).unwrap();
        disk.fail_syncs(1, seed);
        assert_eq!([file.sync(), file.sync()], [Err(IoError::IO), Ok(())]);
        let found = read_all(&*file);
        for ((found, old), new) in found.chunks(SECTOR).zip(old.chunks(SECTOR)).zip(new.chunks(SECTOR)) {
            assert!(found == old || found == new, "seed {seed}");
            lost += usize::from(found == old);
        }
        // Bytes that are written again and synced survive the next cut.
        let new = write(&*file, 0, 2, PAGE).unwrap();
        file.sync().unwrap();
        disk.power_cut(seed);
        assert!(read_all(&*disk.open(Path::new("f"), Access::Read).unwrap()) == new, "seed {seed}");
    }
    assert!((200..600).contains(&lost), "{lost} sectors of 800 lost");
}

#[test]
fn writes_and_syncs_are_counted_and_take_time() {
    let timing = Timing { latency_ns: 1000, bytes_per_second: 4_096_000_000, queue_depth: 1, sync_ns: 5000 };
    let disk = SimulatedDisk::new(timing);
    let file = disk.open(Path::new("f"), Access::Create).unwrap();
    write(&*file, 0, 1, 2 * PAGE).unwrap();
    file.sync().unwrap();
    disk.fail_syncs(1, 0);
    file.sync().unwrap_err();
    file.set_len(1).unwrap();
    let wanted =
        DiskStats { writes: 1, bytes_written: 2 * PAGE as u64, syncs: 2, busy_ns: 13_000, ..DiskStats::default() };
    assert_eq!((disk.stats(), disk.now_ns()), (wanted, 13_000));
}
