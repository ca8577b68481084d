//! A page that one thread changes in place, as its user sees it.

use std::fmt;
use std::ops::{Deref, DerefMut};

use frames::Writing;
use sync::Arc;

use crate::file::handle::Handle;
use crate::space::Mapped;

/// Whose page it is.
pub(crate) enum Owner<'a> {
    File(&'a Handle),
    /// A file that is mapped in a space; this is what keeps it open.
    Mapping(Arc<Mapped>),
    /// A space's own. Nobody counts how many of these were written to.
    Space,
}

/// A page that nobody else writes to or pins while this lives. Changes are made to a copy, since readers without
/// a lock may be copying from the page itself, and become the page's all at once when this is dropped: also if that
/// is because of a panic.
///
/// Others can read the page meanwhile, as it was. Pinning it, or writing to it, waits; so don't do that in the thread that
/// has this.
pub struct PageMut<'a> {
    writing: Writing<'a>,
    bytes: Box<[u8]>,
    changed: bool,
    /// Goes last: the page has to be let go of first.
    owner: Owner<'a>,
}

impl<'a> PageMut<'a> {
    /// The first `len` bytes of the page.
    pub(crate) fn new(owner: Owner<'a>, writing: Writing<'a>, len: usize) -> Self {
        let mut bytes = vec![0; len].into_boxed_slice();
        writing.copy_to(0, &mut bytes);
        Self { writing, bytes, changed: false, owner }
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for PageMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.changed = true;
        &mut self.bytes
    }
}

impl Drop for PageMut<'_> {
    fn drop(&mut self) {
        if !self.changed || !self.writing.write(0, &self.bytes) {
            return;
        }
        let file = match &self.owner {
            Owner::File(handle) => &handle.file,
            Owner::Mapping(mapped) => mapped.file(),
            Owner::Space => return,
        };
        file.count(true, &self.writing);
    }
}

impl fmt::Debug for PageMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMut")
            .field("len", &self.bytes.len())
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}
