//! What is compared, and the loop in which it is used.
//!
//! A subject implements [`Pages`]: it copies some bytes out of a page. The loop over many accesses
//! is compiled once for each subject and size, so that the read can be inlined into it. Only the
//! call of the whole loop is dynamic ([`Subject`]).

use std::hint::black_box;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::peers::contents::{Contents, PAGE};

/// Something that hands out bytes of pages.
pub(crate) trait Pages: Send + Sync {
    /// Copies `into.len()` bytes of `page`, from `offset` on. The caller must stay within the page
    /// and the file.
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()>;

    /// Reads since the beginning that found their page absent.
    fn misses(&self) -> Misses {
        Misses::default()
    }
}

/// Misses by file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misses {
    /// Of the file that every experiment has.
    pub(crate) main: u64,
    /// Of the second file, if there is one.
    pub(crate) scanned: u64,
}

/// What is read of a page in one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// The first 8 bytes, as of a header: one cache line of each page; these lines share few cache
    /// sets
    #[value(name = "first-8")]
    First8,
    /// 8 bytes at an aligned place that varies
    #[value(name = "8")]
    Read8,
    /// 8 bytes at a place that varies; which page depends on the bytes read before, so reads can't
    /// overlap
    #[value(name = "chained-8")]
    Chained8,
    /// 100 bytes at a multiple of 8 that varies
    #[value(name = "100")]
    Read100,
    /// The whole page
    #[value(name = "4096")]
    Read4096,
}

impl Operation {
    /// As it stands in the tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::First8 => "first 8 B",
            Self::Read8 => "8 B",
            Self::Chained8 => "8 B chained",
            Self::Read100 => "100 B",
            Self::Read4096 => "4 KiB",
        }
    }
}

/// [`Pages`] behind a pointer: whole sequences at a time.
pub(crate) trait Subject: Send + Sync {
    /// Makes one read for each of `accesses`. Returns a checksum, so that the compiler can't omit
    /// reads.
    fn run(&self, operation: Operation, accesses: &[u32]) -> Result<u64>;

    /// One read, for checks.
    fn read_once(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()>;

    /// See [`Pages::misses`].
    fn misses(&self) -> Misses;
}

impl<P: Pages> Subject for P {
    fn run(&self, operation: Operation, accesses: &[u32]) -> Result<u64> {
        match operation {
            Operation::First8 => read_all::<P, 8, FIRST>(self, accesses),
            Operation::Read8 => read_all::<P, 8, ANYWHERE>(self, accesses),
            Operation::Chained8 => read_all::<P, 8, CHAINED>(self, accesses),
            Operation::Read100 => read_all::<P, 100, ANYWHERE>(self, accesses),
            Operation::Read4096 => read_all::<P, PAGE, ANYWHERE>(self, accesses),
        }
    }

    fn read_once(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        self.read(page, offset, into)
    }

    fn misses(&self) -> Misses {
        Pages::misses(self)
    }
}

/// How a loop chooses places: at the start of the page.
const FIRST: u8 = 0;
/// Anywhere in the page. Accesses are independent, so the processor can overlap them.
const ANYWHERE: u8 = 1;
/// Anywhere in the page. The page depends on the bytes read before, as in a walk down a tree.
const CHAINED: u8 = 2;

/// The loop that is timed. The place in the page depends only on the number of the access, so it is
/// the same for all subjects.
#[inline(never)]
fn read_all<P: Pages, const N: usize, const WHERE: u8>(pages: &P, accesses: &[u32]) -> Result<u64> {
    let mut sum = 0_u64;
    let mut bytes = [0_u8; N];
    // Zero, but the compiler can't know.
    let nothing = black_box(0_u32);
    for (number, &page) in accesses.iter().enumerate() {
        let page = if WHERE == CHAINED { page ^ (sum as u32 & nothing) } else { page };
        let offset = if WHERE == FIRST { 0 } else { place::<N>(number) };
        pages.read(page, offset, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        sum = sum.wrapping_add(u64::from_le_bytes(words[0]));
        if N > 8 {
            // The rest of the bytes has to be written, too.
            black_box(&mut bytes);
        }
    }
    Ok(black_box(sum))
}

/// A multiple of 8 at which `N` bytes fit into a page. It looks random from one `number` to the
/// next.
#[inline(always)]
pub(crate) fn place<const N: usize>(number: usize) -> usize {
    let places = (PAGE - N) / 8 + 1;
    let scattered = (number as u32).wrapping_mul(0x9E37_79B9) >> 16;
    (((scattered as usize) * places) >> 16) * 8
}

/// Compares the bytes that `subject` returns with the file's contents, for each page of `sample`
/// and each size.
pub(crate) fn verify(subject: &dyn Subject, name: &str, contents: Contents, sample: &[u32]) -> Result<()> {
    for (number, &page) in sample.iter().enumerate() {
        let expected = contents.page(page);
        for (offset, len) in [(place::<8>(number), 8), (place::<100>(number), 100), (0, PAGE)] {
            let mut bytes = vec![0; len];
            subject.read_once(page, offset, &mut bytes)?;
            ensure!(bytes == expected[offset..offset + len], "{name} hands out wrong bytes of page {page}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_places<const N: usize>(distinct: usize) {
        let mut places: Vec<usize> = (0..20_000).map(place::<N>).collect();
        assert!(places.iter().all(|&place| place.is_multiple_of(8) && place + N <= PAGE));
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), distinct);
    }

    #[test]
    fn places_are_all_those_that_fit() {
        check_places::<8>(512);
        check_places::<100>(500);
        check_places::<PAGE>(1);
    }
}
