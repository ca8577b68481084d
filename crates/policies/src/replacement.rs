//! What the policies that don't know the future have in common.

use crate::accesses::Accesses;

/// `progress` is called each time after this many accesses.
pub(crate) const STEP: usize = 1 << 16;

/// A cache that a policy manages.
pub(crate) trait Replacement {
    /// Uses a page, which is in the cache afterwards. Returns whether it was there before.
    fn hits(&mut self, page: u32) -> bool;
}

/// Returns how many accesses miss.
pub(crate) fn count<E>(
    mut cache: impl Replacement,
    accesses: &Accesses,
    mut progress: impl FnMut(usize) -> Result<(), E>,
) -> Result<u64, E> {
    let (mut misses, mut done) = (0, 0);
    for step in accesses.order().chunks(STEP) {
        misses += step.iter().filter(|&&page| !cache.hits(page)).count() as u64;
        done += step.len();
        progress(done)?;
    }
    Ok(misses)
}
