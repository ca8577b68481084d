//! Threads, and a small number for each that is alive.

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

/// The index that threads share whose own has already been given back, or that came when all were taken. Whoever
/// keeps a value for each thread has to access this one's as shared.
pub const SHARED_INDEX: usize = 0;

/// Indexes are below this: threads beyond it use [`SHARED_INDEX`].
pub const INDEXES: usize = 4096;

/// A small number that this thread alone has while it lives; given to another thread afterwards, with everything
/// that the first one wrote visible to the second.
#[inline]
#[must_use]
pub fn index() -> usize {
    #[cfg(pagefold_manycore)]
    return manycore::thread::index() + 1;
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    return index::current();
    #[cfg(pagefold_loom)]
    return model_index();
}

#[cfg(pagefold_loom)]
fn model_index() -> usize {
    use std::cell::Cell;
    loom::lazy_static! {
        static ref NEXT: loom::sync::atomic::AtomicUsize = loom::sync::atomic::AtomicUsize::new(1);
    }
    loom::thread_local! {
        static MINE: Cell<usize> = Cell::new(0);
    }
    MINE.with(|mine| {
        if mine.get() == 0 {
            mine.set(NEXT.fetch_add(1, loom::sync::atomic::Ordering::Relaxed));
        }
        mine.get()
    })
}

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
mod index {
    use super::{INDEXES, SHARED_INDEX};
    use parking_lot::Mutex;
    use std::cell::Cell;

    /// [`MINE`] of a thread that hasn't asked yet.
    const UNASKED: usize = usize::MAX;

    /// Indexes given back, and the lowest one never given out.
    static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), SHARED_INDEX + 1));

    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(UNASKED) };
        static RETURN: Return = const { Return };
    }

    /// Gives the thread's index back when the thread ends.
    struct Return;

    impl Drop for Return {
        fn drop(&mut self) {
            let mine = MINE.replace(SHARED_INDEX);
            if mine != SHARED_INDEX && mine != UNASKED {
                FREE.lock().0.push(mine);
            }
        }
    }

    #[inline]
    pub(super) fn current() -> usize {
        match MINE.get() {
            UNASKED => ask(),
            mine => mine,
        }
    }

    #[cold]
    fn ask() -> usize {
        let mine = if RETURN.try_with(|_| ()).is_err() {
            SHARED_INDEX // The thread is ending, and nobody would give the index back.
        } else {
            let mut free = FREE.lock();
            let fresh = free.1;
            free.0.pop().unwrap_or_else(|| {
                if fresh == INDEXES {
                    return SHARED_INDEX;
                }
                free.1 += 1;
                fresh
            })
        };
        MINE.set(mine);
        mine
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn live_threads_have_different_indexes_and_dead_ones_give_theirs_back() {
        let here = index();
        assert_eq!(here, index());
        assert_ne!(here, SHARED_INDEX);
        for _ in 0..2 * INDEXES {
            let other = spawn("t", index).unwrap().join().unwrap();
            assert_ne!(other, here);
            assert_ne!(other, SHARED_INDEX, "indexes leak");
        }
    }
}
