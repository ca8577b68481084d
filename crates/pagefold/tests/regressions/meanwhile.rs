//! Other threads that keep going while a test looks at what comes of it.

use std::time::Instant;
use sync::atomic::{AtomicBool, Ordering};

use pagefold::{Advice, File};

use crate::hooked::PATIENCE;

/// Does `work(thread)` again and again in `threads` threads, while `body` runs in this one.
pub(crate) fn meanwhile<T>(threads: u64, work: impl Fn(u64) + Sync, body: impl FnOnce() -> T) -> T {
    struct StopOnDrop<'a>(&'a AtomicBool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (stop, work) = (AtomicBool::new(false), &work);
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&stop); // Also when `body` fails.
        for thread in 0..threads {
            let stop = stop.0;
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    work(thread);
                }
            });
        }
        body()
    })
}

/// Reads a little of each of the first `pages` pages.
pub(crate) fn touch(file: &File, pages: u64) {
    // These pages, and none after them.
    file.advise(Advice::Random, 0..u64::MAX).unwrap();
    for page in 0..pages {
        // A page that is just losing its place may meet a limit: not what these tests are about.
        let _ = file.read_at(&mut [0; 8], page * 4096);
    }
}

/// Whether `holds` becomes true before patience ends.
pub(crate) fn eventually(holds: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if holds() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}
