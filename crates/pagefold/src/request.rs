//! Requests of write-back: neighbouring pages, written together.
//!
//! If one fails it is tried in smaller ones, so that only those pages stay dirty that can't be written; whoever syncs is
//! told all the same.

use std::ops::Range;

use arrayvec::ArrayVec;
use frames::{HeldPage, Unclean};

use crate::cycle::Outcome;
use crate::file_state::FileState;
use crate::io::{BackingFile, IoError, write_full};
use crate::stats::Counters;

/// Pages in one request, at most, and bytes.
const PAGES_MAX: usize = 256;
const BYTES_MAX: u64 = 1 << 20;
/// Requests that may fail in one part of the file before the rest of it is left alone. Finding one bad page takes a dozen.
const FAILURES_MAX: u32 = 32;

/// Neighbouring pages on their way to the file.
struct Request<'a> {
    file: &'a FileState,
    writer: &'a dyn BackingFile,
    first: u64,
    pages: ArrayVec<HeldPage<'a>, PAGES_MAX>,
}

impl FileState {
    /// Pages that one request can have.
    pub(crate) fn request_pages(&self) -> usize {
        PAGES_MAX.min((BYTES_MAX >> self.page_shift()) as usize).max(1)
    }

    /// Writes the dirty pages of a part of the file that fits one request.
    pub(crate) fn write_part(&self, writer: &dyn BackingFile, part: Range<u64>) -> Outcome {
        let mut request = Request { file: self, writer, first: part.start, pages: ArrayVec::new() };
        let mut outcome = Outcome::default();
        let mut next = part.start;
        while let Some(page) = self.map.next_written(next..part.end) {
            next = page + 1;
            let Some(held) = self.hold(page, Unclean::Dirty) else { continue };
            if page != request.first + request.pages.len() as u64 {
                request.write(&mut outcome);
                request.first = page;
            }
            request.pages.push(held);
        }
        request.write(&mut outcome);
        outcome
    }
}

impl Request<'_> {
    /// Writes the pages. They are unstable then, or still dirty if that failed.
    fn write(&mut self, outcome: &mut Outcome) {
        let mut size = self.pages.len();
        while !self.pages.is_empty() {
            let some = size.min(self.pages.len());
            match self.attempt(some) {
                Ok(()) => {
                    outcome.written += some as u64;
                    self.let_go(some, Unclean::Unstable);
                    size = 2 * some;
                }
                Err(error) => {
                    outcome.error = outcome.error.or(Some(error));
                    outcome.failures += 1;
                    if outcome.failures >= FAILURES_MAX {
                        self.let_go(self.pages.len(), Unclean::Dirty);
                    } else if some == 1 {
                        self.let_go(1, Unclean::Dirty);
                    }
                    size = (some / 2).max(1);
                }
            }
        }
    }

    /// Writes the first `some` pages in one go.
    fn attempt(&self, some: usize) -> Result<(), IoError> {
        let file = self.file;
        let offset = self.first << file.page_shift();
        // Past the end there is nothing to write: such a page is one that `set_len` is about to drop.
        let len = ((some as u64) << file.page_shift()).min(file.len().saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        let bytes: ArrayVec<_, PAGES_MAX> = self.pages[..some].iter().map(HeldPage::bytes).collect();
        write_full(self.writer, offset, &bytes, len as usize)?;
        file.written_up_to(offset + len);
        Counters::add(&file.counters.bytes_out, len);
        Counters::add(&file.counters.write_requests, 1);
        Ok(())
    }

    fn let_go(&mut self, some: usize, state: Unclean) {
        self.pages.drain(..some).for_each(|page| page.end(state));
        self.first += some as u64;
    }
}
