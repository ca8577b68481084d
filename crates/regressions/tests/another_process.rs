//! Files of the machine that another process changes while Pagefold has them open: here `std::fs`
//! is the other process.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pagefold::io::{DirectIo, IoError, Posix};
use pagefold::{Advice, Error, File, Pagefold, ReadRequest, WriteRequest};
use sync::atomic::{AtomicBool, Ordering};
use sync::random::Random;

use crate::everything_pinned::block_on;
use crate::hooked::Answer;
use crate::support::{disk, manager, stop_at_end, when_free};

const PAGE: usize = 4096;

/// A file of the machine, a Pagefold beside it, and a handle to read and write it.
struct World {
    directory: tempfile::TempDir,
    mm: Pagefold,
    file: File,
}

impl World {
    fn new(direct: DirectIo, bytes: &[u8]) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(directory.path().join("file"), bytes).unwrap();
        let mm = manager(256, Posix::new(direct));
        let file = open(&mm, &directory.path().join("file"), "ours");
        Self { directory, mm, file }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    /// Appends bytes as another process.
    fn append(&self, bytes: &[u8]) {
        OpenOptions::new().append(true).open(self.path()).unwrap().write_all(bytes).unwrap();
    }

    /// Sets the length as another process.
    fn cut(&self, len: u64) {
        OpenOptions::new().write(true).open(self.path()).unwrap().set_len(len).unwrap();
    }

    fn on_disk(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        let n = self.file.read_at(&mut bytes, offset as u64).unwrap();
        bytes.truncate(n);
        bytes
    }
}

fn open(mm: &Pagefold, path: &Path, group: &str) -> File {
    mm.group(group).build().unwrap().open_options().write(true).open(path).unwrap()
}

fn open_again(world: &World) -> File {
    world.file.group().open_options().write(true).open(world.path()).unwrap()
}

/// Runs a test with direct and with buffered files.
fn both_ways(test: impl Fn(DirectIo)) {
    test(DirectIo::Auto);
    test(DirectIo::Never);
}

fn assert_bytes(bytes: &[u8], expected: &[u8], what: &str) {
    assert_eq!(bytes.len(), expected.len(), "{what}: the length");
    let wrong = bytes.iter().zip(expected).position(|(byte, expected)| byte != expected);
    assert!(wrong.is_none(), "{what}: byte {wrong:?} of {}", bytes.len());
}

/// Another process appended to a file whose last page was dirty. The next read at the end adopted
/// the new length, but not the appended bytes in the dirty page: the read returned zeros for them,
/// and write-back overwrote them with zeros.
#[test]
fn what_is_appended_to_a_dirty_last_page_is_read_and_stays() {
    both_ways(|direct| {
        let world = World::new(direct, &[7; 5_000]);
        world.file.write_at(&[8], 4_200).unwrap();
        world.append(&[9; 1_000]);
        assert_bytes(&world.read(5_000, 2_000), &[9; 1_000], "what the read got");
        world.file.sync().unwrap();
        let mut expected = [[7; 5_000].as_slice(), &[9; 1_000]].concat();
        expected[4_200] = 8;
        assert_bytes(&world.on_disk(), &expected, "what is on the disk");
    });
}

/// As above, but no read notices the new length. Pagefold writes past the length that it knows.
/// That write filled the gap with zeros, although another process had written to it.
#[test]
fn a_write_behind_what_was_appended_leaves_it() {
    both_ways(|direct| {
        for dirty in [false, true] {
            let world = World::new(direct, &[7; 5_000]);
            let mut expected = vec![7; 5_000];
            if dirty {
                world.file.write_at(&[8], 4_200).unwrap();
                expected[4_200] = 8;
            }
            world.append(&[9; 15_000]);
            expected.extend([9; 15_000]);
            world.file.write_at(&[1; 6], 9_000).unwrap();
            expected[9_000..9_006].fill(1);
            world.file.sync().unwrap();
            assert_bytes(&world.on_disk(), &expected, "what is on the disk");
            assert_bytes(&world.read(0, 30_000), &expected, "what is read");
        }
    });
}

/// A write beyond the end leaves a gap of zeros. Before Pagefold wrote the gap back, another
/// process appended to the file, that is, into the gap. Write-back then overwrote these bytes with
/// zeros.
#[test]
fn what_is_appended_after_a_gap_was_made_stays() {
    both_ways(|direct| {
        let world = World::new(direct, &[7; 5_000]);
        world.file.write_at(&[8], 4_200).unwrap();
        world.file.write_at(&[1; 100], 9_000).unwrap();
        world.append(&[9; 1_000]);
        world.file.sync().unwrap();
        let on_disk = world.on_disk();
        assert_eq!(on_disk.iter().filter(|&&byte| byte == 9).count(), 1_000, "appended bytes are lost");
        assert_bytes(&on_disk[9_000..9_100], &[1; 100], "what was written");
        assert_bytes(&world.read(0, 30_000), &on_disk, "what is read");
    });
}

/// Another process appended to a file that was open. When the file was opened a second time, the
/// new handle still had the length of the first opening, so a write at `len` overwrote the appended
/// bytes.
#[test]
fn a_file_that_is_opened_again_is_as_long_as_it_is_now() {
    both_ways(|direct| {
        let world = World::new(direct, &[7; 5_000]);
        world.file.write_at(&[8], 0).unwrap();
        world.append(&[9; 31_864]);
        let again = open(&world.mm, &world.path(), "theirs");
        assert_eq!((again.len(), world.file.len()), (36_864, 36_864));
        again.write_at(&[1; 6], 32_672).unwrap();
        again.sync().unwrap();
        let mut expected = [[7; 5_000].as_slice(), &[9; 31_864]].concat();
        expected[0] = 8;
        expected[32_672..32_678].fill(1);
        assert_bytes(&world.on_disk(), &expected, "what is on the disk");
    });
}

/// One tenant had pinned the last page when another process appended to the file. As long as the
/// pin lasted, all tenants saw the old length.
#[test]
fn a_pin_does_not_hide_what_was_appended() {
    both_ways(|direct| {
        for dirty in [false, true] {
            let world = World::new(direct, &[7; 100]);
            if dirty {
                world.file.write_at(&[7], 0).unwrap();
            }
            let pinned = world.file.page_at(0).unwrap();
            world.append(&[9; 100_000]);
            assert_bytes(&world.read(100, 100_000), &[9; 100_000], "what the read got");
            assert_bytes(&world.read(50_000, 10), &[9; 10], "what a read further on got");
            assert_bytes(&world.read(100_100, 10), &[], "what a read at the end got");
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| when_free(|| world.file.page_at(3 * 4096).map(|page| page.to_vec())));
                assert_bytes(&pinned, &[7; 100], "the pinned page");
                drop(pinned);
                assert_bytes(&waits.join().unwrap().unwrap(), &[9; PAGE], "a page that the file has now");
            });
            world.file.sync().unwrap();
            assert_bytes(&world.on_disk(), &[[7; 100].as_slice(), &[9; 100_000]].concat(), "what is on the disk");
        }
    });
}

/// The page with the old end was pinned, and another process appended to the file. A future of an
/// appended page then retried without end: each retry started anew, so no time limit was reached.
/// The future must fail with `PageBusy`.
#[test]
fn a_future_of_an_appended_page_ends_although_the_last_page_is_pinned() {
    let world = World::new(DirectIo::Auto, &[7; 100]);
    let pinned = world.file.page_at(0).unwrap();
    world.append(&[9; 100_000]);
    let file = world.file.clone();
    let answer = Answer::of(move || block_on(file.page_at_async(3 * 4096)).map(|page| page.to_vec()));
    assert!(matches!(answer.wait(), Some(Err(Error::PageBusy { .. }))));
    drop(pinned);
    let file = world.file.clone();
    assert_bytes(&block_on(file.page_at_async(3 * 4096)).unwrap(), &[9; PAGE], "a page that the file has now");
}

/// Ways in which a file of 100 bytes grows to one page; the added bytes are zeros.
const GROW: [fn(&File); 3] = [
    |file| file.set_len(4_096).unwrap(),
    |file| file.write_at(&[0], 4_095).unwrap(),
    |file| file.write_at(&[0; 3_996], 100).unwrap(),
];

/// Another process truncated the file within a page, and a read noticed. The page in memory kept
/// the bytes past the new end. When the file grew again, these bytes came back: reads returned
/// them, and write-back wrote them, although the file has zeros there.
#[test]
fn what_another_process_cut_off_does_not_come_back_as_the_file_grows() {
    both_ways(|direct| {
        for (grow, dirty) in GROW.into_iter().flat_map(|grow| [(grow, false), (grow, true)]) {
            let world = World::new(direct, &[7; PAGE]);
            if dirty {
                world.file.write_at(&[7], 0).unwrap();
            }
            world.read(0, PAGE);
            world.cut(100);
            assert_bytes(&world.read(PAGE, 1), &[], "a read at the old end");
            assert_eq!(world.file.len(), 100);
            grow(&world.file);
            let expected = [[7; 100].as_slice(), &[0; PAGE - 100]].concat();
            assert_bytes(&world.read(0, PAGE), &expected, "what is read");
            world.file.write_at(&[7], 0).unwrap();
            let _ = world.file.sync(); // It may tell of the change that was cut off.
            world.file.sync().unwrap();
            assert_bytes(&world.on_disk(), &expected, "what is on the disk");
        }
    });
}

/// As above, but the page is pinned when a read notices the cut, so its tail can't be zeroed then.
#[test]
fn what_another_process_cut_off_of_a_pinned_page_does_not_come_back_either() {
    both_ways(|direct| {
        for (grow, dirty) in GROW.into_iter().flat_map(|grow| [(grow, false), (grow, true)]) {
            let world = World::new(direct, &[7; PAGE]);
            if dirty {
                world.file.write_at(&[7], 0).unwrap();
            }
            let pinned = world.file.page_at(0).unwrap();
            world.cut(100);
            assert_bytes(&world.read(PAGE, 1), &[], "a read at the old end");
            assert_eq!(world.file.len(), 100);
            drop(pinned);
            grow(&world.file);
            let expected = [[7; 100].as_slice(), &[0; PAGE - 100]].concat();
            assert_bytes(&world.read(0, PAGE), &expected, "what is read");
        }
    });
}

/// Another process truncated the file, and no read noticed. Write-back wrote the dirty pages with
/// their old lengths, and so brought back the bytes that had been cut off.
#[test]
fn what_another_process_cut_off_is_not_written_back() {
    both_ways(|direct| {
        let world = World::new(direct, &[7; 3 * PAGE]);
        world.file.write_at(&[8], 10).unwrap();
        world.file.write_at(&[8], PAGE as u64 + 10).unwrap();
        world.cut(100);
        let error = world.file.sync().unwrap_err();
        assert!(matches!(error, Error::WriteFailed { error: IoError::CutOff, .. }), "{error}");
        world.file.sync().unwrap();
        let mut expected = [7; 100];
        expected[10] = 8;
        assert_bytes(&world.on_disk(), &expected, "what is on the disk");
        assert_bytes(&world.read(0, PAGE), &expected, "what is read");
    });
}

/// A write across the end first put its bytes into the last page, and made the file longer
/// afterwards. A read between these two steps returned only the first bytes of the write.
#[test]
fn a_write_over_the_end_is_seen_as_a_whole_or_not() {
    let mm = manager(64, disk(0, 0));
    let file = mm.group("a").build().unwrap().open_options().write(true).create(true).open("f").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = stop_at_end(&stop);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut seen_in_part, mut bytes) = (0, [0; PAGE]);
                    while !stop.load(Ordering::Relaxed) {
                        let n = file.read_at(&mut bytes, 0).unwrap();
                        seen_in_part += u64::from(bytes[..n].contains(&2) && n < 4_050);
                    }
                    seen_in_part
                })
            })
            .collect();
        for round in 0..1_500 {
            let end = 51 + round % 1_000;
            // A reader may have the page pinned.
            when_free(|| file.set_len(50)).unwrap();
            when_free(|| file.write_at(&vec![1; end - 50], 50)).unwrap();
            when_free(|| file.write_at(&[2; 4_000], 50)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        let seen_in_part: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!(seen_in_part, 0, "reads that saw the beginning of a write");
    });
}

/// When a write overwrote a part of a page, readahead was told of an access to page 0 instead of
/// this page. It read nothing ahead of the writer, and read unwanted pages at the start of the
/// file.
#[test]
fn pages_are_read_ahead_of_a_writer_of_parts() {
    let disk = disk(1, 256 * PAGE as u64);
    let mm = manager(512, disk.clone());
    let file = mm.group("a").build().unwrap().open_options().write(true).open("f0").unwrap();
    for page in 0..256 {
        file.write_at(&[1], page * PAGE as u64).unwrap();
    }
    let reads = disk.stats().requests;
    assert!(reads < 64, "{reads} reads for 256 pages");
}

/// A batch contained a write of two pages near `u64::MAX`. The sum of offset and length overflowed.
#[test]
fn a_batch_at_the_end_of_all_numbers_is_refused() {
    let file = mm_file();
    let bytes = [1; 2 * PAGE];
    for offset in
        [u64::MAX, u64::MAX - 1, u64::MAX - PAGE as u64, 0xffff_ffff_ffff_e000, 0xffff_ffff_ffff_d001, 1 << 63]
    {
        let mut writes = [WriteRequest::new(offset, &bytes), WriteRequest::new(0, &bytes[..10])];
        file.write_batch(&mut writes);
        assert!(matches!(writes[0].result, Err(Error::FileTooLarge { .. })), "{offset}: {:?}", writes[0].result);
        assert!(writes[1].result.is_ok());
        let mut into = [0; 2 * PAGE];
        let mut reads = [ReadRequest::new(offset, &mut into)];
        file.read_batch(&mut reads);
        assert!(matches!(reads[0].result, Ok(0)), "{offset}: {:?}", reads[0].result);
    }
}

fn mm_file() -> File {
    let mm = manager(64, disk(1, 4 * PAGE as u64));
    mm.group("a").build().unwrap().open_options().write(true).open("f0").unwrap()
}

/// A file that another process (the "stranger") and a Pagefold change in turn, and the bytes that
/// it should have.
struct Stranger {
    world: World,
    random: Random,
    expected: Vec<u8>,
    next: u8,
    seen: [u32; 6],
}

impl Stranger {
    /// If another process cut off dirty pages, the first sync after that may report it as an error.
    fn sync(&self) {
        if self.world.file.sync().is_err() {
            self.world.file.sync().unwrap();
        }
    }

    /// Has Pagefold look at the length.
    fn look(&self) {
        assert_eq!(self.world.file.read_at(&mut [0], 1 << 40).unwrap(), 0);
    }

    fn step(&mut self) {
        let len = self.expected.len();
        // Never 0, and different from the values of the last 249 steps.
        self.next = self.next % 250 + 1;
        let value = self.next;
        let n = 1 + self.random.below(3 * PAGE as u64) as usize;
        let what = self.random.below(6) as usize;
        self.seen[what] += 1;
        match what {
            // The stranger appends.
            0 => {
                self.world.append(&vec![value; n]);
                // An append goes to the end of the file on disk. Bytes that Pagefold has appended,
                // but not written back, don't count.
                let on_disk = self.world.on_disk().len();
                self.expected.resize(on_disk.max(len), value);
            }
            // The stranger truncates the file. Pagefold notices before the file grows to its old
            // length again.
            1 => {
                self.sync();
                let to = len - self.random.below((len as u64 + 1).min(3 * n as u64)) as usize;
                self.world.cut(to as u64);
                self.expected.truncate(to);
                match self.random.below(3) {
                    0 => self.look(),
                    1 => self.sync(),
                    _ => drop(open_again(&self.world)),
                }
            }
            // The stranger overwrites a page in which nothing is dirty.
            2 if len >= PAGE => {
                let page = self.random.below((len / PAGE) as u64) as usize;
                let at = (page * PAGE) as u64;
                self.sync();
                let file = OpenOptions::new().write(true).open(self.world.path()).unwrap();
                file.write_all_at(&[value; PAGE], at).unwrap();
                self.world.file.advise(at..at + PAGE as u64, Advice::DontNeed).unwrap();
                self.expected[page * PAGE..][..PAGE].fill(value);
            }
            // Pagefold writes: at the end that it knows, past it, or before it.
            3 | 4 => {
                let known = self.world.file.len() as usize;
                let at = match self.random.below(3) {
                    0 => known,
                    1 => known + self.random.below(2 * PAGE as u64) as usize,
                    _ => self.random.below(known as u64 + 1) as usize,
                };
                self.world.file.write_at(&vec![value; n], at as u64).unwrap();
                self.expected.resize(len.max(at + n), 0);
                self.expected[at..at + n].fill(value);
            }
            _ => self.sync(),
        }
    }

    fn check(&mut self, seed: u64, step: u64) {
        let what = format!("seed {seed}, step {step}: ");
        self.look();
        assert_bytes(&self.world.read(0, self.expected.len() + PAGE), &self.expected, &format!("{what}what is read"));
        if self.random.one_in(3) {
            self.sync();
            assert_bytes(&self.world.on_disk(), &self.expected, &format!("{what}what is on the disk"));
        }
    }
}

/// A stranger appends to the file, truncates it and overwrites pages, while a Pagefold reads and
/// writes it. The bytes that either of them has written must stay; bytes that were cut off must not
/// come back.
#[test]
fn a_stranger_and_a_pagefold_keep_each_others_bytes() {
    for seed in 0..12 {
        let direct = if seed % 2 == 0 { DirectIo::Auto } else { DirectIo::Never };
        let world = World::new(direct, &[]);
        let mut it = Stranger { world, random: Random::seeded(seed), expected: Vec::new(), next: 0, seen: [0; 6] };
        for step in 0..150 {
            it.step();
            if it.random.one_in(3) {
                it.check(seed, step);
            }
        }
        it.check(seed, 150);
        assert!(it.seen.iter().all(|&seen| seen > 0), "{:?}", it.seen);
    }
}

/// An asynchronous read that crossed the known end of the file within a page returned only the
/// bytes up to this end. Later reads did the same, until another call asked for the file's length.
#[test]
fn an_asynchronous_read_finds_what_was_appended() {
    both_ways(|direct| {
        for (from, len) in [(5_000, 2_000), (4_500, 2_000), (0, 8_192), (0, 2_000), (6_000, 10)] {
            let world = World::new(direct, &[7; 5_000]);
            let whole = |file: &[u8]| file[from.min(file.len())..(from + len).min(file.len())].to_vec();
            let read = |file: &File| {
                let mut bytes = vec![0xee; len];
                let n = block_on(file.read_at_async(&mut bytes, from as u64)).unwrap();
                bytes.truncate(n);
                bytes
            };
            assert!(read(&world.file) == whole(&[7; 5_000]), "before, {len} bytes at {from}");
            world.append(&[9; 1_000]);
            assert!(read(&world.file) == whole(&world.on_disk()), "after, {len} bytes at {from}");
            // Pagefold can't adopt a new length while the page with the end is in use.
            let _pinned = world.file.page_at(4_096).unwrap();
            world.append(&[5; 4_000]);
            assert!(read(&world.file) == whole(&world.on_disk()), "with a pin, {len} bytes at {from}");
            assert!(world.read(from, len) == whole(&world.on_disk()), "like any other read");
        }
    });
}

/// Another process truncated the file, and a handle that can only read called `sync`. Each such
/// `sync` failed, wrote nothing, and recorded an error for all other handles.
#[test]
fn a_readers_sync_goes_on_after_a_cut() {
    both_ways(|direct| {
        let world = World::new(direct, &[7; 3 * PAGE]);
        let reader = world.file.group().open(world.path()).unwrap();
        world.file.write_at(&[8], 10).unwrap();
        world.cut(2 * PAGE as u64);
        reader.sync().unwrap();
        assert_eq!(world.on_disk()[10], 8);
        world.file.sync().unwrap();
    });
}
