//! A file whose calls are made by the caller, as another one makes them, and whose requests go to somebody else.

use sync::{Arc, SharedBytes};

use crate::{BackingFile, Identity, IoError, Queue, Request};

/// Who does the requests. What its methods owe is said at those of [`BackingFile`] with the same names.
pub(crate) trait Submission: Send + Sync {
    /// The files whose requests it does.
    type File: BackingFile + ?Sized;

    fn submit(&self, file: &Arc<Self::File>, requests: &mut Vec<Request>) -> Queue;

    fn queue(&self) -> Queue {
        Queue::default()
    }

    fn help(&self, queue: Queue, done: &dyn Fn() -> bool);

    fn help_for_now(&self, queue: Queue, done: &dyn Fn() -> bool) {
        self.help(queue, done);
    }
}

/// A file, and who does its requests.
pub(crate) struct QueuedFile<S: Submission> {
    pub(crate) file: Arc<S::File>,
    pub(crate) submission: Arc<S>,
}

impl<S: Submission> BackingFile for QueuedFile<S> {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn reads_by_copy(&self) -> bool {
        self.file.reads_by_copy()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.file.write(offset, from, len)
    }

    fn sync(&self) -> Result<(), IoError> {
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.file.set_len(len)
    }

    fn submit(&self, requests: &mut Vec<Request>) -> Queue {
        self.submission.submit(&self.file, requests)
    }

    fn queue(&self) -> Queue {
        self.submission.queue()
    }

    fn help(&self, queue: Queue, done: &dyn Fn() -> bool) {
        self.submission.help(queue, done);
    }

    fn help_for_now(&self, queue: Queue, done: &dyn Fn() -> bool) {
        self.submission.help_for_now(queue, done);
    }
}
