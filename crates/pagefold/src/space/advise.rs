//! Advice about accesses to come, and requests to bring memory in, to free it, or to sync it.

use std::ops::Range;

use arrayvec::ArrayVec;
use frames::PageState;
use sync::atomic::Backoff;

use super::address::Pages;
use super::entry::Entry;
use super::fault_types::Fault;
use super::mapped::Mapped;
use super::region::REGION_PAGES;
use super::{Space, SpaceState};
use crate::error::Error;
use crate::protection::Protection;
use crate::read::call::Call;
use crate::read_ahead::advice::Advice;

/// The most runs that are looked up at a time.
const RUNS_AT_ONCE: usize = 64;

impl Space {
    /// Announces how `range`, all of which must be mapped, will be accessed.
    ///
    /// [`Normal`](Advice::Normal), [`Random`](Advice::Random) and
    /// [`Sequential`](Advice::Sequential) apply to all later accesses. For anonymous memory they
    /// decide whether a page that comes back from swap brings its neighbours along.
    ///
    /// All other advice takes effect once, when it is given. For files this call does what
    /// [`File::advise`](crate::File::advise) does, except that [`WillNeed`](Advice::WillNeed)
    /// doesn't wait. For anonymous memory, [`DontNeed`](Advice::DontNeed) [discards](Self::discard)
    /// the memory, and the other kinds of advice do nothing.
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::NotMapped`]; those of [`sync`](Self::sync), for
    /// [`PageOut`](Advice::PageOut); those of [`discard`](Self::discard), for
    /// [`DontNeed`](Advice::DontNeed).
    pub fn advise(&self, range: Range<u64>, advice: Advice) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        match advice {
            Advice::Normal | Advice::Random | Advice::Sequential => {
                // Opened now, so that an error is reported here.
                let open = |run: Pages, entry: Entry| match entry.file().and_then(|number| state.mapped(number)) {
                    Some(mapped) => {
                        mapped.opening(entry.with_advice(advice)).map(drop).map_err(|error| state.at(run.first, error))
                    }
                    None => Ok(()),
                };
                state.change_advice(pages, open, |entry| entry.with_advice(advice))
            }
            Advice::WillNeed => state.each_file(pages, |mapped, bytes| {
                mapped.handle().prefetch_range(bytes);
                Ok(())
            }),
            Advice::DontNeed => {
                state.discard(pages)?;
                state.each_file(pages, |mapped, bytes| mapped.handle().advise(bytes, advice))
            }
            Advice::Cold | Advice::PageOut => {
                state.each_file(pages, |mapped, bytes| mapped.handle().advise(bytes, advice))
            }
        }
    }

    /// Syncs the files' pages in `range`, all of which must be mapped: everything that was written
    /// to them then survives a power cut. See also [`File::sync_range`](crate::File::sync_range).
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::NotMapped`]; [`Error::WriteFailed`], with the address.
    pub fn sync(&self, range: Range<u64>) -> Result<(), Error> {
        let state = &*self.state;
        state.each_file(state.pages(&range)?, |mapped, bytes| mapped.handle().sync_range(bytes))
    }

    /// Frees the anonymous memory in `range`, all of which must be mapped. That memory stays
    /// mapped, and reads as zeros again. Pages of files stay as they are.
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::NotMapped`]; [`Error::AddressBusy`] if a page in `range`
    /// stays pinned, or is being changed. Then the pages before the busy page are discarded, and
    /// perhaps others.
    pub fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        self.state.discard(self.state.pages(&range)?)
    }

    /// Takes memory for all of `range` now, and loads its pages of files.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); for files, those of [`read_at`](Self::read_at). After
    /// an error, the pages before the failed page have been brought in.
    pub fn populate(&self, range: Range<u64>) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        self.advise(range, Advice::WillNeed)?;
        (pages.first..pages.end).try_for_each(|page| state.populate(page).map_err(|error| state.at(page, error)))
    }
}

impl SpaceState {
    fn discard(&self, pages: Pages) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        let _guard = self.lock(pages);
        self.check_mapped(pages)?;
        self.discard_pages(pages)
    }

    /// Frees the memory of pages that the caller has locked.
    pub(super) fn discard_pages(&self, pages: Pages) -> Result<(), Error> {
        let own = self.index.runs(pages).filter(|(_, entry)| entry.is_own());
        let mut patience = Backoff::new();
        let held = own.fold(None, |held, (run, _)| {
            let in_run = self.free_unheld(run, &mut patience);
            held.or(in_run)
        });
        held.map_or(Ok(()), |page| Err(self.busy(page)))
    }

    /// Calls `visit` for each run of a file's pages in `pages`, with the run's mapping and the
    /// run's bytes in the file. All of `pages` must be mapped. No lock is held during `visit`.
    fn each_file(&self, pages: Pages, visit: impl Fn(&Mapped, Range<u64>) -> Result<(), Error>) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        let mut rest = Some(pages);
        while let Some(pages) = rest {
            // A bounded number at a time, because there may be any number of runs.
            let runs: ArrayVec<(Pages, Entry), RUNS_AT_ONCE> = {
                let _guard = self.lock.read(self.lock_range(pages));
                self.check_mapped(pages)?;
                self.index.runs(pages).filter(|(_, entry)| entry.file().is_some()).take(RUNS_AT_ONCE).collect()
            };
            let end = runs.last().filter(|_| runs.is_full()).map_or(pages.end, |(run, _)| run.end);
            rest = (end < pages.end).then_some(Pages { first: end, ..pages });
            for (run, entry) in runs {
                let Some(mapped) = entry.file().and_then(|number| self.mapped(number)) else { continue };
                let first = mapped.page_of(run.first);
                let bytes = first << self.page_shift..(first + run.count()) << self.page_shift;
                visit(&mapped, bytes).map_err(|error| self.at(run.first, error))?;
            }
        }
        Ok(())
    }

    /// Brings a page into memory.
    fn populate(&self, page: u64) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        let mut backoff = Backoff::new();
        loop {
            let (entry, region) = self.index.look(page);
            if let Some(number) = entry.file().filter(|_| entry.may_read()) {
                let Some(mapped) = self.mapped(number) else { continue };
                let (handle, page) = (mapped.opening(entry)?, mapped.page_of(page));
                let start = page << self.page_shift;
                if start >= handle.file.len() && start >= handle.refreshed_len()? {
                    return Err(handle.past_end(start, 1));
                }
                return handle.bring_in(&mut Call::told(page..page + 1), page);
            }
            if !entry.may_write() {
                self.refuse_or_wait(page, entry, Protection::ReadWrite, &mut backoff)?;
                continue;
            }
            let Some(region) = region else {
                self.region_for_page(page)?;
                continue;
            };
            if let PageState::Resident { .. } = region.map.state(page % REGION_PAGES) {
                return Ok(());
            }
            if self.fault_or_wait(region, page, Fault::Write { offset: 0, bytes: &[] })? {
                return Ok(());
            }
            backoff.wait();
        }
    }
}
