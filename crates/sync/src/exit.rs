//! What is done before the process ends normally: by a return from `main`, or `exit`.
//!
//! The C library runs what was registered (`atexit`) in the thread that exits, whose thread-local
//! values are gone by then, while all other threads go on. So that thread only asks others to do
//! it, and waits. It waits for no lock for long: others may have been taken at a fork, and `exit`
//! is called in children as well.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::lock::Mutex;

/// Something that has other threads do what is left to do.
pub trait Leaving: Send + Sync {
    /// Asks for it. Not in a forked child, unless this was made there.
    fn begin(&self);
    /// Waits until it is done, for so long at most.
    fn wait(&self, at_most: Duration);
}

/// How long the process takes to end, at most,
const TIME_MAX: Duration = Duration::from_secs(10);
/// and how long is waited for the list, which is never held for longer than it takes to change it.
const LIST_MAX: Duration = Duration::from_secs(1);

static LIST: Mutex<List> = Mutex::new(List { leaving: Vec::new(), is_hooked: false });

struct List {
    leaving: Vec<Weak<dyn Leaving>>,
    /// The C library calls `at_exit`.
    is_hooked: bool,
}

/// Has this asked when the process ends, if it lives then. Returns whether that can be done: not
/// where the C library has no room for another function to call, nor in a child that was forked
/// while another thread changed the list.
pub fn register(leaving: &Weak<dyn Leaving>) -> bool {
    // In a forked child the lock may be taken for good.
    let Some(mut list) = LIST.try_lock_for(LIST_MAX) else { return false };
    // SAFETY: a function of this crate, which doesn't unwind.
    if !list.is_hooked && unsafe { libc::atexit(at_exit) } != 0 {
        return false;
    }
    list.is_hooked = true;
    list.leaving.push(Weak::clone(leaving));
    true
}

/// It needn't be asked any more.
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
    // The last one to have something would drop it, here where that can't be done any more.
    std::mem::forget(all);
}
