//! A group with a directory of files, and threads.

use std::path::PathBuf;

use pagefold::{File, Group, Pagefold, Protection};
use sync::Arc;
use sync::thread::JoinHandle;
use sync::time::{Duration, Instant};

use crate::support::WATCHDOG;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const RW: Protection = Protection::ReadWrite;

pub(crate) struct World {
    pub(crate) mm: Pagefold,
    pub(crate) group: Group,
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(limit: &str) -> Self {
        let mm = Pagefold::builder().memory("64MiB").build().unwrap();
        let group = mm.group("a").max(limit).build().unwrap();
        Self::of(mm, group)
    }

    pub(crate) fn of(mm: Pagefold, group: Group) -> Self {
        Self { mm, group, dir: tempfile::tempdir().unwrap() }
    }

    /// Waits until nothing is charged. The flusher may still use a file that was just closed.
    pub(crate) fn is_freed(&self) -> bool {
        Self::ends(|| self.group.charged() > 0)
    }

    /// Waits until no file is open, for the same reason.
    pub(crate) fn has_closed_files(&self) -> bool {
        Self::ends(|| !self.mm.stats().files.is_empty())
    }

    fn ends(goes_on: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        while goes_on() {
            if start.elapsed() >= WATCHDOG {
                return false;
            }
            sync::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a file of `len` bytes, to be read and written. Each byte of page `n` is `n + 1`.
    pub(crate) fn file(&self, name: &str, len: u64) -> File {
        let bytes: Vec<u8> = (0..len).map(|at| (at / PAGE + 1) as u8).collect();
        std::fs::write(self.path(name), bytes).unwrap();
        self.group.open_options().write(true).open(self.path(name)).unwrap()
    }
}

/// Starts `count` threads. They aren't scoped, because ThreadSanitizer doesn't see how scoped
/// threads end.
pub(crate) fn threads(count: u64, body: impl Fn(u64) + Send + Sync + 'static) -> Vec<JoinHandle<()>> {
    let body = Arc::new(body);
    let spawn = |thread| {
        let body = Arc::clone(&body);
        sync::thread::spawn("space", move || body(thread)).unwrap()
    };
    (0..count).map(spawn).collect()
}

pub(crate) fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
