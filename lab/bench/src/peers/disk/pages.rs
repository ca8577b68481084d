//! The contents of the file's pages: words that are computed from the page's number and the version
//! written. All versions of a page have the same sum of their words. So a check of all bytes of a
//! page takes tens of nanoseconds. Comparing each word with the expected one would take longer.

use std::fs::File;

use anyhow::{Context, Result, ensure};

use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::direct::{Aligned, LARGE};
use crate::random::mix;

const WORD: usize = size_of::<u64>();
/// An odd number, so that the words of a page differ.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// What all words of a page add up to.
fn sum_of(page: u32) -> u64 {
    mix(!u64::from(page))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Writes version `version` of page `page` into `bytes`.
pub(super) fn fill(page: u32, version: u64, bytes: &mut Page) {
    let (words, _) = bytes.as_chunks_mut::<WORD>();
    let (mut word, mut sum) = (mix(u64::from(page) ^ version << 32), 0_u64);
    for bytes in words.iter_mut() {
        word = word.wrapping_mul(STEP).wrapping_add(1);
        sum = sum.wrapping_add(word);
        *bytes = word.to_le_bytes();
    }
    if let Some(last) = words.last_mut() {
        *last = sum_of(page).wrapping_sub(sum.wrapping_sub(word)).to_le_bytes();
    }
}

/// Fails if `bytes` aren't the pages from `first` on, each of any version.
pub(super) fn check(first: u32, bytes: &[u8]) -> Result<()> {
    for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE)) {
        let sum = words(bytes).fold(0, u64::wrapping_add);
        ensure!(sum == sum_of(page), "page {page} was read as something else");
    }
    Ok(())
}

/// Fails if `bytes` aren't version `version` of `page`, byte for byte.
pub(super) fn check_version(page: u32, version: u64, bytes: &Page) -> Result<()> {
    let mut wanted = [0; PAGE];
    fill(page, version, &mut wanted);
    ensure!(*bytes == wanted, "page {page} has something else after a sync");
    Ok(())
}

/// Writes version 0 of all pages to `file`, which is open for direct I/O.
pub(super) fn write_all(file: &File, pages: u32) -> Result<()> {
    let mut piece = Aligned::<LARGE>::zeroed();
    let pages_in_piece = (LARGE / PAGE) as u32;
    for first in (0..pages).step_by(pages_in_piece as usize) {
        let count = pages_in_piece.min(pages - first);
        let (chunks, _) = piece.0.as_chunks_mut::<PAGE>();
        (first..first + count).zip(chunks).for_each(|(page, bytes)| fill(page, 0, bytes));
        let bytes = &piece.0[..count as usize * PAGE];
        let len = rustix::io::pwrite(file, bytes, offset_of(first)).context("cannot write the file")?;
        ensure!(len == bytes.len(), "{len} of {} bytes were written", bytes.len());
    }
    file.sync_all().context("cannot sync the file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_any_version_is_known_and_a_wrong_bit_is_noticed() {
        for version in [0, 1, u64::MAX] {
            let mut two = [[0; PAGE]; 2];
            fill(7, version, &mut two[0]);
            fill(8, 1, &mut two[1]);
            check(7, two.as_flattened()).unwrap();
            check_version(7, version, &two[0]).unwrap();
            assert!(check(6, two.as_flattened()).is_err());
            for byte in [0, 4095] {
                let mut wrong = two;
                wrong[1][byte] ^= 1;
                assert!(check(7, wrong.as_flattened()).unwrap_err().to_string().contains("page 8"));
                assert!(check_version(8, 1, &wrong[1]).is_err());
            }
        }
        assert!(check(1, &[0; PAGE]).is_err());
    }
}
