//! Which lines fit into the caches: each core's larger cache, and the cache that a socket's cores
//! share.
//!
//! A line that a core accesses enters the core's cache. If that cache evicts a line that no other
//! core has, the line goes to the socket's cache, and from there to memory. Each cache has sets of
//! [`WAYS`] lines, and a set evicts its least recently used line. The set of a line follows from
//! the line's name, so figures don't depend on addresses.
//!
//! These caches don't record which core may write a line; the directory does. An entry is stale if
//! another core has taken the line away. Unlike an invalid line in a real cache, a stale entry
//! takes up room until it is evicted. So a cache of contended lines has a little less room than a
//! real one.
//!
//! Shared bytes that move as blocks are in caches of their own, in [`blocks`](crate::blocks).

use crate::directory::LineId;
use crate::host;
use crate::shape::Shape;
use crate::ticks::Times;

/// Lines in a set, as in most caches of this size.
const WAYS: usize = 8;

/// One cache. An entry is a line's name plus one; 0 means empty. The first entry of a set is the
/// most recently used line.
#[derive(Debug)]
struct LineCache {
    sets: Vec<[u32; WAYS]>,
    last: LineId,
}

impl LineCache {
    fn new(bytes: u64) -> Self {
        let lines = usize::try_from(bytes / 64).unwrap_or(usize::MAX);
        Self { sets: vec![[0; WAYS]; (lines / WAYS).clamp(1, 1 << 24)], last: LineId::MAX }
    }

    fn number(&self, line: LineId) -> usize {
        let mixed = u64::from(line.wrapping_mul(0x9e37_79b9));
        ((mixed * self.sets.len() as u64) >> 32) as usize
    }

    fn set(&mut self, line: LineId) -> &mut [u32; WAYS] {
        let number = self.number(line);
        &mut self.sets[number]
    }

    /// Records a use of the line. Returns the line that is evicted for it.
    #[inline]
    fn enter(&mut self, line: LineId) -> Option<LineId> {
        if self.last == line {
            return None;
        }
        self.last = line;
        let set = self.set(line);
        let at = set.iter().position(|&entry| entry == line + 1);
        set[..=at.unwrap_or(WAYS - 1)].rotate_right(1);
        let out = std::mem::replace(&mut set[0], line + 1);
        if at.is_none() { out.checked_sub(1) } else { None }
    }

    fn has(&mut self, line: LineId) -> bool {
        self.set(line).contains(&(line + 1))
    }
}

/// The caches of all cores and sockets.
#[derive(Debug)]
pub(crate) struct LineCaches {
    cores: Vec<LineCache>,
    sockets: Vec<LineCache>,
}

impl LineCaches {
    pub(crate) fn new(shape: &Shape, times: &Times) -> Self {
        let caches = |count: usize, bytes: u64| (0..count).map(|_| LineCache::new(bytes)).collect();
        Self { cores: caches(shape.cores(), times.core_cache), sockets: caches(shape.sockets, times.socket_cache) }
    }

    /// Records that a core uses a line. Returns the line that leaves the core's cache for it.
    #[inline]
    pub(crate) fn used(&mut self, core: u16, line: LineId) -> Option<LineId> {
        self.cores[usize::from(core)].enter(line)
    }

    /// Prefetches, on the host, the set of a core's cache that a line may be in.
    #[inline]
    pub(crate) fn expect(&self, core: u16, line: LineId) {
        let cache = &self.cores[usize::from(core)];
        host::prefetch(&cache.sets[cache.number(line)]);
    }

    /// Records that no core has the line any longer, and that the cache of `socket` has it.
    pub(crate) fn sank(&mut self, socket: u16, line: LineId) {
        self.sockets[usize::from(socket)].enter(line);
    }

    /// Returns whether the cache of a socket has a line.
    pub(crate) fn socket_has(&mut self, socket: u16, line: LineId) -> bool {
        self.sockets[usize::from(socket)].has(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_evicts_what_was_used_longest_ago() {
        let mut cache = LineCache::new(WAYS as u64 * 64);
        assert!((0..WAYS as u32).all(|line| cache.enter(line).is_none()));
        assert_eq!(cache.enter(0), None);
        assert_eq!(cache.enter(100), Some(1));
        assert!(cache.has(0) && cache.has(100) && !cache.has(1));
        // Uses of one line in a row count as one use.
        assert_eq!((cache.enter(100), cache.enter(101)), (None, Some(2)));
    }

    #[test]
    fn as_many_lines_stay_as_fit_but_for_uneven_sets() {
        let mut cache = LineCache::new(1 << 20);
        let lines = (1 << 20) / 64;
        (0..lines).for_each(|line| _ = cache.enter(line));
        let stay = (0..lines).filter(|&line| cache.has(line)).count();
        assert!(stay > lines as usize * 8 / 10, "{stay} of {lines}");
    }
}
