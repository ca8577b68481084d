//! Writing at an address.

use std::ops::Range;

use frames::BeginWrite;
use sync::atomic::{Backoff, fence_after_update};

use super::entry::Entry;
use super::fault_types::Fault;
use super::region::Region;
use super::tree::Trail;
use super::{Space, SpaceState};
use crate::error::Error;
use crate::protection::Protection;
use crate::write::Written;

impl Space {
    /// Writes all of `buf` at `address`. Other threads see each page as it was before the write, or
    /// as it is after the write.
    ///
    /// # Errors
    /// - [`Error::NotMapped`], [`Error::NotPermitted`].
    /// - [`Error::AddressBusy`] if a page stays pinned, or is being changed, for seconds. The
    ///   thread itself may be the cause, if it has a guard of the page.
    /// - [`Error::AtAddress`], which contains the address and one of these errors:
    ///   [`Error::LimitReached`]; [`Error::PastEnd`] if a mapped file doesn't have all of the
    ///   bytes; the errors of [`File::write_at`](crate::File::write_at).
    ///
    /// After an error, the pages before the failed page are written.
    #[inline]
    pub fn write_at(&self, buf: &[u8], address: u64) -> Result<(), Error> {
        let state = &*self.state;
        let (page, offset) = (address >> state.page_shift, address as usize & ((1 << state.page_shift) - 1));
        if buf.len() <= (1 << state.page_shift) - offset {
            return state.write_page(page, offset, buf);
        }
        state.write_pages(address, buf)
    }

    /// Atomically replaces the 8-byte number at `address` by the number that `update` returns for
    /// it. If `update` returns `None`, the number stays. Returns the old number. `address` must be
    /// a multiple of 8. The number is in the machine's byte order.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); [`Error::BadAddress`].
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

/// Where a write to a page goes, by the page's entry.
pub(super) enum Writable<'a> {
    /// To own memory.
    Own(Trail<'a>),
    /// To a mapped file: the entry, and the number of the mapping.
    File(Entry, u64),
}

/// The outcome of an attempt to write to a page at once.
enum Now<'a> {
    Written,
    /// The page is own memory that isn't resident.
    Absent(Trail<'a>),
    Otherwise,
}

impl SpaceState {
    /// Calls `visit` for each page of a range of bytes. Its arguments are the page, the offset in
    /// the page at which the range's bytes begin, and the part of the range that lies in the page.
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

    /// Returns where a write to a page goes.
    #[inline]
    pub(super) fn writable(&self, page: u64) -> Result<Writable<'_>, Error> {
        let Some(trail) = self.index.trail(page) else { return self.writable_otherwise(page) };
        let entry = Entry(trail.entry());
        match entry.file() {
            None if entry.may_write_own() => Ok(Writable::Own(trail)),
            Some(number) if entry.may_write() && trail.is_still() => Ok(Writable::File(entry, number)),
            _ => self.writable_otherwise(page),
        }
    }

    fn writable_otherwise(&self, page: u64) -> Result<Writable<'_>, Error> {
        let mut backoff = Backoff::new();
        loop {
            let (entry, region) = self.index.look(page);
            match (entry.file(), region) {
                _ if !entry.may_write() => self.refuse_or_wait(page, entry, Protection::ReadWrite, &mut backoff)?,
                (Some(number), _) => return Ok(Writable::File(entry, number)),
                (None, None) => _ = self.region_for_page(page)?,
                (None, Some(_)) => {}
            }
            if let Some(trail) = self.index.trail(page).filter(|trail| Entry(trail.entry()).may_write_own()) {
                return Ok(Writable::Own(trail));
            }
        }
    }

    /// Returns the record of a page's region. If the region has no record, makes one; if there is
    /// no room for it, frees tables that aren't needed, and tries again. Returns `None` if nothing
    /// is mapped at the page any more.
    pub(super) fn region_for_page(&self, page: u64) -> Result<Option<&Region>, Error> {
        self.index.region_for_page(self.payer(), page).or_else(|_| {
            self.tidy();
            self.index.region_for_page(self.payer(), page)
        })
    }

    /// Returns whether a page that the caller holds is still writable own memory (S1).
    #[inline]
    pub(super) fn is_still_own(&self, trail: &Trail<'_>, page: u64) -> bool {
        fence_after_update(); // S1: an atomic update gave the caller the page.
        trail.is_still() || self.has_own(trail, page)
    }

    /// Returns whether a page of the trail's region is writable own memory, even if the way to its
    /// entry has changed.
    #[cold]
    pub(super) fn has_own(&self, trail: &Trail<'_>, page: u64) -> bool {
        self.index.region_of(trail).entry(page).may_write_own()
    }

    /// Returns whether page `page` of the space still belongs to the mapping `number`, and is still
    /// writable. The caller must hold the page of the file that is mapped there (S1).
    pub(super) fn is_still_files(&self, page: u64, number: u64) -> bool {
        fence_after_update(); // S1, as above.
        let entry = self.index.entry(page);
        entry.may_write() && entry.file() == Some(number)
    }

    #[inline(never)]
    fn write_pages(&self, address: u64, from: &[u8]) -> Result<(), Error> {
        self.each_page(address, from.len(), |page, offset, part| self.write_page(page, offset, &from[part]))
    }

    /// Writes to one page.
    fn write_page(&self, page: u64, offset: usize, from: &[u8]) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        match self.write_now(page, offset, from) {
            Now::Written => return Ok(()),
            Now::Absent(trail) => self.write_absent(trail, page, offset, from),
            Now::Otherwise => self.write(page, offset, from),
        }
        .map_err(|error| self.at(page, error))
    }

    /// Writes to a page that was found absent.
    #[inline(never)]
    fn write_absent(&self, trail: Trail<'_>, page: u64, offset: usize, from: &[u8]) -> Result<(), Error> {
        match self.fault_or_wait(self.index.region_of(&trail), page, Fault::Write { offset, bytes: from })? {
            true => Ok(()),
            false => self.write(page, offset, from),
        }
    }

    /// Writes to a resident page of own memory, if the thread needn't wait for the page. In a
    /// forked child, the tables are zeros, so this finds nothing mapped.
    #[inline(always)]
    fn write_now(&self, page: u64, offset: usize, from: &[u8]) -> Now<'_> {
        let Some(trail) = self.index.trail(page).filter(|trail| Entry(trail.entry()).may_write_own()) else {
            return Now::Otherwise;
        };
        // Matched by reference, so that the value isn't copied. `begin_write` has just stored it in
        // several parts. A copy would load it as a whole, and would have to wait for these stores.
        match &mut self.index.begin_write(&trail, page) {
            BeginWrite::Begun(writing) => {
                fence_after_update(); // S1
                if trail.is_still() {
                    writing.write_unfiled(offset, from);
                    return Now::Written;
                }
                Now::Otherwise
            }
            BeginWrite::Absent => Now::Absent(trail),
            BeginWrite::Pinned | BeginWrite::Busy => Now::Otherwise,
        }
    }

    /// Writes to a page, and waits for it if need be.
    #[inline(never)]
    fn write(&self, page: u64, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        loop {
            match self.writable(page)? {
                Writable::Own(trail) => {
                    let write = |writing: &mut frames::Writing<'_>| {
                        writing.write_unfiled(offset, from);
                    };
                    if self.with_page(&trail, page, (offset, from), write)? {
                        return Ok(());
                    }
                }
                Writable::File(entry, number) => {
                    let Some(mapped) = self.mapped(number) else { continue };
                    let handle = mapped.opening(entry)?;
                    let at = (mapped.page_of(page) << self.page_shift) + offset as u64;
                    let permitted = || self.is_still_files(page, number);
                    let write = || handle.overwrite(from, at, &permitted);
                    if handle.within_file(at, from.len() as u64, write)? == Written::Done {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn update(&self, page: u64, offset: usize, update: &mut impl FnMut(u64) -> Option<u64>) -> Result<u64, Error> {
        self.manager().memory.refuse_child()?;
        self.expect_guards(); // `update` may take long, or access the page itself.
        let mut before = 0;
        // Like `Writing::write`, returns whether the page was clean until now.
        let mut change = |writing: &mut frames::Writing<'_>| {
            let mut bytes = [0; 8];
            writing.copy_to(offset, &mut bytes);
            before = u64::from_ne_bytes(bytes);
            update(before).is_some_and(|after| writing.write(offset, &after.to_ne_bytes()))
        };
        loop {
            match self.writable(page)? {
                Writable::Own(trail) => {
                    if self.with_page(&trail, page, (0, &[]), |writing| _ = change(writing))? {
                        return Ok(before);
                    }
                }
                Writable::File(entry, number) => {
                    let Some(mapped) = self.mapped(number) else { continue };
                    let handle = mapped.opening(entry)?;
                    let in_file = mapped.page_of(page);
                    let at = (in_file << self.page_shift) + offset as u64;
                    let permitted = || self.is_still_files(page, number);
                    let _guard = handle.file.counted_guard();
                    let done =
                        handle.within_file(at, 8, || handle.change_within(in_file, at + 8, &permitted, &mut change))?;
                    if done == Written::Done {
                        return Ok(before);
                    }
                }
            }
        }
    }

    /// Runs `change` on a page of own memory, while this thread is the page's only writer. If the
    /// page isn't resident, a fault brings it in, and also writes the bytes `first.1` at the offset
    /// `first.0`. If the fault wrote any bytes, the whole write is done, and `change` isn't called.
    /// Returns false if the page isn't writable own memory any more.
    pub(super) fn with_page(
        &self,
        trail: &Trail<'_>,
        page: u64,
        first: (usize, &[u8]),
        change: impl FnOnce(&mut frames::Writing<'_>),
    ) -> Result<bool, Error> {
        let (mut writer, mut backoff) = (self.index.writer(trail, page), Backoff::new());
        loop {
            match writer.begin() {
                BeginWrite::Begun(mut writing) => {
                    if !self.is_still_own(trail, page) {
                        return Ok(false);
                    }
                    change(&mut writing);
                    return Ok(true);
                }
                BeginWrite::Absent => {
                    let fault = Fault::Write { offset: first.0, bytes: first.1 };
                    if self.fault_or_wait(self.index.region_of(trail), page, fault)? && !first.1.is_empty() {
                        return Ok(true);
                    }
                }
                BeginWrite::Pinned | BeginWrite::Busy => backoff.wait_or(|| self.busy(page))?,
            }
            // Not needed before the first iteration: the caller has just checked this.
            if !self.has_own(trail, page) {
                return Ok(false);
            }
        }
    }
}
