//! Something measured while something else goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow};

/// Calls `measure` while a thread works, again and again, and once at least.
pub(super) fn beside<T>(mut work: impl FnMut() -> Result<()> + Send, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            loop {
                work()?;
                // Relaxed: it only ends the loop.
                if done.load(Ordering::Relaxed) {
                    return anyhow::Ok(());
                }
            }
        });
        let measured = measure();
        done.store(true, Ordering::Relaxed);
        working.join().map_err(|_| anyhow!("the thread that works beside it panicked"))??;
        measured
    })
}
