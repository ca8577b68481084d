//! Files that become much longer while they are open. The size of a file's page map was fixed when
//! the file was opened: 1 GiB for a short file that was opened for reading, 64 GiB for one that was
//! opened for writing. Once the file was longer than its page map, each handle of it failed with
//! `FileTooLarge`. Page maps must grow with their files.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use pagefold::io::{DirectIo, Posix};
use pagefold::{Error, File, Group, Pagefold, Protection, ReadRequest, WriteRequest};
use test_disks::SimulatedDisk;

use crate::support::{manager, within_limit};

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
const FAR: u64 = 100 * GIB;
const TIB: u64 = 1 << 40;

fn open(group: &Group, path: &Path, write: bool) -> File {
    group.open_options().write(write).open(path).unwrap()
}

fn group(mm: &Pagefold) -> Group {
    mm.group("a").build().unwrap()
}

fn page_at(file: &File, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; PAGE as usize];
    let n = file.read_at(&mut bytes, offset).unwrap();
    bytes.truncate(n);
    bytes
}

/// Calls `test` once for each kind of backend, with a group of this backend and the path of a file
/// there. The file has 4096 bytes, all of them 1.
fn in_each_way(test: impl Fn(&Group, &Path)) {
    let disk = SimulatedDisk::default();
    disk.add_bytes("small", vec![1; PAGE as usize]);
    test(&group(&manager(256, disk)), Path::new("small"));
    for direct in [DirectIo::Auto, DirectIo::Never] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("small");
        std::fs::write(&path, [1; PAGE as usize]).unwrap();
        test(&group(&manager(256, Posix::new(direct))), &path);
    }
}

#[test]
fn a_small_file_grows_by_a_write_far_behind_its_end() {
    in_each_way(|group, path| {
        let (reader, writer) = (open(group, path, false), open(group, path, true));
        writer.write_at(&[2; PAGE as usize], FAR).unwrap();
        writer.write_at(&[3; 10], FAR + PAGE).unwrap();
        for file in [&reader, &writer] {
            assert_eq!(file.len(), FAR + PAGE + 10);
            assert!(page_at(file, 0) == [1; PAGE as usize] && page_at(file, FAR) == [2; PAGE as usize]);
            assert!(page_at(file, FAR - 7 * GIB) == [0; PAGE as usize], "a gap is zeros");
            assert_eq!(page_at(file, FAR + PAGE), [3; 10]);
            assert_eq!(file.page_at(FAR).unwrap()[..], [2; PAGE as usize]);
        }
        writer.page_mut_at(FAR).unwrap()[5] = 4;
        let bytes = [5; 10];
        let mut writes = [WriteRequest::new(FAR + 100, &bytes), WriteRequest::new(FAR - 100, &bytes)];
        writer.write_batch(&mut writes);
        assert!(writes.iter().all(|write| write.result.is_ok()));
        writer.sync().unwrap();
        drop((reader, writer));
        let file = open(group, path, false);
        let (mut one, mut other) = ([0; 10], [0; 10]);
        let mut reads = [ReadRequest::new(FAR + 100, &mut one), ReadRequest::new(FAR - 100, &mut other)];
        file.read_batch(&mut reads);
        assert!(reads.iter().all(|read| matches!(read.result, Ok(10))) && one == bytes && other == bytes);
        assert_eq!(page_at(&file, FAR)[..7], [2, 2, 2, 2, 2, 4, 2]);
        assert!(within_limit(file.group()));
    });
}

#[test]
fn a_reader_follows_a_file_that_another_process_makes_much_longer() {
    for direct in [DirectIo::Auto, DirectIo::Never] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("small");
        std::fs::write(&path, [1; PAGE as usize]).unwrap();
        let group = group(&manager(256, Posix::new(direct)));
        let (file, other) = (open(&group, &path, false), open(&group, &path, false));
        let stranger = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        stranger.write_all_at(&[9; 100], FAR).unwrap();
        assert_eq!(page_at(&file, FAR), [9; 100]);
        assert_eq!((other.len(), other.page_at(FAR).unwrap().len()), (FAR + 100, 100));
        stranger.set_len(TIB).unwrap();
        assert_eq!(page_at(&other, TIB - PAGE), [0; PAGE as usize]);
        assert_eq!(page_at(&file, TIB), []);
        stranger.set_len(PAGE).unwrap();
        assert_eq!(page_at(&file, TIB), []);
        assert_eq!(page_at(&file, FAR), [], "it was cut off");
        stranger.set_len(FAR + PAGE).unwrap();
        assert!(page_at(&file, FAR) == [0; PAGE as usize], "what was cut off came back");
    }
}

#[test]
fn set_len_goes_up_and_down() {
    in_each_way(|group, path| {
        let (file, reader) = (open(group, path, true), open(group, path, false));
        for round in 1..4 {
            file.set_len(TIB).unwrap();
            assert!(page_at(&reader, TIB - PAGE) == [0; PAGE as usize], "round {round}");
            assert!(page_at(&reader, FAR) == [0; PAGE as usize], "round {round}");
            file.write_at(&[round; PAGE as usize], TIB - PAGE).unwrap();
            file.write_at(&[round; PAGE as usize], FAR).unwrap();
            file.set_len(FAR + 10).unwrap();
            assert_eq!(page_at(&reader, FAR), [round; 10]);
            assert_eq!(page_at(&reader, TIB - PAGE), []);
            file.set_len(PAGE).unwrap();
            assert_eq!(reader.len(), PAGE);
        }
        file.close().unwrap();
    });
}

/// A file may have up to `i64::MAX` bytes, the largest `off_t`.
#[test]
fn the_largest_file() {
    const MAX: u64 = i64::MAX as u64;
    let disk = SimulatedDisk::default();
    disk.add_bytes("small", vec![1; PAGE as usize]);
    let mm = manager(256, disk);
    let group = group(&mm);
    let before = mm.stats().used_bytes;
    let (file, reader) = (open(&group, Path::new("small"), true), open(&group, Path::new("small"), false));
    file.write_at(&[7; 10], MAX - 10).unwrap();
    assert_eq!(reader.len(), MAX);
    assert_eq!(page_at(&reader, MAX - 10), [7; 10]);
    assert!(page_at(&reader, 0) == [1; PAGE as usize]);
    for offset in [MAX - 9, MAX, 1 << 63, u64::MAX - 10] {
        assert!(matches!(file.write_at(&[7; 10], offset), Err(Error::FileTooLarge { .. })), "{offset}");
    }
    assert!(matches!(file.set_len(MAX + 1), Err(Error::FileTooLarge { .. })));
    file.sync().unwrap();
    file.set_len(2 * PAGE).unwrap();
    file.set_len(MAX).unwrap();
    assert_eq!(page_at(&reader, MAX - 10), [0; 10]);
    drop((file, reader));
    let reader = open(&group, Path::new("small"), false);
    assert_eq!(page_at(&reader, MAX - 5), [0; 5]);
    drop(reader);
    assert!(mm.stats().used_bytes <= before + (1 << 20), "{} and {before} bytes", mm.stats().used_bytes);
}

/// Reads one page in each GiB of a sparse file of 1 TiB. All these pages, with their page words,
/// need more memory than the budget has. The page map takes memory only for the pages that are
/// read, and gives all of it back.
#[test]
fn a_sparse_file_is_read_all_over() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("small", vec![1; PAGE as usize]);
    let mm = manager(512, disk.clone());
    let group = group(&mm);
    let file = open(&group, Path::new("small"), false);
    disk.grow("small", TIB).unwrap();
    for round in 0..2 {
        for at in (1..TIB / GIB).rev() {
            assert!(page_at(&file, at * GIB - PAGE) == [0; PAGE as usize], "round {round}, at {at} GiB");
        }
    }
    assert!(mm.stats().used_bytes <= mm.stats().budget_bytes);
    drop(file);
    assert_eq!((mm.stats().map_bytes, mm.stats().metadata_bytes), (0, mm.stats().metadata_bytes));
}

/// Maps a part of a file that lies past the file's end, and past its page map. Then the file grows
/// into this part.
#[test]
fn a_mapping_reaches_what_a_file_has_grown_to() {
    in_each_way(|group, path| {
        let file = open(group, path, true);
        let space = group.space().unwrap();
        let area = space.map_file(&file, FAR, 2 * PAGE, Protection::ReadWrite).unwrap();
        assert!(space.read_at(&mut [0; 10], area.start).is_err(), "behind the end");
        file.write_at(&[2; 2 * PAGE as usize], FAR).unwrap();
        let mut bytes = [0; 10];
        for _ in 0..2 {
            space.read_at(&mut bytes, area.start + PAGE - 5).unwrap();
            assert_eq!(bytes, [2; 10]);
        }
        space.write_at(&[3; 10], area.start + PAGE - 5).unwrap();
        file.read_exact_at(&mut bytes, FAR + PAGE - 5).unwrap();
        assert_eq!(bytes, [3; 10]);
        space.sync(area.clone()).unwrap();
        space.unmap(area).unwrap();
    });
}
