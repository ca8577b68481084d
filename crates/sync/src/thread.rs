//! Threads.

#[cfg(pagefold_manycore)]
pub use manycore::thread::{JoinHandle, sleep, yield_now};
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use std::thread::{JoinHandle, sleep, yield_now};

#[cfg(pagefold_loom)]
pub use loom::thread::{JoinHandle, yield_now};

/// A model has no time to sleep through; it lets others run.
#[cfg(pagefold_loom)]
pub fn sleep(_time: crate::time::Duration) {
    yield_now();
}

/// Starts a thread.
///
/// # Errors
/// The system's, when it has no thread left to give.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    #[cfg(pagefold_manycore)]
    return manycore::thread::Builder::new().name(name).spawn(body);
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    return std::thread::Builder::new().name(name.to_owned()).spawn(body);
    #[cfg(pagefold_loom)]
    return {
        let _ = name;
        Ok(loom::thread::spawn(body))
    };
}
