//! The flusher: threads that write back what has been unclean for long, or is much, and that help whoever syncs.
//!
//! They are started when the first file is opened for writing. While nothing is unclean they sleep without waking up.
//!
//! One of them, the *leader*, decides (`Manager::flush`); the *helpers* take part in cycles (`writeback`) for which
//! somebody calls, so that a disk has several requests to work on. A helper has no page of its own before it has joined a
//! cycle, so a call that nobody hears costs time and nothing else.

use arrayvec::ArrayVec;
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::thread::{JoinHandle, spawn};
use sync::time::Duration;

use crate::error::Error;
use crate::file_state::FileState;
use crate::manager::Manager;

/// Threads that help, besides whoever runs the cycle.
pub(crate) const HELPERS: usize = 15;
/// Files that help can be called for at once; others do without.
const CALLS_MAX: usize = 16;
/// Unclean pages that are worth another thread.
const PAGES_A_HELPER: u64 = 16;
/// How old unclean pages get before they are written,
const AGE_MAX_MS: u64 = 5_000;
/// and how often that is looked at while there are some.
const TICK: Duration = Duration::from_millis(500);
/// How long a file that couldn't be written is left alone.
const RETRY_MS: u64 = 1_000;

/// How the threads are talked to.
#[derive(Default)]
pub(crate) struct Flushers {
    asked: AtomicBool,
    /// Somebody waits for a frame.
    short: AtomicBool,
    state: Mutex<State>,
    /// The leader sleeps here,
    rung: Condvar,
    /// the helpers here.
    called: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    stop: bool,
    calls: ArrayVec<Call, CALLS_MAX>,
}

/// A call for help.
struct Call {
    file: Arc<FileState>,
    /// Helpers that may still come.
    places: usize,
}

impl Flushers {
    /// Has the leader look at what there is to write.
    pub(crate) fn ring(&self) {
        // Relaxed, and looked at first: a hint that is repeated while there is reason to.
        if !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed) {
            let _state = self.state.lock();
            self.rung.notify_one();
        }
    }

    /// As [`ring`](Self::ring), for somebody who can't get a frame, and perhaps could if there were fewer unclean pages.
    pub(crate) fn ring_for_frames(&self) {
        self.short.store(true, Ordering::Relaxed); // A hint, too.
        self.ring();
    }

    /// Calls helpers for a cycle of `file`, if it has so much to do. Says whether it did.
    pub(crate) fn call_for_help(&self, file: &FileState) -> bool {
        let places = usize::try_from(file.unclean.get() / PAGES_A_HELPER).unwrap_or(HELPERS).min(HELPERS);
        let Some(file) = file.myself.upgrade().filter(|_| places > 0) else { return false };
        let mut state = self.state.lock();
        let called = state.calls.try_push(Call { file, places }).is_ok();
        drop(state);
        if called {
            for _ in 0..places {
                self.called.notify_one();
            }
        }
        called
    }

    /// Takes the call back.
    pub(crate) fn need_no_help(&self, file: &FileState) {
        let mut state = self.state.lock();
        let at = state.calls.iter().position(|call| std::ptr::eq(&raw const *call.file, file));
        let call = at.map(|at| state.calls.swap_remove(at));
        drop(state);
        drop(call); // Without the lock: it may be the last to know the file.
    }

    /// Waits for a call. `None` when it is time to end.
    fn wait_for_call(&self) -> Option<Arc<FileState>> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(call) = state.calls.iter_mut().find(|call| call.places > 0) {
                call.places -= 1;
                return Some(Arc::clone(&call.file));
            }
            self.called.wait(&mut state);
        }
    }

    /// Waits until there may be something to write. False when it is time to end.
    fn wait_for_work(&self, anything_unclean: bool) -> bool {
        let mut state = self.state.lock();
        if !state.stop && !self.asked.swap(false, Ordering::Relaxed) {
            if anything_unclean {
                self.rung.wait_for(&mut state, TICK);
            } else {
                self.rung.wait(&mut state);
            }
            self.asked.store(false, Ordering::Relaxed);
        }
        !state.stop
    }
}

/// Ends the flusher's threads when dropped.
pub(crate) struct FlusherThreads(pub(crate) Arc<Manager>);

impl Drop for FlusherThreads {
    fn drop(&mut self) {
        // A forked child has no such threads to wait for, and perhaps locks that nobody will release.
        if self.0.frames.forked() {
            return;
        }
        let flushers = &self.0.flushers;
        flushers.state.lock().stop = true;
        flushers.rung.notify_all();
        flushers.called.notify_all();
        for thread in std::mem::take(&mut *flushers.threads.lock()) {
            // They panic only by a bug of ours, which its message has told; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Manager {
    /// Starts the threads, if they don't run yet.
    pub(crate) fn start_flushers(self: &Arc<Self>) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::System { what: "start a thread", error: error.to_string() };
        let mut threads = self.flushers.threads.lock();
        if threads.is_empty() {
            let its = Arc::clone(self);
            threads.push(spawn("pagefold-flush", move || its.lead_flushers()).map_err(failed)?);
            for number in 0..HELPERS {
                let its = Arc::clone(self);
                let helper = spawn(&format!("pagefold-flush-{number}"), move || {
                    while let Some(file) = its.flushers.wait_for_call() {
                        file.work_for_cycle();
                    }
                });
                // With fewer of them writing back is slower.
                let Ok(helper) = helper else { break };
                threads.push(helper);
            }
        }
        Ok(())
    }

    fn lead_flushers(&self) {
        let mut files = Vec::new();
        while self.flushers.wait_for_work(self.unclean.get() > 0) {
            self.files.collect(&mut files);
            self.flush(&files);
            files.clear();
        }
    }

    /// Writes back the files that have much that is unclean, or have had it for long; all that can be written if somebody
    /// waits for frames.
    fn flush(&self, files: &[Arc<FileState>]) {
        let short = self.flushers.short.swap(false, Ordering::Relaxed);
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
        let (flushers, heard) = (Flushers::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while flushers.wait_for_work(false) {
                    heard.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut all_heard = true;
            for _ in 0..20_000 {
                let before = heard.load(Ordering::SeqCst);
                flushers.ring();
                let start = Instant::now();
                while all_heard && heard.load(Ordering::SeqCst) == before {
                    all_heard = start.elapsed() < Duration::from_secs(10);
                    std::hint::spin_loop();
                }
            }
            flushers.state.lock().stop = true;
            flushers.rung.notify_all();
            assert!(all_heard, "a ring was lost");
        });
    }
}
