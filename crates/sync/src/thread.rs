//! Starts and identifies threads.

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
mod posix;

#[cfg(pagefold_manycore)]
pub use manycore::thread::{JoinHandle, sleep, yield_now};
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use posix::JoinHandle;
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use std::thread::{sleep, yield_now};

#[cfg(pagefold_loom)]
pub use loom::thread::{JoinHandle, yield_now};

/// Lets other threads of the model run, because a model has no time.
#[cfg(pagefold_loom)]
pub fn sleep(_time: crate::time::Duration) {
    yield_now();
}

/// Starts a thread.
///
/// # Errors
/// The system's, if it can't create a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    #[cfg(pagefold_manycore)]
    return manycore::thread::Builder::new().name(name).spawn(body);
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    return posix::spawn(name, body);
    #[cfg(pagefold_loom)]
    return {
        let _ = name;
        Ok(loom::thread::spawn(body))
    };
}

/// Returns a number that identifies this thread while the thread lives. Threads get the numbers 0,
/// 1, 2 … in the order of their first calls. A virtual machine reuses the numbers of threads that
/// have ended.
#[cfg(not(pagefold_loom))]
#[must_use]
pub fn number() -> usize {
    #[cfg(pagefold_manycore)]
    return manycore::thread::index();
    #[cfg(not(pagefold_manycore))]
    {
        use core::cell::Cell;
        use core::sync::atomic::{AtomicUsize, Ordering};

        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<Option<usize>> = const { Cell::new(None) };
        }
        // Relaxed: the numbers only have to differ. A thread that is ending can't store its number,
        // and gets a new one per call.
        let new = || NEXT.fetch_add(1, Ordering::Relaxed);
        MINE.try_with(|mine| {
            let number = mine.get().unwrap_or_else(new);
            mine.set(Some(number));
            number
        })
        .unwrap_or_else(|_| new())
    }
}

/// Returns whether `handle` belongs to the calling thread.
#[must_use]
pub fn is_current<T>(handle: &JoinHandle<T>) -> bool {
    #[cfg(pagefold_manycore)]
    return handle.thread() == manycore::thread::current();
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    return handle.is_current();
    #[cfg(pagefold_loom)]
    return handle.thread().id() == loom::thread::current().id();
}

/// Returns whether the thread is known to have ended. In a model or a virtual machine, this is
/// always false.
#[must_use]
pub fn has_ended<T>(handle: &JoinHandle<T>) -> bool {
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    return handle.is_finished();
    #[cfg(any(pagefold_loom, pagefold_manycore))]
    {
        let _ = handle;
        false
    }
}
