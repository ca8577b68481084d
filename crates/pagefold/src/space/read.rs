//! Reading at an address.
//!
//! **A hit holds nothing** (S5). The short way of [`Space::read_at`] finds the page's entry, from
//! that the page map, and copies the bytes as from a file (`frames::PageMap`), with a second look
//! at the entry between the copy and the second look at the word:
//! ```text
//!   e = entry                       may be read
//!   w = word        hot             in the map that e tells: the region's, or that in the mapping's window
//!   v = version     even            of its frame, if the page is a written one
//!   copy bytes
//!   entry == e?                     at this moment e is mapped there,
//!   version == v?                   with these bytes, as they are the same before and after,
//!   word == w?                      and the page in its frame: it was so before and is so after
//! ```
//! So there is a moment when the address was mapped so that it may be read, and what was copied is
//! what was there: not of a page that was unmapped before, be it that another one is mapped there
//! since or that its file's map is another's, nor of one that mayn't be read. What changes an entry
//! needn't wait for readers. (A space's own memory has no file that it could be written back to, so
//! what was once written to stays a *written* page, and reading it has to be as short: the version
//! is on a line of the frame's record, which only its writers write to, and reclaim.)
//!
//! All else goes the long way, with the same looks in the same order: pages that aren't in memory,
//! not whole, or whose use has to be noted. (A mapped file's goes the file's long way, and has its
//! entry looked at once that is over.)

use frames::{Ahead, MapInWord, PageState};
use swap::PageEntry;
use sync::atomic::{Backoff, Ordering, fence};

use super::entry::Entry;
use super::fault_types::Fault;
use super::region::{REGION_PAGES, Region};
use super::tree::Seen;
use super::{Space, SpaceState};
use crate::error::Error;
use crate::protection::Protection;

/// Pages of 4 KiB: the compiler knows how they lie, on the short way.
const USUAL_PAGE_SHIFT: u32 = 12;

impl Space {
    /// Copies the bytes from `address` on. Each page is copied as it was at one moment; the range
    /// isn't. What was never written is zeros.
    ///
    /// A page in memory is copied without a lock of the space or the area, and without a write to
    /// anything that CPUs share.
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::NotPermitted`]; [`Error::AddressBusy`] if a page was written
    /// to again and again for seconds; with the address, [`Error::PastEnd`] if a mapped file hasn't
    /// all of the bytes and those of [`File::read_at`](crate::File::read_at). Earlier pages of
    /// `buf` hold their bytes then.
    #[inline(always)]
    pub fn read_at(&self, buf: &mut [u8], address: u64) -> Result<(), Error> {
        if self.maps.page_shift() == USUAL_PAGE_SHIFT && self.read_hot(USUAL_PAGE_SHIFT, buf, address) {
            return Ok(());
        }
        self.read_pages(buf, address)
    }

    #[inline(never)]
    fn read_pages(&self, buf: &mut [u8], address: u64) -> Result<(), Error> {
        let state = &*self.state;
        state.each_page(address, buf.len(), |page, offset, part| {
            let (start, into) = ((page << state.page_shift) + offset as u64, &mut buf[part]);
            if self.read_hot(state.page_shift, into, start) {
                return Ok(());
            }
            state.read_page(page, offset, into).map_err(|error| state.at(page, error))
        })
    }

    /// Copies bytes of one page that is in memory, if it needs nothing else (S5).
    #[inline(always)]
    fn read_hot(&self, page_shift: u32, into: &mut [u8], address: u64) -> bool {
        let state = &*self.state;
        let page = address >> page_shift;
        let way = match state.index.way(&self.maps, page) {
            Some(Ok(way)) => way,
            Some(Err(word)) => return self.read_hot_whole(word, address, into),
            None => return false,
        };
        match way.leaf(&self.maps, page) {
            // By itself, as less is looked at again: there are registers to keep that.
            None => self.read_hot_mapped(Entry(way.granule.1), way.region.1, address, into, move || way.is_still()),
            Some(leaf) => {
                let still = move || leaf.is_still() && way.is_still();
                self.read_hot_mapped(Entry(leaf.1), way.region.1, address, into, still)
            }
        }
    }

    /// The same of a page with that entry, and that link to its region.
    #[inline(always)]
    fn read_hot_mapped(
        &self,
        entry: Entry,
        link: u64,
        address: u64,
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> bool {
        if entry.may_read_own() {
            return self.maps.read_hot_shortest(MapInWord(link), address, into, still);
        }
        self.read_hot_file(entry, address, into, still)
    }

    /// The same in a run of whole regions, by their word, which has that entry. What was never
    /// written isn't in memory; so it is a file's.
    #[inline(never)]
    fn read_hot_whole(&self, word: Seen<'_>, address: u64, into: &mut [u8]) -> bool {
        self.read_hot_file(Entry(word.1), address, into, || word.is_still())
    }

    /// The same of a file's page, with that entry.
    #[inline(always)]
    fn read_hot_file(&self, entry: Entry, address: u64, into: &mut [u8], still: impl FnOnce() -> bool) -> bool {
        let state = &*self.state;
        let Some(number) = entry.file_to_read() else { return false };
        let Some(place) = state.files.place(number) else { return false };
        let (map, start) = place.window.locate(address);
        let there = self.maps.read_hot(map, start, into, still);
        if there {
            place.count_hit();
        }
        there
    }
}

impl SpaceState {
    #[cold]
    fn read_page(&self, page: u64, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.manager().refuse_child()?;
        let start = ((page % REGION_PAGES) << self.page_shift) + offset as u64;
        let mut backoff = Backoff::new();
        loop {
            let (entry, region) = self.index.look(page);
            if !entry.may_read() {
                self.refuse_or_wait(page, entry, Protection::Read, &mut backoff)?;
                continue;
            }
            if let Some(number) = entry.file() {
                // Gone? Then the entry has changed (M1).
                let Some(mapped) = self.mapped(number) else { continue };
                let at = (mapped.page_of(page) << self.page_shift) + offset as u64;
                let read = mapped.opening(entry)?.read_exact(into, at);
                // It may have taken long: what isn't mapped any more is neither read nor an error.
                fence(Ordering::Acquire); // What was copied was copied before.
                if self.index.entry(page) == entry {
                    return read;
                }
                continue;
            }
            let Some(region) = region else {
                into.fill(0); // No page around it was ever written.
                return Ok(());
            };
            let still_mapped = || region.has_entry(page, entry);
            if region.map.read_while(start, into, still_mapped) {
                return Ok(());
            }
            match region.map.state(page % REGION_PAGES) {
                // S3: the word's Acquire comes before this look, and the entry was the same all the
                // time (ENTRY-1).
                PageState::Vacant { .. } if still_mapped() => {
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
                // It is written to again and again, or came just now: a pin keeps writers off, as
                // it does for a file's page.
                PageState::Resident { .. } => {
                    let mut pinner = region.map.pinner(page % REGION_PAGES);
                    while still_mapped() {
                        match pinner.pin(&mut Ahead::No) {
                            Ok(Some(pin)) => {
                                fence(Ordering::SeqCst); // S1
                                if still_mapped() {
                                    pin.copy_to(offset, into);
                                    return Ok(());
                                }
                            }
                            Ok(None) => break,
                            Err(_) => backoff.wait_or(|| self.busy(page))?,
                        }
                    }
                }
            }
        }
    }

    /// Reads a page of one word, for which there is no memory: it has no slot that another page
    /// could go to instead.
    fn read_fill(region: &Region, page: u64, entry: Entry, offset: usize, into: &mut [u8]) -> bool {
        let local = page % REGION_PAGES;
        let PageState::Swapped { entry: elsewhere } = region.map.state(local) else { return false };
        let Some(PageEntry::SameFilled(fill)) = PageEntry::from_bits(elsewhere) else { return false };
        fill.copy_to(offset, into);
        region.has_entry(page, entry) && region.map.state(local) == PageState::Swapped { entry: elsewhere } // S3
    }
}
