//! The best backend that the machine has.

use sync::atomic::{AtomicBool, Ordering};

use crate::{Backend, DirectIo, IoError, Posix, ThreadPool};

/// The machine's files, requests going through io_uring; where the system refuses that (seccomp, an
/// old kernel, no locked memory, `io_uring_disabled`), through threads, which is said in the log,
/// once; and if it has not even those, by the caller.
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
    // Relaxed: it doesn't matter which thread says it.
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(%refusal, "io_uring refused; requests are done by threads");
    }
    Ok(Box::new(ThreadPool::new(Posix::new(DirectIo::Auto), ThreadPool::THREADS_DEFAULT)?))
}
