//! Sizes in bytes, and their parsing and printing.

use std::fmt;
use std::str::FromStr;

/// The overhead of an allocation, and of an entry on a list, in bytes.
pub(crate) const ALLOCATION: u64 = 16;

/// A number of bytes. Parses `4096`, `64k`, `128MiB`, `1.5 GiB`. Prints the largest unit that fits.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pagefold::Size;
///
/// let size: Size = "1.5 GiB".parse()?;
/// assert_eq!(size.0, 3 << 29);
/// assert_eq!(Size(64 << 20).to_string(), "64 MiB");
/// assert!("64 MiBs".parse::<Size>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// The error for a text that isn't a [`Size`], or a number below zero.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let error = "12 parsecs".parse::<pagefold::Size>().unwrap_err();
/// assert!(error.to_string().starts_with("`12 parsecs` isn't a size"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` isn't a size: write a number of bytes, or one with a unit (B, KiB, MiB, GiB, TiB; K, M, G, T mean the \
     same), such as 128MiB"
)]
pub struct SizeError {
    text: String,
}

/// The units: the first letter, and the exponent of the power of two. A unit is written as the
/// letter alone, or as the letter followed by `B` or `iB`.
const UNITS: [(char, u32); 5] = [('k', 10), ('m', 20), ('g', 30), ('t', 40), ('p', 50)];

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        parse(text).map(Self).ok_or_else(|| SizeError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim().replace('_', "");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = unit_shift(&unit.trim().to_ascii_lowercase())?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    // A fraction. Exact for sizes of up to 53 significant bits.
    let bytes = number.parse::<f64>().ok()? * (1_u64 << shift) as f64;
    (bytes < 2_f64.powi(63)).then_some(bytes as u64)
}

fn unit_shift(unit: &str) -> Option<u32> {
    if unit.is_empty() || unit == "b" || unit == "bytes" {
        return Some(0);
    }
    let mut chars = unit.chars();
    let first = chars.next()?;
    matches!(chars.as_str(), "" | "b" | "ib").then_some(())?;
    UNITS.iter().find(|(letter, _)| *letter == first).map(|&(_, shift)| shift)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        let fitting = UNITS.iter().zip(names).rev().find(|((_, shift), _)| self.0 >> shift > 0);
        let text = match fitting {
            None => format!("{} B", self.0),
            Some(((_, shift), name)) if self.0.trailing_zeros() >= *shift => format!("{} {name}", self.0 >> shift),
            Some(((_, shift), name)) => format!("{:.1} {name}", self.0 as f64 / (1_u64 << shift) as f64),
        };
        f.pad(&text)
    }
}

/// Types that convert to a number of bytes. Texts are parsed when the size is used.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pagefold::{IntoSize, Size};
///
/// assert_eq!("1.5GiB".into_size()?, Size(3 << 29));
/// assert_eq!(4096.into_size()?, Size(4096));
/// assert!("a lot".into_size().is_err());
/// # Ok(())
/// # }
/// ```
pub trait IntoSize {
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// If a text isn't a size.
    fn into_size(self) -> Result<Size, SizeError>;
}

impl IntoSize for Size {
    fn into_size(self) -> Result<Size, SizeError> {
        Ok(self)
    }
}

impl IntoSize for u64 {
    fn into_size(self) -> Result<Size, SizeError> {
        Ok(Size(self))
    }
}

impl IntoSize for usize {
    fn into_size(self) -> Result<Size, SizeError> {
        Ok(Size(self as u64))
    }
}

impl IntoSize for i32 {
    fn into_size(self) -> Result<Size, SizeError> {
        u64::try_from(self).map(Size).map_err(|_| SizeError { text: self.to_string() })
    }
}

impl IntoSize for &str {
    fn into_size(self) -> Result<Size, SizeError> {
        self.parse()
    }
}

impl IntoSize for String {
    fn into_size(self) -> Result<Size, SizeError> {
        self.parse()
    }
}

impl IntoSize for &String {
    fn into_size(self) -> Result<Size, SizeError> {
        self.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("128MiB", 128 << 20),
            ("128 mb", 128 << 20),
            ("1.5GiB", 3 << 29),
            ("2T", 2 << 40),
            ("1_000", 1000),
            ("12 bytes", 12),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in [
            "",
            "MiB",
            "12 parsecs",
            "-1",
            "1e9",
            "1.2.3",
            "99999999999999999999",
            "20000P",
            "1 K i B",
            "nan",
            "9e9999PiB",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_in_the_largest_unit() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3 << 19, "1.5 MiB"), (1 << 40, "1 TiB")] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
