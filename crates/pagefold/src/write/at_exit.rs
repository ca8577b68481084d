//! Writes dirty pages when the process ends. In builds for loom and `manycore` this does nothing,
//! because the process of a model doesn't end.

use sync::Arc;

use crate::manager::Manager;

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
impl sync::exit::Leaving for Manager {
    fn begin(&self) {
        // A forked child has none of the threads, and nothing to write.
        if !self.memory.frames.forked() {
            self.file_io.flusher.begin_leaving();
        }
    }

    fn wait(&self, at_most: sync::time::Duration) {
        if !self.memory.frames.forked() {
            self.file_io.flusher.wait_for_leaving(at_most);
        }
    }
}

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
fn as_leaving(manager: &Arc<Manager>) -> sync::Weak<dyn sync::exit::Leaving> {
    let leaving: sync::Weak<Manager> = Arc::downgrade(manager);
    leaving
}

/// Registers a manager, so that its dirty pages are written when the process ends.
#[cfg_attr(
    any(pagefold_loom, pagefold_manycore),
    expect(unused_variables, reason = "the process of a model does not end")
)]
pub(super) fn write(manager: &Arc<Manager>) {
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    if !sync::exit::register(&as_leaving(manager)) {
        tracing::warn!(
            "what is unwritten when the process ends will be lost: there is no memory for an exit function, \
             or the process was forked at a bad moment"
        );
    }
}

/// Undoes [`write`].
#[cfg_attr(
    any(pagefold_loom, pagefold_manycore),
    expect(unused_variables, reason = "the process of a model does not end")
)]
pub(super) fn write_no_more(manager: &Arc<Manager>) {
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    sync::exit::forget(&as_leaving(manager));
}
