//! Threads for calls that may wait for a device, so that the thread that wants them made needn't.
//!
//! A call waits in its file's line, as requests do (`lines`). So many threads are with one device
//! at a time as there may be: a device that doesn't answer keeps those, and no call to another
//! device waits for it.

use crate::lines::Work;
use crate::thread_pool::Pool;
use crate::{Identity, IoError};

/// The threads. They are started as they are needed, and end some time after this is dropped: when
/// their calls return.
pub struct Workers {
    pool: Pool,
}

impl Workers {
    /// At most `threads` threads for each device, and at least one.
    ///
    /// # Errors
    /// The system's, when it has no page left for a mark.
    pub fn new(threads: usize) -> Result<Self, IoError> {
        Ok(Self { pool: Pool::new(threads)? })
    }

    /// Has a call made that is about a file, by one of the threads; by this one if there is none,
    /// and none can be started.
    pub fn run(&self, file: Identity, call: impl FnOnce() + Send + 'static) {
        self.pool.put(file, std::iter::once(Work::Call(Box::new(call))));
    }
}
