//! Cutting a file off, and making it longer.
//!
//! - Z1. The length is lowered first, so that no page past the new end is found any more (L2 of
//!   `write`); then everything that can be refused is; then the file is cut off where it is kept;
//!   then the pages past the end go. If the cut fails, the old length comes back. A page that is
//!   loaded or made meanwhile past the lower length is right then, since what a file has of a page
//!   is for `disk_len` to say, which changes with the file alone.
//! - Z2. The page that the end lies in is held from before the file is cut until its tail is
//!   zeroed: a page in memory as a writer holds it, any other page by its word in *loading*. So no
//!   other thread pins the page, or loads it as it was, in between.
//! - Z3. Pages past the end that another thread took hold of just before the cut may stay in
//!   memory. So may the tail of the page that the end lies in, if the page map had no room to hold
//!   that page's word. No reader finds these bytes, write-back doesn't write them, and they are put
//!   right before the file grows again (N3 of `length`).

use frames::{BeginLoad, BeginWrite, Loading, PageState, Writing};
use sync::atomic::{Backoff, Ordering};

use crate::error::Error;
use crate::file::length::{Attempt, EndWait, LEN_MAX};
use crate::file::state::FileState;
use io::{BackingFile, uninterrupted};

/// The page that a file is cut off in (Z2).
enum CutPage<'a> {
    InMemory(Writing<'a>),
    /// A load that never reads: a thread that waits for it looks at the page again.
    Elsewhere(#[expect(dead_code, reason = "held, not used")] Option<Loading<'a>>),
}

impl FileState {
    /// The whole of [`File::set_len`](crate::File::set_len).
    pub(crate) fn set_len(&self, len: u64) -> Result<(), Error> {
        let read_only = || Error::ReadOnly { path: self.path.clone() };
        let writer = self.writer().ok_or_else(read_only)?;
        if len > LEN_MAX {
            return Err(self.too_large(len));
        }
        let _turn = self.extension.lock();
        // What another process did to the length. If that can't be known, the file gets the length
        // that is wanted all the same.
        let _ = self.refresh_len_in_turn();
        // So that nothing is on its way to the file that would make it longer again.
        let _no_write_back = self.writeback.pause();
        let before = self.len();
        if len >= before {
            let mut wait = EndWait::default();
            let mut end = loop {
                match self.hold_end(before..len)? {
                    Attempt::Done(end) => break end,
                    Attempt::Busy(page) => wait.wait(self, page)?,
                }
            };
            uninterrupted(|| writer.set_len(len)).map_err(|error| self.write_failed(error))?;
            self.fill_own_end(&mut end, before..len);
            self.length_is(len);
            return Ok(());
        }
        self.is_cutting.store(true, Ordering::Relaxed);
        self.shrink_to(len);
        let cut = self.cut(writer, len).inspect_err(|_| self.grow_to(before));
        self.is_cutting.store(false, Ordering::Relaxed);
        cut?;
        for page in self.map.pages_in_memory(len.div_ceil(self.page_bytes())..self.map.pages()) {
            if self.map.state(page) == PageState::Loading {
                let _ = self.map.wait(page);
            }
            self.drop_page_if(page, true); // Z3
        }
        Ok(())
    }

    /// Cuts the file off where it is kept, and in its last page. If it fails nothing is changed.
    fn cut(&self, writer: &dyn BackingFile, len: u64) -> Result<(), Error> {
        let page = len >> self.page_shift();
        let tail = (len & (self.page_bytes() - 1)) as usize;
        let cut_page = if tail > 0 { Some(self.hold_to_cut(page)?) } else { None };
        for page in self.map.pages_in_memory(len.div_ceil(self.page_bytes())..self.map.pages()) {
            if self.map.state(page) != PageState::Loading {
                drop(self.take_to_cut(page)?);
            }
        }
        uninterrupted(|| writer.set_len(len)).map_err(|error| self.write_failed(error))?;
        self.length_is(len);
        if let Some(CutPage::InMemory(mut writing)) = cut_page {
            writing.zero_from(tail);
        }
        Ok(())
    }

    fn hold_to_cut(&self, page: u64) -> Result<CutPage<'_>, Error> {
        loop {
            if let Some(writing) = self.take_to_cut(page)? {
                return Ok(CutPage::InMemory(writing));
            }
            match self.map.begin_load(page) {
                BeginLoad::Begun(loading) => return Ok(CutPage::Elsewhere(Some(loading))),
                // Another thread may make room and load the page as it was (Z3).
                BeginLoad::NoRoom | BeginLoad::NoPlace => return Ok(CutPage::Elsewhere(None)),
                BeginLoad::Resident => {}
                BeginLoad::Busy => {
                    let _ = self.map.wait(page);
                }
            }
        }
    }

    /// Takes a page as a writer does, so that no other thread has it pinned. `None` if it isn't in
    /// memory.
    fn take_to_cut(&self, page: u64) -> Result<Option<Writing<'_>>, Error> {
        let (mut writer, mut backoff) = (self.map.writer(page), Backoff::new());
        loop {
            match writer.begin() {
                BeginWrite::Begun(writing) => return Ok(Some(writing)),
                BeginWrite::Absent => return Ok(None),
                BeginWrite::Pinned if self.take_kept_pin(page) => {}
                // A thread that only looks at the page pins it for moments.
                BeginWrite::Pinned if backoff.wait_shortly() => {}
                BeginWrite::Pinned => return Err(self.page_busy(page)),
                BeginWrite::Busy => backoff.wait_or(|| self.page_busy(page))?,
            }
        }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use crate::read::call::Purpose;
    use crate::{File, Pagefold};
    use io::{Batch, SimulatedDisk};

    const LEN: u64 = 8 * 4096;

    /// A file of ones.
    fn file() -> File {
        let disk = SimulatedDisk::default();
        disk.add_bytes("file", vec![1; LEN as usize]);
        let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
        mm.group("a").build().unwrap().open_options().write(true).open("file").unwrap()
    }

    /// `set_len` lowers the length before it cuts the file off, and gives the old one back if that
    /// fails. A thread that came to load a page in between found that the file had nothing of it,
    /// and made it of zeros: the length came back, and the zeros were the file's.
    #[test]
    fn a_page_that_is_loaded_while_a_cut_is_tried_is_the_files() {
        let file = file();
        let state = &file.handle().file;
        state.shrink_to(100);
        let launched = file.handle().launch([2], Purpose::Use, &Batch::default());
        assert_eq!(launched.pages, 1);
        state.grow_to(LEN);
        let mut bytes = [0; 4096];
        assert_eq!(file.read_at(&mut bytes, 2 * 4096).unwrap(), 4096);
        assert!(bytes == [1; 4096], "zeros in place of the file's bytes");
    }

    /// The same for a writer: it found nothing to be kept of the page, beside what it wrote.
    #[test]
    fn a_write_to_a_part_of_a_page_while_a_cut_is_tried_reads_the_rest() {
        let file = file();
        let state = &file.handle().file;
        assert!(file.handle().needs_reading(2 * 4096 + 10, 2 * 4096 + 20, false));
        state.shrink_to(100);
        assert!(file.handle().needs_reading(2 * 4096 + 10, 2 * 4096 + 20, false));
        state.grow_to(LEN);
    }

    /// The page map had no room for the word of the page that the new end was in, so the cut went
    /// on without that page (Z3). Another thread made room, and had the page in memory as it was
    /// before the cut. When the file grew again, what had been cut off was read, and written.
    #[test]
    fn a_tail_that_a_cut_left_is_zeros_when_the_file_grows() {
        const END: u64 = 2 * 4096 + 100;
        let grow: [fn(&File); 2] =
            [|file| file.set_len(LEN).unwrap(), |file| file.write_at(&[2; 10], 3 * 4096).unwrap()];
        for (grow, is_dirty) in grow.into_iter().flat_map(|grow| [(grow, false), (grow, true)]) {
            let file = file();
            let mut bytes = [9; 4096];
            file.read_exact_at(&mut bytes, 2 * 4096).unwrap();
            if is_dirty {
                file.write_at(&[1], 2 * 4096).unwrap();
            }
            let state = &file.handle().file;
            state.writer().unwrap().set_len(END).unwrap();
            state.length_is(END);
            grow(&file);
            file.read_exact_at(&mut bytes, 2 * 4096).unwrap();
            assert!(bytes[..100] == [1; 100], "what was not cut off");
            assert!(bytes[100..] == [0; 3996], "what was cut off");
        }
    }
}
