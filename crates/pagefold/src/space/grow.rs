//! Growing memory where it is.

use std::ops::Range;

use super::Space;
use super::address::Pages;
use crate::error::Error;

/// No mapping may grow past this byte of its file. So offsets in files fit into 64 bits, however
/// often mappings are moved and grown.
const FILE_END: u64 = 1 << 63;

impl Space {
    /// Extends the memory in `range` to `len` bytes, at the same address. Every page of the range
    /// must be mapped. If the last page is a file's, the new part maps the pages that follow that
    /// page in the file; otherwise the new part is zeros. Returns the new range.
    ///
    /// # Errors
    /// [`Error::BadAddress`], also if `len` isn't longer than the range; [`Error::NotMapped`];
    /// [`Error::Mapped`] if something is mapped in the new part; no room in the budget for the
    /// index. Nothing is changed then.
    pub fn grow(&self, range: Range<u64>, len: u64) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        let count = state.count(len)?;
        if count <= pages.count() {
            return Err(Error::BadAddress { address: range.start, len, why: "not longer than it is" });
        }
        let all = state.bytes(Pages { first: pages.first, end: pages.first + count });
        let all_pages = state.pages(&all)?;
        let more = Pages { first: pages.end, end: all_pages.end };
        state.manager().memory.refuse_child()?;
        let _guard = state.lock(all_pages);
        state.check_mapped(pages)?;
        if !state.is_free(more) {
            return Err(Error::Mapped { range: state.bytes(more) });
        }
        let entry = state.index.entry(pages.end - 1);
        let mapped = entry.file().and_then(|number| state.mapped(number));
        if mapped.is_some_and(|mapped| mapped.page_of(more.end) > FILE_END >> state.page_shift) {
            return Err(Error::BadAddress { address: range.start, len, why: "past the end of any file" });
        }
        state.prepare(more)?;
        let entry = match entry.file() {
            Some(number) => {
                state.files.added(number, more.count());
                entry
            }
            None => entry.with_number(state.manager().spaces.numbers.fresh()),
        };
        state.change_entries(more, |_| entry);
        Ok(all)
    }
}
