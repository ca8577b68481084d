//! A page that is held for reading, as its user sees it.

use std::fmt;
use std::ops::Deref;

use frames::{Frames, KeptPin, PinnedFrame};
use sync::Arc;

/// A page of a file or of a space. Its bytes stay in memory, at the same address and unchanged,
/// while this guard lives.
///
/// The guard dereferences to the page's bytes, from the page's first byte on. A guard that
/// `page_at` returns borrows its file or space. One that `page_at_owned` returns keeps its file or
/// space open, and can be stored anywhere:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::{PageRef, Pagefold};
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open("data")?;
/// let page = file.page_at(4096)?;
/// let sum: u64 = page.iter().map(|&byte| u64::from(byte)).sum(); // No copy.
/// assert!(sum > 0 && page.len() == 4096);
///
/// struct Cursor {
///     leaf: PageRef<'static>,
///     at: usize,
/// }
/// let cursor = Cursor { leaf: file.page_at_owned(8192)?, at: 7 };
/// drop(page);
/// drop(file);
/// assert_eq!(cursor.leaf[cursor.at], ((8192 + 7) % 251) as u8);
/// # Ok(())
/// # }
/// ```
pub struct PageRef<'a> {
    held: Held<'a>,
}

enum Held<'a> {
    /// A pinned frame, and how many of its bytes belong to the page. This is the most frequent
    /// case. It has a variant of its own, so a pin of a page in memory takes few instructions.
    Pinned(PinnedFrame<'a>, usize),
    Other(Box<dyn Other + 'a>),
}

/// A page that is held in another way.
trait Other: Send + Sync {
    fn bytes(&self) -> &[u8];

    /// Makes the page independent of what it borrows. A pinned page then keeps `frames` alive;
    /// other pages already own what they need.
    fn own(self: Box<Self>, frames: &Arc<Frames>) -> Box<dyn Other>;
}

/// Keeps a file or a space open.
pub(crate) trait Keeper: Send + Sync {}

impl<T: Send + Sync> Keeper for T {}

/// A pinned page of a mapped file. The keeper keeps the file open, because the mapping may be
/// removed while the page is pinned. The keeper is dropped after the pin.
struct OfMapping<'a>(PinnedFrame<'a>, usize, Arc<dyn Keeper>);

impl Other for OfMapping<'_> {
    fn bytes(&self) -> &[u8] {
        &self.0.bytes()[..self.1]
    }

    fn own(self: Box<Self>, frames: &Arc<Frames>) -> Box<dyn Other> {
        Box::new(Owned { pin: KeptPin::of(frames, self.0), len: self.1, _keeper: self.2 })
    }
}

/// A page whose pin isn't bound to a borrow. The keeper is dropped after the pin.
struct Owned {
    pin: KeptPin,
    len: usize,
    _keeper: Arc<dyn Keeper>,
}

impl Other for Owned {
    fn bytes(&self) -> &[u8] {
        &self.pin.bytes()[..self.len]
    }

    fn own(self: Box<Self>, _: &Arc<Frames>) -> Box<dyn Other> {
        self
    }
}

/// A page of a space that was never written.
struct Zeros(Arc<[u8]>);

impl Other for Zeros {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn own(self: Box<Self>, _: &Arc<Frames>) -> Box<dyn Other> {
        self
    }
}

impl<'a> PageRef<'a> {
    /// A page that has the first `len` bytes of its frame.
    #[inline(always)]
    pub(crate) fn pinned(frame: PinnedFrame<'a>, len: usize) -> Self {
        Self { held: Held::Pinned(frame, len) }
    }

    /// A page of a mapped file, like [`pinned`](Self::pinned). `mapping` keeps the file open.
    pub(crate) fn of_mapping(frame: PinnedFrame<'a>, len: usize, mapping: Arc<dyn Keeper>) -> Self {
        Self { held: Held::Other(Box::new(OfMapping(frame, len, mapping))) }
    }

    pub(crate) fn zeros(zeros: &Arc<[u8]>) -> Self {
        Self { held: Held::Other(Box::new(Zeros(Arc::clone(zeros)))) }
    }

    /// Makes the guard independent of its borrow. `keeper` keeps the page's file or space open,
    /// unless this guard does so already.
    pub(crate) fn into_owned(self, frames: &Arc<Frames>, keeper: Arc<dyn Keeper>) -> PageRef<'static> {
        let owned = match self.held {
            Held::Pinned(frame, len) => Box::new(Owned { pin: KeptPin::of(frames, frame), len, _keeper: keeper }),
            Held::Other(other) => other.own(frames),
        };
        PageRef { held: Held::Other(owned) }
    }
}

impl Deref for PageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.held {
            Held::Pinned(frame, len) => &frame.bytes()[..*len],
            Held::Other(other) => other.bytes(),
        }
    }
}

impl fmt::Debug for PageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageRef").field("len", &self.len()).finish_non_exhaustive()
    }
}
