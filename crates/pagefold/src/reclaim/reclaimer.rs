//! The background reclaimer: one thread that fills up reserves that threads take from faster than
//! they fill them up themselves (`reserve`).
//!
//! It sleeps until a thread that took a frame finds a group's reserve, or the whole budget's, half
//! used up. For all but the first such thread, asking it is one load (`doorbell`).

use sync::Arc;
use sync::thread::{JoinHandle, is_current, spawn};

use crate::error::Error;
use crate::group::reserve::Shortage;
use crate::manager::Manager;
use crate::manager::ranking::For;

/// The running thread. Dropped, it ends.
pub(crate) struct Reclaimer {
    manager: Arc<Manager>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub(crate) fn start(manager: &Arc<Manager>) -> Result<Self, Error> {
        let manager = Arc::clone(manager);
        let its = Arc::clone(&manager);
        let thread = spawn("pagefold-reclaim", move || {
            while its.doorbell.wait() {
                its.restore_reserves();
            }
        });
        Ok(Self { manager, thread: Some(thread.map_err(Error::no_thread)?) })
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        // A forked child has no such thread to wait for, and perhaps locks that no thread will
        // release.
        if self.manager.frames.forked() {
            return;
        }
        self.manager.doorbell.stop();
        // Itself, if it was the last to have a space, of which it moved a page to another slot: it
        // ends when it is done.
        if let Some(thread) = self.thread.take().filter(|thread| !is_current(thread)) {
            // It panics only by a bug of ours, which its message has told; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Manager {
    /// Frees what the group that asked and the budget are short of, or what can be freed of it.
    fn restore_reserves(&self) {
        self.stock_up_swap();
        if let Some(group) = self.groups.get(self.doorbell.last())
            && let Shortage::Deep(pages) = group.shortage()
        {
            self.reclaim_group(&group, pages);
        }
        if let Shortage::Deep(pages) = self.shortage() {
            self.reclaim_any(For::All, pages);
        }
    }
}
