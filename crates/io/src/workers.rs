//! Threads that make calls which may wait for a device, on behalf of threads that must not wait.
//!
//! A call waits in the queue of its file, as requests do (`lines`). The number of threads that work
//! for one device at a time is limited. So a device that doesn't answer ties up at most that many
//! threads, and calls to other devices don't have to wait for it.

use crate::lines::Work;
use crate::thread_pool::Pool;
use crate::{Identity, IoError};

/// The threads. They are started on demand. Dropping this waits until all queued calls have
/// returned and the threads have ended.
pub struct Workers {
    pool: Pool,
}

impl Workers {
    /// Creates a pool with at most `threads` threads for each device, and at least one.
    ///
    /// # Errors
    /// The system's, if it can't allocate the page that detects forks.
    pub fn new(threads: usize) -> Result<Self, IoError> {
        Ok(Self { pool: Pool::new(threads)? })
    }

    /// Queues a call on `file`, to be made by a thread of the pool. If the pool has no thread and
    /// can't start one, the calling thread makes the call.
    pub fn run(&self, file: Identity, call: impl FnOnce() + Send + 'static) {
        self.pool.put(file, std::iter::once(Work::Call(Box::new(call))));
    }
}
