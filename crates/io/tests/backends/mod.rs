//! A file on each backend, and requests that are checked.
#![allow(dead_code, reason = "each test uses some of it")]

#[path = "../../src/patience.rs"]
pub(crate) mod patience;

use std::path::{Path, PathBuf};

use pagefold_io::{Access, Backend, BackingFile, Direction, IoError, Posix, Request, ThreadPool};
#[cfg(feature = "uring")]
use pagefold_io::{DirectIo, Uring};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use test_disks::{SimulatedDisk, Timing};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const FILE_LEN: u64 = 264 * PAGE;

/// The word at `offset`, a multiple of 8, in `version` of the file. The file begins as version 0.
pub(crate) fn wanted_word(version: u64, offset: u64) -> u64 {
    test_disks::generated_word(version, offset)
}

/// Creates the file, in version 0.
pub(crate) fn write_file(path: &Path) {
    let bytes: Vec<u8> = (0..FILE_LEN / 8).flat_map(|at| wanted_word(0, at * 8).to_ne_bytes()).collect();
    std::fs::write(path, bytes).unwrap();
}

/// A pool of four threads, on the machine's files.
pub(crate) fn threads() -> Box<dyn Backend> {
    Box::new(ThreadPool::new(Posix::default(), 4).unwrap())
}

/// The io_uring backend. `None` if this machine has no io_uring.
#[cfg(feature = "uring")]
pub(crate) fn uring() -> Option<Uring> {
    let uring = Uring::new(DirectIo::Auto);
    let refusal = uring.as_ref().err().and_then(|error| error.errno());
    patience::has_uring(refusal).then(|| uring.unwrap())
}

/// One backend, and a file on it.
pub(crate) struct World {
    pub name: String,
    backend: Arc<dyn Backend>,
    path: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl World {
    fn on_disk(name: &str, backend: impl Backend) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("file");
        write_file(&path);
        Self { name: name.to_owned(), backend: Arc::new(backend), path, _directory: Some(directory) }
    }

    fn simulated(name: &str, wrap: impl FnOnce(SimulatedDisk) -> Arc<dyn Backend>) -> Self {
        let disk = SimulatedDisk::new(Timing::default());
        disk.add_generated("file", 0, FILE_LEN);
        Self { name: name.to_owned(), backend: wrap(disk), path: PathBuf::from("file"), _directory: None }
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(&self, access: Access) -> Box<dyn BackingFile> {
        self.backend.open(&self.path, access).unwrap()
    }
}

/// Calls `test` with each backend, and a fresh file.
pub(crate) fn each_world(test: impl Fn(&World)) {
    let reordered = |disk: SimulatedDisk| -> Arc<dyn Backend> {
        disk.reorder(1);
        Arc::new(disk)
    };
    test(&World::on_disk("posix", Posix::default()));
    test(&World::on_disk("threads", threads()));
    #[cfg(feature = "uring")]
    if let Some(uring) = uring() {
        test(&World::on_disk("uring", uring));
    }
    test(&World::simulated("simulated", |disk| Arc::new(disk)));
    test(&World::simulated("simulated, reordered", reordered));
    test(&World::simulated("threads on a simulated disk", |disk| Arc::new(ThreadPool::new(disk, 2).unwrap())));
}

/// The offset and result of each completed request, in the order of completion.
type Results = Vec<(u64, Result<usize, IoError>)>;

/// Requests that check their bytes when they complete.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    made: AtomicU64,
    over: AtomicU64,
    results: Mutex<Results>,
}

impl Batch {
    /// Creates a read of `pages` pages at `offset`. Each page has its own memory.
    pub(crate) fn read(&self, offset: u64, pages: u64) -> Request {
        let memory: Vec<Box<[AtomicU64]>> =
            (0..pages).map(|_| (0..PAGE / 8).map(|_| AtomicU64::new(u64::MAX)).collect()).collect();
        self.shared.made.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let then = move |memory: Vec<Box<[AtomicU64]>>, result: Result<usize, IoError>| {
            let words = memory.iter().flatten().map(|word| word.load(Ordering::Relaxed));
            for (at, word) in words.enumerate().filter(|_| result.is_ok()) {
                let at = at as u64 * 8;
                let wanted = if at < result.unwrap() as u64 { wanted_word(0, offset + at) } else { 0 };
                assert_eq!(word, wanted, "{result:?} at {offset} + {at}");
            }
            shared.note(offset, result);
        };
        let request = Request::read(offset, memory, then).unwrap();
        assert_eq!((request.direction(), request.offset()), (Direction::Read, offset));
        request
    }

    /// Creates a write of `len` bytes of `version`, from `pages` pages of memory.
    pub(crate) fn write(&self, offset: u64, pages: u64, len: u64, version: u64) -> Request {
        let page = |page: u64| -> Box<[AtomicU64]> {
            (0..PAGE / 8).map(|at| AtomicU64::new(wanted_word(version, offset + page * PAGE + at * 8))).collect()
        };
        let memory: Vec<_> = (0..pages).map(page).collect();
        self.shared.made.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        Request::write(offset, memory, len as usize, move |_, result| shared.note(offset, result)).unwrap()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Acquire) == self.shared.made.load(Ordering::Relaxed)
    }

    /// The results, sorted by offset.
    pub(crate) fn results(&self) -> Results {
        let mut results = self.in_order();
        results.sort_by_key(|&(offset, _)| offset);
        results
    }

    pub(crate) fn in_order(&self) -> Results {
        self.shared.results.lock().clone()
    }
}

impl Shared {
    fn note(&self, offset: u64, result: Result<usize, IoError>) {
        self.results.lock().push((offset, result));
        // Release: pairs with `is_over`.
        self.over.fetch_add(1, Ordering::Release);
    }
}
