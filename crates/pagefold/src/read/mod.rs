//! Reads a file's bytes, page by page, and pins pages. This module serves pages that are in memory;
//! `load` loads the others.

mod advise;
pub(crate) mod call;
pub(crate) mod flight;
pub(crate) mod load;
pub(crate) mod load_error;
pub(crate) mod page_future;
mod prefetch;

use std::future::poll_fn;
use std::ops::Range;

use frames::{Ahead, PinError, PinnedFrame};
use sync::atomic::Backoff;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::length::Attempt;
use crate::file::watch::Pace;
use crate::read::call::{Call, Want};
use crate::read::page_future::{Found, PageFuture};

/// What a look past the known end of a file found.
enum Beyond {
    Nothing,
    /// The file has grown here.
    Grown,
    /// The file has grown, but Pagefold can't adopt its new length now. This many bytes past the
    /// known end were read directly from the file.
    Apart(usize),
}

impl Handle {
    /// Does the work of [`File::read_at`](crate::File::read_at) unless the bytes lie in one page
    /// that is in memory.
    #[cold]
    pub(crate) fn read_pages(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.read_in_call(&mut Call::reading(self.pages_of(offset, buf.len())), buf, offset)
    }

    /// Returns the pages that contain the `len` bytes at `offset`, up to the end of the file.
    /// Returns at least one page.
    pub(crate) fn pages_of(&self, offset: u64, len: usize) -> Range<u64> {
        let shift = self.file.page_shift();
        let end = offset.saturating_add(len as u64).min(self.file.len());
        let first = offset >> shift;
        first..(end.div_ceil(1 << shift)).max(first + 1)
    }

    /// Reads bytes like [`read_pages`](Self::read_pages), as a part of `call`.
    pub(crate) fn read_in_call(&self, call: &mut Call, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            let len = self.file.len();
            if at >= len {
                match self.read_beyond(at, &mut buf[done..])? {
                    Beyond::Nothing => break,
                    Beyond::Apart(n) => done += n,
                    Beyond::Grown => {}
                }
                continue;
            }
            let wanted = self.clip_to(len, at, buf.len() - done);
            let into = &mut buf[done..done + wanted];
            // `there` is less than `wanted` if the load found that the file has become shorter.
            let there = match at + wanted as u64 == len {
                true if self.read_end(call, into, at)? => wanted,
                true => continue,
                false => self.read_page(call, into, at)?,
            };
            done += there;
            if there < wanted {
                break;
            }
            let end = at + there as u64;
            if done < buf.len() && !end.is_multiple_of(self.file.page_bytes()) {
                // The copy stopped at the file's known end, inside a page. If the file has grown,
                // the rest of the page is wanted, too. One write may have changed bytes on both
                // sides of the old end, and the result must not mix old and new bytes. So if the
                // cache has the new length (`Grown`), the bytes before the old end are read again.
                match self.read_beyond(end, &mut buf[done..])? {
                    Beyond::Nothing => break,
                    Beyond::Apart(n) => done += n,
                    Beyond::Grown => done -= there,
                }
            }
        }
        Ok(done)
    }

    /// Reads bytes like [`read_in_call`](Self::read_in_call), but blocks no thread.
    pub(crate) async fn read_async(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let page_bytes = self.file.page_bytes();
        // `done` bytes were copied. If the last of them came from the page with the file's end,
        // `last` is the position in `buf` at which that page's bytes begin.
        let (mut done, mut last) = (0, None);
        while done < buf.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            let mut future = PageFuture::of_byte(self, at);
            match poll_fn(|context| future.poll_found(context)).await {
                Ok(Found::Page(page)) => {
                    // If the file has grown within this page, the bytes before the old end are read
                    // again, for the same reason as in `read_in_call`.
                    done = last.take().unwrap_or(done);
                    let from = (offset + done as u64) % page_bytes;
                    let n = copy_from(&page, from, &mut buf[done..]);
                    last = (page.len() < page_bytes as usize).then_some(done);
                    done += n;
                }
                Ok(Found::Apart(_)) if at < self.file.len() => {} // Now the page can be pinned.
                Ok(Found::Apart(bytes)) => match copy_from(&bytes, at % page_bytes, &mut buf[done..]) {
                    0 => break,
                    n => (done, last) = (done + n, None),
                },
                Err(Error::PastEnd { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads the last bytes of the file into `into`: those from `at` to the end of the file that
    /// the caller has seen. All of them lie in one page. Returns false if the file no longer ends
    /// there, or if the page was evicted again.
    ///
    /// The bytes and the file's length are from the same moment. A writer changes both within one
    /// change of the page's version (L1 of `write`). If this function copies the bytes without a
    /// pin, the copy checks the version. If this function pins the page, there can be no writer at
    /// all.
    fn read_end(&self, call: &mut Call, into: &mut [u8], at: u64) -> Result<bool, Error> {
        let (page, end) = (at >> self.file.page_shift(), at + into.len() as u64);
        let is_end = || self.file.len() == end;
        if self.file.map.read_while(at, into, is_end) {
            self.count_hit(call);
            return Ok(true);
        }
        self.bring_in(call, page)?;
        let Some(frame) = self.pin_in_memory(page)? else { return Ok(false) };
        frame.copy_to((at - (page << self.file.page_shift())) as usize, into);
        Ok(is_end())
    }

    /// Another process may have made the file longer. Checks whether the file has a byte at `at`,
    /// which is past the known end. If so, adopts the file's new length, or reads the bytes into
    /// `into`.
    ///
    /// Pagefold can't adopt the file's new length while the page that contains the old end is in
    /// use. In that case the bytes are read directly from the file, up to the end of a page, and
    /// aren't kept in memory. The bytes are current: if they had been written through Pagefold
    /// meanwhile, the length that Pagefold knows would include them.
    fn read_beyond(&self, at: u64, into: &mut [u8]) -> Result<Beyond, Error> {
        let file = &*self.file;
        file.manager.memory.refuse_child()?;
        if at < file.len() {
            return Ok(Beyond::Grown);
        }
        match file.try_refresh_len()? {
            Attempt::Done(len) if at < len => return Ok(Beyond::Grown),
            Attempt::Done(_) => return Ok(Beyond::Nothing),
            Attempt::Busy(_) => {}
        }
        let start = at >> file.page_shift() << file.page_shift();
        let bytes = file.in_time(Pace::Answer, move |file| file.read_apart(start))?;
        if at < file.len() {
            return Ok(Beyond::Grown);
        }
        let n = copy_from(&bytes, at - start, into);
        Ok(if n == 0 { Beyond::Nothing } else { Beyond::Apart(n) })
    }

    pub(crate) fn refreshed_len(&self) -> Result<u64, Error> {
        if self.file.manager.memory.frames.forked() {
            return Err(Error::Forked);
        }
        self.file.refresh_len()
    }

    /// Returns how many of `wanted` bytes at `at` lie in the same page and in the file.
    pub(crate) fn clip(&self, at: u64, wanted: usize) -> usize {
        self.clip_to(self.file.len(), at, wanted)
    }

    /// Does the work of [`clip`](Self::clip) for a file of `len` bytes.
    fn clip_to(&self, len: u64, at: u64, wanted: usize) -> usize {
        let page = 1_u64 << self.file.page_shift();
        let in_page = page - (at & (page - 1));
        in_page.min(len.saturating_sub(at)).min(wanted as u64) as usize
    }

    /// Reads bytes of one page. Returns how many of them the file has.
    fn read_page(&self, call: &mut Call, into: &mut [u8], at: u64) -> Result<usize, Error> {
        if self.read_in_memory(at, into) {
            self.count_hit(call);
            return Ok(into.len());
        }
        let page = at >> self.file.page_shift();
        self.fault(call, page, Want::Copy { at, into }).map(|(copied, _)| copied)
    }

    /// Copies bytes of a page if it is in memory. Returns false if it isn't, or if the file no
    /// longer has all of the bytes.
    pub(crate) fn read_in_memory(&self, at: u64, into: &mut [u8]) -> bool {
        self.read_in_memory_of(|| self.file.len(), at, into)
    }

    /// Does the work of [`read_in_memory`](Self::read_in_memory). `len` returns the file's length.
    ///
    /// The caller has compared the range with the file's length, but since then the file may have
    /// been cut off within the page. A cut lowers the length before it zeroes the page from the new
    /// end on (Z1 of `set_len`, N6 of `length`). So if this function has copied such zeros, it then
    /// finds a length below the end of the range, and returns false.
    fn read_in_memory_of(&self, len: impl Fn() -> u64, at: u64, into: &mut [u8]) -> bool {
        let end = at + into.len() as u64;
        let mut ahead = Ahead::No;
        let there = self.file.map.read_first(at, into, &mut ahead, || len() >= end);
        if ahead == Ahead::Marked {
            self.mark_reached(at >> self.file.page_shift());
        }
        there
    }

    pub(crate) fn count_hit(&self, call: &mut Call) {
        match call.counted.checked_sub(1) {
            Some(rest) => call.counted = rest,
            None => self.hits.counter.add(1),
        }
    }

    /// Pins a page, loading it if need be. Also returns how many of the frame's bytes lie within
    /// the file.
    pub(crate) fn page(&self, page: u64) -> Result<(PinnedFrame<'_>, usize), Error> {
        match self.pin_hot(page) {
            Some(pinned) => Ok(pinned),
            None => self.pin_page(page),
        }
    }

    /// Pins a page if it is in memory and can be pinned at once. See also [`page`](Self::page).
    pub(crate) fn try_page(&self, page: u64) -> Option<(PinnedFrame<'_>, usize)> {
        self.pin_hot(page).or_else(|| self.try_pin_page(page))
    }

    fn pin_hot(&self, page: u64) -> Option<(PinnedFrame<'_>, usize)> {
        let frame = self.file.map.pin_hot(page)?;
        self.hits.counter.add(1);
        let len = frame.bytes().len();
        Some((frame, len))
    }

    /// Does the work of [`File::page_at`](crate::File::page_at) for a page that isn't hot.
    #[cold]
    pub(crate) fn pin_page(&self, page: u64) -> Result<(PinnedFrame<'_>, usize), Error> {
        let shift = self.file.page_shift();
        let past_end = || self.past_end(page.saturating_mul(1 << shift), 1);
        let start = page.checked_mul(1 << shift).ok_or_else(past_end)?;
        if start >= self.file.len() && start >= self.refreshed_len()? {
            return Err(past_end());
        }
        let frame = match self.pin_in_memory(page)? {
            Some(frame) => {
                self.hits.counter.add(1);
                Some(frame)
            }
            None => self.fault(&mut Call::reading(page..page + 1), page, Want::Pin)?.1,
        };
        let len = self.clip(start, 1 << shift);
        // If the file became shorter while the page was read, it may not have the page any more.
        frame.filter(|_| len > 0).map(|frame| (frame, len)).ok_or_else(past_end)
    }

    /// Does the work of [`File::try_page_at`](crate::File::try_page_at) for a page that isn't hot.
    #[cold]
    pub(crate) fn try_pin_page(&self, page: u64) -> Option<(PinnedFrame<'_>, usize)> {
        self.file.manager.memory.refuse_child().ok()?;
        let mut ahead = Ahead::No;
        let frame = self.file.map.pin_first(page, &mut ahead).ok()??;
        if ahead == Ahead::Marked {
            self.mark_reached(page);
        }
        let shift = self.file.page_shift();
        let len = self.clip(page << shift, 1 << shift);
        self.hits.counter.add(1);
        (len > 0).then_some((frame, len))
    }

    /// Pins a page if it is in memory. Waits while a writer holds it.
    pub(crate) fn pin_in_memory(&self, page: u64) -> Result<Option<PinnedFrame<'_>>, Error> {
        let (mut backoff, mut ahead) = (Backoff::new(), Ahead::No);
        let mut pinner = self.file.map.pinner(page);
        loop {
            match pinner.pin(&mut ahead) {
                Ok(pinned) => {
                    if ahead == Ahead::Marked {
                        self.mark_reached(page);
                    }
                    return Ok(pinned);
                }
                Err(PinError::TooMany) => return Err(self.too_many_pins(page)),
                Err(PinError::Busy) => backoff.wait_or(|| self.file.page_busy(page))?,
            }
        }
    }

    /// Pins a page that is in memory, and copies bytes of the page. The pin excludes writers, so
    /// the copy succeeds even if other threads write to the page all the time. Returns false if the
    /// page isn't in memory, or if the file no longer has all of the bytes.
    pub(crate) fn read_pinned(&self, page: u64, at: u64, into: &mut [u8]) -> Result<bool, Error> {
        let Some(frame) = self.pin_in_memory(page)? else { return Ok(false) };
        frame.copy_to((at - (page << self.file.page_shift())) as usize, into);
        Ok(self.clip(at, into.len()) == into.len())
    }
}

/// Copies bytes of a page, from `from` on, until the page ends or `into` is full. Returns the
/// number of bytes copied.
fn copy_from(page: &[u8], from: u64, into: &mut [u8]) -> usize {
    let rest = page.get(from as usize..).unwrap_or_default();
    let n = rest.len().min(into.len());
    into[..n].copy_from_slice(&rest[..n]);
    n
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use std::cell::Cell;

    use crate::Pagefold;
    use test_disks::SimulatedDisk;

    /// Regression: a reader was about to copy a page when the file was cut off within the page. The
    /// reader got zeros in place of the bytes past the new end.
    #[test]
    fn a_reader_whose_page_is_cut_off_in_memory_gets_no_zeros() {
        const PAGE: usize = 4096;
        let (page, end) = (PAGE as u64, PAGE as u64 + 100);
        for by_another_process in [false, true] {
            let disk = SimulatedDisk::default();
            disk.add_bytes("file", vec![1; 3 * PAGE]);
            let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
            let file = mm.group("a").build().unwrap().open_options().write(true).open("file").unwrap();
            let state = &file.handle().file;
            state.manager.file_io.flusher.stop(); // However long the test takes, the page stays dirty.
            file.write_at(&[1; PAGE], page).unwrap();
            let is_cut = Cell::new(false);
            let cut_once = || {
                if !is_cut.replace(true) {
                    if by_another_process {
                        state.writer().unwrap().set_len(end).unwrap();
                        state.refresh_len().unwrap();
                    } else {
                        file.set_len(end).unwrap();
                    }
                }
                state.len()
            };
            let mut bytes = [1; PAGE];
            let was_read = file.handle().read_in_memory_of(cut_once, page, &mut bytes);
            assert!(!was_read, "by another process: {by_another_process}, zeros: {}", bytes != [1; PAGE]);
            assert_eq!(file.read_at(&mut bytes, page).unwrap(), 100);
        }
    }
}
