//! Threads of the C library.
//!
//! `std`'s threads may hang in forked children. When `std` starts a thread, it takes a process-wide
//! lock for a moment. A child that is forked in that moment inherits the lock locked. No thread in
//! the child ever releases this lock, so each thread that `std` starts there hangs. The C library
//! handles its own locks correctly at a fork.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ForkMark;

/// The stack size, which is that of `std`'s threads.
const STACK: usize = 2 << 20;

/// A handle of a thread. If it is dropped without `join`, the thread is detached.
///
/// A forked child doesn't have its parent's threads, but the child's own threads may get the same
/// ids. So in a child, an inherited handle neither joins nor detaches a thread.
pub struct JoinHandle<T> {
    /// `None` after `join`.
    id: Option<Id>,
    /// Distinguishes the process that started the thread from its forked children.
    fork: ForkMark,
    end: Arc<End<T>>,
}

/// The result that a thread leaves.
struct End<T> {
    result: Mutex<Option<Result<T, Box<dyn Any + Send>>>>,
    is_there: AtomicBool,
}

impl<T> End<T> {
    fn result(&self) -> MutexGuard<'_, Option<Result<T, Box<dyn Any + Send>>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The C library's id of a thread, which is a pointer in some C libraries.
#[derive(Clone, Copy)]
struct Id(libc::pthread_t);

// SAFETY: a number, or a pointer that only functions of the C library dereference. Any thread may
// call them with it.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

/// The argument of a new thread.
struct Start {
    name: CString,
    body: Box<dyn FnOnce() + Send>,
}

extern "C" fn start(given: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` has leaked this box for this thread.
    let Start { name, body } = *unsafe { Box::from_raw(given.cast::<Start>()) };
    // SAFETY: the name is null-terminated. The kernel uses its first 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    body(); // Doesn't unwind.
    std::ptr::null_mut()
}

/// Starts a thread.
pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let fork = ForkMark::new()?;
    let end = Arc::new(End { result: Mutex::new(None), is_there: AtomicBool::new(false) });
    let its = Arc::clone(&end);
    let body = move || {
        *its.result() = Some(catch_unwind(AssertUnwindSafe(body)));
        // Pairs with the Acquire of `is_finished`: then the result is there, too.
        its.is_there.store(true, Ordering::Release);
    };
    let given = Box::into_raw(Box::new(Start { name: CString::new(name)?, body: Box::new(body) }));
    create(given)
        .map(|id| JoinHandle { id: Some(id), fork, end })
        // SAFETY: no thread was started, so none owns the box.
        .inspect_err(|_| drop(unsafe { Box::from_raw(given) }))
}

/// Creates a thread that takes ownership of `given`.
fn create(given: *mut Start) -> io::Result<Id> {
    let done = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let (mut attributes, mut id) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the attributes are initialized before use, and destroyed; `start` takes ownership of
    // its argument. The id is initialized if the thread was created.
    unsafe {
        done(libc::pthread_attr_init(attributes.as_mut_ptr()))?;
        // If the system requires a larger stack, it uses its default.
        let _ = libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let created = libc::pthread_create(id.as_mut_ptr(), attributes.as_ptr(), start, given.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        done(created)?;
        Ok(Id(id.assume_init()))
    }
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended. Returns what its body returned.
    ///
    /// # Errors
    /// The payload of its panic; a message if the caller is a forked child that inherited the
    /// handle.
    ///
    /// # Panics
    /// If a thread joins itself, which would be a deadlock.
    pub fn join(mut self) -> Result<T, Box<dyn Any + Send>> {
        let Some(Id(id)) = self.take_id() else { return Err(Box::new("the thread is one of the parent process")) };
        // SAFETY: the thread is this process's, and was neither joined nor detached.
        let code = unsafe { libc::pthread_join(id, std::ptr::null_mut()) };
        assert_eq!(code, 0, "a thread that can't be joined: {}", io::Error::from_raw_os_error(code));
        let result = self.end.result().take();
        result.unwrap_or_else(|| Err(Box::new("the thread has left no result")))
    }

    /// Takes the thread's id out of the handle. `None` in a forked child that inherited the handle.
    fn take_id(&mut self) -> Option<Id> {
        self.id.take().filter(|_| !self.fork.is_child())
    }

    /// Returns whether the thread's body has returned or panicked.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.end.is_there.load(Ordering::Acquire)
    }

    /// Returns whether this is the calling thread.
    pub(super) fn is_current(&self) -> bool {
        // SAFETY: only compares ids.
        let has_id = |Id(id)| unsafe { libc::pthread_equal(id, libc::pthread_self()) } != 0;
        !self.fork.is_child() && self.id.is_some_and(has_id)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(Id(id)) = self.take_id() {
            // SAFETY: the thread is this process's, and was neither joined nor detached.
            unsafe { libc::pthread_detach(id) };
        }
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex, PoisonError};

    use super::{JoinHandle, spawn};

    #[test]
    fn a_thread_leaves_its_result_or_its_panic() {
        assert_eq!(spawn("adds", || 1 + 1).unwrap().join().unwrap(), 2);
        let panic = spawn("panics", || panic!("on purpose")).unwrap().join().unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        assert!(spawn("with a \0 in its name", || ()).is_err());
    }

    #[test]
    fn a_thread_has_a_name_and_goes_on_without_its_handle() {
        let (sender, receiver) = std::sync::mpsc::channel();
        drop(spawn("a name of more than 15 bytes", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm");
            sender.send(name.unwrap_or_default()).unwrap();
        }));
        assert_eq!(receiver.recv().unwrap(), "a name of more \n");
    }

    #[test]
    fn a_thread_knows_itself() {
        let (sender, receiver) = std::sync::mpsc::channel::<super::JoinHandle<bool>>();
        let thread = spawn("itself", move || receiver.recv().unwrap().is_current()).unwrap();
        assert!(!thread.is_current() && !thread.is_finished());
        let end = std::sync::Arc::clone(&thread.end);
        sender.send(thread).unwrap();
        while !end.is_there.load(std::sync::atomic::Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert!(end.result().take().unwrap().unwrap());
    }

    /// Starts a thread that ends when `gate` is unlocked.
    fn behind(gate: &Arc<Mutex<()>>) -> JoinHandle<()> {
        let gate = Arc::clone(gate);
        spawn("behind a gate", move || drop(gate.lock().unwrap_or_else(PoisonError::into_inner))).unwrap()
    }

    /// Regression: when a forked child dropped an inherited handle, one of the child's own threads
    /// was detached. The C library reuses the stacks of the parent's threads, and a thread's id is
    /// the address of its stack. Here the child's threads use up all these stacks.
    #[test]
    fn a_child_can_drop_and_join_inherited_handles_beside_its_own_threads() {
        const THREADS: usize = 64;
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let inherited = [behind(&gate), behind(&gate)];
        let in_child = AssertUnwindSafe(|| {
            let gate = Arc::new(Mutex::new(()));
            let closed = gate.lock().unwrap();
            let own: Vec<_> = (0..THREADS).map(|_| behind(&gate)).collect();
            let [one, other] = inherited;
            drop(one);
            drop(closed);
            other.join().is_err() && own.into_iter().all(|thread| thread.join().is_ok())
        });
        // SAFETY: the child runs only the closure, which may allocate (glibc allows that), and
        // leaves without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: `alarm` touches no memory; the signal ends a child that hangs. `_exit` runs
            // nothing of the parent's.
            unsafe {
                libc::alarm(120);
                libc::_exit(i32::from(!catch_unwind(in_child).unwrap_or(false)));
            }
        }
        let mut status = 0;
        // SAFETY: `status` is writable; no other thread waits for this child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child's status");
        drop(closed);
    }
}
