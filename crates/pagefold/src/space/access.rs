//! Reading and writing at an address.

use std::ops::Range;

use frames::{BeginWrite, PageState};
use swap::PageEntry;
use sync::atomic::{Backoff, Ordering, fence};

use super::entry::Entry;
use super::region::{REGION_PAGES, Region};
use super::swap_in::Fault;
use super::{Space, SpaceState};
use crate::error::Error;
use crate::file::File;
use crate::write::Written;

impl Space {
    /// Copies the bytes from `address` on. Each page is copied as it was at one moment; the range isn't. What was never
    /// written is zeros.
    ///
    /// A page in memory is copied without a lock of the space or the area, and without a write to anything that CPUs share.
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::NotPermitted`]; with the address, [`Error::PastEnd`] if a mapped file hasn't all of the
    /// bytes and those of [`File::read_at`]. Earlier pages of `buf` hold their bytes then.
    #[inline]
    pub fn read_at(&self, buf: &mut [u8], address: u64) -> Result<(), Error> {
        self.state
            .each_page(address, buf.len(), |page, offset, part| self.state.read_page(page, offset, &mut buf[part]))
    }

    /// Writes all of `buf` at `address`. Others see each page as it was before the write or after it.
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::NotPermitted`]; with the address, [`Error::LimitReached`], [`Error::PastEnd`] if a mapped
    /// file hasn't all of the bytes, and those of [`File::write_at`]. Earlier pages of `buf` are written then.
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
            before = self.state.update(page, offset, &mut update).map_err(|error| self.state.at(page, error))?;
            Ok(())
        })?;
        Ok(before)
    }
}

/// What a change of a page comes upon when it looks at the page's entry.
pub(super) enum Writable<'a> {
    /// The page is a space's own: to be changed.
    Own(&'a Region),
    /// It is a mapped file's, with this number.
    File(&'a Region, Entry, u64),
}

impl SpaceState {
    /// Calls `visit` with each page of a range of bytes, where in the page it begins, and which part of the range it is.
    #[inline]
    fn each_page(
        &self,
        address: u64,
        len: usize,
        mut visit: impl FnMut(u64, usize, Range<usize>) -> Result<(), Error>,
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
    pub(super) fn region(&self, page: u64) -> Result<&Region, Error> {
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
        let entry = region.entry(local);
        if entry.may_read_anonymous() {
            if region.map.read_hot(start, into) {
                return Ok(());
            }
        } else if let Some(number) = entry.file().filter(|_| entry.may_read()) {
            let mut read = |file: &File, page: u64| file.read_hot((page << self.page_shift) + offset as u64, into);
            if self.files.with(number, |mapped| read(mapped.normal(), mapped.page_of(page))) == Some(true) {
                return Ok(());
            }
        }
        self.read_slowly(region, page, offset, into).map_err(|error| self.at(page, error))
    }

    #[cold]
    fn read_slowly(&self, region: &Region, page: u64, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.manager().refuse_child()?;
        let start = ((page % REGION_PAGES) << self.page_shift) + offset as u64;
        let mut backoff = Backoff::new();
        loop {
            let entry = region.entry(page % REGION_PAGES);
            if !entry.may_read() {
                return Err(self.refuse(page, entry));
            }
            if let Some(number) = entry.file() {
                // Gone? Then the entry has changed (M1).
                let Some(mapped) = self.files.get(number) else { continue };
                let at = (mapped.page_of(page) << self.page_shift) + offset as u64;
                return mapped.opening(entry)?.read_exact_at(into, at);
            }
            if region.map.read(start, into) {
                return Ok(());
            }
            match region.map.state(page % REGION_PAGES) {
                // S3. The word's Acquire comes before this look.
                PageState::Vacant { .. } if region.entry(page % REGION_PAGES) == entry => {
                    into.fill(0);
                    return Ok(());
                }
                PageState::Vacant { .. } => {}
                PageState::Swapped { .. } | PageState::Loading => match self.fault_or_wait(region, page, Fault::Read) {
                    Err(Error::LimitReached { .. }) if Self::read_fill(region, page, entry, offset, into) => {
                        return Ok(());
                    }
                    outcome => _ = outcome?,
                },
                PageState::Resident { .. } => backoff.wait(),
            }
        }
    }

    /// Reads a page of one word, for which there is no memory: it has no slot that another page could go to instead.
    fn read_fill(region: &Region, page: u64, entry: Entry, offset: usize, into: &mut [u8]) -> bool {
        let local = page % REGION_PAGES;
        let PageState::Swapped { entry: elsewhere } = region.map.state(local) else { return false };
        let Some(PageEntry::SameFilled(fill)) = PageEntry::from_bits(elsewhere) else { return false };
        fill.copy_to(offset, into);
        region.entry(local) == entry // S3
    }

    /// What a page is that is to be written to.
    pub(super) fn writable(&self, page: u64) -> Result<Writable<'_>, Error> {
        let region = self.region(page)?;
        let entry = region.entry(page % REGION_PAGES);
        match entry.file() {
            _ if !entry.may_write() => Err(self.refuse(page, entry)),
            None => Ok(Writable::Own(region)),
            Some(number) => Ok(Writable::File(region, entry, number)),
        }
    }

    /// Whether a page's entry still permits writing, to the same memory: for who has the page (S1).
    pub(super) fn still_writable(region: &Region, page: u64, file: Option<u64>) -> bool {
        fence(Ordering::SeqCst); // S1
        let entry = region.entry(page % REGION_PAGES);
        entry.may_write() && entry.file() == file
    }

    fn write_page(&self, page: u64, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.write(page, offset, from).map_err(|error| self.at(page, error))
    }

    fn write(&self, page: u64, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.manager().refuse_child()?;
        loop {
            match self.writable(page)? {
                Writable::Own(region) => {
                    let write = |writing: &mut frames::Writing<'_>| {
                        // Unclean pages of files are counted; this isn't one.
                        let _ = writing.write(offset, from);
                    };
                    if self.with_page(region, page, (offset, from), write)? {
                        return Ok(());
                    }
                }
                Writable::File(region, entry, number) => {
                    let Some(mapped) = self.files.get(number) else { continue };
                    let handle = mapped.opening(entry)?.handle();
                    let at = (mapped.page_of(page) << self.page_shift) + offset as u64;
                    let permitted = || Self::still_writable(region, page, Some(number));
                    let write = || handle.overwrite(from, at, &permitted);
                    if handle.within_file(at, from.len() as u64, write)? == Written::Done {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn update(&self, page: u64, offset: usize, update: &mut impl FnMut(u64) -> Option<u64>) -> Result<u64, Error> {
        self.manager().refuse_child()?;
        let mut before = 0;
        // Says whether the page was clean until now: `write` does.
        let mut change = |writing: &mut frames::Writing<'_>| {
            let mut bytes = [0; 8];
            writing.copy_to(offset, &mut bytes);
            before = u64::from_ne_bytes(bytes);
            update(before).is_some_and(|after| writing.write(offset, &after.to_ne_bytes()))
        };
        loop {
            match self.writable(page)? {
                Writable::Own(region) => {
                    if self.with_page(region, page, (0, &[]), |writing| _ = change(writing))? {
                        return Ok(before);
                    }
                }
                Writable::File(region, entry, number) => {
                    let Some(mapped) = self.files.get(number) else { continue };
                    let handle = mapped.opening(entry)?.handle();
                    let in_file = mapped.page_of(page);
                    let at = (in_file << self.page_shift) + offset as u64;
                    let permitted = || Self::still_writable(region, page, Some(number));
                    let done =
                        handle.within_file(at, 8, || handle.change_within(in_file, at + 8, &permitted, &mut change))?;
                    if done == Written::Done {
                        return Ok(before);
                    }
                }
            }
        }
    }

    /// Has `change` run with a page of the space's own for this thread alone; or, if it was never written, makes it zeros with
    /// the bytes `first` at their offset, and doesn't run it unless there are none. False if it isn't such a page any more.
    pub(super) fn with_page(
        &self,
        region: &Region,
        page: u64,
        first: (usize, &[u8]),
        change: impl FnOnce(&mut frames::Writing<'_>),
    ) -> Result<bool, Error> {
        let mut backoff = Backoff::new();
        loop {
            if !region.entry(page % REGION_PAGES).may_write_anonymous() {
                return Ok(false);
            }
            match region.map.begin_write(page % REGION_PAGES) {
                BeginWrite::Begun(mut writing) => {
                    if !Self::still_writable(region, page, None) {
                        return Ok(false);
                    }
                    change(&mut writing);
                    return Ok(true);
                }
                BeginWrite::Absent => {
                    let fault = Fault::Write { offset: first.0, bytes: first.1 };
                    if self.fault_or_wait(region, page, fault)? && !first.1.is_empty() {
                        return Ok(true);
                    }
                }
                BeginWrite::Pinned | BeginWrite::Busy => backoff.wait(),
            }
        }
    }
}
