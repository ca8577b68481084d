//! Reading at an address.
//!
//! **A hit takes no lock and no pin** (S5). The fast path of [`Space::read_at`] finds the page's
//! entry, and from the entry the page map. Then it reads the page as a hit in a file does
//! (`frames::PageMap`): it looks at the page word, copies the bytes, and looks at the page word
//! again. Between the copy and that second look it also checks the entry:
//! ```text
//!   e = entry                       may be read
//!   w = word        hot             in the map that e tells: the region's, or that in the mapping's window
//!   v = version     even            of its frame, if the page is a written one
//!   copy bytes
//!   entry == e?                     at this moment e is mapped there,
//!   version == v?                   with these bytes, as they are the same before and after,
//!   word == w?                      and the page in its frame: it was so before and is so after
//! ```
//! So there was a moment when the address was mapped and readable, and had the copied bytes. The
//! bytes can't be those of a page that was unmapped before the read, or of a page that may not be
//! read. This is true even if another page was mapped at the address during the read, or if the old
//! file's map was freed and another file's map got its number. So a thread that changes an entry
//! needn't wait for readers.
//!
//! Own memory has no file to be written back to. So a page that was once written to stays a
//! *written* page, and each read of the page checks its frame's version. Such a read has to be as
//! fast as a read of a clean page. So the version is on a cache line of the frame's record that
//! only reclaim and the page's writers write to.
//!
//! A read takes the slow path if the page isn't in memory, if the page extends past its file's end,
//! or if the use of the page has to be recorded. Like the fast path, the slow path looks at the
//! entry first, and then at the page word. If the page belongs to a mapped file, the file's own
//! slow path reads it, and the entry is checked after that read has ended.

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

/// The shift of 4 KiB pages. As a constant, it gives the compiler the page size on the fast path.
const USUAL_PAGE_SHIFT: u32 = 12;

impl Space {
    /// Copies the bytes from `address` on. Each page is copied as it was at one moment, but
    /// different pages may be copied as they were at different moments. Memory that was never
    /// written is zeros.
    ///
    /// A page in memory is copied without a lock of the space or the area, and without a write to
    /// anything that CPUs share.
    ///
    /// # Errors
    /// - [`Error::NotMapped`], [`Error::NotPermitted`].
    /// - [`Error::AddressBusy`] if other threads keep writing to a page for seconds.
    /// - [`Error::SwapReadFailed`], [`Error::SwapCorrupt`] for a page in swap.
    /// - [`Error::BadAddress`] for a range beyond 2^64.
    /// - [`Error::AtAddress`], which contains the address and one of these errors:
    ///   [`Error::PastEnd`] if a mapped file doesn't have all of the bytes; the errors of
    ///   [`File::read_at`](crate::File::read_at).
    ///
    /// After an error, `buf` has the bytes of the pages before the failed page.
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

    /// Copies bytes of one page on the fast path (S5). Returns false if the page needs the slow
    /// path.
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
            // A case of its own: fewer words are looked at again, so they stay in registers.
            None => self.read_hot_mapped(Entry(way.granule.1), way.region.1, address, into, move || way.is_still()),
            Some(leaf) => {
                let still = move || leaf.is_still() && way.is_still();
                self.read_hot_mapped(Entry(leaf.1), way.region.1, address, into, still)
            }
        }
    }

    /// Copies bytes of a page on the fast path. `entry` is the page's entry, `link` leads to its
    /// region, and `still` returns whether both are unchanged.
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

    /// Copies bytes of a page that lies in a run of whole regions, all of which share the entry in
    /// `word`. Such regions have no records. Own memory that was written is always in a region with
    /// a record. So if this page is in memory, it must be a file's.
    #[inline(never)]
    fn read_hot_whole(&self, word: Seen<'_>, address: u64, into: &mut [u8]) -> bool {
        self.read_hot_file(Entry(word.1), address, into, || word.is_still())
    }

    /// Copies bytes of a page on the fast path, if `entry` is that of a file's page that may be
    /// read.
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
        self.manager().memory.refuse_child()?;
        let start = ((page % REGION_PAGES) << self.page_shift) + offset as u64;
        let mut backoff = Backoff::new();
        loop {
            let (entry, region) = self.index.look(page);
            if !entry.may_read() {
                self.refuse_or_wait(page, entry, Protection::Read, &mut backoff)?;
                continue;
            }
            if let Some(number) = entry.file() {
                // If the mapping is gone, the entry has changed (M1).
                let Some(mapped) = self.mapped(number) else { continue };
                let at = (mapped.page_of(page) << self.page_shift) + offset as u64;
                let read = mapped.opening(entry)?.read_exact(into, at);
                // The read may have taken long. If the page isn't mapped any more, neither its
                // bytes nor its error count.
                fence(Ordering::Acquire); // The copy comes before the next look.
                if self.index.entry(page) == entry {
                    return read;
                }
                continue;
            }
            let Some(region) = region else {
                into.fill(0); // No page of the region was ever written.
                return Ok(());
            };
            let still_mapped = || region.has_entry(page, entry);
            if region.map.read_while(start, into, still_mapped) {
                return Ok(());
            }
            match region.map.state(page % REGION_PAGES) {
                // S3: the Acquire load of the word comes before this check of the entry, and the
                // entry was the same all the time (ENTRY-1).
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
                // Other threads keep writing to the page, or it has just come into memory. A pin
                // keeps writers off, as for a file's page.
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

    /// Copies bytes of a swapped-out, same-filled page without bringing it into memory. Called when
    /// there is no memory for the page. An exchange can't help either: it needs the slot of the
    /// incoming page, and this page has none. Returns false if the page isn't swapped out and
    /// same-filled, or if it is unmapped meanwhile.
    fn read_fill(region: &Region, page: u64, entry: Entry, offset: usize, into: &mut [u8]) -> bool {
        let local = page % REGION_PAGES;
        let PageState::Swapped { entry: elsewhere } = region.map.state(local) else { return false };
        let Some(PageEntry::SameFilled(fill)) = PageEntry::from_bits(elsewhere) else { return false };
        fill.copy_to(offset, into);
        region.has_entry(page, entry) && region.map.state(local) == PageState::Swapped { entry: elsewhere } // S3
    }
}
