//! The initial bytes of a file of the simulated disk.

/// The bytes, or a function that computes them.
pub(crate) enum Contents {
    Given(Vec<u8>),
    Generated { seed: u64, word: fn(u64, u64) -> u64 },
}

impl Contents {
    /// Copies the bytes at `offset`, a multiple of 8, into `part`.
    pub(crate) fn fill(&self, offset: u64, part: &mut [u8]) {
        match self {
            Self::Given(given) => {
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(given) = given.get(at..).and_then(|rest| rest.get(..part.len())) {
                    part.copy_from_slice(given);
                }
            }
            Self::Generated { seed, word } => {
                for (at, part) in (offset..).step_by(8).zip(part.chunks_mut(8)) {
                    part.copy_from_slice(&word(*seed, at).to_ne_bytes()[..part.len()]);
                }
            }
        }
    }
}
