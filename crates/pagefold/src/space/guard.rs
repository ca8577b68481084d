//! Pages of a space, held: to be read in place, or changed.

use std::fmt;
use std::ops::Deref;

use frames::{BeginWrite, PinError, PinnedFrame, Writing};
use sync::Arc;
use sync::atomic::{Backoff, Ordering, fence};

use super::entry::Entry;
use super::region::{REGION_PAGES, Region};
use super::swap_in::Fault;
use super::write::Writable;
use super::{Mapped, Space, SpaceState};
use crate::error::Error;
use crate::file::PinnedPage;
use crate::read::patience::Patience;
use crate::write::page_mut::{Owner, PageMut};

/// A page of a space whose bytes neither move nor change while this lives.
pub struct MappedPage<'a> {
    held: Held<'a>,
}

enum Held<'a> {
    /// A frame, and so many of its bytes. What keeps its file open goes last.
    Pinned { frame: PinnedFrame<'a>, len: usize, _file: Option<Arc<Mapped>> },
    /// The page was never written.
    Zeros(Box<[u8]>),
}

impl Deref for MappedPage<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.held {
            Held::Pinned { frame, len, .. } => &frame.bytes()[..*len],
            Held::Zeros(zeros) => zeros,
        }
    }
}

impl fmt::Debug for MappedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedPage").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Space {
    /// Pins the page that `address` is in, and gives access to its bytes, from the page's first one. The last page of a mapped
    /// file is as short as it is in the file. While the guard lives nobody writes to the page, and memory that it is in can't
    /// be unmapped or moved; a page of a file can, and stays as it is for the guard. A page that was never written is zeros, and
    /// isn't pinned.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at); [`Error::AddressBusy`].
    pub fn page(&self, address: u64) -> Result<MappedPage<'_>, Error> {
        let state = &*self.state;
        let page = address >> state.page_shift;
        state.pin(page).map(|held| MappedPage { held }).map_err(|error| state.at(page, error))
    }

    /// The page that `address` is in, to be changed in place by this thread alone. Until the guard is dropped others read the
    /// page as it was, and what it is in can't be unmapped, moved or protected.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); [`Error::AddressBusy`].
    pub fn page_mut(&self, address: u64) -> Result<PageMut<'_>, Error> {
        let state = &*self.state;
        let page = address >> state.page_shift;
        state.hold(page).map_err(|error| state.at(page, error))
    }
}

impl SpaceState {
    /// Before somebody is given a page to keep (S1).
    fn expect_guards(&self) {
        if !self.has_guards.load(Ordering::Relaxed) {
            self.has_guards.store(true, Ordering::Relaxed);
        }
        // The fence comes with the look at the entry, when the page is held.
    }

    fn pin(&self, page: u64) -> Result<Held<'_>, Error> {
        self.manager().refuse_child()?;
        let region = self.region(page)?;
        loop {
            let entry = region.entry(page % REGION_PAGES);
            if !entry.may_read() {
                return Err(self.refuse(page, entry));
            }
            let Some(number) = entry.file() else {
                if let Some(held) = self.pin_own(region, page, entry)? {
                    return Ok(held);
                }
                continue;
            };
            let Some(mapped) = self.files.get(number) else { continue };
            let PinnedPage { frame, len } = mapped.opening(entry)?.page(mapped.page_of(page))?;
            let frame = self.manager().frames.adopt_pin(frame);
            // Loading it may have taken long, and nobody who changes the entry waited.
            fence(Ordering::SeqCst);
            if region.entry(page % REGION_PAGES) != entry {
                continue;
            }
            return Ok(Held::Pinned { frame, len, _file: Some(mapped) });
        }
    }

    /// Pins a page of the space's own. `None` if its entry has changed.
    fn pin_own<'a>(&'a self, region: &'a Region, page: u64, entry: Entry) -> Result<Option<Held<'a>>, Error> {
        self.expect_guards();
        let local = page % REGION_PAGES;
        let mut patience = Patience::default();
        loop {
            let pin = match region.map.pin(local) {
                Ok(pin) => pin,
                Err(PinError::Busy) => {
                    patience.wait(|| self.busy(page))?;
                    continue;
                }
                Err(PinError::TooMany) => return Err(self.busy(page)),
            };
            let is_vacant = matches!(region.map.state(local), frames::PageState::Vacant { .. });
            fence(Ordering::SeqCst); // S1
            if region.entry(local) != entry {
                return Ok(None);
            }
            match pin {
                Some(frame) => {
                    let len = frame.bytes().len();
                    return Ok(Some(Held::Pinned { frame, len, _file: None }));
                }
                None if is_vacant => return Ok(Some(Held::Zeros(vec![0; 1 << self.page_shift].into()))),
                // Swapped out, on its way, or away a moment ago.
                None => _ = self.fault_or_wait(region, page, Fault::Read)?,
            }
        }
    }

    fn hold(&self, page: u64) -> Result<PageMut<'_>, Error> {
        self.manager().refuse_child()?;
        loop {
            match self.writable(page)? {
                Writable::Own(region) => {
                    if let Some(writing) = self.hold_own(region, page)? {
                        return Ok(PageMut::new(Owner::Space, writing, 1 << self.page_shift));
                    }
                }
                Writable::File(region, entry, number) => {
                    let Some(mapped) = self.files.get(number) else { continue };
                    let (writing, len) = mapped.opening(entry)?.handle().change_page(mapped.page_of(page))?;
                    if Self::still_writable(region, page, Some(number)) {
                        let writing = self.manager().frames.adopt_writing(writing);
                        return Ok(PageMut::new(Owner::Mapping(mapped), writing, len));
                    }
                }
            }
        }
    }

    /// Holds a page of the space's own. `None` if it isn't one any more.
    fn hold_own<'a>(&'a self, region: &'a Region, page: u64) -> Result<Option<Writing<'a>>, Error> {
        self.expect_guards();
        let mut patience = Patience::default();
        let mut backoff = Backoff::new();
        loop {
            if !region.entry(page % REGION_PAGES).may_write_anonymous() {
                return Ok(None);
            }
            match region.map.begin_write(page % REGION_PAGES) {
                BeginWrite::Begun(writing) => {
                    return Ok(Self::still_writable(region, page, None).then_some(writing));
                }
                BeginWrite::Absent => {
                    self.fault_or_wait(region, page, Fault::Write { offset: 0, bytes: &[] })?;
                    backoff.wait();
                }
                BeginWrite::Pinned | BeginWrite::Busy => patience.wait(|| self.busy(page))?,
            }
        }
    }
}
