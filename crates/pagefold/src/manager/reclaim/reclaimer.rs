//! The background reclaimer: a thread that helps to refill the reserves when other threads take
//! pages faster than they free them (`reserve`).
//!
//! The reclaimer sleeps until a thread wakes it through the `doorbell`. A thread that takes a frame
//! wakes the reclaimer on two conditions: less than half of a reserve is left (its group's or the
//! whole budget's), and the thread doesn't free enough pages itself. If the reclaimer has been
//! woken already, waking it again costs one load.

use sync::Arc;
use sync::thread::{JoinHandle, is_current, spawn};

use crate::error::Error;
use crate::group::reserve::Shortage;
use crate::manager::Manager;
use crate::memory::ranking::For;

/// The running thread. Stops when this is dropped.
pub(crate) struct Reclaimer {
    manager: Arc<Manager>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub(crate) fn start(manager: &Arc<Manager>) -> Result<Self, Error> {
        let manager = Arc::clone(manager);
        let its = Arc::clone(&manager);
        let thread = spawn("pagefold-reclaim", move || {
            while its.memory.doorbell.wait() {
                its.restore_reserves();
            }
        });
        Ok(Self { manager, thread: Some(thread.map_err(Error::no_thread)?) })
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        // A forked child has no reclaimer thread to join, and perhaps locks that no thread will
        // release.
        if self.manager.memory.frames.forked() {
            return;
        }
        self.manager.memory.doorbell.stop();
        // If the reclaimer's own thread drops the last reference, this code runs in that thread. A
        // thread can't join itself, so the join is left out. The thread ends when it returns from
        // here.
        if let Some(thread) = self.thread.take().filter(|thread| !is_current(thread)) {
            // The thread panics only because of a bug of ours. Its message has been printed
            // already.
            let _ = thread.join();
        }
    }
}

impl Manager {
    /// Refills two reserves, as far as pages can be freed: that of the group whose thread last woke
    /// the reclaimer, and that of the whole budget.
    fn restore_reserves(&self) {
        self.stock_up_swap();
        if let Some(group) = self.memory.groups.get(self.memory.doorbell.last())
            && let Shortage::Deep(pages) = group.shortage()
        {
            self.reclaim_group(&group, pages);
        }
        if let Shortage::Deep(pages) = self.memory.shortage() {
            self.reclaim_any(For::All, pages);
        }
    }
}
