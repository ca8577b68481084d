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
                let mut words = (offset..).step_by(8).map(|at| word(*seed, at).to_ne_bytes());
                let (whole, rest) = part.as_chunks_mut();
                whole.iter_mut().zip(&mut words).for_each(|(part, word)| *part = word);
                rest.iter_mut().zip(words.next().into_iter().flatten()).for_each(|(byte, of_word)| *byte = of_word);
            }
        }
    }
}
