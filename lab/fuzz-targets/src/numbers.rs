//! Numbers and ranges. Most of them are such that sums and roundings of them may overflow.

use std::ops::Range;

use arbitrary::{Result, Unstructured};

const PAGE: u64 = 4096;
const HOSTILE: [u64; 16] = [
    0,
    1,
    PAGE - 1,
    PAGE,
    PAGE + 1,
    1 << 21,
    1 << 30,
    (1 << 47) - PAGE,
    1 << 47,
    (1 << 47) + 1,
    1 << 63,
    u64::MAX - 2 * PAGE + 1,
    u64::MAX - PAGE,
    u64::MAX - PAGE + 1,
    u64::MAX - 1,
    u64::MAX,
];

/// One of: a number near `base`; the start of a page near `base`; a hostile number; any number.
pub(crate) fn number(bytes: &mut Unstructured<'_>, base: u64) -> Result<u64> {
    Ok(match bytes.int_in_range(0..=3_u8)? {
        0 => base.wrapping_add(u64::from(bytes.arbitrary::<u16>()?)),
        1 => base.wrapping_add(u64::from(bytes.arbitrary::<u8>()? % 32) * PAGE),
        2 => *bytes.choose(&HOSTILE)?,
        _ => bytes.arbitrary()?,
    })
}

/// A range: `start + n`, or between two numbers. It may be empty, and may end before it starts.
pub(crate) fn range(bytes: &mut Unstructured<'_>, base: u64) -> Result<Range<u64>> {
    let start = number(bytes, base)?;
    Ok(start..if bytes.ratio(1, 2)? { start.wrapping_add(number(bytes, 0)?) } else { number(bytes, base)? })
}
