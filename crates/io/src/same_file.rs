//! Whether two open files are the same file.

use crate::BackingFile;

/// How often two files must compare as different before they count as different: the fingerprint of
/// one file may change between two calls.
const FINGERPRINTS_MAX: usize = 8;

/// Returns whether both are the same file, as far as the system can tell.
#[must_use]
pub fn is_same_file(one: &dyn BackingFile, other: &dyn BackingFile) -> bool {
    let is_same = || one.fingerprint().is_of_the_same_file_as(&other.fingerprint());
    one.identity() == other.identity() && (0..FINGERPRINTS_MAX).any(|_| is_same())
}
