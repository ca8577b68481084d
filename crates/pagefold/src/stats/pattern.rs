//! The pattern of a group's accesses.

use std::fmt;

/// How pages of a group are used, as far as loads tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum AccessPattern {
    /// Nothing had to be reclaimed lately: the pages fit.
    #[default]
    Fits,
    /// Few pages come back.
    Scan,
    /// Pages come back after intervals of about equal length, which are longer than a page can stay
    /// in memory: as in a loop over more pages than there is memory for.
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
