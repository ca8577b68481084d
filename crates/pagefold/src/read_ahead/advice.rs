//! What users know of accesses to come.

/// What the user knows about the accesses to come.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
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
    /// Nothing.
    #[default]
    Normal,
    /// In no order.
    Random,
    /// From the front to the back, and not again soon: pages loaded by this handle start without
    /// the credit that they may have from earlier stays. Holds for the whole handle.
    Sequential,
    /// The range will be needed soon: it is loaded now, before the call returns. From its front on,
    /// as far as there is memory that isn't used, or whose pages aren't: no more than the group's
    /// limit can hold, and pages in use stay.
    WillNeed,
    /// The range won't be needed soon: pages that lie in it as a whole leave memory, unless they
    /// are pinned or their file doesn't have them yet.
    DontNeed,
    /// The range is used less than other memory: its pages are evicted before others.
    Cold,
    /// The range won't be needed for long: what differs from the file is written to it, and then
    /// all its pages leave memory, unless they are pinned.
    PageOut,
}
