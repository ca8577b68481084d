//! A handle: one opening of a file, with its group, the errors reported through it, and its
//! readahead.

use std::ops::Range;

use sync::Arc;
use sync::atomic::{AtomicU8, AtomicU64, Ordering};
use sync::lock::OnceCell;

use crate::dirty::device::DirtyPart;
use crate::dirty::error_latch::Heard;
use crate::error::Error;
use crate::file::state::FileState;
use crate::file::watch::Pace;
use crate::manager::group_handle::GroupHandle;
use crate::read_ahead::advice::Advice;
use crate::read_ahead::shares::ReadAhead;
use crate::size::ALLOCATION;
use crate::stats::hits::{HitCount, Hits};
use io::IoError;

/// One opening of a file by one group.
pub(crate) struct Handle {
    pub(crate) file: Arc<FileState>,
    pub(crate) group: Arc<GroupHandle>,
    pub(crate) hits: HitCount,
    pub(crate) advice: AtomicU8,
    pub(crate) writable: bool,
    /// Which of the file's write errors were reported through this handle.
    pub(crate) heard: Heard,
    /// The access pattern of the handle's readers.
    pub(crate) read_ahead: ReadAhead,
    /// The count of the file's dirty pages that are charged to the group. Set with the first such
    /// page.
    pub(crate) dirty_part: OnceCell<Arc<DirtyPart>>,
    /// The time for which the handle's writers still have to be throttled (`dirty`).
    pub(crate) debt_ns: AtomicU64,
    /// Bytes charged to the budget for the handle, without readahead's.
    charged: u64,
}

impl Handle {
    /// Opens a file for `group`. Charges nothing; `charged` is what the caller has charged.
    pub(crate) fn of(
        group: &Arc<GroupHandle>,
        file: Arc<FileState>,
        hits: Hits,
        writable: bool,
        charged: u64,
    ) -> Arc<Self> {
        let hits = HitCount::enter(hits, &group.state().hits);
        hits.begin(&file.hits);
        file.handle_opened();
        Arc::new(Self {
            heard: file.latch.listen(),
            file,
            group: Arc::clone(group),
            hits,
            advice: AtomicU8::new(Advice::Normal as u8),
            writable,
            read_ahead: ReadAhead::default(),
            dirty_part: OnceCell::new(),
            debt_ns: AtomicU64::new(0),
            charged,
        })
    }

    /// Creates another handle of the file, for a group that has the file mapped. The handle's hit
    /// counter starts without a place (`sync::CounterPlace`). A place would take 8 bytes for each
    /// CPU, and the handle would seldom use it, because the mapping counts most hits of a mapped
    /// file.
    ///
    /// # Errors
    /// Those of charging the budget.
    pub(crate) fn open_again(&self, group: &Arc<GroupHandle>) -> Result<Arc<Self>, Error> {
        group.manager.charge_metadata(Self::bytes())?;
        Ok(Self::of(group, Arc::clone(&self.file), Hits::default(), self.writable, Self::bytes()))
    }

    /// Returns the number of bytes that are charged to the budget for a new handle. The number
    /// includes the `DirtyPart` that the handle's writes may create. It excludes the hit counter's
    /// place, which `File::open` charges separately. It also excludes the shares of readahead: each
    /// share is charged when it is created.
    pub(crate) fn bytes() -> u64 {
        size_of::<Self>() as u64 + ALLOCATION + HitCount::bytes() + ReadAhead::bytes_at_first() + DirtyPart::BYTES
    }

    /// Reads all of `buf`.
    ///
    /// # Errors
    /// Those of [`File::read_exact_at`](crate::File::read_exact_at).
    pub(crate) fn read_exact(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let wanted = buf.len();
        if self.read_pages(buf, offset)? < wanted {
            return Err(self.past_end(offset, wanted as u64));
        }
        Ok(())
    }

    /// Implements [`File::sync_range`](crate::File::sync_range).
    pub(crate) fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        let shift = self.file.page_shift();
        self.sync(Some(range.start >> shift..range.end.div_ceil(1 << shift)))
    }

    /// Implements [`File::prefetch`](crate::File::prefetch).
    pub(crate) fn prefetch_range(&self, range: Range<u64>) {
        let shift = self.file.page_shift();
        let end = range.end.min(self.file.len());
        if range.start < end {
            self.prefetch(range.start >> shift..end.div_ceil(1 << shift));
        }
    }

    /// Checks that the handle may write.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        self.file.manager.memory.refuse_child()?;
        if self.writable { Ok(()) } else { Err(Error::ReadOnly { path: self.file.path.clone() }) }
    }

    /// Writes back `pages`, or all pages if `pages` is `None`, and makes them durable. This
    /// includes what was written through other handles.
    pub(crate) fn sync(&self, pages: Option<Range<u64>>) -> Result<(), Error> {
        self.file.manager.memory.refuse_child()?;
        // Adopts a truncation before the errand, not in it: the errand runs a cycle, and a cycle
        // never waits for `extension` (WATCH-3).
        self.file.notice_cut();
        let result = self.file.in_time(Pace::Cycle, move |file| {
            Ok(pages.map_or_else(|| file.write_back_all(), |pages| file.write_back(pages)))
        })?;
        if result == Err(IoError::CutOff) {
            self.file.notice_cut(); // Reports now what the truncation lost, so that the next sync doesn't.
        }
        self.tell(result)
    }

    /// Returns a write-back error that hasn't been reported through this handle yet, if there is
    /// one. Otherwise returns `now`, the result of the calling `sync`'s own write-back. So a `sync`
    /// reports its own failure even if another thread has already reported the same failure through
    /// this handle.
    fn tell(&self, now: Result<(), IoError>) -> Result<(), Error> {
        let failure = self.file.latch.tell(&self.heard).or(now.err());
        failure.map_or(Ok(()), |error| Err(self.file.write_failed(error)))
    }

    /// Returns whether the advice is `Sequential`. Pages that this handle loads then enter the LRU
    /// lists as new pages, even if their shadows show earlier uses.
    pub(crate) fn is_sequential(&self) -> bool {
        self.advice.load(Ordering::Relaxed) == Advice::Sequential as u8
    }

    /// Returns whether readahead is off.
    pub(crate) fn is_random(&self) -> bool {
        self.advice.load(Ordering::Relaxed) == Advice::Random as u8
    }

    /// Counts a hit that `CounterPlace::try_add` couldn't count. There are three possible causes:
    /// the counter has no place, the thread is ending, or there is no memory for the thread's
    /// numbers.
    #[cold]
    pub(crate) fn count_slowly(&self) {
        self.hits.counter.add(1);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.file.manager.memory.frames.forked() {
            return;
        }
        let group = self.group.state();
        self.hits.settle(&self.file.hits, [&self.file.counters, &group.counters]);
        self.hits.leave(&group.hits);
        self.file.manager.memory.frames.budget().uncharge(self.charged + self.read_ahead.charged());
        // Release and Acquire: the thread that closes the file sees all that other handles did.
        if self.file.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.file.last_handle_closed(&self.group);
        }
    }
}
