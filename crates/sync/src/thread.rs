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
        Ok(spawn_in_both_orders(body))
    };
}

/// Starts a thread of a model. First of all, the calling thread and the new thread change one
/// atomic. So loom also explores the order in which the new thread runs first.
///
/// Without this measure, loom 0.7 can miss that order. Suppose that the calling thread loads an
/// atomic, and that the new thread loads the same atomic and then changes it. loom remembers only
/// the last access to an atomic. When the new thread is about to make its change, the last access
/// is the new thread's own load, and no longer the calling thread's. So loom finds no conflict, and
/// never makes the change come before the calling thread's load.
#[cfg(pagefold_loom)]
fn spawn_in_both_orders<T: 'static>(body: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    let gate = Arc::new(AtomicU32::new(0));
    let theirs = Arc::clone(&gate);
    // Relaxed, twice: the gate must not order any access that the model explores.
    let thread = loom::thread::spawn(move || {
        theirs.fetch_add(1, Ordering::Relaxed);
        body()
    });
    gate.fetch_add(1, Ordering::Relaxed);
    thread
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

#[cfg(all(test, pagefold_loom))]
mod models {
    use super::spawn;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    /// Regression: loom never made the new thread's change come before this thread's load.
    #[test]
    fn a_new_thread_may_go_first() {
        // Of `std`, because it outlasts the interleavings.
        static SEEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        crate::model(|| {
            let word = Arc::new(AtomicU32::new(0));
            let theirs = Arc::clone(&word);
            let changes = move || {
                if theirs.load(Ordering::Relaxed) == 0 {
                    theirs.store(1, Ordering::Relaxed);
                }
            };
            let thread = spawn("changes", changes).unwrap();
            SEEN.fetch_or(1 << word.load(Ordering::Relaxed), std::sync::atomic::Ordering::Relaxed);
            thread.join().unwrap();
        });
        assert_eq!(SEEN.load(std::sync::atomic::Ordering::Relaxed), 0b11, "the orders that were explored");
    }
}
