//! Guards: pages of a space that are held, to be read in place or changed.

use std::fmt;
use std::ops::Deref;

use frames::{Ahead, BeginWrite, PinError, PinnedFrame, Writing};
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
use crate::file::pinned_page::PinnedPage;
use crate::protection::Protection;
use crate::write::page_mut::{CopyCharge, Owner, PageMut};

/// A page of a space. Its bytes neither move nor change while this guard lives.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let space = group.space()?;
/// # let area = space.map(1 << 20, pagefold::Protection::ReadWrite)?;
/// # space.write_at(b"hello", area.start)?;
/// let page = space.page(area.start)?; // Pinned where it is mapped.
/// assert_eq!(&page[..5], b"hello");
/// # Ok(())
/// # }
/// ```
pub struct MappedPage<'a> {
    held: Held<'a>,
}

enum Held<'a> {
    /// A pinned frame, and how many of its bytes are the page's. `_file` keeps the page's file
    /// open, and is dropped last.
    Pinned { frame: PinnedFrame<'a>, len: usize, _file: Option<Arc<Mapped>> },
    /// The page was never written.
    Zeros(&'a [u8]),
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
    /// Pins the page that contains `address`. Returns a guard that gives access to all bytes of the
    /// page, from its first byte on. The last page of a mapped file ends where the file ends.
    ///
    /// While the guard lives, no thread writes to the page. A page of anonymous memory can't be
    /// unmapped or moved while it is pinned. A page of a file can be, but the guard keeps the
    /// page's bytes unchanged. A page that was never written isn't pinned; its guard reads as
    /// zeros.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at); [`Error::AddressBusy`] if the page stays busy for
    /// seconds because it is being changed, perhaps through a [`page_mut`](Self::page_mut) of this
    /// very thread.
    pub fn page(&self, address: u64) -> Result<MappedPage<'_>, Error> {
        let state = &*self.state;
        let page = address >> state.page_shift;
        state.pin(page).map(|held| MappedPage { held }).map_err(|error| state.at(page, error))
    }

    /// Holds the page that contains `address` for this thread alone, so that the caller can change
    /// the page as a slice. The slice is a copy of the page, and replaces the page when the guard
    /// is dropped. Until then [`read_at`](Self::read_at) returns the old bytes, while
    /// [`page`](Self::page) and writers of the page wait. Until then, too, the memory that contains
    /// the page can't be unmapped, moved or protected.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at); [`Error::AddressBusy`].
    pub fn page_mut(&self, address: u64) -> Result<PageMut<'_>, Error> {
        let state = &*self.state;
        let page = address >> state.page_shift;
        state.hold(page).map_err(|error| state.at(page, error))
    }
}

impl SpaceState {
    /// Notes that guards exist from now on (S1). Called before the caller holds a page for a user.
    pub(super) fn expect_guards(&self) {
        if !self.has_guards.load(Ordering::Relaxed) {
            self.has_guards.store(true, Ordering::Relaxed);
        }
        // The fence is between holding the page and the second look at the entry.
    }

    fn pin(&self, page: u64) -> Result<Held<'_>, Error> {
        self.manager().refuse_child()?;
        let mut backoff = Backoff::new();
        loop {
            // The most frequent case.
            if let Some(trail) = self.index.trail(page).filter(|trail| Entry(trail.entry()).may_read_own()) {
                if let Some(held) = self.pin_own(&trail, page)? {
                    return Ok(held);
                }
                continue;
            }
            let (entry, region) = self.index.look(page);
            if !entry.may_read() {
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
            let PinnedPage { frame, len } = mapped.opening(entry)?.page(mapped.page_of(page))?;
            let frame = self.manager().frames.adopt_pin(frame);
            // Loading the page may have taken long, and a thread that changed the entry meanwhile
            // didn't wait for the load.
            fence(Ordering::SeqCst);
            if self.index.entry(page) != entry {
                continue;
            }
            return Ok(Held::Pinned { frame, len, _file: Some(mapped) });
        }
    }

    fn zeros(&self) -> Held<'_> {
        Held::Zeros(&self.manager().zeros)
    }

    /// Pins a page of own memory. Returns `None` if the page's entry has changed.
    fn pin_own<'a>(&'a self, trail: &Trail<'a>, page: u64) -> Result<Option<Held<'a>>, Error> {
        self.expect_guards();
        let region = self.index.region_of(trail);
        let local = page % REGION_PAGES;
        let (mut backoff, mut pinner) = (Backoff::new(), region.map.pinner(local));
        loop {
            let pin = match pinner.pin(&mut Ahead::No) {
                Ok(pin) => pin,
                Err(PinError::Busy) => {
                    backoff.wait_or(|| self.busy(page))?;
                    continue;
                }
                Err(PinError::TooMany) => return Err(self.busy(page)),
            };
            let is_vacant = matches!(region.map.state(local), frames::PageState::Vacant { .. });
            fence(Ordering::SeqCst); // S1
            // The entry was the same all the time (ENTRY-1), so the page was vacant while it was
            // mapped (S3).
            if !trail.is_still() && region.entry(page).0 != trail.entry() {
                return Ok(None);
            }
            match pin {
                Some(frame) => {
                    let len = frame.bytes().len();
                    return Ok(Some(Held::Pinned { frame, len, _file: None }));
                }
                None if is_vacant => return Ok(Some(self.zeros())),
                // The page is swapped out, is being loaded, or was absent a moment ago.
                None => _ = self.fault_or_wait(region, page, Fault::Read)?,
            }
        }
    }

    fn hold(&self, page: u64) -> Result<PageMut<'_>, Error> {
        self.manager().refuse_child()?;
        // If the page can't be changed, the caller gets that error even if there is no room for a
        // copy.
        self.writable(page)?;
        let charge = CopyCharge::new(self.manager(), self.group.state())?;
        loop {
            match self.writable(page)? {
                Writable::Own(trail) => {
                    if let Some(writing) = self.hold_own(&trail, page)? {
                        return Ok(PageMut::new(Owner::Space, charge, writing, 1 << self.page_shift));
                    }
                }
                Writable::File(entry, number) => {
                    let Some(mapped) = self.mapped(number) else { continue };
                    let (writing, len) = mapped.opening(entry)?.change_page(mapped.page_of(page))?;
                    if self.is_still_files(page, number) {
                        let writing = self.manager().frames.adopt_writing(writing);
                        return Ok(PageMut::new(Owner::Mapping(mapped), charge, writing, len));
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
