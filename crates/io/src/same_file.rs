//! Whether two open files are one.

use crate::BackingFile;

/// Looks at two files that differ, before they are taken for two: one file may change between two
/// looks.
const FINGERPRINTS_MAX: usize = 8;

/// Whether both are the same file, as far as can be told.
#[must_use]
pub fn is_same_file(one: &dyn BackingFile, other: &dyn BackingFile) -> bool {
    let is_same = || one.fingerprint().is_of_the_same_file_as(&other.fingerprint());
    one.identity() == other.identity() && (0..FINGERPRINTS_MAX).any(|_| is_same())
}
