//! Chooses the best backend that works on this machine.

use sync::atomic::{AtomicBool, Ordering};

use crate::{Backend, DirectIo, IoError, Posix, ThreadPool};

/// Returns a backend for the machine's files, which performs requests through io_uring if possible.
/// If the system refuses io_uring (seccomp, an old kernel, no locked memory, `io_uring_disabled`),
/// a pool of threads performs the requests, and a warning is logged once. If the pool can't be set
/// up either, each thread performs the requests that it submits.
#[must_use]
pub fn automatic() -> Box<dyn Backend> {
    uring().or_else(threads).unwrap_or_else(|_| Box::new(Posix::default()))
}

fn uring() -> Result<Box<dyn Backend>, IoError> {
    #[cfg(pagefold_manycore)]
    return Err(IoError::INVALID);
    #[cfg(not(pagefold_manycore))]
    Ok(Box::new(crate::Uring::new(DirectIo::Auto)?))
}

fn threads(refusal: IoError) -> Result<Box<dyn Backend>, IoError> {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: it doesn't matter which thread logs the warning.
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(%refusal, "io_uring refused; requests are done by threads");
    }
    Ok(Box::new(ThreadPool::new(Posix::new(DirectIo::Auto), ThreadPool::THREADS_DEFAULT)?))
}
