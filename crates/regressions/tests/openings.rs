//! Files that differ, when they are opened, from what they seem to be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use pagefold::{Error, Pagefold};
use sync::SharedBytes;
use test_disks::SimulatedDisk;

use crate::support::{bytes_on, disk, manager, read};

/// A monitoring agent read `/proc/self/status` and got `Ok(0)`. The kernel reports the length 0 for
/// such files, and generates their bytes when they are read. `open` must refuse them.
#[test]
fn a_file_without_a_length_is_refused_at_its_opening() {
    let mm = Pagefold::builder().memory("1MiB").build().unwrap();
    let group = mm.group("agent").build().unwrap();
    let empty = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    assert_eq!(group.open(empty.path()).unwrap().read_at(&mut [0; 10], 0).unwrap(), 0, "an empty file is one");
    let sized_by_the_page = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    for path in [Path::new("/proc/self/status"), Path::new("/proc/self/mountinfo"), sized_by_the_page] {
        if !path.exists() {
            println!("not here: {}", path.display());
            continue;
        }
        let opened = group.open(path).map(|file| file.len());
        assert!(matches!(&opened, Err(Error::OpenFailed { error: IoError::NoLength, .. })), "{opened:?}");
        let said = opened.unwrap_err().to_string();
        assert!(said.contains(path.to_str().unwrap()) && said.contains("how long"), "{said}");
    }
}

/// A union file system gave two files the same device and inode numbers. A caller opened the second
/// file while the first one was open, and its reads and writes went to the first file.
#[test]
fn two_files_with_the_same_numbers_are_two_files() {
    let disk: SimulatedDisk = disk(3, 1 << 16);
    disk.number_alike();
    let mm = manager(256, disk.clone());
    let group = mm.group("tenant").build().unwrap();
    let open = |name| group.open_options().write(true).open(name).unwrap();
    let (first, second, third) = (open("f0"), open("f1"), open("f2"));
    for (seed, file) in [&first, &second, &third].into_iter().enumerate() {
        read(file, seed as u64, 0, 1 << 16).unwrap();
    }
    // Two handles of one file still share their pages, also after another file was closed.
    drop(first);
    let again = open("f1");
    again.write_at(b"in memory", 100).unwrap();
    let mut bytes = [0; 9];
    second.read_exact_at(&mut bytes, 100).unwrap();
    assert_eq!(&bytes, b"in memory");
    read(&open("f0"), 0, 0, 1 << 16).unwrap();
    drop((again, second));
    assert_eq!(&bytes_on(&disk, "f1")[100..109], b"in memory");
    read(&third, 2, 0, 1 << 16).unwrap();
    assert_eq!(mm.stats().files.len(), 1);
}

/// Panics when it opens a file, or when it is asked for a file's length.
struct Panics {
    in_open: bool,
}

impl Backend for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        assert!(!self.in_open, "on purpose");
        Ok(Box::new(Self { in_open: false }))
    }
}

impl BackingFile for Panics {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 7 }
    }

    fn len(&self) -> Result<u64, IoError> {
        panic!("on purpose")
    }

    fn read(&self, _: u64, _: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        Ok(0)
    }
}

/// A backend panicked as a file was opened. What had been charged for the handle stayed charged.
#[test]
fn an_opening_in_which_the_backend_panics_leaves_nothing_charged() {
    for in_open in [true, false] {
        let mm = manager(64, Panics { in_open });
        let group = mm.group("tenant").build().unwrap();
        let before = mm.used();
        let opened = catch_unwind(AssertUnwindSafe(|| group.open("f").map(drop)));
        assert!(opened.is_err(), "the panic doesn't reach the caller: {opened:?}");
        assert_eq!(mm.used(), before, "in_open: {in_open}");
    }
}
