//! Reading and writing at an address.

use frames::BeginWrite;
use sync::atomic::{Backoff, Ordering, fence};

use super::index::Entry;
use super::region::{REGION_PAGES, Region};
use super::swap_in::Fault;
use super::{Space, SpaceState};
use crate::error::Error;

impl Space {
    /// Copies the bytes from `address` on. Each page is copied as it was at one moment; the range isn't. What was never
    /// written is zeros.
    ///
    /// A page in memory is copied without a lock, and without a write to anything that threads share.
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::NotPermitted`]: earlier pages of `buf` hold their bytes then.
    #[inline]
    pub fn read_at(&self, buf: &mut [u8], address: u64) -> Result<(), Error> {
        self.state
            .each_page(address, buf.len(), |page, offset, part| self.state.read_page(page, offset, &mut buf[part]))
    }

    /// Writes all of `buf` at `address`. Others see each page as it was before the write or after it.
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::NotPermitted`], [`Error::LimitReached`]: earlier pages of `buf` are written then.
    #[inline]
    pub fn write_at(&self, buf: &[u8], address: u64) -> Result<(), Error> {
        self.state.each_page(address, buf.len(), |page, offset, part| self.state.write_page(page, offset, &buf[part]))
    }

    /// Replaces the number at `address`, which is a multiple of 8, by what `update` makes of it, as one step; leaves it if
    /// that is `None`. Returns the number before. The order of bytes is the machine's.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); [`Error::BadAddress`].
    pub fn update_u64(&self, address: u64, mut update: impl FnMut(u64) -> Option<u64>) -> Result<u64, Error> {
        if !address.is_multiple_of(8) {
            return Err(Error::BadAddress { address, len: 8, why: "not a multiple of 8" });
        }
        let mut before = 0;
        self.state.each_page(address, 8, |page, offset, _| {
            before = self.state.update(page, offset, &mut update)?;
            Ok(())
        })?;
        Ok(before)
    }
}

impl SpaceState {
    /// Calls `visit` with each page of a range of bytes, where in the page it begins, and which part of the range it is.
    #[inline]
    fn each_page(
        &self,
        address: u64,
        len: usize,
        mut visit: impl FnMut(u64, usize, std::ops::Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let page_bytes = 1_usize << self.page_shift;
        let mut done = 0;
        while done < len {
            let Some(at) = address.checked_add(done as u64) else {
                return Err(Error::BadAddress { address, len: len as u64, why: "past the end of the space" });
            };
            let offset = at as usize & (page_bytes - 1);
            let part = done..len.min(done + page_bytes - offset);
            done = part.end;
            visit(at >> self.page_shift, offset, part)?;
        }
        Ok(())
    }

    #[inline]
    fn region(&self, page: u64) -> Result<&Region, Error> {
        match self.index.region(page) {
            Some(region) => Ok(region),
            None => Err(self.refuse(page, Entry::NONE)),
        }
    }

    #[inline]
    fn read_page(&self, page: u64, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        let region = self.region(page)?;
        let local = page % REGION_PAGES;
        let start = (local << self.page_shift) + offset as u64;
        if region.entry(local).may_read() && region.map.read_hot(start, into) {
            return Ok(());
        }
        self.read_slowly(region, page, start, into)
    }

    #[cold]
    fn read_slowly(&self, region: &Region, page: u64, start: u64, into: &mut [u8]) -> Result<(), Error> {
        self.manager().refuse_child()?;
        let mut backoff = Backoff::new();
        loop {
            let entry = region.entry(page % REGION_PAGES);
            if !entry.may_read() {
                return Err(self.refuse(page, entry));
            }
            if region.map.read(start, into) {
                return Ok(());
            }
            match region.map.state(page % REGION_PAGES) {
                frames::PageState::Vacant { .. } => {
                    into.fill(0);
                    return Ok(());
                }
                frames::PageState::Swapped { .. } | frames::PageState::Loading => {
                    self.fault_or_wait(region, page, Fault::Read)?;
                }
                frames::PageState::Resident { .. } => backoff.wait(),
            }
        }
    }

    fn write_page(&self, page: u64, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.with_page(page, (offset, from), |writing| {
            // Unclean pages of files are counted; this isn't one.
            let _ = writing.write(offset, from);
        })
    }

    fn update(&self, page: u64, offset: usize, update: &mut impl FnMut(u64) -> Option<u64>) -> Result<u64, Error> {
        let mut before = 0;
        self.with_page(page, (0, &[]), |writing| {
            let mut bytes = [0; 8];
            writing.copy_to(offset, &mut bytes);
            before = u64::from_ne_bytes(bytes);
            if let Some(after) = update(before) {
                let _ = writing.write(offset, &after.to_ne_bytes());
            }
        })?;
        Ok(before)
    }

    /// Has `change` run with the page for this thread alone; or, if it was never written, makes it zeros with the bytes
    /// `first` at their offset, and doesn't run it unless there are none.
    fn with_page(
        &self,
        page: u64,
        first: (usize, &[u8]),
        change: impl FnOnce(&mut frames::Writing<'_>),
    ) -> Result<(), Error> {
        self.manager().refuse_child()?;
        let region = self.region(page)?;
        let local = page % REGION_PAGES;
        let mut backoff = Backoff::new();
        loop {
            let entry = region.entry(local);
            if !entry.may_write() {
                return Err(self.refuse(page, entry));
            }
            match region.map.begin_write(local) {
                BeginWrite::Begun(mut writing) => {
                    fence(Ordering::SeqCst); // S1
                    let entry = region.entry(local);
                    if !entry.may_write() {
                        drop(writing);
                        return Err(self.refuse(page, entry));
                    }
                    change(&mut writing);
                    return Ok(());
                }
                BeginWrite::Absent => {
                    let fault = Fault::Write { offset: first.0, bytes: first.1 };
                    if self.fault_or_wait(region, page, fault)? && !first.1.is_empty() {
                        return Ok(());
                    }
                }
                BeginWrite::Pinned | BeginWrite::Busy => backoff.wait(),
            }
        }
    }
}
