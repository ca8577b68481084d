//! The flusher: a thread that writes back what has been unclean for long, or is much.
//!
//! It is started when the first file is opened for writing. While nothing is unclean it sleeps without waking up.

use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::thread::{JoinHandle, spawn};
use sync::time::Duration;

use crate::error::Error;
use crate::file::state::FileState;
use crate::manager::Manager;

/// How old unclean pages get before they are written,
const AGE_MAX_MS: u64 = 5_000;
/// and how often that is looked at while there are some.
const TICK: Duration = Duration::from_millis(500);
/// How long a file that couldn't be written is left alone.
const RETRY_MS: u64 = 1_000;

/// How the thread is talked to.
#[derive(Default)]
pub(crate) struct Flusher {
    asked: AtomicBool,
    /// Somebody waits for a frame.
    short: AtomicBool,
    stop: Mutex<bool>,
    rung: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Flusher {
    /// Has it look at what there is to write.
    pub(crate) fn ring(&self) {
        // Relaxed, and looked at first: a hint that is repeated while there is reason to.
        if !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed) {
            let _stop = self.stop.lock();
            self.rung.notify_one();
        }
    }

    /// As [`ring`](Self::ring), for somebody who can't get a frame, and perhaps could if there were fewer unclean pages.
    pub(crate) fn ring_for_frames(&self) {
        self.short.store(true, Ordering::Relaxed); // A hint, too.
        self.ring();
    }

    /// Waits until there may be something to write. False when it is time to end.
    fn wait_for_work(&self, anything_unclean: bool) -> bool {
        let mut stop = self.stop.lock();
        if !*stop && !self.asked.swap(false, Ordering::Relaxed) {
            if anything_unclean {
                self.rung.wait_for(&mut stop, TICK);
            } else {
                self.rung.wait(&mut stop);
            }
            self.asked.store(false, Ordering::Relaxed);
        }
        !*stop
    }
}

/// Ends the flusher when dropped.
pub(crate) struct FlusherThread(pub(crate) Arc<Manager>);

impl Drop for FlusherThread {
    fn drop(&mut self) {
        // A forked child has no such thread to wait for, and perhaps locks that nobody will release.
        if self.0.frames.forked() {
            return;
        }
        let flusher = &self.0.flusher;
        *flusher.stop.lock() = true;
        flusher.rung.notify_all();
        if let Some(thread) = flusher.thread.lock().take() {
            // It panics only by a bug of ours, which its message has told; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Manager {
    /// Starts the flusher, if it doesn't run yet.
    pub(crate) fn start_flusher(self: &Arc<Self>) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::System { what: "start a thread", error: error.to_string() };
        let mut thread = self.flusher.thread.lock();
        if thread.is_none() {
            let its = Arc::clone(self);
            *thread = Some(spawn("pagefold-flush", move || its.run_flusher()).map_err(failed)?);
        }
        Ok(())
    }

    fn run_flusher(&self) {
        let mut files = Vec::new();
        while self.flusher.wait_for_work(self.unclean.get() > 0) {
            self.files.collect(&mut files);
            self.flush(&files);
            files.clear();
        }
    }

    /// Writes back the files that have much that is unclean, or have had it for long; all that can be written if somebody
    /// waits for frames.
    fn flush(&self, files: &[Arc<FileState>]) {
        let short = self.flusher.short.swap(false, Ordering::Relaxed);
        for file in files.iter().filter(|file| file.unclean.get() > 0) {
            let age_ms = self.now_ms().saturating_sub(file.unclean_since_ms.load(Ordering::Relaxed));
            let failing = file.latch.failing().is_some();
            if age_ms >= if failing { RETRY_MS } else { AGE_MAX_MS } || short && !failing {
                let _ = file.write_back_all(); // The file's latch knows.
            } else if !failing && self.has_much_unclean() {
                file.sweep();
            }
        }
    }

    /// Writes back every file, for somebody who needs their pages to be clean. Says whether there was anything unclean.
    pub(crate) fn clean_all(&self) -> bool {
        if self.unclean.get() == 0 {
            return false;
        }
        for file in self.files.all().iter().filter(|file| file.unclean.get() > 0) {
            let _ = file.write_back_all(); // The file's latch knows.
        }
        true
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use sync::atomic::AtomicU64;
    use sync::time::Instant;

    /// The leader looked whether it had been asked, then went to sleep; who asked in between woke nobody. It sleeps for good
    /// here, so one ring that is lost is the end.
    #[test]
    fn every_ring_is_heard() {
        let (flusher, heard) = (Flusher::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while flusher.wait_for_work(false) {
                    heard.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut all_heard = true;
            for _ in 0..20_000 {
                let before = heard.load(Ordering::SeqCst);
                flusher.ring();
                let start = Instant::now();
                while all_heard && heard.load(Ordering::SeqCst) == before {
                    all_heard = start.elapsed() < Duration::from_secs(10);
                    std::hint::spin_loop();
                }
            }
            *flusher.stop.lock() = true;
            flusher.rung.notify_all();
            assert!(all_heard, "a ring was lost");
        });
    }
}
