//! What one request of write-back has: neighbouring dirty pages.
//!
//! If it fails it is tried again in smaller pieces, in this thread, so that only those pages stay dirty that can't be written;
//! whoever syncs is told all the same.

use arrayvec::ArrayVec;
use frames::{HeldRun, Unclean};

use crate::file::state::FileState;
use crate::io::{BackingFile, write_full};
use crate::stats::Counters;
use crate::write::course::Course;

/// Pages in one request, at most, and bytes.
const PAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;
/// Pieces of a request that may fail before the rest of it is left alone. Finding one bad page takes a dozen.
const FAILURES_MAX: u32 = 32;

/// What came of the pieces of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pieces {
    /// Pages.
    pub(crate) written: u64,
    pub(crate) failures: u32,
}

impl FileState {
    /// Pages that one request can have.
    pub(crate) fn run_pages(&self) -> usize {
        PAGES_MAX.min(BYTES_MAX >> self.page_shift()).max(1)
    }

    /// Holds the next dirty pages of the course, which goes past them.
    pub(crate) fn next_dirty_run(&self, course: &mut Course) -> Option<HeldRun> {
        let mut run: Option<HeldRun> = None;
        while let Some(page) = course.next_written(&self.map) {
            let fits = |run: &HeldRun| run.pages().end == page && run.len() < self.run_pages();
            if !run.as_ref().is_none_or(fits) {
                break;
            }
            course.pass(page);
            let Some(held) = self.hold(page, Unclean::Dirty) else { continue };
            match &mut run {
                Some(run) => run.push(held),
                None => run = Some(HeldRun::new(&self.map, held)),
            }
        }
        run
    }

    /// Where in the file a run starts.
    pub(crate) fn offset_of(&self, run: &HeldRun) -> u64 {
        run.pages().start << self.page_shift()
    }

    /// Bytes of a run that are to be written. Past the end there is nothing: such a page is one that `set_len` is about to drop.
    pub(crate) fn bytes_of(&self, run: &HeldRun) -> usize {
        let len = (run.len() as u64) << self.page_shift();
        len.min(self.len().saturating_sub(self.offset_of(run))) as usize
    }

    /// The file was given the first `pages` pages of the run, which are `bytes` bytes. Says how many pages those are.
    pub(crate) fn was_written(&self, run: &mut HeldRun, pages: usize, bytes: usize) -> u64 {
        if bytes > 0 {
            self.written_up_to(self.offset_of(run) + bytes as u64);
            Counters::add(&self.counters.bytes_out, bytes as u64);
            Counters::add(&self.counters.write_requests, 1);
        }
        let before = run.len();
        run.end(pages, Unclean::Unstable);
        (before - run.len()) as u64
    }

    /// Writes a run that couldn't be written in one go: half of it, then less, or more if that went well. Leaves the rest dirty
    /// when `may_fail` pieces have failed.
    pub(crate) fn write_in_pieces(&self, writer: &dyn BackingFile, mut run: HeldRun, may_fail: u32) -> Pieces {
        let mut pieces = Pieces::default();
        let mut size = run.len() / 2;
        if size == 0 {
            return pieces; // It was one page, and is dirty again.
        }
        while !run.is_empty() && pieces.failures < FAILURES_MAX.min(may_fail) {
            let some = size.min(run.len());
            let bytes: ArrayVec<_, PAGES_MAX> = run.bytes().take(some).collect();
            let len = (some << self.page_shift()).min(self.bytes_of(&run));
            match write_full(writer, self.offset_of(&run), &bytes, len) {
                Ok(()) => {
                    drop(bytes);
                    pieces.written += self.was_written(&mut run, some, len);
                    size = 2 * some;
                }
                Err(_) => {
                    drop(bytes);
                    pieces.failures += 1;
                    if some == 1 {
                        run.end(1, Unclean::Dirty);
                    }
                    size = (some / 2).max(1);
                }
            }
        }
        pieces
    }
}
