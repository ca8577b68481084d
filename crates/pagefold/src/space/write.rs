//! Writing at an address.

use std::ops::Range;

use frames::BeginWrite;
use sync::atomic::{Backoff, fence_after_update};

use super::entry::Entry;
use super::region::{REGION_PAGES, Region};
use super::swap_in::Fault;
use super::{Space, SpaceState};
use crate::error::Error;
use crate::write::Written;

impl Space {
    /// Writes all of `buf` at `address`. Others see each page as it was before the write or after it.
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::NotPermitted`]; with the address, [`Error::LimitReached`], [`Error::PastEnd`] if a mapped
    /// file hasn't all of the bytes, and those of [`File::write_at`](crate::File::write_at). Earlier pages of `buf` are written
    /// then.
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
    pub(super) fn each_page(
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
        fence_after_update(); // S1: it was by one that the caller got the page.
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
                        writing.write_unfiled(offset, from);
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
