//! A file that makes calls in the caller's thread, through another file, and hands requests to a
//! `Submission`.

use sync::{Arc, SharedBytes};

use crate::{BackingFile, Fingerprint, Helping, Identity, IoError, Queue, Request};

/// Carries out the requests of files. Each method has the contract of the [`BackingFile`] method
/// with the same name, except that `help` has the contract of [`help_as`](BackingFile::help_as).
pub(crate) trait Submission: Send + Sync {
    /// The files whose requests this carries out.
    type File: BackingFile + ?Sized;

    fn submit(&self, file: &Arc<Self::File>, requests: &mut Vec<Request>) -> Queue;

    fn queue(&self) -> Queue {
        Queue::default()
    }

    fn help(&self, file: &Arc<Self::File>, queue: &Queue, how: Helping, done: &dyn Fn() -> bool);
}

/// A file, and the `Submission` that carries out its requests.
pub(crate) struct QueuedFile<S: Submission> {
    pub(crate) file: Arc<S::File>,
    pub(crate) submission: Arc<S>,
}

impl<S: Submission> BackingFile for QueuedFile<S> {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.file.fingerprint()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn tells_len_at_once(&self) -> bool {
        self.file.tells_len_at_once()
    }

    fn is_open_to_others(&self) -> bool {
        self.file.is_open_to_others()
    }

    fn room(&self) -> Option<u64> {
        self.file.room()
    }

    fn reads_by_copy(&self) -> bool {
        self.file.reads_by_copy()
    }

    fn needs_stable_bytes(&self) -> bool {
        self.file.needs_stable_bytes()
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

    fn lock(&self) -> Result<(), IoError> {
        self.file.lock()
    }

    fn unlock(&self) {
        self.file.unlock();
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        self.file.lengthen(len)
    }

    fn submit(&self, requests: &mut Vec<Request>) -> Queue {
        self.submission.submit(&self.file, requests)
    }

    fn queue(&self) -> Queue {
        self.submission.queue()
    }

    fn help_as(&self, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        self.submission.help(&self.file, queue, how, done);
    }
}
