//! Cutting a file off, and making it longer.
//!
//! - Z1. The length is lowered first, so that no page past the new end is found any more (L2 of `write`); then everything
//!   that can be refused is; then the file is cut off where it is kept; then the pages past the end go.
//! - Z2. The page that the end lies in is held from before the file is cut until its tail is zeroed: in memory as a
//!   writer has it, elsewhere by its word in *loading*. So nobody pins it, or loads it as it was, in between.
//! - Z3. A look at the length of the file (`refresh_len`) that began before the cut may bring the old length back.
//!   Therefore it is set again after the cut, under the lock that such a look holds.
//! - Z4. Pages past the end that somebody got hold of just before the cut may stay. Nobody finds them, write-back writes
//!   nothing of them, and they go before the file grows again.

use frames::{BeginLoad, BeginWrite, Loading, PageState, Writing};
use sync::atomic::Backoff;

use crate::error::Error;
use crate::file::state::FileState;
use crate::io::BackingFile;
use crate::read::patience::{Patience, SPINS};

/// The page that a file is cut off in (Z2).
enum CutPage<'a> {
    InMemory(Writing<'a>),
    /// Its load, which is none: whoever waits for it looks again.
    Elsewhere(#[expect(dead_code, reason = "held, not used")] Option<Loading<'a>>),
}

impl FileState {
    /// The whole of [`File::set_len`](crate::File::set_len).
    pub(crate) fn set_len(&self, len: u64) -> Result<(), Error> {
        let read_only = || Error::ReadOnly { path: self.path.clone() };
        let writer = self.writer().ok_or_else(read_only)?;
        if len > self.map.pages() << self.page_shift() {
            return Err(self.too_large(len));
        }
        let _turn = self.extension.lock();
        // So that nothing is on its way to the file that would make it longer again.
        let _no_write_back = self.writeback.pause();
        let before = self.len();
        if len >= before {
            self.forget_beyond_end(before..len)?;
            writer.set_len(len).map_err(|error| self.write_failed(error))?;
            self.length_is(len);
            return Ok(());
        }
        self.shrink_to(len);
        self.cut(writer, len).inspect_err(|_| self.grow_to(before))?;
        for page in self.map.pages_in_memory(len.div_ceil(self.page_bytes())..self.map.pages()) {
            if self.map.state(page) == PageState::Loading {
                let _ = self.map.wait(page);
            }
            self.drop_page_if(page, true); // Z4
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
        writer.set_len(len).map_err(|error| self.write_failed(error))?;
        self.length_is(len); // Z3
        if let Some(CutPage::InMemory(mut writing)) = cut_page {
            self.count(writing.zero_from(tail), &writing);
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
                // Nor has anybody else room to load it, but for who makes some just now.
                BeginLoad::NoRoom => return Ok(CutPage::Elsewhere(None)),
                BeginLoad::Resident => {}
                BeginLoad::Busy => {
                    let _ = self.map.wait(page);
                }
            }
        }
    }

    /// Takes a page as a writer does, so that nobody has it pinned. `None` if it isn't in memory.
    fn take_to_cut(&self, page: u64) -> Result<Option<Writing<'_>>, Error> {
        let mut patience = Patience::default();
        let mut pinned = Backoff::new();
        loop {
            match self.map.begin_write(page) {
                BeginWrite::Begun(writing) => return Ok(Some(writing)),
                BeginWrite::Absent => return Ok(None),
                // Whoever only looks at the page pins it for moments.
                BeginWrite::Pinned if pinned.turns() < SPINS => pinned.wait(),
                BeginWrite::Pinned => return Err(self.page_busy(page)),
                BeginWrite::Busy => patience.wait(|| self.page_busy(page))?,
            }
        }
    }
}
