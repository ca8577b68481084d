//! A pinned page, as its user sees it.

use std::ops::Deref;

use frames::PinnedFrame;

/// A page of a file that stays in memory, at the same address and unchanged, while this guard
/// lives.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open("data")?;
/// let page = file.page(1)?;
/// let sum: u64 = page.iter().map(|&byte| u64::from(byte)).sum(); // No copy.
/// assert!(sum > 0 && page.len() == 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PinnedPage<'a> {
    pub(crate) frame: PinnedFrame<'a>,
    pub(crate) len: usize,
}

impl Deref for PinnedPage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.frame.bytes()[..self.len]
    }
}
