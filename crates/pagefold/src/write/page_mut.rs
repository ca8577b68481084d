//! The guard [`PageMut`], through which a thread changes a page.

use std::fmt;
use std::ops::{Deref, DerefMut};

use frames::{KeptWriting, Writing};
use sync::Arc;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::page_ref::Keeper;
use crate::file::state::FileState;
use crate::manager::group_handle::GroupHandle;

/// A mapping of a file, which keeps the file open.
pub(crate) trait Mapped: Send + Sync {
    fn handle(&self) -> &Handle;
}

/// A reference that is borrowed or counted.
pub(crate) enum MaybeOwned<'a, T> {
    Borrowed(&'a T),
    Owned(Arc<T>),
}

impl<T> Deref for MaybeOwned<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(it) => it,
            Self::Owned(it) => it,
        }
    }
}

/// The owner of the page.
pub(crate) enum Owner<'a> {
    File(MaybeOwned<'a, Handle>),
    /// A file that is mapped in a space. The handle keeps the file open.
    Mapping(Arc<dyn Mapped>),
    /// A space's own memory. Changed pages aren't counted as dirty. An owned guard keeps the space
    /// open.
    Space {
        _keeper: Option<Arc<dyn Keeper>>,
    },
}

impl Owner<'_> {
    /// Returns the file that the page belongs to, if there is one.
    fn file(&self) -> Option<&FileState> {
        match self {
            Self::File(handle) => Some(&handle.file),
            Self::Mapping(mapped) => Some(&mapped.handle().file),
            Self::Space { .. } => None,
        }
    }
}

/// The access to the page.
pub(crate) enum PageAccess<'a> {
    Borrowed(Writing<'a>),
    Owned(KeptWriting),
}

impl PageAccess<'_> {
    fn with<R>(&mut self, f: impl FnOnce(&mut Writing<'_>) -> R) -> R {
        match self {
            Self::Borrowed(writing) => f(writing),
            Self::Owned(kept) => kept.with(f),
        }
    }
}

/// The charge for the copy: a page of the group, and its bytes of the budget.
pub(crate) struct CopyCharge<'a> {
    group: MaybeOwned<'a, GroupHandle>,
}

impl<'a> CopyCharge<'a> {
    /// Charges a copy. Reclaims as for a page, so the caller must hold no page.
    ///
    /// # Errors
    /// The errors of [`Manager::take_frame`]; [`Error::BudgetBusy`].
    pub(crate) fn new(group: MaybeOwned<'a, GroupHandle>) -> Result<Self, Error> {
        let manager = &group.manager;
        manager.charge_pages(&group.state, 1)?;
        let bytes = manager.memory.frames.page_size() as u64;
        manager.charge_metadata(bytes).inspect_err(|_| manager.memory.uncharge_pages(&group.state, 1))?;
        Ok(Self { group })
    }

    /// Charges a copy like [`new`](Self::new), but only if that needs no reclaim.
    pub(crate) fn try_new(group: MaybeOwned<'a, GroupHandle>) -> Option<Self> {
        let manager = &group.manager;
        if !manager.memory.try_charge_pages(&group.state, 1) {
            return None;
        }
        if !manager.memory.frames.budget().try_charge(manager.memory.frames.page_size() as u64) {
            manager.memory.uncharge_pages(&group.state, 1);
            return None;
        }
        Some(Self { group })
    }
}

impl Drop for CopyCharge<'_> {
    fn drop(&mut self) {
        let manager = &self.group.manager;
        if !manager.memory.frames.forked() {
            manager.memory.frames.budget().uncharge(manager.memory.frames.page_size() as u64);
            manager.memory.uncharge_pages(&self.group.state, 1);
        }
    }
}

/// Exclusive access to a page, for changing its bytes. While the guard exists, no other thread
/// writes to the page or pins it. The user changes a copy, because readers without a lock may be
/// copying from the page itself. When the guard is dropped, even by a panic, all changes become
/// visible in the page at once.
///
/// Until then, other threads that read the page get its old bytes, and threads that want to pin the
/// page or write to it wait. The thread that holds the `PageMut` must neither pin the page nor
/// write to it in another way: it would wait for itself, until the call fails with
/// [`Error::PageBusy`].
///
/// A guard that `page_mut_at` returns borrows its file or space. A guard that `page_mut_at_owned`
/// returns keeps its file or space open, and can be stored anywhere.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open_options().write(true).open("data")?;
/// let mut page = file.page_mut_at(4096)?;
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
    access: PageAccess<'a>,
    bytes: Box<[u8]>,
    changed: bool,
    _charge: CopyCharge<'a>,
    /// Declared last, so that it is dropped after the page was released.
    owner: Owner<'a>,
}

impl<'a> PageMut<'a> {
    /// Creates the copy of the page's first `len` bytes.
    pub(crate) fn new(owner: Owner<'a>, charge: CopyCharge<'a>, mut access: PageAccess<'a>, len: usize) -> Self {
        let mut bytes = vec![0; len].into_boxed_slice();
        owner.file().into_iter().for_each(FileState::guard_begins);
        access.with(|writing| writing.copy_to(0, &mut bytes));
        Self { access, bytes, changed: false, _charge: charge, owner }
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
        let (bytes, owner) = (&self.bytes, &self.owner);
        owner.file().into_iter().for_each(FileState::guard_ends);
        if !self.changed {
            return;
        }
        self.access.with(|writing| {
            if writing.forked() || !writing.write(0, bytes) {
                return;
            }
            match owner {
                Owner::File(handle) => handle.count(true, writing),
                Owner::Mapping(mapped) => mapped.handle().count(true, writing),
                Owner::Space { .. } => {}
            }
        });
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
