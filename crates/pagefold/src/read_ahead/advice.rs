//! Advice from users about future accesses.

/// What the user knows about future accesses.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open("data")?;
/// use pagefold::Advice;
///
/// file.advise(0..file.len(), Advice::Sequential)?; // Larger windows of readahead, for this handle.
/// file.advise(0..40_960, Advice::WillNeed)?; // In memory when this returns,
/// assert!(group.charged() >= 40_960);
/// file.advise(0..40_960, Advice::DontNeed)?; // and out of it.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// No advice.
    #[default]
    Normal,
    /// Accesses come in no order: nothing is read ahead.
    Random,
    /// The file is read from front to back, and won't be read again soon. Pages that this handle
    /// loads are treated as if they had never been in memory before. Applies to the whole handle.
    Sequential,
    /// The range will be needed soon: it is loaded before the call returns, beginning at its front.
    /// Loading uses free memory, and memory of pages that aren't in use. It evicts no page in use.
    /// At most as many pages are loaded as the group's limit can hold.
    WillNeed,
    /// The range won't be needed soon: pages that lie wholly within it leave memory, except pages
    /// that are pinned, or not yet written to their file.
    DontNeed,
    /// The range is used less than other memory: its pages are evicted before others.
    Cold,
    /// The range won't be needed for a long time: its dirty pages are written to the file, and then
    /// all its pages leave memory, except pinned pages.
    PageOut,
}
