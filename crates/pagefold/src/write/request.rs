//! One request of write-back: a run of neighbouring dirty pages.
//!
//! If a request fails, the leader (the thread that runs the cycle) retries it in smaller pieces. So
//! only the pages that can't be written stay dirty. Callers of `sync` get the error even if the
//! retries succeed.
//!
//! # Devices that need stable bytes
//! Writers may change pages while a device reads them. Some devices don't tolerate that
//! ([`needs_stable_bytes`](BackingFile::needs_stable_bytes)). For such a device, pages are first
//! copied into a buffer, and the device writes the copies. Each such device has a few buffers.
//!
//! A device gets copies in two cases. Either its files report that it needs stable bytes; or it has
//! rejected a run of pages that were changed during the request, and has then accepted a copy of
//! the same run. Such a rejection doesn't count as a failure.
//!
//! Waiting for a buffer can't deadlock, because the thread waits only for the device: each buffer
//! is given back as soon as the device answers. The leader takes a buffer for a request before it
//! holds the request's pages. There is one exception: when the leader retries a failed request in
//! pieces, it waits for a buffer while it holds the pages. This is harmless, because held pages
//! block no other thread.

use arrayvec::ArrayVec;
use frames::{HeldRun, Unclean};
use sync::Arc;

use crate::dirty::course::Course;
use crate::file::state::FileState;
use crate::stats::Counters;
use io::{BackingFile, Copies, IoError, write_full};

/// The most pages and bytes in one request.
const PAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;
/// How many pieces of a request may fail before the rest of the request is left dirty. To find one
/// bad page, about a dozen pieces must fail.
const FAILURES_MAX: u32 = 32;

/// The outcome of a request's pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pieces {
    /// Pages.
    pub(crate) written: u64,
    pub(crate) failures: u32,
}

impl FileState {
    /// Returns the number of pages that one request can have.
    pub(crate) fn run_pages(&self) -> usize {
        let bytes = self.device().and_then(|device| device.copies()).map_or(BYTES_MAX, |copies| copies.room());
        PAGES_MAX.min(bytes >> self.page_shift()).max(1)
    }

    /// Returns the buffers that pages are copied into before they are written. Returns `None` if
    /// the device needs no copies, or if there is no memory for buffers. In both cases pages are
    /// written directly from their frames. If the device rejects such a write, the pages become
    /// dirty again.
    pub(crate) fn copies(&self) -> Option<Arc<Copies>> {
        let device = self.device()?;
        if device.copies().is_none() && self.writer()?.needs_stable_bytes() {
            device.needs(Copies::for_pages(self.page_bytes() as usize)?);
        }
        device.copies().cloned()
    }

    /// Holds the next run of dirty pages, and advances the course past it.
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

    /// Returns the offset in the file at which a run starts.
    pub(crate) fn offset_of(&self, run: &HeldRun) -> u64 {
        run.pages().start << self.page_shift()
    }

    /// Returns how many bytes of a run have to be written: those before the file's end. (`set_len`
    /// is about to drop the pages past the end.)
    pub(crate) fn bytes_of(&self, run: &HeldRun) -> usize {
        let len = (run.len() as u64) << self.page_shift();
        len.min(self.len().saturating_sub(self.offset_of(run))) as usize
    }

    /// Notes that the first `pages` pages of the run, `bytes` bytes in all, were written to the
    /// file. Returns the number of these pages.
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

    /// Writes a run from copies, in this thread, after the device has rejected the run because its
    /// pages were changed during the request. If the device accepts the copies, it gets copies from
    /// now on. Removes the written pages from the run. Returns their number, and the device's error
    /// if the rest couldn't be written.
    ///
    /// # Errors
    /// `refusal`, if there is no memory for copies.
    pub(crate) fn write_from_copies(
        &self,
        writer: &dyn BackingFile,
        run: &mut HeldRun,
        refusal: IoError,
    ) -> (u64, Result<(), IoError>) {
        let Some(copies) = Copies::for_pages(self.page_bytes() as usize) else { return (0, Err(refusal)) };
        let (mut copy, mut written) = (copies.wait(), 0);
        while !run.is_empty() {
            let pages = copy.fill(run.bytes());
            let len = copy.bytes().len().min(self.bytes_of(run));
            let result = write_full(writer, self.offset_of(run), &[copy.bytes()], len);
            self.cycle_was_answered();
            if let Err(error) = result {
                return (written, Err(error));
            }
            written += self.was_written(run, pages, len);
        }
        // Sometimes: a device turns out to need copies.
        self.device().into_iter().for_each(|device| device.needs(Arc::clone(&copies)));
        (written, Ok(()))
    }

    /// Writes a run in pieces after the write of the whole run failed. The first piece is half of
    /// the run. After a piece fails, the next one is half as large; after a piece succeeds, the
    /// next one is twice as large. Leaves the rest dirty once `may_fail` or [`FAILURES_MAX`] pieces
    /// have failed.
    pub(crate) fn write_in_pieces(&self, writer: &dyn BackingFile, mut run: HeldRun, may_fail: u32) -> Pieces {
        let mut pieces = Pieces::default();
        let mut size = run.len() / 2;
        if size == 0 {
            return pieces; // The run was one page, which becomes dirty again.
        }
        let copies = self.copies();
        while !run.is_empty() && pieces.failures < FAILURES_MAX.min(may_fail) {
            let mut some = size.min(run.len());
            let mut copy = copies.as_ref().map(Copies::wait);
            let bytes: ArrayVec<_, PAGES_MAX> = match &mut copy {
                None => run.bytes().take(some).collect(),
                Some(copy) => {
                    some = copy.fill(run.bytes().take(some));
                    [copy.bytes()].into_iter().collect()
                }
            };
            let len = (some << self.page_shift()).min(self.bytes_of(&run));
            let result = write_full(writer, self.offset_of(&run), &bytes, len);
            self.cycle_was_answered();
            match result {
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
