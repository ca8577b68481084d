//! Which accesses to memory are permitted.

/// Which accesses to a range of a space are permitted.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let space = group.space()?;
/// use pagefold::Protection;
///
/// let area = space.map(1 << 20, Protection::ReadWrite)?;
/// space.protect(area.clone(), Protection::Read)?;
/// assert!(space.write_at(b"no", area.start).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// No access: the addresses are only reserved.
    None,
    /// Reads.
    Read,
    /// Reads and writes.
    ReadWrite,
}
