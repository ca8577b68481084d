//! The pattern of a group's accesses.

use std::fmt;

/// How pages of a group are used, as far as loads tell.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// use pagefold::AccessPattern;
///
/// let stats = group.stats();
/// match stats.pattern {
///     AccessPattern::Fits => println!("{} has all the memory that it needs", stats.name),
///     pattern => println!("{}: {pattern}; 10 % more memory saves {:.0} % of its loads", stats.name, 100.0 * stats.more_memory_saves),
/// }
/// # assert_eq!(stats.pattern, AccessPattern::Fits);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum AccessPattern {
    /// Nothing had to be reclaimed lately: the pages fit.
    #[default]
    Fits,
    /// Few pages are used again.
    Scan,
    /// Pages are used again after intervals of about equal length, which are longer than a page can
    /// stay in memory. For example, the program loops over more pages than fit into memory.
    Loop,
    /// Most of the pages that are used again were used lately.
    Recency,
    /// Some pages are used more often than others, for long.
    Skew,
}

impl fmt::Display for AccessPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fits => "fits",
            Self::Scan => "scan",
            Self::Loop => "loop",
            Self::Recency => "recency",
            Self::Skew => "skew",
        })
    }
}
