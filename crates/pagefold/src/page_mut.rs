//! A page that one thread changes in place, as its user sees it.

use std::fmt;
use std::ops::{Deref, DerefMut};

use frames::Writing;

use crate::file::Handle;

/// A page of a file that nobody else writes to or pins while this lives. Changes are made to a copy, since readers without
/// a lock may be copying from the page itself, and become the page's all at once when this is dropped: also if that
/// is because of a panic.
///
/// Others can read the page meanwhile, as it was. Pinning it, or writing to it, waits; so don't do that in the thread that
/// has this.
pub struct PageMut<'a> {
    handle: &'a Handle,
    writing: Writing<'a>,
    bytes: Box<[u8]>,
    changed: bool,
}

impl<'a> PageMut<'a> {
    /// The first `len` bytes of the page.
    pub(crate) fn new(handle: &'a Handle, writing: Writing<'a>, len: usize) -> Self {
        let mut bytes = vec![0; len].into_boxed_slice();
        writing.copy_to(0, &mut bytes);
        Self { handle, writing, bytes, changed: false }
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
        if self.changed && self.writing.write(0, &self.bytes) {
            self.handle.file.manager.became_unclean(&self.handle.file, self.writing.group());
        }
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
