//! Tests of the backend for the machine's files. The file system of the temporary directory may or
//! may not support direct I/O. So a test that needs direct or buffered files checks first whether
//! it gets them; if not, the test reports that it is skipped.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode};
use sync::atomic::AtomicU64;
use tempfile::TempDir;

use super::*;
use crate::patience::not_here;
use crate::read_full;

pub(super) const PAGE: usize = 4096;

/// Pages aligned to 4 KiB, for a run of `pages`.
pub(super) struct Pages {
    words: Vec<AtomicU64>,
    start: usize,
    len: usize,
}

impl Pages {
    pub(super) fn new(pages: usize) -> Self {
        let words: Vec<_> = (0..(pages + 1) * PAGE / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
        let start = words.as_ptr().align_offset(PAGE);
        Self { words, start, len: pages * PAGE / 8 }
    }

    pub(super) fn bytes(&self) -> SharedBytes<'_> {
        SharedBytes::new(&self.words[self.start..self.start + self.len])
    }

    /// Returns one of the pages.
    pub(super) fn page(&self, number: usize) -> SharedBytes<'_> {
        let start = self.start + number * PAGE / 8;
        SharedBytes::new(&self.words[start..start + PAGE / 8])
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len * 8];
        self.bytes().copy_to(0, &mut bytes);
        bytes
    }
}

pub(super) fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at % 253) as u8).collect()
}

pub(super) fn file_of(dir: &TempDir, len: usize) -> PathBuf {
    let path = dir.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&contents(len)).unwrap();
    file.sync_all().unwrap();
    path
}

pub(super) fn takes_direct(path: &Path) -> bool {
    let takes = Posix::new(DirectIo::Always).open_file(path, Access::Read).is_ok();
    if !takes {
        not_here("direct I/O on the temporary directory's file system");
    }
    takes
}

#[test]
fn every_byte_comes_and_what_lies_past_the_end_is_zero() {
    for len in [0, 1, 511, 4096, 10_000, 16_384, 100_001] {
        let dir = tempfile::tempdir().unwrap();
        let path = file_of(&dir, len);
        for direct in [DirectIo::Auto, DirectIo::Never] {
            let file = Posix::new(direct).open(&path, Access::Read).unwrap();
            assert_eq!(file.len(), Ok(len as u64));
            for offset in (0..len + 2 * PAGE).step_by(PAGE) {
                let pages = Pages::new(3);
                let n = read_full(&*file, offset as u64, pages.bytes()).unwrap();
                assert_eq!(n, len.saturating_sub(offset).min(3 * PAGE), "{direct:?}");
                let mut wanted = contents(len).get(offset..offset + n).unwrap_or_default().to_vec();
                wanted.resize(3 * PAGE, 0);
                assert!(pages.to_vec() == wanted, "{direct:?}: {len} bytes, at {offset}");
            }
        }
    }
}

/// Returns the number of the file's pages in the kernel's cache.
#[allow(unsafe_code)]
pub(super) fn resident(path: &Path, len: usize) -> usize {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut in_core = vec![0; len.div_ceil(PAGE)];
    // SAFETY: this function creates the mapping, never accesses its bytes, and unmaps it at the
    // end. `in_core` has an entry for each page of the mapping.
    unsafe {
        let at = mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0).unwrap();
        assert_eq!(libc::mincore(at, len, in_core.as_mut_ptr()), 0);
        munmap(at, len).unwrap();
    }
    in_core.iter().filter(|&&page| page & 1 == 1).count()
}

fn forget_all(path: &Path) {
    fs::fadvise(File::open(path).unwrap(), 0, None, Advice::DontNeed).unwrap();
}

/// Makes the kernel drop its cached pages of the file, and reads the whole file. Returns how many
/// of the file's pages are in the kernel's cache before the file is closed, and how many are there
/// afterwards.
fn residue(direct: DirectIo, path: &Path, len: usize) -> (usize, usize) {
    forget_all(path);
    let file = Posix::new(direct).open_file(path, Access::Read).unwrap();
    let pages = Pages::new(1);
    for offset in (0..len).step_by(PAGE) {
        read_full(&file, offset as u64, pages.bytes()).unwrap();
    }
    let open = resident(path, len);
    drop(file);
    (open, resident(path, len))
}

/// The kernel may refuse to drop a page now and then, but not every time.
pub(super) const TRIES: usize = 5;

#[test]
fn the_kernel_keeps_no_second_copy() {
    const LEN: usize = 300 * PAGE;
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, LEN);
    forget_all(&path);
    if resident(&path, LEN) != 0 {
        not_here("a temporary directory whose file system forgets pages");
        return;
    }
    // The kernel keeps a page that it is using at that moment, so the test tries several times.
    let keeps_none = |direct, open_max| {
        let residues: Vec<_> = (0..TRIES).map(|_| residue(direct, &path, LEN)).collect();
        let drops = residues.iter().any(|&(open, closed)| open <= open_max && closed == 0);
        assert!(drops, "{direct:?}: pages while open, and after closing: {residues:?}");
    };
    keeps_none(DirectIo::Never, 63);
    if takes_direct(&path) {
        keeps_none(DirectIo::Auto, 0);
    }
}

#[test]
fn a_refused_direct_read_is_done_buffered() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, 4 * PAGE);
    if !takes_direct(&path) {
        return;
    }
    // No disk has blocks of 8 bytes, so this is rejected.
    let always = Posix::new(DirectIo::Always).open_file(&path, Access::Read).unwrap();
    let pages = Pages::new(1);
    assert_eq!(always.read(8, &[pages.bytes()]), Err(IoError::INVALID));
    let auto = Posix::new(DirectIo::Auto).open_file(&path, Access::Read).unwrap();
    assert!(auto.direct.load(Ordering::Relaxed));
    for _ in 0..2 {
        assert_eq!(auto.read(8, &[pages.bytes()]), Ok(PAGE));
        assert!(pages.to_vec() == contents(4 * PAGE)[8..8 + PAGE]);
        assert!(!auto.direct.load(Ordering::Relaxed));
    }
    assert!(!fs::fcntl_getfl(&auto.fd).unwrap().contains(OFlags::DIRECT));
}

/// Regression: buffered files were treated as files in memory. So there was no readahead, and the
/// pages of a batch were read one after the other.
#[test]
fn a_buffered_file_is_read_from_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, PAGE);
    let file = Posix::new(DirectIo::Never).open_file(&path, Access::Read).unwrap();
    assert_eq!(file.reads_by_copy(), file.in_memory);
}

#[test]
fn direct_reads_that_want_more_than_pages_are_not_tried() {
    assert_eq!([0, 1, 4, 512, 4096, 8192, 65_536].map(suits), [false, true, true, true, true, false, false]);
}

#[test]
fn a_range_that_no_file_has_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, PAGE);
    let file = Posix::default().open_file(&path, Access::Read).unwrap();
    let direct = file.direct.load(Ordering::Relaxed);
    for offset in [u64::MAX, u64::MAX - 4095, i64::MAX as u64 - 4095, 1 << 63] {
        assert_eq!(file.read(offset, &[Pages::new(2).bytes()]), Err(IoError::INVALID));
    }
    assert_eq!(file.direct.load(Ordering::Relaxed), direct);
}

#[test]
fn a_file_in_memory_is_read_buffered_and_keeps_its_pages() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return not_here("/dev/shm") };
    let path = file_of(&dir, 100 * PAGE);
    if fs::statfs(&path).unwrap().f_type != MEMORY_FILE_SYSTEMS[0] {
        return not_here("tmpfs in /dev/shm");
    }
    let file = Posix::default().open_file(&path, Access::Read).unwrap();
    assert!(file.in_memory && !file.direct.load(Ordering::Relaxed) && file.reads_by_copy());
    let pages = Pages::new(100);
    assert_eq!(read_full(&file, 0, pages.bytes()), Ok(100 * PAGE));
    assert!(pages.to_vec() == contents(100 * PAGE));
    assert_eq!(file.drop_behind.finish(|range| panic!("{range:?} noted")), ());
    assert!(matches!(Posix::new(DirectIo::Always).open(&path, Access::Read), Err(IoError::INVALID)));
}

#[test]
fn only_files_and_disks_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let errno = |path: &Path| Posix::default().open(path, Access::Read).err().and_then(IoError::errno);
    assert_eq!(errno(dir.path()), Some(libc::EISDIR));
    assert_eq!(errno(&dir.path().join("nothing")), Some(libc::ENOENT));
    let pipe = dir.path().join("pipe");
    fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    // The files below have no length that can be relied on, so opening them must fail. Regression:
    // files in /proc and /sys could be opened. Reads of these files then returned no bytes, or
    // zeros past the file's real end.
    let made_up = [Path::new("/proc/self/status"), Path::new("/sys/kernel/mm/transparent_hugepage/enabled")];
    for path in [Path::new("/dev/null"), Path::new("/dev/zero"), &pipe].into_iter().chain(made_up) {
        if path.exists() {
            let opened = Posix::default().open(path, Access::Read).map(|file| file.len());
            assert!(matches!(opened, Err(IoError::NoLength)), "{path:?}: {opened:?}");
        }
    }
}

#[test]
fn a_file_is_the_same_under_each_of_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, 10);
    let (link, other) = (dir.path().join("link"), dir.path().join("other"));
    std::fs::hard_link(&path, &link).unwrap();
    std::fs::copy(&path, &other).unwrap();
    let identity = |path: &Path| Posix::default().open(path, Access::Read).unwrap().identity();
    assert_eq!(identity(&path), identity(&link));
    assert_ne!(identity(&path), identity(&other));
}

#[test]
fn the_length_is_the_one_of_now() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(&dir, 3 * PAGE);
    let file = Posix::default().open(&path, Access::Read).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert_eq!(file.len(), Ok(100));
    let pages = Pages::new(2);
    assert_eq!(read_full(&*file, 0, pages.bytes()), Ok(100));
    assert!(pages.to_vec()[100..].iter().all(|&byte| byte == 0));
}

#[test]
fn files_close_on_exec() {
    let dir = tempfile::tempdir().unwrap();
    let file = Posix::default().open_file(&file_of(&dir, 1), Access::Read).unwrap();
    assert!(rustix::io::fcntl_getfd(&file.fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
}
