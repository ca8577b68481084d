//! The seam between Pagefold and whatever holds the bytes.

use std::path::Path;

use sync::time::Duration;
use sync::{Arc, SharedBytes};

use crate::{Direction, Fingerprint, IoError, Queue, Request};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    #[default]
    Read,
    /// For reading and writing.
    Write,
    /// For reading and writing; made if it isn't there.
    Create,
    /// For reading and writing; made, and `EEXIST` if it is there.
    CreateNew,
    /// For reading and writing, by this opening alone. `EBUSY` if another opening of this kind has
    /// the file, in this process or another one (an advisory lock, so other kinds of opening aren't
    /// kept out), or if it is a device that the system uses.
    Alone,
    /// For reading and writing: a new file that has no name, and that only its owner's processes
    /// may open (mode 0600). The path is a directory, or a name in one that no file has, which is
    /// `EEXIST`.
    Unnamed,
}

impl Access {
    /// Whether the file can be written.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether the file is made if it isn't there.
    #[must_use]
    pub fn makes(self) -> bool {
        matches!(self, Self::Create | Self::CreateNew)
    }
}

/// Somewhere files can be opened: the machine's file systems, a simulated disk, a faulty one.
pub trait Backend: Send + Sync + 'static {
    /// What the backend is called on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Opens a file. One that is made is empty, and sure to have its name after a power cut only
    /// when it was [synced](BackingFile::sync). If this fails, the file may have been made all the
    /// same.
    ///
    /// # Errors
    /// The system's: not found, there already, not permitted, too many open files; `EISDIR` for a
    /// directory, and [`IoError::NoLength`] for anything else that isn't a regular file or a block
    /// device, and for files whose length the system doesn't know. `EINTR` if nothing was done: it
    /// is called again.
    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError>;

    /// Whether [`submit`](BackingFile::submit) may wait for a device: the thread that submits does
    /// the requests itself.
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

/// An open file of a [`Backend`]. Many threads use it at once.
///
/// A call that fails with `EINTR` was interrupted, and has done nothing; of a read or write, the
/// bytes are unspecified. It is made again, however often that happens: see
/// [`uninterrupted`](crate::uninterrupted()).
#[expect(clippy::len_without_is_empty, reason = "the length may change between two questions")]
pub trait BackingFile: Send + Sync {
    /// The same for one file however it was opened. Where the backend can't have a different one
    /// for each other file, their [fingerprints](Self::fingerprint) differ.
    fn identity(&self) -> Identity;

    /// What tells this file from others that have its identity: asked, of both, when one of them is
    /// open already. Of one file it may differ while the file is changed, so it is asked [a few
    /// times](crate::is_same_file).
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::default()
    }

    /// The file's length in bytes now; another process may have changed it.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> Result<u64, IoError>;

    /// Whether [`len`](Self::len) never waits for a device or a server.
    fn tells_len_at_once(&self) -> bool {
        false
    }

    /// Whether users other than the file's owner may read or write it, as its mode says.
    fn is_open_to_others(&self) -> bool {
        false
    }

    /// Bytes that the file can have in all, as far as its file system has room now: those that take
    /// room already, and those that there is room for. `None` if it doesn't say.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Whether a read is always a copy made by this CPU, from memory of the system's, rather than a
    /// transfer by a device: then it is cheaper into memory that is in the CPU's caches, and
    /// reading ahead gains nothing.
    fn reads_by_copy(&self) -> bool {
        false
    }

    /// Whether the bytes of a [`write`](Self::write), or of a write that is
    /// [submitted](Self::submit), must stay as they are until it is answered: what looks at them
    /// twice (a checksum, a mirror) may otherwise refuse the write with `EIO`, or keep a checksum
    /// of other bytes. The caller then writes from [copies](crate::Copies).
    fn needs_stable_bytes(&self) -> bool {
        false
    }

    /// Tries once to fill the slices of `into`, one after the other, from `offset` on, and says how
    /// many bytes came; 0 at or past the end of the file. Use [`read_full`](crate::read_full()),
    /// which goes on after short reads and interruptions.
    ///
    /// `offset` and the slices' lengths are multiples of the page size, which is a multiple of 4
    /// KiB. Bytes of `into` past the ones read are unspecified; after an error, all of them are.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError>;

    /// Tries once to write the first `len` bytes of `from`, one slice after the other, at `offset`,
    /// and says how many were written. What lies beyond the file's end makes it longer. Use
    /// [`write_full`](crate::write_full()), which goes on after short writes and interruptions.
    ///
    /// The slices hold `len` bytes or more. `offset` and their lengths are multiples of 4 KiB; so
    /// is `len`, unless the range ends at what is or is to become the end of the file. The bytes
    /// may change while they are written: what reaches the disk is then some mixture, unless the
    /// file [needs stable bytes](Self::needs_stable_bytes). After an error, any of the range may
    /// have been written.
    ///
    /// # Errors
    /// The system's; `EBADF` if the file wasn't opened for writing.
    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let _ = (offset, from, len);
        Err(IoError::BAD_FILE)
    }

    /// Makes everything written before, the file's length, and the name under which it was opened,
    /// survive a power cut.
    ///
    /// # Errors
    /// The system's; `EBADF` if the file wasn't opened for writing. Any write since the last `Ok`
    /// may then be lost, even if a later call succeeds: a caller that wants the bytes must write
    /// them again. Calls that were under way at the same time all fail.
    fn sync(&self) -> Result<(), IoError> {
        Err(IoError::BAD_FILE)
    }

    /// Cuts the file off, or makes it longer with zeros. What is cut off and comes back is zeros.
    ///
    /// # Errors
    /// The system's; `EBADF` if the file wasn't opened for writing, `EINVAL` for a block device.
    fn set_len(&self, len: u64) -> Result<(), IoError> {
        let _ = len;
        Err(IoError::BAD_FILE)
    }

    /// Takes the file's advisory lock for this opening, so that other openings that ask for it are
    /// refused: those of other processes, and of this one. It is the lock that [`Access::Alone`]
    /// comes with. Held until [`unlock`](Self::unlock) or until this is dropped; if the process
    /// dies, until its forked children have ended too. Does nothing where there are no locks.
    ///
    /// # Errors
    /// `EBUSY` if another opening has it, and keeps it for seconds: one that is just being closed
    /// is waited for.
    fn lock(&self) -> Result<(), IoError> {
        Ok(())
    }

    /// Releases the lock, if this process has taken it: also for descriptors of this opening in
    /// forked children.
    fn unlock(&self) {}

    /// Makes the file at least `len` bytes long, with zeros. Never cuts it off, although another
    /// process may make it longer meanwhile.
    ///
    /// # Errors
    /// As [`set_len`](Self::set_len).
    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        if self.len()? < len { self.set_len(len) } else { Ok(()) }
    }

    /// Starts all of the requests, in no particular order, and leaves `requests` empty. Never waits
    /// for a device, unless the backend has no thread or device queue of its own: then all requests
    /// have completed when this returns. A request that can't be started completes with an error.
    /// The implementation keeps the file open until every request has completed, even if the caller
    /// drops its handle.
    ///
    /// Every request completes at some time, even if no thread [helps](Self::help).
    fn submit(&self, requests: &mut Vec<Request>) -> Queue {
        requests.drain(..).for_each(|request| request.run(self));
        Queue::default()
    }

    /// The queue in which what this thread submits waits.
    fn queue(&self) -> Queue {
        Queue::default()
    }

    /// Takes part in completing what was submitted with this answer, in this thread, until
    /// `done()`, or until nothing is left of it. See [`help_as`](Self::help_as).
    fn help(&self, queue: Queue, done: &dyn Fn() -> bool) {
        self.help_as(&queue, Helping::default(), done);
    }

    /// Takes part in completing what was submitted with this answer, in this thread: until
    /// `done()`, until nothing is left of the queue's [batch](crate::Batch) (of the file's
    /// requests, if they are in none), or until the time is over that `how` gives. It waits for the
    /// device if need be. What has been answered already is completed first.
    ///
    /// `done` is called again and again, in this thread. It may submit more: a thread with many
    /// requests keeps a part of them under way like this, and for its own [`queue`](Self::queue) no
    /// other thread needs to be woken meanwhile. What makes it true should be a completion of this
    /// queue. If something else does, it is noticed with the queue's next completion, or when the
    /// time is over.
    fn help_as(&self, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        let _ = (queue, how, done);
    }
}

/// How a thread helps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Helping {
    /// The longest time that it sleeps for; it may take longer in reads and writes that it does
    /// itself. For good if there is none.
    pub at_most: Option<Duration>,
    /// It will be back in a moment because it has more under way: no other thread needs to see to
    /// that meanwhile, unless the thread stays away for long (a millisecond).
    pub back_soon: bool,
    /// It makes no system call that may wait for a device without an end: it leaves those to
    /// others, and waits for them.
    pub waits_only: bool,
}

/// Device and inode, or what the backend has instead. Union and FUSE file systems may give one to
/// several files: [`BackingFile::fingerprint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The device that the file is on.
    pub device: u64,
    /// The file's number on that device.
    pub inode: u64,
}

impl Request {
    /// Does all of it, in this thread.
    pub fn run(self, file: &(impl BackingFile + ?Sized)) {
        let mut rest = Some(self);
        while let Some(request) = rest {
            request.pause();
            let answer = request.attempt(file);
            rest = request.complete(&|| file.len(), answer);
        }
    }

    /// Makes the next attempt, in this thread.
    pub(crate) fn attempt(&self, file: &(impl BackingFile + ?Sized)) -> Result<usize, IoError> {
        let (slices, asked) = self.next();
        match self.direction() {
            _ if asked == 0 => Ok(0),
            Direction::Read => file.read(self.offset(), &slices),
            Direction::Write => file.write(self.offset(), &slices, asked),
        }
    }
}
