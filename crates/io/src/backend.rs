//! The interface between Pagefold and the storage that holds the bytes.

use std::path::Path;

use sync::time::Duration;
use sync::{Arc, SharedBytes};

use crate::{Direction, Fingerprint, IoError, Queue, Request, failing_if_it_panics};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    #[default]
    Read,
    /// For reading and writing.
    Write,
    /// For reading and writing. The file is created if it doesn't exist.
    Create,
    /// For reading and writing. The file is created; fails with `EEXIST` if it exists.
    CreateNew,
    /// For reading and writing, exclusively. Takes the file's advisory [lock](BackingFile::lock).
    /// Fails with `EBUSY` if another opening of the file has the lock, in this process or another,
    /// or if the file is a device that the system uses. The lock doesn't keep other threads and
    /// processes from opening the file with other kinds of access.
    Alone,
    /// Creates a file that has no name, for reading and writing. Its mode is 0600, so only
    /// processes of its owner may open it. The path is an existing directory, or an unused name in
    /// one; the file doesn't get that name. Fails with `EEXIST` if the name is in use.
    Unnamed,
}

impl Access {
    /// Returns whether the file can be written.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// Returns whether the file is created if it doesn't exist.
    #[must_use]
    pub fn makes(self) -> bool {
        matches!(self, Self::Create | Self::CreateNew)
    }
}

/// A place where files can be opened: the machine's file systems, or a disk in memory for tests.
pub trait Backend: Send + Sync + 'static {
    /// Returns the backend's name, for the command line and reports.
    fn name(&self) -> &'static str;

    /// Opens a file, and creates the file first if `access` says so. A new file is empty, and its
    /// name is guaranteed to survive a power cut only after a [`sync`](BackingFile::sync). If
    /// opening fails, the file may have been created all the same.
    ///
    /// # Errors
    /// The system's: not found, already exists, not permitted, too many open files. `EISDIR` for a
    /// directory. [`IoError::NoLength`] for any other file that is neither a regular file nor a
    /// block device, and for files whose length the system doesn't know. `EINTR` if the call was
    /// interrupted before it did anything; the caller retries it.
    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError>;

    /// Returns whether [`submit`](BackingFile::submit) may wait for a device, because the
    /// submitting thread performs the requests itself.
    fn waits_in_submit(&self) -> bool {
        true
    }
}

impl<B: Backend + ?Sized> Backend for Box<B> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        (**self).open(path, access)
    }

    fn waits_in_submit(&self) -> bool {
        (**self).waits_in_submit()
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        (**self).open(path, access)
    }

    fn waits_in_submit(&self) -> bool {
        (**self).waits_in_submit()
    }
}

/// An open file of a [`Backend`]. Many threads use it concurrently.
///
/// A call that fails with `EINTR` was interrupted and did nothing; the caller retries the call,
/// without a limit (see [`uninterrupted`](crate::uninterrupted())). Exception: an interrupted read
/// or write may have done a part of its work, so the bytes of its range are unspecified until the
/// retry.
#[expect(clippy::len_without_is_empty, reason = "the length may change between two questions")]
pub trait BackingFile: Send + Sync {
    /// Returns the file's identity. The identity is the same each time the file is opened, under
    /// whatever name. If the backend can't give each file an identity of its own, several files may
    /// share one identity, but their [fingerprints](Self::fingerprint) differ.
    fn identity(&self) -> Identity;

    /// Returns a value that distinguishes this file from others with the same identity. The caller
    /// compares fingerprints when it opens a file while a file with the same identity is open. A
    /// file's fingerprint may change while the file is being changed; therefore the caller compares
    /// [a few times](crate::is_same_file).
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::default()
    }

    /// Returns the file's current length in bytes. Another process may change it at any time.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> Result<u64, IoError>;

    /// Returns whether [`len`](Self::len) never waits for a device or a server.
    fn tells_len_at_once(&self) -> bool {
        false
    }

    /// Returns whether the file's mode lets users other than its owner read or write it.
    fn is_open_to_others(&self) -> bool {
        false
    }

    /// Returns the number of bytes that the file could occupy: the bytes that it occupies already,
    /// plus the bytes that are now free in its file system. Returns `None` if the file system
    /// doesn't report these numbers.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Returns whether the CPU serves reads by copying from the system's memory, so that no device
    /// transfers anything (for example on tmpfs). If so, readahead gains nothing, and a read is
    /// cheaper if its destination is in the CPU's caches.
    fn reads_by_copy(&self) -> bool {
        false
    }

    /// Returns whether the bytes of a [`write`](Self::write), or of a [submitted](Self::submit)
    /// write, must not change until the write has completed. If they change, a layer that reads
    /// them twice (a checksum, a mirror) may reject the write with `EIO`, or store a checksum that
    /// doesn't match. So if this returns true, the caller writes from [copies](crate::Copies).
    fn needs_stable_bytes(&self) -> bool {
        false
    }

    /// Attempts once to fill the slices of `into`, in order, with the file's bytes from `offset`
    /// on. Returns the number of bytes read, which is 0 at or past the end of the file. Callers use
    /// [`read_full`](crate::read_full()), which continues after short reads and interruptions.
    ///
    /// `offset` and the slices' lengths must be multiples of 4 KiB. After a short read, the bytes
    /// of `into` that weren't read are unspecified; after an error, all bytes of `into` are.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError>;

    /// Attempts once to write the first `len` bytes of the slices of `from`, in order, at `offset`.
    /// Returns the number of bytes written. A write past the end of the file extends the file.
    /// Callers use [`write_full`](crate::write_full()), which continues after short writes and
    /// interruptions.
    ///
    /// The slices must hold at least `len` bytes. `offset` and the slices' lengths must be
    /// multiples of 4 KiB. `len` must also be a multiple of 4 KiB, unless the write ends at the end
    /// of the file or beyond it.
    ///
    /// If the file doesn't [need stable bytes](Self::needs_stable_bytes), the bytes may change
    /// during the write; the disk then gets a mixture of old and new bytes. After an error, any
    /// part of the range may have been written.
    ///
    /// # Errors
    /// The system's; `EBADF` if the file wasn't opened for writing.
    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let _ = (offset, from, len);
        Err(IoError::BAD_FILE)
    }

    /// Makes the file durable. The bytes written before this call, the file's length, and the name
    /// under which the file was opened then survive a power cut.
    ///
    /// # Errors
    /// The system's; `EBADF` if the file wasn't opened for writing. Any write since the last `Ok`
    /// may then be lost, even if a later call succeeds: a caller that needs the bytes must write
    /// them again. If a sync fails, all syncs of this file that were in progress at the same time
    /// fail too.
    fn sync(&self) -> Result<(), IoError> {
        Err(IoError::BAD_FILE)
    }

    /// Truncates the file, or extends it with zeros. Bytes that were cut off read as zeros if the
    /// file is extended again.
    ///
    /// # Errors
    /// The system's; `EBADF` if the file wasn't opened for writing, `EINVAL` for a block device.
    fn set_len(&self, len: u64) -> Result<(), IoError> {
        let _ = len;
        Err(IoError::BAD_FILE)
    }

    /// Takes the file's advisory lock for this opening; [`Access::Alone`] takes the same lock.
    /// Other openings that ask for the lock, in this process or another, then fail. This opening
    /// holds the lock until [`unlock`](Self::unlock), or until this file is dropped. Does nothing
    /// on backends without locks.
    ///
    /// Forked children of the process share the opening. So if the process dies, the lock is held
    /// until its children have ended too.
    ///
    /// # Errors
    /// `EBUSY` if another opening holds the lock and doesn't release it within seconds. The call
    /// waits that long because the other opening may just be closing.
    fn lock(&self) -> Result<(), IoError> {
        Ok(())
    }

    /// Releases the lock if this process has taken it. This also releases it for forked children,
    /// which have descriptors of the same opening.
    fn unlock(&self) {}

    /// Extends the file with zeros to at least `len` bytes. Never truncates the file, even if
    /// another process extends it meanwhile. The default implementation can't guarantee this: if
    /// another process extends the file after the length was checked, `set_len` may cut off the new
    /// bytes.
    ///
    /// # Errors
    /// See [`set_len`](Self::set_len).
    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        if self.len()? < len { self.set_len(len) } else { Ok(()) }
    }

    /// Starts all of the requests, in no particular order, and leaves `requests` empty. A request
    /// that can't be started completes with an error. The implementation keeps the file open until
    /// every request has completed, even if the caller drops its handle.
    ///
    /// Never waits for a device, unless the backend has no thread or device queue of its own. In
    /// that case, all requests have completed when this returns.
    ///
    /// Every request completes eventually, even if no thread [helps](Self::help).
    fn submit(&self, requests: &mut Vec<Request>) -> Queue {
        requests.drain(..).for_each(|request| request.run(self));
        Queue::default()
    }

    /// Returns the queue that requests submitted by the calling thread wait in.
    fn queue(&self) -> Queue {
        Queue::default()
    }

    /// Uses this thread to help complete the requests that were submitted to `queue`, until
    /// `done()` is true or all of these requests have completed. See [`help_as`](Self::help_as).
    fn help(&self, queue: Queue, done: &dyn Fn() -> bool) {
        self.help_as(&queue, Helping::default(), done);
    }

    /// Uses this thread to complete requests that were submitted to `queue`, and waits for the
    /// device if necessary. Requests that the device has already answered are completed first.
    ///
    /// Returns when `done()` is true, when the time limit of `how` has passed, or when no request
    /// is left: all requests of the queue's [batch](crate::Batch) have completed or, for a queue
    /// without a batch, all requests of the file. Without a batch, some backends also wait for
    /// other files' requests in the same queue.
    ///
    /// Calls `done` repeatedly, in this thread. `done` may submit more requests, for example one
    /// for each that has completed, to keep a certain number of them in flight during this call. If
    /// `done` submits requests to this thread's [`queue`](Self::queue), no other thread needs to be
    /// woken for them, because this thread already completes that queue's requests.
    ///
    /// `done()` should become true through a completion in this queue. If another event makes it
    /// true, this call notices that only at the queue's next completion, or when the time limit has
    /// passed.
    fn help_as(&self, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        let _ = (queue, how, done);
    }
}

/// How a thread helps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Helping {
    /// The longest time that the thread sleeps. The call may take longer if the thread performs
    /// reads and writes itself. `None` means no limit.
    pub at_most: Option<Duration>,
    /// The thread will help again in a moment, because it still has requests in flight. So other
    /// threads leave these requests to it, unless it hasn't helped again after about a millisecond.
    pub back_soon: bool,
    /// The thread must not make system calls that may wait for a device, because such a wait can't
    /// be limited. The thread leaves these calls to other threads. It waits until they have made
    /// the calls, or until the time limit (`at_most`) has passed.
    pub waits_only: bool,
}

/// Device and inode, or the backend's equivalent. Union and FUSE file systems may give several
/// files the same identity: see [`BackingFile::fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The device that the file is on.
    pub device: u64,
    /// The file's number on that device.
    pub inode: u64,
}

impl Request {
    /// Performs the whole request, in this thread.
    pub fn run(self, file: &(impl BackingFile + ?Sized)) {
        let mut rest = Some(self);
        while let Some(request) = rest {
            request.pause();
            let answer = request.attempt(file);
            rest = request.complete(&|| failing_if_it_panics(|| file.len()), answer);
        }
    }

    /// Makes the next attempt, in this thread: one [`read`](BackingFile::read) or
    /// [`write`](BackingFile::write) of `file`. The caller passes the answer to
    /// [`complete`](Self::complete).
    ///
    /// # Errors
    /// Those of the read or write; [`IoError::IO`] if the read or write panics. So a request
    /// completes (Q1 of `request`) even if the backend panics.
    pub fn attempt(&self, file: &(impl BackingFile + ?Sized)) -> Result<usize, IoError> {
        let (slices, asked) = self.next();
        match self.direction() {
            _ if asked == 0 => Ok(0),
            Direction::Read => failing_if_it_panics(|| file.read(self.offset(), &slices)),
            Direction::Write => failing_if_it_panics(|| file.write(self.offset(), &slices, asked)),
        }
    }
}
