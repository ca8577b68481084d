//! Chooses the best backend that works on this machine.

use crate::{Backend, DirectIo, IoError, Posix, ThreadPool};

/// Returns a backend for the machine's files, which performs requests through io_uring if possible.
/// If the system refuses io_uring (seccomp, an old kernel, no locked memory, `io_uring_disabled`),
/// a pool of threads performs the requests, and a warning is logged once. If the pool can't be set
/// up either, each thread performs the requests that it submits. Without the feature `uring`, the
/// function begins with the pool.
#[must_use]
pub fn automatic() -> Box<dyn Backend> {
    #[cfg(all(feature = "uring", not(pagefold_manycore)))]
    match crate::Uring::new(DirectIo::Auto) {
        Ok(uring) => return Box::new(uring),
        Err(refusal) => warn_once(&refusal),
    }
    threads().unwrap_or_else(|_| Box::new(Posix::default()))
}

fn threads() -> Result<Box<dyn Backend>, IoError> {
    Ok(Box::new(ThreadPool::new(Posix::new(DirectIo::Auto), ThreadPool::THREADS_DEFAULT)?))
}

#[cfg(all(feature = "uring", not(pagefold_manycore)))]
fn warn_once(refusal: &IoError) {
    static SAID: sync::FirstTime = sync::FirstTime::new();
    if SAID.is_now() {
        tracing::warn!(%refusal, "io_uring refused; requests are done by threads");
    }
}
