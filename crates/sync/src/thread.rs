//! Threads.

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
    return posix::spawn(name, body);
    #[cfg(pagefold_loom)]
    return {
        let _ = name;
        Ok(loom::thread::spawn(body))
    };
}

/// A number that this thread has for as long as it lives: threads count from 0 in the order in
/// which they ask. In a virtual machine a number of a thread that has ended is given out again.
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
        // Relaxed: only that numbers differ counts. A thread that is ending has no place to keep
        // one.
        let new = || NEXT.fetch_add(1, Ordering::Relaxed);
        MINE.try_with(|mine| {
            let number = mine.get().unwrap_or_else(new);
            mine.set(Some(number));
            number
        })
        .unwrap_or_else(|_| new())
    }
}

/// Whether `handle` is that of the thread that asks.
#[must_use]
pub fn is_current<T>(handle: &JoinHandle<T>) -> bool {
    #[cfg(pagefold_manycore)]
    return handle.thread() == manycore::thread::current();
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    return handle.is_current();
    #[cfg(pagefold_loom)]
    return handle.thread().id() == loom::thread::current().id();
}

/// Whether the thread has ended, as far as is known: a model's and a virtual machine's haven't
/// until they are joined.
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
