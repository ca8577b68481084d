//! One opening of a file: whose it is, what its user was told, and where its readers are going.

use sync::Arc;
use sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::error::Error;
use crate::file::state::FileState;
use crate::group::Group;
use crate::io::IoError;
use crate::read_ahead::advice::Advice;
use crate::read_ahead::prefetch::ReadAhead;
use crate::stats::census::Hits;
use crate::write::error_latch::Heard;

/// One opening of a file by one group.
pub(crate) struct Handle {
    pub(crate) file: Arc<FileState>,
    pub(crate) group: Group,
    pub(crate) hits: Arc<Hits>,
    pub(crate) advice: AtomicU8,
    pub(crate) writable: bool,
    /// Which of the file's write errors the handle was told of.
    pub(crate) heard: Heard,
    /// Where its readers are going.
    pub(crate) read_ahead: ReadAhead,
    /// Time that the handle's writers owe (`dirty`).
    pub(crate) debt_ns: AtomicU64,
}

impl Handle {
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        self.file.manager.refuse_child()?;
        if self.writable { Ok(()) } else { Err(Error::ReadOnly { path: self.file.path.clone() }) }
    }

    /// What couldn't be written, now or before, if the handle wasn't told yet. Another thread with the same handle may have
    /// been told of what failed now: this one has to know as well.
    pub(crate) fn tell(&self, now: Result<(), IoError>) -> Result<(), Error> {
        let failure = self.file.latch.tell(&self.heard).or(now.err());
        failure.map_or(Ok(()), |error| Err(self.file.write_failed(error)))
    }

    /// Pages are loaded without credit from earlier stays.
    pub(crate) fn is_sequential(&self) -> bool {
        self.advice.load(Ordering::Relaxed) == Advice::Sequential as u8
    }

    /// Nothing is to be read ahead.
    pub(crate) fn is_random(&self) -> bool {
        self.advice.load(Ordering::Relaxed) == Advice::Random as u8
    }

    /// Counts a hit of a thread that is ending.
    #[cold]
    pub(crate) fn count_last_hit(&self) {
        self.hits.counter.add(1);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.file.manager.frames.forked() {
            return;
        }
        self.hits.settle(&self.file, self.group.state());
        if self.file.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.file.last_handle_closed();
        }
    }
}
