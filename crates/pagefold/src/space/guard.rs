//! Guards. A guard holds a page of a space, so that a caller can read the page in place, or change
//! it.

use frames::{Ahead, BeginWrite, KeptWriting, PinError, Writing};
use sync::Arc;
use sync::atomic::{Backoff, Ordering, fence};

use super::entry::Entry;
use super::fault_types::Fault;
use super::mapped::Mapped;
use super::region::REGION_PAGES;
use super::tree::Trail;
use super::write::Writable;
use super::{Space, SpaceState};
use crate::error::Error;
use crate::file::page_ref::{Keeper, PageRef};
use crate::protection::Protection;
use crate::write::page_mut::{CopyCharge, MaybeOwned, Owner, PageAccess, PageMut};

impl Space {
    /// Pins the page that contains `address`. Returns a guard that gives access to all bytes of the
    /// page, from its first byte on. The last page of a mapped file ends where the file ends.
    ///
    /// While the guard lives, no thread writes to the page. A page of anonymous memory can't be
    /// unmapped or moved while it is pinned. A page of a file can be unmapped or moved, but the
    /// guard keeps the page's bytes unchanged. A page that was never written isn't pinned; its
    /// guard reads as zeros.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mm = pagefold::Pagefold::builder().memory("16MiB").build()?;
    /// # let group = mm.group("tenant-a").build()?;
    /// let space = group.space()?;
    /// let area = space.map(1 << 20, pagefold::Protection::ReadWrite)?;
    /// space.write_at(b"hello", area.start)?;
    /// let page = space.page_at(area.start)?; // Pinned where it is mapped.
    /// assert_eq!(&page[..5], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at); [`Error::AddressBusy`] if the page stays busy for
    /// seconds because it is being changed, perhaps through a [`page_mut_at`](Self::page_mut_at) of
    /// this very thread.
    pub fn page_at(&self, address: u64) -> Result<PageRef<'_>, Error> {
        let state = &*self.state;
        let page = address >> state.page_shift;
        state.pin(page, true).map_err(|error| state.at(page, error))
    }

    /// Pins a page like [`page_at`](Self::page_at). The guard doesn't borrow the space. It keeps
    /// the space alive or, for a page of a mapped file, the file open.
    ///
    /// # Errors
    /// Those of [`page_at`](Self::page_at).
    pub fn page_at_owned(&self, address: u64) -> Result<PageRef<'static>, Error> {
        let page = self.page_at(address)?;
        Ok(page.into_owned(&self.state.manager().memory.frames, Arc::clone(&self.known) as _))
    }

    /// Pins a page like [`page_at`](Self::page_at), if that is possible without I/O and without
    /// waiting: the page is in memory, and no thread writes to it. Otherwise returns `None`, and
    /// [`page_at`](Self::page_at) would wait, or return an error. For a page of a file, the call
    /// may do I/O in the cases that [`File::try_page_at`](crate::File::try_page_at) names.
    #[must_use]
    pub fn try_page_at(&self, address: u64) -> Option<PageRef<'_>> {
        self.state.pin(address >> self.state.page_shift, false).ok()
    }

    /// Holds the page that contains `address` for this thread alone, so that the caller can change
    /// the page as a slice. The slice is a copy of the page, and replaces the page when the guard
    /// is dropped. Until then [`read_at`](Self::read_at) returns the old bytes, while
    /// [`page_at`](Self::page_at) and writers of the page wait. Until then, too, the memory that
    /// contains the page can't be unmapped, moved or protected.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); [`Error::AddressBusy`].
    pub fn page_mut_at(&self, address: u64) -> Result<PageMut<'_>, Error> {
        let state = &*self.state;
        let page = address >> state.page_shift;
        state.hold(page).map_err(|error| state.at(page, error))
    }

    /// Returns a guard like [`page_mut_at`](Self::page_mut_at) that doesn't borrow the space. It
    /// keeps the space alive or, for a page of a mapped file, the file open.
    ///
    /// # Errors
    /// Those of [`page_mut_at`](Self::page_mut_at).
    pub fn page_mut_at_owned(&self, address: u64) -> Result<PageMut<'static>, Error> {
        let state = &*self.state;
        let page = address >> state.page_shift;
        state.hold_owned(page, &(Arc::clone(&self.known) as _)).map_err(|error| state.at(page, error))
    }

    /// Returns a guard like [`page_mut_at`](Self::page_mut_at), if that is possible without I/O and
    /// without waiting: the page is in memory, neither pinned nor being changed, and there is room
    /// for the copy. Otherwise returns `None`, and [`page_mut_at`](Self::page_mut_at) would wait,
    /// or return an error.
    #[must_use]
    pub fn try_page_mut_at(&self, address: u64) -> Option<PageMut<'_>> {
        self.state.try_hold(address >> self.state.page_shift)
    }
}

impl SpaceState {
    /// Notes that guards exist from now on (S1). Called before the caller holds a page for a user.
    pub(super) fn expect_guards(&self) {
        if !self.has_guards.load(Ordering::Relaxed) {
            self.has_guards.store(true, Ordering::Relaxed);
        }
        // Needs no fence here: the caller executes one after it has got hold of the page, and
        // before its second look at the entry.
    }

    /// Pins a page. If `waits` is false, fails instead of waiting.
    fn pin(&self, page: u64, waits: bool) -> Result<PageRef<'_>, Error> {
        self.manager().memory.refuse_child()?;
        let mut backoff = Backoff::new();
        loop {
            // The most frequent case.
            if let Some(trail) = self.index.trail(page).filter(|trail| Entry(trail.entry()).may_read_own()) {
                if let Some(pinned) = self.pin_own(&trail, page, waits)? {
                    return Ok(pinned);
                }
                continue;
            }
            let (entry, region) = self.index.look(page);
            if !entry.may_read() {
                if !waits {
                    return Err(self.busy(page));
                }
                self.refuse_or_wait(page, entry, Protection::Read, &mut backoff)?;
                continue;
            }
            let Some(number) = entry.file() else {
                if region.is_none() {
                    return Ok(self.zeros());
                }
                continue;
            };
            let Some(mapped) = self.mapped(number) else { continue };
            let (handle, of_file) = (mapped.opening(entry)?, mapped.page_of(page));
            let pinned =
                if waits { handle.page(of_file) } else { handle.try_page(of_file).ok_or_else(|| self.busy(page)) };
            let (frame, len) = pinned?;
            let frame = self.manager().memory.frames.adopt_pin(frame);
            // Loading the page may have taken long. A thread that changed the entry meanwhile
            // didn't wait for the load, so the entry is checked again.
            fence(Ordering::SeqCst);
            if self.index.entry(page) != entry {
                continue;
            }
            return Ok(PageRef::of_mapping(frame, len, mapped));
        }
    }

    fn zeros(&self) -> PageRef<'_> {
        PageRef::zeros(&self.manager().memory.zeros)
    }

    /// Pins a page of own memory (anonymous memory). Returns `None` if the page's entry has
    /// changed.
    fn pin_own<'a>(&'a self, trail: &Trail<'a>, page: u64, waits: bool) -> Result<Option<PageRef<'a>>, Error> {
        self.expect_guards();
        let region = self.index.region_of(trail);
        let local = page % REGION_PAGES;
        let (mut backoff, mut pinner) = (Backoff::new(), region.map.pinner(local));
        loop {
            let pin = match pinner.pin(&mut Ahead::No) {
                Ok(pin) => pin,
                Err(PinError::Busy) if waits => {
                    backoff.wait_or(|| self.busy(page))?;
                    continue;
                }
                Err(PinError::Busy | PinError::TooMany) => return Err(self.busy(page)),
            };
            let is_vacant = matches!(region.map.state(local), frames::PageState::Vacant { .. });
            fence(Ordering::SeqCst); // S1
            // If the entry is the same now, it was the same all the time (ENTRY-1). So if a frame
            // was pinned, that frame holds the mapped page. If no frame was pinned, and the state
            // that was loaded just before the fence is *vacant*, then the page was vacant while it
            // was mapped, and reads as zeros (S3).
            if !trail.is_still() && region.entry(page).0 != trail.entry() {
                return Ok(None);
            }
            match pin {
                Some(frame) => {
                    let len = frame.bytes().len();
                    return Ok(Some(PageRef::pinned(frame, len)));
                }
                None if is_vacant => return Ok(Some(self.zeros())),
                // The page is swapped out, is being loaded, or was absent a moment ago.
                None if waits => _ = self.fault_or_wait(region, page, Fault::Read)?,
                None => return Err(self.busy(page)),
            }
        }
    }

    fn hold(&self, page: u64) -> Result<PageMut<'_>, Error> {
        self.check_change(page)?;
        let charge = CopyCharge::new(MaybeOwned::Borrowed(self.group.handle()))?;
        let (mapping, writing, len) = self.hold_page(page)?;
        Ok(PageMut::new(owner(mapping, None), charge, PageAccess::Borrowed(writing), len))
    }

    fn hold_owned(&self, page: u64, keeper: &Arc<dyn Keeper>) -> Result<PageMut<'static>, Error> {
        self.check_change(page)?;
        let charge = CopyCharge::new(MaybeOwned::Owned(Arc::clone(self.group.handle())))?;
        let (mapping, writing, len) = self.hold_page(page)?;
        let access = PageAccess::Owned(KeptWriting::of(&self.manager().memory.frames, writing));
        Ok(PageMut::new(owner(mapping, Some(keeper)), charge, access, len))
    }

    /// Holds a page like [`hold`](Self::hold), if that is possible at once.
    fn try_hold(&self, page: u64) -> Option<PageMut<'_>> {
        self.manager().memory.refuse_child().ok()?;
        let charge = CopyCharge::try_new(MaybeOwned::Borrowed(self.group.handle()))?;
        let trail = self.index.trail(page).filter(|trail| Entry(trail.entry()).may_write_own());
        if let Some(trail) = trail {
            self.expect_guards();
            let BeginWrite::Begun(writing) = self.index.writer(&trail, page).begin() else { return None };
            let access = self.is_still_own(&trail, page).then_some(PageAccess::Borrowed(writing))?;
            return Some(PageMut::new(owner(None, None), charge, access, 1 << self.page_shift));
        }
        let entry = self.index.entry(page);
        let number = entry.file().filter(|_| entry.may_write())?;
        let mapped = self.mapped(number)?;
        let (writing, len) = mapped.opening(entry).ok()?.try_change_page(mapped.page_of(page))?;
        if !self.is_still_files(page, number) {
            return None;
        }
        let access = PageAccess::Borrowed(self.manager().memory.frames.adopt_writing(writing));
        Some(PageMut::new(owner(Some(mapped), None), charge, access, len))
    }

    /// Checks that a page may be changed. Called before room for a copy is obtained: if the page
    /// may not be changed, the error says so even if there is no room for a copy.
    fn check_change(&self, page: u64) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
        self.writable(page).map(|_| ())
    }

    /// Obtains exclusive access to a page. Returns the mapping that the page belongs to, if it is a
    /// page of a file, and how many bytes the page has.
    fn hold_page(&self, page: u64) -> Result<(Option<Arc<Mapped>>, Writing<'_>, usize), Error> {
        loop {
            match self.writable(page)? {
                Writable::Own(trail) => {
                    if let Some(writing) = self.hold_own(&trail, page)? {
                        return Ok((None, writing, 1 << self.page_shift));
                    }
                }
                Writable::File(entry, number) => {
                    let Some(mapped) = self.mapped(number) else { continue };
                    let (writing, len) = mapped.opening(entry)?.change_page(mapped.page_of(page))?;
                    if self.is_still_files(page, number) {
                        let writing = self.manager().memory.frames.adopt_writing(writing);
                        return Ok((Some(mapped), writing, len));
                    }
                }
            }
        }
    }

    /// Holds a page of own memory for writing. Returns `None` if the page isn't writable own memory
    /// any more.
    fn hold_own<'a>(&'a self, trail: &Trail<'a>, page: u64) -> Result<Option<Writing<'a>>, Error> {
        self.expect_guards();
        let (mut writer, mut backoff) = (self.index.writer(trail, page), Backoff::new());
        loop {
            if !self.has_own(trail, page) {
                return Ok(None);
            }
            match writer.begin() {
                BeginWrite::Begun(writing) => {
                    return Ok(self.is_still_own(trail, page).then_some(writing));
                }
                BeginWrite::Absent => {
                    let fault = Fault::Write { offset: 0, bytes: &[] };
                    self.fault_or_wait(self.index.region_of(trail), page, fault)?;
                    backoff.wait();
                }
                BeginWrite::Pinned | BeginWrite::Busy => backoff.wait_or(|| self.busy(page))?,
            }
        }
    }
}

/// Returns the owner of a page: a mapped file, or the space that `keeper` keeps alive.
fn owner<'a>(mapping: Option<Arc<Mapped>>, keeper: Option<&Arc<dyn Keeper>>) -> Owner<'a> {
    match mapping {
        Some(mapping) => Owner::Mapping(mapping),
        None => Owner::Space { _keeper: keeper.cloned() },
    }
}
