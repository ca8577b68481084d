//! Changes of entries: the range lock, and who is waited for (S1).

use std::time::Duration;

use frames::PageMap;
use range_lock::{LockRange, RangeWriteGuard};
use sync::Arc;
use sync::atomic::{Backoff, Ordering, fence};

use super::SpaceState;
use super::address::Pages;
use super::entry::Entry;
use super::mapped::Mapped;
use crate::error::Error;
use crate::read::patience::{Patience, SPINS};

/// Runs of pages with the same entry.
pub(super) type Runs = Vec<(Pages, Entry)>;

/// How long the second of two ranges is waited for while the first one is held.
const SECOND_WAITED_FOR: Duration = Duration::from_millis(1);

/// Whom a change of entries waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// Who writes to a page, or brings one in.
    Writers,
    /// These, and who has a page of the space's own pinned.
    All,
}

impl SpaceState {
    /// The lock's range for pages: in bytes.
    pub(super) fn lock_range(&self, pages: Pages) -> LockRange {
        let bytes = self.bytes(pages);
        LockRange::new(bytes.start, bytes.end).unwrap_or(LockRange::FULL)
    }

    /// The range for this thread alone.
    pub(super) fn lock(&self, pages: Pages) -> RangeWriteGuard<'_> {
        self.lock.write(self.lock_range(pages))
    }

    /// Two ranges that don't overlap, the lower one first. Nobody waits for one while he has the other: whoever wants both, and
    /// what is between them, may have a claim to it already.
    pub(super) fn lock_both(&self, one: Pages, other: Pages) -> (RangeWriteGuard<'_>, RangeWriteGuard<'_>) {
        let (low, high) = if one.first < other.first { (one, other) } else { (other, one) };
        loop {
            let first = self.lock(low);
            if let Some(second) = self.lock.try_write_for(self.lock_range(high), SECOND_WAITED_FOR) {
                return (first, second);
            }
            drop(first);
            drop(self.lock(high)); // Until whoever has it lets go.
        }
    }

    /// Maps what isn't mapped. False, and nothing is changed, if some of it is.
    pub(super) fn map_pages(&self, pages: Pages, entry: Entry) -> Result<bool, Error> {
        self.manager().refuse_child()?;
        self.index.prepare(self.manager(), pages)?;
        let _guard = self.lock(pages);
        let is_free = self.is_free(pages);
        if is_free {
            self.index.change(pages, entry);
        }
        Ok(is_free)
    }

    /// Whether nothing is mapped in pages that are locked.
    pub(super) fn is_free(&self, pages: Pages) -> bool {
        self.index.runs(pages).all(|(_, entry)| entry == Entry::NONE)
    }

    /// What is mapped in pages that are locked: all of them have to be.
    pub(super) fn mapped_runs(&self, pages: Pages) -> Result<Runs, Error> {
        let runs: Runs = self.index.runs(pages).collect();
        match runs.iter().find(|(_, entry)| *entry == Entry::NONE) {
            Some((hole, _)) => Err(self.refuse(hole.first, Entry::NONE)),
            None => Ok(runs),
        }
    }

    /// Takes the entries of mapped pages away; they are locked, and prepared. Nobody has any of them in use then.
    ///
    /// # Errors
    /// [`Error::AddressBusy`], with nothing changed.
    pub(super) fn vacate(&self, pages: Pages) -> Result<Runs, Error> {
        let runs = self.mapped_runs(pages)?;
        self.index.change(pages, Entry::NONE);
        fence(Ordering::SeqCst); // S1
        // Relaxed: the fence, against that in `own`.
        let awaited = if self.has_guards.load(Ordering::Relaxed) { Awaited::All } else { Awaited::Writers };
        self.await_or_restore(&runs, awaited, |entry| entry.file().is_some() || awaited == Awaited::All)?;
        Ok(runs)
    }

    /// Unmaps mapped pages, and frees what is the space's own.
    pub(super) fn unmap_pages(&self, pages: Pages) -> Result<(), Error> {
        self.manager().refuse_child()?;
        self.index.prepare(self.manager(), pages)?;
        let guard = self.lock(pages);
        let runs = self.vacate(pages)?;
        self.free(pages);
        let closed = self.count_out(&runs);
        drop(guard);
        drop(closed); // M3
        self.addresses.give(pages);
        Ok(())
    }

    /// What mappings of files have lost their last page with these runs: to be dropped without a lock.
    pub(super) fn count_out(&self, runs: &Runs) -> Vec<Arc<Mapped>> {
        let count_out = |(run, entry): &(Pages, Entry)| self.files.removed(self.manager(), entry.file()?, run.count());
        runs.iter().filter_map(count_out).flatten().collect()
    }

    /// Changes the entries of pages that are all mapped to others for the same memory, after `check` said yes to each. Waits for
    /// those who go by the old ones.
    pub(super) fn change(
        &self,
        pages: Pages,
        check: impl Fn(Pages, Entry) -> Result<(), Error>,
        to: impl Fn(Entry) -> Entry,
    ) -> Result<(), Error> {
        self.manager().refuse_child()?;
        self.index.prepare(self.manager(), pages)?;
        let _guard = self.lock(pages);
        let runs = self.mapped_runs(pages)?;
        runs.iter().try_for_each(|(run, entry)| check(*run, *entry))?;
        runs.iter().for_each(|(run, entry)| self.index.change(*run, to(*entry)));
        fence(Ordering::SeqCst); // S1
        self.await_or_restore(&runs, Awaited::Writers, |entry| entry.may_write() && !to(entry).may_write())
    }

    /// Waits for the pages of those runs whose entries `concern` somebody. If somebody keeps one for long, the entries are
    /// again as they were.
    fn await_or_restore(&self, runs: &Runs, whom: Awaited, concern: impl Fn(Entry) -> bool) -> Result<(), Error> {
        let mut concerned = runs.iter().filter(|(_, entry)| concern(*entry));
        let waited = concerned.try_for_each(|(run, entry)| self.await_run(*run, *entry, whom));
        if waited.is_err() {
            runs.iter().for_each(|(run, entry)| self.index.change(*run, *entry));
        }
        waited
    }

    fn await_run(&self, run: Pages, entry: Entry, whom: Awaited) -> Result<(), Error> {
        let Some(number) = entry.file() else {
            return self.index.regions(run).try_for_each(|(region, local)| {
                let mut pages = region.map.pages_in_memory(local);
                pages.try_for_each(|page| self.await_page(&region.map, page, region.first + page, whom))
            });
        };
        let Some(mapped) = self.files.get(number).filter(|_| entry.may_write()) else { return Ok(()) };
        let (map, first) = (&mapped.file().map, mapped.page_of(run.first));
        map.pages_in_memory(first..first + run.count())
            .try_for_each(|page| self.await_page(map, page, page - first + run.first, Awaited::Writers))
    }

    /// Waits until nobody has `page` of the map, which is at `at` in the space, who began before the entries were changed.
    fn await_page(&self, map: &PageMap, page: u64, at: u64, whom: Awaited) -> Result<(), Error> {
        let busy = || self.busy(at);
        let (mut patience, mut pinned) = (Patience::default(), Backoff::new());
        loop {
            if map.is_held(page) {
                patience.wait(busy)?;
            } else if whom == Awaited::All && map.is_pinned(page) {
                // Whoever pinned it after looking at the old entry lets go in moments; a user may not.
                if pinned.turns() == SPINS {
                    return Err(busy());
                }
                pinned.wait();
            } else {
                return Ok(());
            }
        }
    }

    /// Somebody has a page pinned, or is changing it.
    pub(super) fn busy(&self, page: u64) -> Error {
        Error::AddressBusy { address: page << self.page_shift }
    }
}
