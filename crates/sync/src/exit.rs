//! Runs work before the process ends normally, by a return from `main` or by `exit`.
//!
//! The C library calls the functions that were registered with `atexit`. It calls them in the
//! exiting thread, whose thread-local values no longer exist, while all other threads keep running.
//! So the exiting thread does none of the work itself: it asks other threads to do the work, and
//! waits for them.
//!
//! The exiting thread waits for a lock only for a limited time, because the exiting process may be
//! a forked child. If a child calls `exit`, the registered functions run there as well, and a lock
//! that another thread held at the fork stays locked in the child forever.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::lock::Mutex;

/// An owner of work that its threads must complete before the process ends.
pub trait Leaving: Send + Sync {
    /// Starts the work. Does nothing in a forked child, unless this value was created in the child.
    fn begin(&self);
    /// Waits until the work is complete, at most for the given time.
    fn wait(&self, at_most: Duration);
}

/// The maximum time by which `at_exit` delays the end of the process.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The most time that a thread waits for the list. The list is locked only while a thread changes
/// or reads it.
const LIST_MAX: Duration = Duration::from_secs(1);

static LIST: Mutex<List> = Mutex::new(List { leaving: Vec::new(), is_hooked: false });

struct List {
    leaving: Vec<Weak<dyn Leaving>>,
    /// `at_exit` is registered with the C library.
    is_hooked: bool,
}

/// Registers `leaving`. If it still exists when the process ends, its work is done then. Returns
/// false if the C library can't register another function. In a forked child, also returns false if
/// another thread of the parent was changing the list of registered values at the fork: the list
/// then stays locked in the child.
pub fn register(leaving: &Weak<dyn Leaving>) -> bool {
    // In a forked child the lock may stay locked forever.
    let Some(mut list) = LIST.try_lock_for(LIST_MAX) else { return false };
    // SAFETY: a function of this crate, which doesn't unwind.
    if !list.is_hooked && unsafe { libc::atexit(at_exit) } != 0 {
        return false;
    }
    list.is_hooked = true;
    list.leaving.push(Weak::clone(leaving));
    true
}

/// Unregisters `leaving`.
pub fn forget(leaving: &Weak<dyn Leaving>) {
    if let Some(mut list) = LIST.try_lock_for(LIST_MAX) {
        list.leaving.retain(|it| !it.ptr_eq(leaving));
    }
}

extern "C" fn at_exit() {
    let until = Instant::now() + TIME_MAX;
    let Some(list) = LIST.try_lock_for(LIST_MAX) else { return };
    let all: Vec<Arc<dyn Leaving>> = list.leaving.iter().filter_map(Weak::upgrade).collect();
    drop(list);
    all.iter().for_each(|it| it.begin());
    all.iter().for_each(|it| it.wait(until.saturating_duration_since(Instant::now())));
    // If these were the last handles, dropping them would drop their objects, which isn't possible
    // at this stage of the exit.
    std::mem::forget(all);
}
