#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod accesses;
mod arc;
mod counts;
mod lirs;
mod lists;
mod lru;
mod opt;
mod replacement;
mod s3_fifo;
mod w_tiny_lfu;

use std::convert::Infallible;
use std::fmt;

pub use accesses::{Accesses, TooMany};

use crate::arc::Arc;
use crate::lirs::Lirs;
use crate::lru::Lru;
use crate::replacement::count;
use crate::s3_fifo::S3Fifo;
use crate::w_tiny_lfu::WTinyLfu;

/// A policy: which page leaves when there is no room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The page that was used least recently leaves.
    Lru,
    /// Recent pages and frequent pages, whose shares adapt to the misses (Megiddo and Modha, 2003).
    Arc,
    /// A small queue in front of a large one (Yang et al., 2023).
    S3Fifo,
    /// A small LRU cache in front of a large cache. Once the large cache is full, a page enters it
    /// only in exchange for a page that is used less often (Einziger, Friedman and Manes, 2017).
    WTinyLfu,
    /// Pages are ranked by the number of other pages between their last two accesses (Jiang and
    /// Zhang, 2002).
    Lirs,
    /// Evicts a page that isn't used again or, if there is none, the page whose next use is
    /// farthest in the future (Belady, 1966). No policy that loads every missed page into the cache
    /// has fewer misses.
    Opt,
}

impl Policy {
    /// All policies; [`Opt`](Self::Opt) is the last one.
    pub const ALL: [Self; 6] = [Self::Lru, Self::Arc, Self::S3Fifo, Self::WTinyLfu, Self::Lirs, Self::Opt];

    /// Returns the usual name, as in `S3-FIFO`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::Arc => "ARC",
            Self::S3Fifo => "S3-FIFO",
            Self::WTinyLfu => "W-TinyLFU",
            Self::Lirs => "LIRS",
            Self::Opt => "OPT",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Returns how many of `accesses` miss in a cache with room for `room` pages.
#[must_use]
pub fn misses(policy: Policy, accesses: &Accesses, room: usize) -> u64 {
    match misses_until(policy, accesses, room, |_| Ok::<_, Infallible>(())) {
        Ok(misses) => misses,
        Err(never) => match never {},
    }
}

/// Returns the same as [`misses`]. Calls `progress` from time to time with the number of accesses
/// done so far. If `progress` returns an error, stops and returns this error.
///
/// # Errors
/// That of `progress`.
pub fn misses_until<E>(
    policy: Policy,
    accesses: &Accesses,
    room: usize,
    progress: impl FnMut(usize) -> Result<(), E>,
) -> Result<u64, E> {
    let pages = accesses.pages();
    // With more room than pages, no page ever leaves.
    let room = room.min(pages);
    if room == 0 {
        return Ok(accesses.len() as u64);
    }
    match policy {
        Policy::Lru => count(Lru::new(pages, room), accesses, progress),
        Policy::Arc => count(Arc::new(pages, room), accesses, progress),
        Policy::S3Fifo => count(S3Fifo::new(pages, room), accesses, progress),
        Policy::WTinyLfu => count(WTinyLfu::new(pages, room), accesses, progress),
        // LIRS needs at least one page in the stack and another one in the queue.
        Policy::Lirs if room == 1 => count(Lru::new(pages, room), accesses, progress),
        Policy::Lirs => count(Lirs::new(pages, room), accesses, progress),
        Policy::Opt => opt::misses(accesses, room, progress),
    }
}
