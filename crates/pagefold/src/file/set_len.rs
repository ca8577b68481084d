//! Truncates a file, and makes it longer.
//!
//! - Z1. A truncation takes four steps. First, `len` is lowered, so that no reader finds a page
//!   past the new end (L2 of `write`). Second, this thread gets exclusive access to each affected
//!   page once, which fails if a page stays in use. Third, the file is truncated on its device.
//!   Fourth, the pages past the end are removed.
//!
//!   If the second or third step fails, the old `len` is restored. Until then, other threads may
//!   load or create pages past the lowered `len`. Readers find these pages once `len` is restored,
//!   so the pages' content must be right. It is right, because a page's content depends on
//!   `disk_len`, not on `len`, and `disk_len` changes only together with the file.
//! - Z2. The page with the new end is held from before the truncation until its tail is zeroed. In
//!   between, no other thread pins the page, or loads its old content. If the page is in memory,
//!   this thread holds it the way a writer does; otherwise it sets the page's word to *loading*.
//!   This page is taken last. So while its word is in *loading*, this thread waits only for the
//!   device, and never for a user of a later page. This matters with `io_timeout`: a reader that
//!   waits too long for the word reports that the device is silent.
//! - Z3. Two kinds of bytes past the new end may stay in memory. The first are pages past the end
//!   that another thread began to use just before the truncation. The second are the bytes in the
//!   tail of the page with the new end, if this thread couldn't hold that page (Z2). That happens
//!   if the page isn't in memory, and the page map has no room for the page's word. Then another
//!   thread may make room and load the page just before the file is truncated. No reader finds
//!   bytes of either kind, and write-back doesn't write them, because both go by `len`. Both kinds
//!   are corrected before the file grows again (N3 of `length`).
//! - Z4. While the file is made longer on its device, other threads may load the page with the old
//!   end, if it isn't in memory. If another process appends to the page just after such a load, the
//!   page in memory lacks the appended bytes. So this thread prepares the page once more when the
//!   file is longer: from then on, no process can append before the new end. If the page can't be
//!   removed because it stays in use for seconds, the call fails. The file's new length is then
//!   adopted as if another process had set it.

use frames::{BeginLoad, BeginWrite, Loading, PageState, Writing};
use sync::atomic::{Backoff, Ordering};

use crate::error::Error;
use crate::file::length::{End, LEN_MAX};
use crate::file::state::FileState;
use crate::file::watch::Pace;
use io::{BackingFile, failing_if_it_panics, uninterrupted};

/// The page in which the file is truncated (Z2).
enum CutPage<'a> {
    InMemory(Writing<'a>),
    /// The page isn't in memory. Its word is held in *loading*, without a load; threads that wait
    /// for the load then retry. `None` if the page map had no room for the word (Z3).
    Elsewhere(#[expect(dead_code, reason = "held, not used")] Option<Loading<'a>>),
}

impl FileState {
    /// Implements [`File::set_len`](crate::File::set_len).
    pub(crate) fn set_len(&self, len: u64) -> Result<(), Error> {
        let read_only = || Error::ReadOnly { path: self.path.clone() };
        let writer = self.writer().ok_or_else(read_only)?;
        if len > LEN_MAX {
            return Err(self.too_large(len));
        }
        let _turn = self.lock_extension_in_errand();
        // First adopts a length that another process has set. If that fails, the file gets the
        // wanted length anyway.
        let _ = self.refresh_len_in_turn(Self::wait_for_page_in_errand);
        // A write in flight could make the file longer again.
        let _no_write_back = self.pause_write_back();
        let before = self.len();
        if len >= before {
            let mut end = self.await_end(before..len)?;
            self.set_on_device(writer, len)?;
            if let End::Gone = end {
                end = self.await_end(before..len)?; // Z4
            }
            if len > before {
                let filled = self.fill_own_end(&mut end, before..len);
                self.progresses(Pace::Cycle);
                filled?;
            }
            self.length_is(len);
            return Ok(());
        }
        self.is_cutting.store(true, Ordering::Relaxed);
        self.shrink_to(len);
        let cut = self.cut(writer, len).inspect_err(|_| self.grow_to(before));
        self.is_cutting.store(false, Ordering::Relaxed);
        cut?;
        for page in self.map.pages_in_memory(len.div_ceil(self.page_bytes())..self.map.pages()) {
            self.drop_cut_page(page);
        }
        Ok(())
    }

    fn set_on_device(&self, writer: &dyn BackingFile, len: u64) -> Result<(), Error> {
        let set = failing_if_it_panics(|| uninterrupted(|| writer.set_len(len)));
        self.was_answered(Pace::Cycle);
        set.map_err(|error| self.write_failed(error))
    }

    /// Truncates the file on its device, and zeroes the tail of its new last page. If this fails,
    /// nothing is changed.
    fn cut(&self, writer: &dyn BackingFile, len: u64) -> Result<(), Error> {
        let page = len >> self.page_shift();
        let tail = (len & (self.page_bytes() - 1)) as usize;
        for page in self.map.pages_in_memory(len.div_ceil(self.page_bytes())..self.map.pages()) {
            if self.map.state(page) != PageState::Loading {
                drop(self.take_to_cut(page)?);
            }
        }
        let cut_page = if tail > 0 { Some(self.hold_to_cut(page)?) } else { None }; // Z2
        self.set_on_device(writer, len)?;
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
                // Another thread may make room and load the page with its old content (Z3).
                BeginLoad::NoRoom | BeginLoad::NoPlace => return Ok(CutPage::Elsewhere(None)),
                BeginLoad::Resident => {}
                BeginLoad::Busy => self.wait_to_cut(page),
            }
        }
    }

    /// Removes a page past the new end from memory, unless it is in use (Z3). If there are very
    /// many such pages, removing them can take longer than the device may. So each page
    /// counts as progress (WATCH-3 of `watchdog`).
    pub(super) fn drop_cut_page(&self, page: u64) {
        if self.map.state(page) == PageState::Loading {
            self.wait_to_cut(page);
        }
        self.drop_page_if(page, true);
        self.progresses(Pace::Cycle);
    }

    /// Waits for the load of a page.
    pub(super) fn wait_to_cut(&self, page: u64) {
        let _ = self.map.wait(page);
        self.progresses(Pace::Cycle);
    }

    /// Takes a page as a writer does, so that no other thread pins it. Returns `None` if the page
    /// isn't in memory.
    fn take_to_cut(&self, page: u64) -> Result<Option<Writing<'_>>, Error> {
        let (mut writer, mut backoff) = (self.map.writer(page), Backoff::new());
        loop {
            self.progresses(Pace::Cycle);
            match writer.begin() {
                BeginWrite::Begun(writing) => return Ok(Some(writing)),
                BeginWrite::Absent => return Ok(None),
                BeginWrite::Pinned if self.take_kept_pin(page) => {}
                // A thread that only checks the page pins it for a moment.
                BeginWrite::Pinned if backoff.wait_shortly() => {}
                BeginWrite::Pinned => return Err(self.page_busy(page)),
                BeginWrite::Busy => backoff.wait_or(|| self.page_busy(page))?,
            }
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use crate::patience::eventually;
    use crate::read::call::Purpose;
    use crate::write::Written;
    use crate::{Error, File, Pagefold};
    use frames::BeginLoad;
    use io::Batch;
    use sync::atomic::{AtomicBool, Ordering};
    use test_disks::SimulatedDisk;

    const LEN: u64 = 8 * 4096;

    /// A file of ones.
    fn file() -> File {
        let disk = SimulatedDisk::default();
        disk.add_bytes("file", vec![1; LEN as usize]);
        let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
        mm.group("a").build().unwrap().open_options().write(true).open("file").unwrap()
    }

    /// Regression: `set_len` lowers the length before it truncates the file, and restores the
    /// length if the truncation fails. A thread that loaded a page in between took the page to be
    /// past the file's end, and filled it with zeros. After the length was restored, readers got
    /// zeros in place of the file's bytes.
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

    /// Regression: `set_len` put the word of the page with the new end in *loading*, and then
    /// waited for seconds for a user of a later page. With `io_timeout`, a reader of the page with
    /// the new end took that wait for a wait for the device, and reported that the device was
    /// silent. In this test, the page with the new end stays in *loading*. So if `set_len` looks at
    /// the later page first, as it should, it fails before it comes to that word.
    #[test]
    fn a_cut_waits_for_users_of_later_pages_before_it_takes_the_page_with_the_new_end() {
        let file = file();
        let BeginLoad::Begun(loading) = file.handle().file.map.begin_load(2) else { panic!("it is vacant") };
        let _pin = file.page_at(5 * 4096).unwrap();
        let cut = std::thread::scope(|scope| {
            let cut = scope.spawn(|| file.set_len(2 * 4096 + 10));
            // If this fails, the word is dropped, and the other thread goes on.
            eventually("the cut waits for the page with the new end", || cut.is_finished());
            drop(loading);
            cut.join().unwrap()
        });
        assert!(matches!(cut, Err(Error::PageBusy { page: 5, .. })), "{cut:?}");
    }

    /// Regression: a write was creating a page when another process truncated the file before that
    /// page. The thread that adopted the truncation mistook the page for a page that was being
    /// read, and so had no changes to lose. The write succeeded, and so did the next sync, although
    /// the written bytes lay past the end and were dropped. The write must find out that its bytes
    /// are past the end.
    #[test]
    fn a_page_that_is_made_while_a_cut_is_adopted_is_past_the_end() {
        for end in [100, 2 * 4096 + 100] {
            let file = file();
            let state = &file.handle().file;
            let cut = || {
                state.writer().unwrap().set_len(end).unwrap();
                state.refresh_len().unwrap();
                true
            };
            let written = file.handle().overwrite(&[2; 4096], 2 * 4096, &cut).unwrap();
            assert_eq!(written, Written::PastEnd, "cut at {end}");
        }
    }

    /// Regression: a write was creating a page when another process truncated the file before that
    /// page, and then lengthened it again. Both lengths were adopted before the writer checked the
    /// length, so the writer found the length that it expected. But adopting the longer length had
    /// discarded the page. The write succeeded, and so did the next sync, although the written
    /// bytes were lost.
    #[test]
    fn a_page_that_is_made_while_a_cut_and_a_growth_are_adopted_is_kept() {
        let file = file();
        let other = file.group().open_options().write(true).create(true).open("other").unwrap();
        let state = &file.handle().file;
        state.manager.file_io.flusher.stop(); // However long the test takes, `other` stays dirty.
        other.write_at(&[1], 0).unwrap(); // So the device's list has a part.
        let change = |len| {
            state.writer().unwrap().set_len(len).unwrap();
            state.refresh_len().unwrap();
        };
        let is_cut = AtomicBool::new(false);
        let cut = || {
            if !is_cut.swap(true, Ordering::Relaxed) {
                change(100);
            }
            true
        };
        std::thread::scope(|scope| {
            let mut writer = None;
            // Once the page is in memory, the writer adds a part to the device's list, because the
            // file had no dirty page before. There it waits for this thread, which has the list's
            // lock.
            state.device().unwrap().each_part(|_| {
                writer = Some(scope.spawn(|| file.handle().overwrite(&[2; 4096], 2 * 4096, &cut)));
                while state.unclean() == 0 {
                    std::thread::yield_now();
                }
                change(LEN);
            });
            assert_eq!(writer.unwrap().join().unwrap().unwrap(), Written::Done);
        });
        file.sync().unwrap();
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, 2 * 4096).unwrap();
        assert!(bytes == [2; 4096], "the written bytes are lost");
    }

    /// Regression: a write had made a page when another process truncated the file behind that
    /// page. The writer found the truncation counted, and wrote the page again. Meanwhile another
    /// thread had read the page, and overwritten it. That thread's write was lost.
    #[test]
    fn a_page_that_is_made_and_overwritten_while_a_cut_behind_it_is_adopted_stays_overwritten() {
        let file = file();
        let other = file.group().open_options().write(true).create(true).open("other").unwrap();
        let state = &file.handle().file;
        state.manager.file_io.flusher.stop(); // However long the test takes, `other` stays dirty.
        other.write_at(&[1], 0).unwrap(); // So the device's list has a part.
        let mut bytes = [0; 4096];
        std::thread::scope(|scope| {
            let mut writer = None;
            // The writer waits for the list's lock, as above.
            state.device().unwrap().each_part(|_| {
                writer = Some(scope.spawn(|| file.handle().overwrite(&[2; 4096], 2 * 4096, &|| true)));
                while state.unclean() == 0 {
                    std::thread::yield_now();
                }
                state.writer().unwrap().set_len(5 * 4096).unwrap();
                state.refresh_len().unwrap();
                file.read_exact_at(&mut bytes, 2 * 4096).unwrap();
                assert!(bytes == [2; 4096]);
                file.write_at(&[3; 4096], 2 * 4096).unwrap();
            });
            assert_eq!(writer.unwrap().join().unwrap().unwrap(), Written::Done);
        });
        file.read_exact_at(&mut bytes, 2 * 4096).unwrap();
        assert!(bytes == [3; 4096], "the second write is lost");
    }

    /// Regression: `set_len` had lowered the length, and restored it after the truncation failed.
    /// In between, a writer that wrote to a part of a page took the page to be past the file's end,
    /// so it didn't read the rest of the page.
    #[test]
    fn a_write_to_a_part_of_a_page_while_a_cut_is_tried_reads_the_rest() {
        let file = file();
        let state = &file.handle().file;
        assert!(file.handle().needs_reading(2 * 4096 + 10, 2 * 4096 + 20, false));
        state.shrink_to(100);
        assert!(file.handle().needs_reading(2 * 4096 + 10, 2 * 4096 + 20, false));
        state.grow_to(LEN);
    }

    /// Regression: the page map had no room for the word of the page with the new end, so the page
    /// wasn't held during the truncation (Z3). Just before the file was truncated, another thread
    /// made room for the word and loaded the page. When the file grew again, readers found the
    /// truncated bytes, and write-back wrote them.
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
