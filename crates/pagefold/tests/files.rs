//! Files in the machine's own file system, and changes that other processes make to them.
#![cfg(not(pagefold_loom))]

mod support;

use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::Barrier;
use sync::atomic::{AtomicU64, Ordering};

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use pagefold::{Advice, Error, Group, Pagefold};
use sync::asleep::Sleeper;
use sync::{Arc, SharedBytes};

fn group() -> (Pagefold, Group) {
    let mm = Pagefold::builder().memory("8MiB").build().unwrap();
    let group = mm.group("a").build().unwrap();
    (mm, group)
}

#[test]
fn a_file_opened_twice_is_one_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("data"), dir.path().join("link"));
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    symlink(&path, &link).unwrap();
    let (mm, group) = group();
    let other = mm.group("b").build().unwrap();
    let (one, two, three) = (group.open(&path).unwrap(), group.open(&link).unwrap(), other.open(&path).unwrap());
    let mut buf = [0; 10];
    for file in [&one, &two, &three] {
        assert_eq!(file.read_at(&mut buf, 4096).unwrap(), 10);
    }
    assert_eq!((one.stats().misses, one.stats().hits), (1, 2));
    assert_eq!((group.charged(), other.charged()), (4096, 0), "who loads a page pays for it");
    assert_eq!((group.stats().hits, other.stats().hits), (1, 1));
    drop((one, two));
    assert_eq!(group.charged(), 4096, "the file is still open");
    three.close().unwrap();
    assert_eq!(group.charged(), 0);
}

#[test]
fn a_group_that_goes_takes_its_pages_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    let (mm, group) = group();
    let other = mm.group("b").build().unwrap();
    let (ours, theirs) = (group.open(&path).unwrap(), other.open(&path).unwrap());
    ours.read_at(&mut [0; 100_000], 0).unwrap();
    drop((ours, group));
    let stats = mm.stats();
    assert_eq!(stats.groups.len(), 1, "{stats}");
    theirs.read_at(&mut [0; 100_000], 0).unwrap();
    assert_eq!(other.stats().misses, 25);
    mm.group("a").build().expect("the name is free again");
}

#[test]
fn what_cannot_be_opened_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (_mm, group) = group();
    let missing = group.open(dir.path().join("missing")).unwrap_err();
    assert!(missing.to_string().contains("missing") && missing.to_string().contains("No such file"), "{missing}");
    let directory = group.open(dir.path()).unwrap_err();
    assert!(directory.to_string().contains("directory"), "{directory}");
    assert!(matches!(group.open("/dev/null"), Err(Error::OpenFailed { .. })));
    assert!(matches!(group.open(""), Err(Error::OpenFailed { .. })));
    assert!(matches!(group.open("a\0b"), Err(Error::OpenFailed { .. })));
}

#[test]
fn reads_at_and_past_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, (0..5000_u32).map(|i| i as u8).collect::<Vec<_>>()).unwrap();
    let (_mm, group) = group();
    let file = group.open(&path).unwrap();
    let mut buf = [9; 100];
    assert_eq!(file.read_at(&mut buf, 4950).unwrap(), 50);
    assert_eq!((buf[0], buf[49], buf[50]), (4950_u32 as u8, 4999_u32 as u8, 9));
    for offset in [5000, 5001, 1 << 40, u64::MAX - 10, u64::MAX] {
        assert_eq!(file.read_at(&mut buf, offset).unwrap(), 0, "at {offset}");
        assert!(matches!(file.read_exact_at(&mut buf, offset), Err(Error::PastEnd { .. })));
    }
    assert_eq!(file.read_at(&mut [], 17).unwrap(), 0);
    assert!(matches!(file.page_at(2 * 4096), Err(Error::PastEnd { len: 5000, .. })));
    assert!(matches!(file.page_at(u64::MAX), Err(Error::PastEnd { .. })));
    assert_eq!(file.page_at(4096).unwrap().len(), 904);
    file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    file.advise(u64::MAX..u64::MAX, Advice::WillNeed).unwrap();
    assert_eq!(group.charged(), 0);
    let empty = dir.path().join("empty");
    std::fs::write(&empty, []).unwrap();
    let empty = group.open(&empty).unwrap();
    assert!(empty.is_empty());
    assert_eq!(empty.read_at(&mut buf, 0).unwrap(), 0);
    assert!(empty.page_at(0).is_err());
}

/// Another process truncates and extends the file. A read may return old or new bytes, may be
/// short, or may fail. It must never end in a signal. It must never return zeros where the file has
/// bytes, although the rest of a page past the file's end is filled with zeros.
#[test]
fn files_that_others_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 50_000]).unwrap();
    let (_mm, group) = group();
    let file = group.open(&path).unwrap();
    let mut buf = vec![0; 60_000];
    assert_eq!(file.read_at(&mut buf[..100], 0).unwrap(), 100);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(6_000).unwrap();
    let n = file.read_at(&mut buf, 0).unwrap();
    assert_eq!((n, file.len()), (6_000, 6_000));
    assert!(buf[..n].iter().all(|&byte| byte == 1));
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&[2; 9_000]).unwrap();
    assert_eq!(file.len(), 6_000, "as long as it was when somebody last looked");
    let n = file.read_at(&mut buf, 0).unwrap();
    assert_eq!((n, file.len()), (15_000, 15_000), "a read that meets the end looks again");
    assert!(buf[..6_000].iter().all(|&byte| byte == 1));
    assert!(buf[6_000..n].iter().all(|&byte| byte == 2), "a stale tail");
    drop(std::fs::remove_file(&path));
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 15_000, "open files outlive their names");
}

#[test]
fn a_panic_with_a_guard_unpins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 8 << 20]).unwrap();
    let mm = Pagefold::builder().memory("1MiB").build().unwrap();
    let file = mm.group("a").max("64KiB").build().unwrap().open(&path).unwrap();
    for page in 0..200 {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _pin = file.page_at(page * 4096).unwrap();
            panic!("on purpose");
        }));
        assert!(caught.is_err());
    }
    file.read_at(&mut [0; 1 << 20], 0).unwrap();
}

/// A leaked guard keeps its page pinned forever. This must neither block the closing of the file
/// nor let the page's frame be reused.
#[test]
fn a_leaked_guard_costs_its_page_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let (mm, group) = group();
    let file = group.open(&path).unwrap();
    std::mem::forget(file.page_at(3 * 4096).unwrap());
    drop(file);
    let file = group.open(&path).unwrap();
    file.read_at(&mut [0; 1 << 20], 0).unwrap();
    drop(file);
    assert_eq!(group.charged(), 4096);
    drop(mm);
}

#[test]
fn a_forked_child_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    let (mm, group) = group();
    let file = group.open(&path).unwrap();
    let mut buf = [0; 100];
    file.read_at(&mut buf, 0).unwrap();
    // SAFETY: the child calls only Pagefold, which refuses the call, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(file.read_at(&mut buf, 0), Err(Error::Forked))
            && matches!(file.page_at(0), Err(Error::Forked))
            && matches!(group.open(&path), Err(Error::Forked));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) }
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child wasn't refused");
    assert_eq!(file.read_at(&mut buf, 50).unwrap(), 100, "the parent goes on");
    drop(mm);
}

/// A backend in which each read waits for the test at a barrier twice: when it begins, and before
/// it succeeds or fails.
struct Slow {
    meet: Arc<Barrier>,
    reads: Arc<AtomicU64>,
    fail: bool,
}

struct SlowFile {
    meet: Arc<Barrier>,
    reads: Arc<AtomicU64>,
    fail: bool,
}

impl Backend for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn open(&self, _: &std::path::Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(SlowFile { meet: Arc::clone(&self.meet), reads: Arc::clone(&self.reads), fail: self.fail }))
    }
}

impl BackingFile for SlowFile {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 0 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(1 << 20)
    }

    fn read(&self, _: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.meet.wait();
        self.meet.wait();
        if self.fail {
            return Err(IoError::IO);
        }
        into[0].zero_from(0);
        Ok(into[0].len())
    }
}

#[test]
fn a_page_has_one_loader_and_all_who_wait_get_its_error() {
    for fail in [false, true] {
        let (meet, reads) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU64::new(0)));
        let backend = Slow { meet: Arc::clone(&meet), reads: Arc::clone(&reads), fail };
        let mm = Pagefold::builder().memory("1MiB").backend(backend).build().unwrap();
        let file = mm.group("a").build().unwrap().open("any").unwrap();
        let threads: [Sleeper; 5] = Default::default();
        std::thread::scope(|scope| {
            let loader = scope.spawn(|| file.read_at(&mut [0; 8], 0));
            meet.wait(); // The loader is reading.
            let read = || file.read_at(&mut [0; 8], 100);
            let waiters: Vec<_> = threads.iter().map(|thread| scope.spawn(move || thread.run(read))).collect();
            let all_wait = threads.iter().all(Sleeper::sleeps);
            meet.wait();
            assert!(all_wait, "five threads that want a page in *loading* don't sleep");
            for result in [loader].into_iter().chain(waiters).map(|thread| thread.join().unwrap()) {
                match result {
                    Ok(8) if !fail => {}
                    Err(Error::ReadFailed { page: 0, error: IoError::IO, .. }) if fail => {}
                    other => panic!("{other:?}"),
                }
            }
        });
        assert_eq!(reads.load(Ordering::Relaxed), 1, "one read for all");
        assert_eq!(file.stats().waits, 5);
    }
}

#[test]
fn statistics_read_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("da\"ta");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    let (mm, group) = group();
    let file = group.open(&path).unwrap();
    for _ in 0..3 {
        file.read_at(&mut [0; 4096], 0).unwrap();
    }
    let stats = mm.stats();
    assert!((stats.groups[0].hit_rate() - 2.0 / 3.0).abs() < 1e-9);
    assert!(stats.to_string().contains("66.67%"), "{stats}");
    #[cfg(feature = "prometheus")]
    {
        let text = stats.to_prometheus();
        for line in [
            "pagefold_group_hits_total{group=\"a\"} 2",
            "pagefold_group_misses_total{group=\"a\"} 1",
            "pagefold_group_read_bytes_total{group=\"a\"} 4096",
            "pagefold_budget_bytes 8388608",
        ] {
            assert!(text.contains(line), "{line} isn't in:\n{text}");
        }
        assert!(text.contains("da\\\"ta"), "labels are escaped:\n{text}");
    }
}
