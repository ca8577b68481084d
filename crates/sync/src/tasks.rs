//! Wakes tasks of an executor.

use std::cell::{Cell, RefCell};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes all of the tasks, even if some wakers panic: wakers are users' code. A panic is caught for
/// two reasons. The calling thread is doing work of its own and must not unwind, and the other
/// tasks must still be woken. The panic needn't be reported here, because the panic hook has
/// already done so.
pub fn wake_all(tasks: impl IntoIterator<Item = Waker>) {
    for task in tasks {
        let _waking = Waking::begin();
        survive(|| task.wake());
    }
}

/// Calls a user's code, which may panic. Returns true if it didn't panic. If it did, drops the
/// panic's payload. If this drop panics as well, catches that panic, too.
pub fn survive(call: impl FnOnce()) -> bool {
    let mut payload = catch_unwind(AssertUnwindSafe(call)).err();
    let survived = payload.is_none();
    for _ in 0..DROPS_MAX {
        let Some(panic) = payload.take() else { return survived };
        payload = catch_unwind(AssertUnwindSafe(|| drop(panic))).err();
    }
    mem::forget(payload);
    survived
}

/// The maximum number of payloads that are dropped. Each drop may panic with another payload; after
/// this many drops, the last payload is leaked.
const DROPS_MAX: u32 = 4;

/// Returns whether this thread is in a call of [`wake_all`]. A destructor that runs in such a call
/// must not wait for work that this thread has yet to do.
#[must_use]
pub fn is_waking() -> bool {
    WAKING.with(|depth| depth.get() > 0)
}

/// Calls `what` once the waker that this thread is calling has returned, so everything that the
/// waker drops has been dropped. A destructor that runs in a waker must not wait ([`is_waking`]),
/// so it may pass a `what` that hands its work over to another thread. If wakers are nested, `what`
/// is called once the innermost one has returned. If this thread isn't calling a waker, or is
/// ending and has already dropped its thread-local values, calls `what` at once.
pub fn after_waking(what: impl FnOnce() + 'static) {
    let depth = WAKING.get();
    let mut what: Option<Box<dyn FnOnce()>> = Some(Box::new(what));
    if depth > 0 {
        let put = |what| AfterWaking { depth, what };
        let _ = AFTERWARDS.try_with(|calls| calls.borrow_mut().extend(what.take().map(put)));
    }
    what.into_iter().for_each(|what| what());
}

/// What to call after a waker.
struct AfterWaking {
    /// The number of nested calls of wakers, down to that waker.
    depth: u32,
    what: Box<dyn FnOnce()>,
}

thread_local! {
    /// The number of nested calls of wakers in this thread. Calls can be nested because a waker may
    /// complete other work, and so wake other tasks.
    static WAKING: Cell<u32> = const { Cell::new(0) };

    /// What to call after the wakers that this thread is calling.
    static AFTERWARDS: RefCell<Vec<AfterWaking>> = const { RefCell::new(Vec::new()) };
}

/// A call of a waker.
struct Waking;

impl Waking {
    fn begin() -> Self {
        WAKING.with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        let depth = WAKING.replace(WAKING.get() - 1);
        let is_due = |call: &mut AfterWaking| call.depth >= depth;
        let take =
            |calls: &RefCell<Vec<AfterWaking>>| -> Vec<_> { calls.borrow_mut().extract_if(.., is_due).collect() };
        for call in AFTERWARDS.try_with(take).unwrap_or_default() {
            survive(call.what);
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a user's waker");
        }
    }

    struct PanicsTwice;

    impl Wake for PanicsTwice {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(PanicsWhenDropped);
        }
    }

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("a user's value");
        }
    }

    /// Calls what it holds when it is dropped.
    struct OnDrop<F: FnMut()>(F);

    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    struct Leaves(Arc<AtomicBool>);

    impl Wake for Leaves {
        fn wake(self: Arc<Self>) {
            let (dropped, seen) = (Arc::new(AtomicBool::new(false)), Arc::clone(&self.0));
            let theirs = Arc::clone(&dropped);
            let _first = OnDrop(move || theirs.store(true, Ordering::SeqCst));
            after_waking(move || seen.store(!dropped.load(Ordering::SeqCst), Ordering::SeqCst));
            wake_all([Waker::from(Arc::new(Notes::default()))]); // A call within the call.
        }
    }

    #[test]
    fn what_comes_after_a_waker_finds_all_dropped() {
        let too_early = Arc::new(AtomicBool::new(true));
        wake_all([Waker::from(Arc::new(Leaves(Arc::clone(&too_early))))]);
        assert!(!too_early.load(Ordering::SeqCst));
    }

    /// A waker of an executor that runs tasks in its own waker. It calls another waker, and notes
    /// whether the closure that the other waker passed to [`after_waking`] was called.
    struct Nested(Arc<AtomicBool>);

    impl Wake for Nested {
        fn wake(self: Arc<Self>) {
            let is_due = Arc::new(AtomicBool::new(true));
            wake_all([Waker::from(Arc::new(Leaves(Arc::clone(&is_due))))]);
            self.0.store(!is_due.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    /// Regression: an executor ran its tasks in a waker, which didn't return. So the calls that the
    /// tasks' own wakers had passed to [`after_waking`] were never made.
    #[test]
    fn what_comes_after_a_nested_waker_does_not_wait_for_the_outer_one() {
        let was_called = Arc::new(AtomicBool::new(false));
        wake_all([Waker::from(Arc::new(Nested(Arc::clone(&was_called))))]);
        assert!(was_called.load(Ordering::SeqCst));
    }

    #[derive(Default)]
    struct Notes(AtomicBool);

    impl Wake for Notes {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Regression: tasks of two tenants waited for one page. The first task's waker panicked. The
    /// thread that had loaded the page unwound, and the other task was never woken.
    #[test]
    fn a_waker_that_panics_keeps_no_other_from_being_woken() {
        let notes = Arc::new(Notes::default());
        wake_all([Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&notes))]);
        assert!(notes.0.load(Ordering::SeqCst));
    }

    /// Regression: a waker panicked with a value whose destructor panics as well. The value was
    /// dropped outside of `catch_unwind`. So the thread that had loaded the page unwound after all,
    /// and the other task was never woken.
    #[test]
    fn a_waker_that_panics_with_a_value_that_panics_does_no_more_harm() {
        let notes = Arc::new(Notes::default());
        wake_all([Waker::from(Arc::new(PanicsTwice)), Waker::from(Arc::clone(&notes))]);
        assert!(notes.0.load(Ordering::SeqCst));
    }
}
