//! A page that one thread changes in place, as its user sees it.

use std::fmt;
use std::ops::{Deref, DerefMut};

use frames::Writing;
use sync::Arc;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::group::state::GroupState;
use crate::manager::Manager;

/// A mapping of a file, which keeps the file open.
pub(crate) trait Mapped: Send + Sync {
    fn handle(&self) -> &Handle;
}

/// The owner of the page.
pub(crate) enum Owner<'a> {
    File(&'a Handle),
    /// A file that is mapped in a space. The handle keeps the file open.
    Mapping(Arc<dyn Mapped>),
    /// A space's own memory. Writes to it aren't counted.
    Space,
}

/// The charge for the copy: a page of the group, and its bytes of the budget.
pub(crate) struct CopyCharge<'a> {
    manager: &'a Manager,
    group: &'a GroupState,
}

impl<'a> CopyCharge<'a> {
    /// Charges a copy. Reclaims as for a page, so the caller must hold no page.
    ///
    /// # Errors
    /// The errors of [`Manager::take_frame`]; [`Error::BudgetBusy`].
    pub(crate) fn new(manager: &'a Manager, group: &'a GroupState) -> Result<Self, Error> {
        manager.charge_pages(group, 1)?;
        let bytes = manager.frames.page_size() as u64;
        manager.charge_metadata(bytes).inspect_err(|_| manager.uncharge_pages(group, 1))?;
        Ok(Self { manager, group })
    }
}

impl Drop for CopyCharge<'_> {
    fn drop(&mut self) {
        if !self.manager.frames.forked() {
            self.manager.frames.budget().uncharge(self.manager.frames.page_size() as u64);
            self.manager.uncharge_pages(self.group, 1);
        }
    }
}

/// Exclusive access to a page, for changing its bytes. While this exists, no other thread writes to
/// the page or pins it. The user changes a copy, because readers without a lock may be copying from
/// the page itself. When this is dropped, even by a panic, all changes become visible in the page
/// at once.
///
/// Until then, other threads that read the page get its old bytes, and threads that want to pin the
/// page or write to it wait. The thread that holds the `PageMut` must neither pin the page nor
/// write to it in another way: it would wait for itself, until the call fails with
/// [`Error::PageBusy`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open_options().write(true).open("data")?;
/// let mut page = file.page_mut(1)?;
/// page[..5].copy_from_slice(b"hello");
/// page[4000..].fill(0);
/// drop(page); // Both changes become visible here, at once.
/// let mut buf = [0; 5];
/// file.read_exact_at(&mut buf, 4096)?;
/// assert_eq!(&buf, b"hello");
/// # Ok(())
/// # }
/// ```
pub struct PageMut<'a> {
    writing: Writing<'a>,
    bytes: Box<[u8]>,
    changed: bool,
    _charge: CopyCharge<'a>,
    /// Declared last, so that it is dropped after the page was released.
    owner: Owner<'a>,
}

impl<'a> PageMut<'a> {
    /// Creates the copy of the page's first `len` bytes.
    pub(crate) fn new(owner: Owner<'a>, charge: CopyCharge<'a>, writing: Writing<'a>, len: usize) -> Self {
        let mut bytes = vec![0; len].into_boxed_slice();
        writing.copy_to(0, &mut bytes);
        Self { writing, bytes, changed: false, _charge: charge, owner }
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
        if !self.changed || self.writing.forked() || !self.writing.write(0, &self.bytes) {
            return;
        }
        let handle = match &self.owner {
            Owner::File(handle) => handle,
            Owner::Mapping(mapped) => mapped.handle(),
            Owner::Space => return,
        };
        handle.count(true, &self.writing);
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
