//! What one request of write-back has: neighbouring dirty pages.
//!
//! If it fails it is tried again in smaller pieces, in this thread, so that only those pages stay
//! dirty that can't be written. Callers of `sync` get the error all the same.
//!
//! # Devices that need stable bytes
//! Pages may change while a device reads them. Some devices can't bear that
//! ([`needs_stable_bytes`](BackingFile::needs_stable_bytes)): what they are given are copies, of
//! which each device has a few. A device is like that if its files say so, or once it has refused a
//! run with pages that were changed meanwhile, and took the same run from a copy. That refusal is
//! no failure. Copies are taken before pages are held, and are given back by the device's answer,
//! so a thread that waits for one waits for the device alone.

use arrayvec::ArrayVec;
use frames::{HeldRun, Unclean};
use sync::Arc;

use crate::dirty::course::Course;
use crate::file::state::FileState;
use crate::stats::Counters;
use io::{BackingFile, Copies, IoError, write_full};

/// Pages in one request, at most, and bytes.
const PAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;
/// Pieces of a request that may fail before the rest of it is left alone. Finding one bad page
/// takes a dozen.
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
        let bytes = self.device().and_then(|device| device.copies()).map_or(BYTES_MAX, |copies| copies.room());
        PAGES_MAX.min(bytes >> self.page_shift()).max(1)
    }

    /// What the file is written from, if its device needs copies, and there is memory for them.
    /// Without it pages are written as they are: what the device refuses then is dirty again.
    pub(crate) fn copies(&self) -> Option<Arc<Copies>> {
        let device = self.device()?;
        if device.copies().is_none() && self.writer()?.needs_stable_bytes() {
            device.needs(Copies::for_pages(self.page_bytes() as usize)?);
        }
        device.copies().cloned()
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

    /// Bytes of a run that are to be written. Past the end there is nothing: such a page is one
    /// that `set_len` is about to drop.
    pub(crate) fn bytes_of(&self, run: &HeldRun) -> usize {
        let len = (run.len() as u64) << self.page_shift();
        len.min(self.len().saturating_sub(self.offset_of(run))) as usize
    }

    /// The file was given the first `pages` pages of the run, which are `bytes` bytes. Says how
    /// many pages those are.
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

    /// After a device has refused a run with pages that were changed meanwhile: writes it from
    /// copies, in this thread. If that goes well, the device needs them from now on. Returns how
    /// many pages were written, which aren't the run's any more, and the device's error about the
    /// rest.
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
            if let Err(error) = write_full(writer, self.offset_of(run), &[copy.bytes()], len) {
                return (written, Err(error));
            }
            written += self.was_written(run, pages, len);
        }
        // Sometimes: a device turns out to need copies.
        self.device().into_iter().for_each(|device| device.needs(Arc::clone(&copies)));
        (written, Ok(()))
    }

    /// Writes a run that couldn't be written in one go: half of it, then less, or more if that went
    /// well. Leaves the rest dirty when `may_fail` pieces have failed.
    pub(crate) fn write_in_pieces(&self, writer: &dyn BackingFile, mut run: HeldRun, may_fail: u32) -> Pieces {
        let mut pieces = Pieces::default();
        let mut size = run.len() / 2;
        if size == 0 {
            return pieces; // It was one page, and is dirty again.
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
