//! Tracks which caches hold which shared bytes, by blocks of 4 KiB.
//!
//! A block is the aligned 4 KiB around an address. Blocks are numbered in the order of first touch.
//! Each core has a first-level cache and a larger cache; each socket has a cache that its cores
//! share. Caches hold whole blocks and evict the least recently used.
//!
//! A block that a core reads enters the core's own caches and the socket's cache. A block that a
//! core writes enters only the core's own caches. A block that is evicted from a core's larger
//! cache goes to the socket's cache.
//!
//! A write gives the block a new version number. A cache's copy with an older number is stale, so
//! the writer needn't search the other caches for copies.

use crate::directory::NOBODY;
use crate::ledger::{Mix, Table};
use crate::shape::Shape;
use crate::ticks::Times;
use lru::LruCache;
use std::hash::BuildHasherDefault;
use std::num::NonZeroUsize;

/// The name of a block.
pub(crate) type BlockId = u32;

/// Bytes in a block.
pub(crate) const BLOCK: usize = 4096;

/// Where a core finds the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In its first-level cache.
    First,
    /// In its larger cache.
    Core,
    /// In its socket's cache.
    Socket,
    /// In the cache of the core that wrote the block last. The value is the core's number.
    Writer(u16),
    /// In memory.
    Memory,
}

/// The state of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Incremented with every write.
    version: u32,
    /// Incremented with every write of more than a few lines. Such a write invalidates the states
    /// of single lines.
    pub(crate) filled: u32,
    /// The core that made the last write counted in `filled`; its caches have the lines. `NOBODY`
    /// if memory has the lines: for example, because a device wrote them, or a core bypassed its
    /// caches.
    pub(crate) filled_by: u16,
    /// The core that wrote the block last. Its caches have the bytes, unless they evicted the
    /// block.
    writer: u16,
    /// The CPU that touched it last.
    pub(crate) last: u16,
    /// The socket in whose memory it is: that of the core that touched it first.
    home: u16,
}

type Cache = LruCache<BlockId, u32, BuildHasherDefault<Mix>>;

/// All blocks touched so far, and the caches.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    names: Table<u64, BlockId>,
    first: Vec<Cache>,
    core: Vec<Cache>,
    socket: Vec<Cache>,
}

impl Blocks {
    pub(crate) fn new(shape: &Shape, times: &Times) -> Self {
        let caches = |count: usize, bytes: u64| {
            // Even the smallest cache has one block, for the bytes that a core has just touched.
            let blocks = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK;
            let blocks = NonZeroUsize::new(blocks).unwrap_or(NonZeroUsize::MIN);
            (0..count)
                .map(|_| {
                    let mut cache = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
                    cache.resize(blocks);
                    cache
                })
                .collect()
        };
        Self {
            blocks: Vec::new(),
            names: Table::default(),
            first: caches(shape.cores(), times.first_cache),
            core: caches(shape.cores(), times.core_cache),
            socket: caches(shape.sockets, times.socket_cache),
        }
    }

    /// Returns the block at an address, and names it if it has no name yet.
    pub(crate) fn find(&mut self, address: usize) -> BlockId {
        let blocks = &mut self.blocks;
        *self.names.entry((address / BLOCK) as u64).or_insert_with(|| {
            blocks.push(Block { version: 0, filled: 0, filled_by: NOBODY, writer: NOBODY, last: NOBODY, home: NOBODY });
            BlockId::try_from(blocks.len() - 1).expect("fewer than 2^32 blocks")
        })
    }

    pub(crate) fn block(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }

    /// Returns the socket in whose memory the block is: the `socket` of the first call.
    pub(crate) fn home(&mut self, id: BlockId, socket: u16) -> u16 {
        let home = &mut self.blocks[id as usize].home;
        if *home == NOBODY {
            *home = socket;
        }
        *home
    }

    /// Returns where a core finds the block.
    pub(crate) fn locate(&self, id: BlockId, core: u16, socket: u16) -> Place {
        let block = self.blocks[id as usize];
        let fresh = |cache: &Cache| cache.peek(&id) == Some(&block.version);
        let (own, writer) = (usize::from(core), usize::from(block.writer));
        if fresh(&self.first[own]) {
            Place::First
        } else if fresh(&self.core[own]) {
            Place::Core
        } else if fresh(&self.socket[usize::from(socket)]) {
            Place::Socket
        } else if self.core.get(writer).is_some_and(fresh) {
            Place::Writer(block.writer)
        } else {
            Place::Memory
        }
    }

    /// Returns whether the core has the block in a cache of its own.
    pub(crate) fn is_near(&self, id: BlockId, core: u16, socket: u16) -> bool {
        matches!(self.locate(id, core, socket), Place::First | Place::Core)
    }

    /// Records that the core has read the block: the block is now in the core's and the socket's
    /// caches.
    pub(crate) fn read(&mut self, id: BlockId, core: u16, socket: u16) {
        let version = self.blocks[id as usize].version;
        self.socket[usize::from(socket)].put(id, version);
        self.bring(id, core, socket);
    }

    /// Records that the core has written the block: the copies of other cores are stale.
    pub(crate) fn wrote(&mut self, id: BlockId, core: u16, socket: u16) {
        let block = &mut self.blocks[id as usize];
        block.version = block.version.wrapping_add(1);
        block.writer = core;
        self.bring(id, core, socket);
    }

    /// Records that a core has written a few lines of a block. All copies in other caches become
    /// stale. The writing core's copy stays valid if the core had the whole block in its own
    /// caches; otherwise no cache has a valid copy of the block any more.
    pub(crate) fn wrote_lines(&mut self, id: BlockId, core: u16, socket: u16) {
        if self.is_near(id, core, socket) {
            self.wrote(id, core, socket);
        } else {
            self.lose(id);
        }
    }

    /// Records that no cache holds the block any more: a core or a device has written the block
    /// without going through caches, or the block's number stands for other memory now.
    pub(crate) fn lose(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        block.version = block.version.wrapping_add(1);
        block.writer = NOBODY;
    }

    /// Records that `core` has just written the block's lines, or that they are in memory if `core`
    /// is `NOBODY`.
    pub(crate) fn filled(&mut self, id: BlockId, core: u16) {
        let block = &mut self.blocks[id as usize];
        block.filled = block.filled.wrapping_add(1);
        block.filled_by = core;
    }

    /// Puts the block into a core's caches. A block that is evicted from the core's larger cache
    /// goes to the socket's cache.
    fn bring(&mut self, id: BlockId, core: u16, socket: u16) {
        let version = self.blocks[id as usize].version;
        self.first[usize::from(core)].put(id, version);
        if let Some((left, its_version)) = self.core[usize::from(core)].push(id, version)
            && left != id
        {
            self.socket[usize::from(socket)].put(left, its_version);
        }
    }

    /// Forgets the state of a range of addresses, because the range is new memory from now on.
    pub(crate) fn forget(&mut self, address: usize, bytes: usize) {
        for number in address / BLOCK..=(address + bytes.max(1) - 1) / BLOCK {
            if let Some(&id) = self.names.get(&(number as u64)) {
                self.lose(id);
                self.filled(id, NOBODY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Costs;

    /// Two sockets of two cores, with caches of 2, 4 and 8 blocks.
    fn blocks() -> Blocks {
        let costs = Costs { first_cache: 8192.0, core_cache: 16384.0, socket_cache: 32768.0, ..Costs::default() };
        Blocks::new(&Shape::new(2, 2, 1).unwrap(), &Times::of(&costs))
    }

    #[test]
    fn what_was_read_sinks_from_cache_to_cache_as_others_are_read() {
        let mut blocks = blocks();
        let ids: Vec<_> = (0..20).map(|n| blocks.find(0x10_0000 - n * BLOCK)).collect();
        assert_eq!(blocks.locate(ids[0], 0, 0), Place::Memory);
        let mut places = Vec::new();
        for &id in &ids {
            blocks.read(id, 0, 0);
            places.push(blocks.locate(ids[0], 0, 0));
        }
        let count = |place| places.iter().filter(|&&other| other == place).count();
        assert_eq!([count(Place::First), count(Place::Core)], [2, 2]);
        places.dedup();
        assert_eq!(places, [Place::First, Place::Core, Place::Socket, Place::Memory]);
        assert_eq!(blocks.locate(ids[19], 1, 0), Place::Socket);
        assert_eq!(blocks.locate(ids[19], 2, 1), Place::Memory);
    }

    #[test]
    fn a_write_leaves_no_copy_but_the_writers() {
        let mut blocks = blocks();
        let id = blocks.find(4096);
        (0..4).for_each(|core| blocks.read(id, core, core / 2));
        blocks.wrote(id, 1, 0);
        let places = |blocks: &Blocks| [0, 1, 2].map(|core| blocks.locate(id, core, core / 2));
        assert_eq!(places(&blocks), [Place::Writer(1), Place::First, Place::Writer(1)]);
        blocks.read(id, 2, 1);
        assert_eq!(blocks.locate(id, 3, 1), Place::Socket);
        blocks.wrote_lines(id, 0, 0);
        assert_eq!(places(&blocks), [Place::Memory; 3]);
        blocks.read(id, 0, 0);
        blocks.forget(4100, 1);
        assert_eq!(places(&blocks), [Place::Memory; 3]);
    }
}
