//! Changes of entries: the range lock, and which threads a change waits for (S1).
//!
//! While a change that may fail is in progress, the entries keep the old protection beside the new
//! one (`entry`). So the change can be undone, and the old protection needn't be recorded
//! elsewhere. If the old protection permits an access and the new one doesn't, the access waits
//! until the change is complete.
//!
//! Before a change stores any entry, it looks for guards. Users may keep guards for long. So a
//! change that finds a guard waits only briefly, and then fails.

use std::time::Duration;

use frames::{PageMap, PageState};
use span_lock::{LockRange, RangeWriteGuard};
use sync::Arc;
use sync::atomic::{Backoff, Ordering, fence};

use super::SpaceState;
use super::address::Pages;
use super::entry::Entry;
use super::mapped::Mapping;
use super::tidy::Locked;
use crate::error::Error;
use crate::protection::Protection;

/// How long a thread that holds the first of two ranges waits for the second.
const SECOND_WAITED_FOR: Duration = Duration::from_millis(1);

/// The threads that a change of entries waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Threads that write to a page, or bring a page in.
    Writers,
    /// Writers of pages of files only. The threads that use the space's own pages are waited for
    /// when these pages are freed or moved.
    OfFiles,
    /// Writers, and holders of pins on own pages.
    All,
    /// Like `All`, for a change that affects only the space's own pages. If the space has no
    /// guards, the change itself doesn't wait: a later step, which frees or moves the pages, waits
    /// for the threads.
    AllOwn,
}

impl Awaited {
    /// Returns the threads for which a change must wait when it vacates pages. `has_files` tells
    /// whether some of the pages belong to a file.
    fn of_pages(has_files: bool) -> Self {
        if has_files { Self::All } else { Self::AllOwn }
    }
}

/// The holders of pages that a change may find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guards {
    /// Guards that a user may keep for long. The change waits for them only briefly, and then
    /// fails.
    Expected,
    /// Only threads that are about to release the page: no user's guard was found before.
    Gone,
}

impl SpaceState {
    /// Returns the lock's range for pages, in bytes.
    pub(super) fn lock_range(&self, pages: Pages) -> LockRange {
        let bytes = self.bytes(pages);
        LockRange::new(bytes.start, bytes.end).unwrap_or(LockRange::FULL)
    }

    /// Locks the pages for this thread alone.
    pub(super) fn lock(&self, pages: Pages) -> Locked<'_> {
        self.charge_lock();
        Locked::new(self, self.lock.write(self.lock_range(pages)))
    }

    /// Locks two ranges that don't overlap, the lower one first. A thread that holds the first
    /// range waits only briefly for the second range. Then it releases the first range and starts
    /// again. If it waited longer, it could deadlock with another thread that locks one large
    /// range, which contains both. That thread may be ahead in the queue for the second range,
    /// while it waits for this thread to release the first range.
    pub(super) fn lock_both(&self, one: Pages, other: Pages) -> (RangeWriteGuard<'_>, Locked<'_>) {
        let (low, high) = if one.first < other.first { (one, other) } else { (other, one) };
        loop {
            self.charge_lock();
            let first = self.lock.write(self.lock_range(low));
            if let Some(second) = self.lock.try_write_for(self.lock_range(high), SECOND_WAITED_FOR) {
                return (first, Locked::new(self, second)); // Dropped in this order.
            }
            drop(first);
            drop(self.lock(high)); // Waits for the thread that holds it.
        }
    }

    /// Maps pages. Returns false, with nothing changed, if some of them are mapped already.
    pub(super) fn map_pages(&self, pages: Pages, entry: Entry) -> Result<bool, Error> {
        self.manager().memory.refuse_child()?;
        let _guard = self.lock(pages);
        if !self.is_free(pages) {
            return Ok(false);
        }
        self.prepare(pages)?;
        self.change_entries(pages, |_| entry);
        Ok(true)
    }

    /// Returns whether nothing is mapped in `pages`. Without a lock of the pages this is only a
    /// hint.
    pub(super) fn is_free(&self, pages: Pages) -> bool {
        self.index.runs(pages).all(|(_, entry)| entry == Entry::NONE)
    }

    /// Returns whether some of the pages belong to a file, or an error if some of them aren't
    /// mapped. The caller must have locked the pages.
    pub(super) fn check_mapped(&self, pages: Pages) -> Result<bool, Error> {
        let mut has_files = false;
        for (run, entry) in self.index.runs(pages) {
            if entry == Entry::NONE {
                return Err(self.refuse(run.first, Entry::NONE));
            }
            has_files |= entry.file().is_some();
        }
        Ok(has_files)
    }

    /// Changes the entries of pages that the caller has prepared, and locked.
    pub(super) fn change_entries(&self, pages: Pages, to: impl Fn(Entry) -> Entry) {
        self.index.change(self.payer(), pages, to);
    }

    /// Makes mapped pages inaccessible: no thread uses them, or finds them, until they are
    /// [restored](Self::restore) or get other entries. The caller has locked them.
    ///
    /// # Errors
    /// [`Error::AddressBusy`], [`Error::NotMapped`], no room for the index. Nothing is changed
    /// then.
    pub(super) fn vacate(&self, pages: Pages) -> Result<(), Error> {
        let whom = self.look_for_guards(pages)?;
        self.prepare(pages)?;
        self.begin_change(pages, whom, Protection::None)
    }

    /// Restores the old protection, which the entries have kept.
    pub(super) fn restore(&self, pages: Pages) {
        self.change_entries(pages, Entry::restored);
    }

    /// Unmaps mapped pages, and frees their own memory.
    pub(super) fn unmap_pages(&self, pages: Pages) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        self.addresses.prepare_to_give(self.index.account(), self.payer());
        let guard = self.lock(pages);
        let has_files = self.check_mapped(pages)?;
        if self.prepare(pages).is_err() {
            // The group is at its limit. The pages' memory is freed in any case. Freeing it now
            // makes room for a table.
            self.discard_pages(pages)?;
            self.prepare(pages)?;
        }
        let whom = Awaited::of_pages(has_files);
        self.await_guards(pages, whom, Protection::None)?;
        self.begin_change(pages, whom, Protection::None)?;
        self.free(pages);
        let (closed, many) = if has_files { self.forget_pages(pages) } else { (Vec::new(), self.forget_own(pages)) };
        drop(guard);
        drop(closed); // M3
        if many {
            self.tidy();
        }
        self.addresses.give(pages);
        Ok(())
    }

    /// Removes the entries of vacated pages. Returns the mappings that have no pages left, and
    /// whether the caller should [tidy](Self::tidy). The caller must hold no lock when it drops
    /// those mappings (M3).
    pub(super) fn forget_pages(&self, pages: Pages) -> (Vec<Arc<Mapping>>, bool) {
        let count_out = |(run, entry): (Pages, Entry)| {
            self.files.removed(self.index.account(), self.payer(), entry.file()?, run.count())
        };
        let closed = self.index.runs(pages).filter_map(count_out).collect();
        (closed, self.forget_own(pages))
    }

    /// Removes the entries of vacated pages. Their mappings must not count those pages any more.
    /// Returns whether the caller should [tidy](Self::tidy).
    fn forget_own(&self, pages: Pages) -> bool {
        self.change_entries(pages, |_| Entry::NONE);
        self.note(pages)
    }

    /// Changes the advice in the entries of pages that are all mapped, if `check` permits that for
    /// each run.
    pub(super) fn change_advice(
        &self,
        pages: Pages,
        check: impl Fn(Pages, Entry) -> Result<(), Error>,
        to: impl Fn(Entry) -> Entry,
    ) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        let _guard = self.lock(pages);
        self.check_mapped(pages)?;
        self.index.runs(pages).try_for_each(|(run, entry)| check(run, entry))?;
        self.prepare(pages)?;
        self.change_entries(pages, to);
        Ok(())
    }

    /// Changes the protection of pages that are all mapped, if `check` permits that for each run.
    /// Waits for threads that still write, or bring pages in, under the old protection.
    pub(super) fn change_protection(
        &self,
        pages: Pages,
        check: impl Fn(Pages, Entry) -> Result<(), Error>,
        protection: Protection,
    ) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        let _guard = self.lock(pages);
        self.check_mapped(pages)?;
        self.index.runs(pages).try_for_each(|(run, entry)| check(run, entry))?;
        self.await_guards(pages, Awaited::Writers, protection)?;
        self.prepare(pages)?;
        self.begin_change(pages, Awaited::Writers, protection)?;
        self.change_entries(pages, Entry::settled);
        Ok(())
    }

    /// Fails if a page isn't mapped, or if a guard prevents the pages from being vacated. Returns
    /// which threads the change has to wait for.
    pub(super) fn look_for_guards(&self, pages: Pages) -> Result<Awaited, Error> {
        let whom = Awaited::of_pages(self.check_mapped(pages)?);
        self.await_guards(pages, whom, Protection::None)?;
        Ok(whom)
    }

    /// Waits for guards before any entry is changed.
    fn await_guards(&self, pages: Pages, whom: Awaited, protection: Protection) -> Result<(), Error> {
        // Relaxed: a stale value does no harm. This wait only avoids changes that would have to be
        // undone; `begin_change` loads the flag again, after its fence.
        let whom = match (whom, self.has_guards.load(Ordering::Relaxed)) {
            (Awaited::AllOwn, true) => Awaited::All,
            (whom, true) => whom,
            (Awaited::AllOwn, false) => return Ok(()),
            (Awaited::All | Awaited::Writers | Awaited::OfFiles, false) => Awaited::OfFiles,
        };
        self.await_pages(pages, whom, protection, Guards::Expected)
    }

    /// Stores a new protection in the pages' entries, beside the old one. Then waits for the
    /// threads that act on the old protection. If that fails, restores the old protection. The
    /// caller must have [prepared](Self::prepare) the pages.
    fn begin_change(&self, pages: Pages, whom: Awaited, protection: Protection) -> Result<(), Error> {
        self.change_entries(pages, |entry| entry.changing(protection));
        fence(Ordering::SeqCst); // S1
        let whom = match whom {
            // Relaxed: the fence above pairs with the fence that follows `expect_guards`.
            Awaited::All if !self.has_guards.load(Ordering::Relaxed) => Awaited::OfFiles,
            // The pages are waited for when they are freed.
            Awaited::AllOwn if !self.has_guards.load(Ordering::Relaxed) => return Ok(()),
            Awaited::AllOwn => Awaited::All,
            whom => whom,
        };
        self.await_pages(pages, whom, protection, Guards::Gone).inspect_err(|_| self.restore(pages))
    }

    /// Waits for threads that use pages in a way that `protection` doesn't permit.
    fn await_pages(&self, pages: Pages, whom: Awaited, protection: Protection, guards: Guards) -> Result<(), Error> {
        if protection == Protection::ReadWrite {
            return Ok(());
        }
        let concerned = |(_, entry): &(Pages, Entry)| match whom {
            Awaited::All | Awaited::AllOwn => true,
            Awaited::OfFiles => entry.file().is_some(),
            Awaited::Writers => entry.restored().may_write(),
        };
        self.index.runs(pages).filter(concerned).try_for_each(|(run, entry)| self.await_run(run, entry, whom, guards))
    }

    fn await_run(&self, run: Pages, entry: Entry, whom: Awaited, guards: Guards) -> Result<(), Error> {
        let Some(number) = entry.file() else {
            return self.index.regions(run).try_for_each(|(region, local)| {
                let (first, mut pages) = (region.first(), region.map.pages_in_memory(local));
                pages.try_for_each(|page| self.await_page(&region.map, page, first + page, whom, guards, || true))
            });
        };
        let Some(mapped) = self.mapped(number).filter(|_| entry.restored().may_write()) else { return Ok(()) };
        // No user has a guard of the file. So threads that hold its pages release them within
        // moments, but may hold them again and again until the entries are changed. `begin_change`
        // waits for these threads, after it has changed the entries.
        if guards == Guards::Expected && !mapped.file().has_guards() {
            return Ok(());
        }
        let (map, first) = (&mapped.file().map, mapped.page_of(run.first));
        // If no write is making a page of the file, a page in *loading* is only being read. That
        // may take as long as the device does, so `await_page` doesn't wait for it.
        let may_write = || mapped.file().has_makers();
        map.pages_in_memory(first..first + run.count()).try_for_each(|page| {
            self.await_page(map, page, page - first + run.first, Awaited::Writers, guards, may_write)
        })
    }

    /// Waits until no thread holds `page` of the map and, if `whom` is `All`, no pin of the page is
    /// left. Returns an error if this takes too long. `at` is the page's number in the space, and
    /// is needed only for the error. If another thread has the page's word in *loading*, this stops
    /// waiting as soon as `may_write` returns false: then that thread isn't a writer.
    fn await_page(
        &self,
        map: &PageMap,
        page: u64,
        at: u64,
        whom: Awaited,
        guards: Guards,
        may_write: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let busy = || self.busy(at);
        let mut backoff = Backoff::new();
        loop {
            let is_held = map.is_held(page);
            let is_loading = is_held && matches!(map.state(page), PageState::Loading);
            if is_loading && !may_write() {
                return Ok(());
            }
            if is_held && (guards == Guards::Gone || is_loading) {
                backoff.wait_or(busy)?;
            } else if is_held || whom == Awaited::All && map.is_pinned(page) {
                // A thread that pinned the page after it had read the old entry releases the page
                // within moments. A user may keep a pin for long, so this waits only briefly.
                if !backoff.wait_shortly() {
                    return Err(busy());
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Handles an access to a page whose entry doesn't permit `wanted`. If the entry is being
    /// changed, and its old protection permits `wanted`, waits briefly and returns; the caller then
    /// looks at the entry again. Otherwise returns an error.
    ///
    /// # Errors
    /// Those of [`refuse`](Self::refuse); [`Error::AddressBusy`] if the change takes seconds.
    #[cold]
    pub(super) fn refuse_or_wait(
        &self,
        page: u64,
        entry: Entry,
        wanted: Protection,
        backoff: &mut Backoff,
    ) -> Result<(), Error> {
        let permits = |kept| kept == Protection::ReadWrite || kept == wanted;
        match entry.kept() {
            Some(kept) if permits(kept) => backoff.wait_or(|| self.busy(page)),
            _ => Err(self.refuse(page, entry.restored())),
        }
    }

    /// Returns the error for a page that is pinned, or being changed.
    pub(super) fn busy(&self, page: u64) -> Error {
        Error::AddressBusy { address: page << self.page_shift }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::super::for_tests::{PAGE, Tenant};
    use super::*;
    use crate::Pagefold;
    use frames::BeginLoad;
    use test_disks::SimulatedDisk;

    /// A write through a mapping may make a page, whose word is then in *loading*. The write may
    /// have found the old protection, so a change waits for the write. The change doesn't wait for
    /// a thread that reads a page.
    #[test]
    fn a_change_waits_for_writes_that_make_a_page_but_not_for_reads() {
        let disk = SimulatedDisk::default();
        disk.add_bytes("/file", vec![0; 8 * PAGE as usize]);
        let it = Tenant::new(Pagefold::builder().backend(disk), 64, 1);
        let file = it.group.open_options().write(true).open("/file").unwrap();
        let area = it.space.map_file(&file, 0, 8 * PAGE, Protection::ReadWrite).unwrap();
        let state = &*file.handle().file;
        let BeginLoad::Begun(_loading) = state.map.begin_load(3) else { panic!() };
        let maker = state.counted_maker();
        let protect = || it.space.protect(area.clone(), Protection::Read);
        assert!(matches!(protect(), Err(Error::AddressBusy { address }) if address == area.start + 3 * PAGE));
        drop(maker);
        protect().unwrap();
        // Such a write counts itself before it looks at the entry.
        let is_counted = std::cell::Cell::new(false);
        let permitted = || {
            is_counted.set(state.has_makers());
            true
        };
        file.handle().overwrite(&[1; PAGE as usize], 5 * PAGE, &permitted).unwrap();
        assert!(is_counted.get() && !state.has_makers());
    }
}
