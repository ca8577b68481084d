//! The contents that the file may have, as far as the test can know.

use crate::steps::Piece;
use crate::stranger::Deed;
use crate::support::first_difference;

/// Contents, each of which the file may have.
#[derive(Clone)]
pub(crate) struct Worlds {
    pub(crate) contents: Vec<Vec<u8>>,
    /// Whether contents that a check doesn't find are removed from the list.
    pub(crate) narrows: bool,
}

impl Worlds {
    /// Applies the pieces of a step to each content, in order. If the step failed, each number of
    /// pieces may have been applied.
    pub(crate) fn follow(&self, pieces: &[Piece], is_done: bool) -> Self {
        self.each(|content| {
            let parts = parts(content, pieces);
            parts.into_iter().skip(if is_done { pieces.len() } else { 0 }).collect()
        })
    }

    /// As `follow`, with the deed before, between or after the pieces.
    pub(crate) fn follow_with(&self, deed: &Deed, pieces: &[Piece], is_done: bool) -> Self {
        self.each(|content| {
            let before = parts(content, pieces).into_iter().enumerate();
            let rest = |(made, content): (usize, Vec<u8>)| {
                let then = deed.results(&content).into_iter().map(move |content| parts(&content, &pieces[made..]));
                then.flat_map(move |parts| parts.into_iter().skip(if is_done { pieces.len() - made } else { 0 }))
            };
            before.flat_map(rest).collect()
        })
    }

    fn each(&self, after: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> Self {
        let mut contents: Vec<_> = self.contents.iter().flat_map(|content| after(content)).collect();
        contents.sort();
        contents.dedup();
        Self { contents, ..*self }
    }

    /// Fails unless `found` equals `part` of one of the contents.
    pub(crate) fn check(&mut self, found: &[u8], what: &str, part: impl Fn(&[u8]) -> &[u8]) {
        let fits = |content: &Vec<u8>| part(content) == found;
        if !self.contents.iter().any(fits) {
            let differences = |content: &Vec<u8>| {
                let part = part(content);
                format!("{} bytes, other at {:?}", part.len(), first_difference(found, part))
            };
            let expected: Vec<_> = self.contents.iter().map(differences).collect();
            panic!("{what}: found {} bytes, expected one of {expected:?}", found.len());
        }
        if self.narrows {
            self.contents.retain(fits);
        }
    }

    /// Fails unless `found` is a mixture of the contents, from `start` on: each byte is that of one
    /// of them (or zero, if `or_zeros`), and the length is between their lengths.
    pub(crate) fn check_mixed(&self, found: &[u8], start: usize, end: usize, or_zeros: bool, what: &str) {
        let lens = || self.contents.iter().map(|content| content.len().clamp(start, end) - start);
        let (least, most) = (lens().min().unwrap(), lens().max().unwrap());
        assert!((least..=most).contains(&found.len()), "{what}: {} bytes, not {least} to {most}", found.len());
        for (at, byte) in found.iter().enumerate() {
            let is_theirs = self.contents.iter().any(|content| content.get(start + at) == Some(byte));
            assert!(is_theirs || (or_zeros && *byte == 0), "{what}: byte {}", start + at);
        }
    }

    pub(crate) fn with(mut self, others: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.contents.extend(others);
        self
    }
}

/// The content with none of the pieces applied, with the first one, with the first two, and so on.
fn parts(content: &[u8], pieces: &[Piece]) -> Vec<Vec<u8>> {
    let mut parts = vec![content.to_vec()];
    for piece in pieces {
        let mut after = parts.last().unwrap().clone();
        piece.make(&mut after);
        parts.push(after);
    }
    parts
}
