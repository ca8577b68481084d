//! Memory for compressed pages: chunks of 512 blocks. A page takes as many blocks as it needs,
//! anywhere in one chunk.
//!
//! A block is a 32nd of a page, so a compressed page wastes less than a block at its end. Because
//! all blocks have the same size, a page can use the blocks that another page freed, and no page
//! has to be moved. A chunk's memory is given back when all its blocks are free.
//!
//! Each CPU has a *hand*, which names the chunk that the CPU stores pages into. Each chunk is in
//! one of four states. The *absent* and the *open* chunks are on lists:
//!
//! | state | memory | free blocks | found by |
//! |---|---|---|---|
//! | *absent* | none | | a CPU that finds no *open* chunk, and may take more memory |
//! | *held* | yes | any number | the CPU whose hand names it; other CPUs if they find no *open* or *absent* chunk |
//! | *open* | yes | more than an eighth; all of them only if the system refused to take the chunk's memory back | a CPU that needs a chunk |
//! | *full* | yes | at most an eighth | the same CPUs as for *held*, while a hand still names it; otherwise only exchanges, until enough of its blocks are freed |
//!
//! Invariants:
//!
//! - B1. A chunk's fields, the bytes of its blocks, and its bits in the lists change only under the
//!   chunk's lock.
//! - B2. If a chunk has memory, each of its blocks is in exactly one chain: the chain of one page,
//!   or the chain of the chunk's free blocks.
//! - B3. Memory is charged ([`Allowance`]) for the chunks, and for a *stock* from which more chunks
//!   can get their memory. No charge raises the total above the limit at that moment.
//! - B4. The memory of one chunk is kept for exchanges ([`Need::Last`]; see `allowance`). While
//!   exchanges are using this memory, a page that leaves memory for another reason is stored into a
//!   chunk that a hand names. For such a page, a CPU takes an *open* chunk into its hand only if
//!   another *open* chunk remains. So the blocks that exchanges free in *full* chunks, or in the
//!   last *open* chunk, stay available for later exchanges, which search every chunk.
//!
//! When no more memory can be charged, pages are stored into *open* chunks until these are *full*.
//! A full chunk has at most an eighth of its blocks free. So at most an eighth of the pool's blocks
//! stays free, not counting the *held* chunks.
//!
//! Usually only two kinds of CPUs lock a chunk: the CPU that has the chunk in its hand, and CPUs
//! that read or free pages in the chunk.
//!
//! Lock order: scratch buffer of `codec` → hand → chunk. A spilling thread locks the clock
//! (`compressed`), and sets a page word to *loading*, before it locks any of these. The lock of a
//! decompression context (`cold_codec`) is a leaf, and is never held together with a chunk's lock.

mod chunk;

use chunk::{BLOCKS, Chunk, Content, List};
use sync::atomic::{AtomicU32, Ordering};
use sync::lock::{Mutex, MutexGuard};
use sync::memory::boxed;
use sync::{Arc, CachePadded, PerCpu, SharedBytes, SparseWords};

use crate::allowance::{Allowance, Memory, Need};
use crate::cluster_list::ClusterList;

/// Blocks of an uncompressed page.
const PAGE_BLOCKS: usize = if cfg!(pagefold_loom) { 2 } else { 32 };
/// A *full* chunk becomes *open* again when it has at least this many free blocks. They are enough
/// for any page.
const OPEN_MIN: usize = BLOCKS / 8 + 1;

const _: () = assert!(cfg!(pagefold_loom) || BlockPool::PAGE_BLOCKS_MAX <= OPEN_MIN);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct BlockPool {
    words: SparseWords,
    chunks: Box<[CachePadded<Mutex<Chunk>>]>,
    open: ClusterList,
    absent: ClusterList,
    hands: PerCpu<Hand>,
    /// The hand for [`Need::Last`].
    last: Hand,
    allowance: Allowance,
    block_bytes: usize,
}

/// Where stored bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) chunk: u32,
    /// The first block of the chain.
    pub(crate) block: u16,
    /// Length in bytes.
    pub(crate) len: u32,
}

/// Names the chunk that a CPU fills.
#[derive(Debug)]
struct Hand {
    lock: Mutex<()>,
    chunk: AtomicU32,
}

impl BlockPool {
    /// The maximum number of blocks per page: three quarters of a page.
    const PAGE_BLOCKS_MAX: usize = PAGE_BLOCKS * 3 / 4;

    /// Creates a pool for pages of `page_size` bytes, at first without memory. The pool takes at
    /// most `limit` bytes, and keeps `reserve` bytes in stock for [`Need::Drain`]. Returns `None`
    /// if there is no address space for the pool, or no memory for its lists.
    pub(crate) fn new(limit: u64, reserve: u64, page_size: usize, memory: Arc<dyn Memory>) -> Option<Self> {
        let chunk_bytes = Self::chunk_bytes(page_size);
        let count = usize::try_from(limit / Self::chunk_cost(page_size)).ok()?;
        let absent = ClusterList::new(count)?;
        (0..count).for_each(|chunk| absent.add(chunk));
        let hand = || Hand { lock: Mutex::new(()), chunk: AtomicU32::new(u32::MAX) };
        Some(Self {
            words: SparseWords::new(count.checked_mul(chunk_bytes)? / size_of::<u64>())?,
            chunks: boxed((0..count).map(|_| CachePadded::new(Mutex::new(Chunk::ABSENT))))?,
            open: ClusterList::new(count)?,
            absent,
            hands: PerCpu::new(hand),
            last: hand(),
            allowance: Allowance::new(limit, reserve, Self::chunk_cost(page_size), memory),
            block_bytes: page_size / PAGE_BLOCKS,
        })
    }

    fn chunk_bytes(page_size: usize) -> usize {
        page_size / PAGE_BLOCKS * BLOCKS
    }

    /// Returns the bytes that a chunk takes, which is the smallest limit of a pool.
    pub(crate) fn chunk_cost(page_size: usize) -> u64 {
        (Self::chunk_bytes(page_size) + size_of::<[u16; BLOCKS]>()) as u64
    }

    /// Returns the bytes that an empty pool with this limit takes.
    pub(crate) fn bytes(limit: u64, page_size: usize) -> u64 {
        limit / Self::chunk_cost(page_size) * size_of::<CachePadded<Mutex<Chunk>>>() as u64
    }

    /// Returns the maximum length of stored bytes.
    pub(crate) fn len_max(&self) -> usize {
        Self::PAGE_BLOCKS_MAX * self.block_bytes
    }

    /// Stores 1 to [`len_max`](Self::len_max) bytes; the caller then owns the place. `None` if
    /// there is no memory for them. [`Need::Last`] searches every chunk.
    pub(crate) fn store(&self, bytes: &[u8], need: Need) -> Option<Place> {
        if need != Need::Last && self.allowance.is_beyond() {
            return None; // Memory must be given back first.
        }
        let others = || self.hands.others_first().map(|other| other.chunk.load(Ordering::Relaxed));
        let first = if need == Need::Last { Need::Usual } else { need };
        let stored = self.store_by(self.hands.here(), bytes, first);
        let stored = stored.or_else(|| others().find_map(|number| self.store_in(number, bytes, first)));
        if need != Need::Last || stored.is_some() {
            return stored;
        }
        let mut all = 0..self.chunks.len() as u32;
        self.store_by(&self.last, bytes, need).or_else(|| all.find_map(|number| self.store_in(number, bytes, need)))
    }

    /// Stores bytes into the chunk in a hand, otherwise into another chunk, which the hand then
    /// names.
    fn store_by(&self, hand: &Hand, bytes: &[u8], need: Need) -> Option<Place> {
        let _turn = hand.lock.lock();
        // Relaxed, like all accesses: the chunk is checked under its lock.
        self.store_in(hand.chunk.load(Ordering::Relaxed), bytes, need).or_else(|| {
            let (number, mut chunk) = self.claim(need)?;
            hand.chunk.store(number, Ordering::Relaxed);
            self.put(number, &mut chunk, bytes)
        })
    }

    /// Copies the bytes at a place, which the caller must own. `into` must have their length.
    pub(crate) fn load(&self, place: Place, into: &mut [u8]) {
        let chunk = self.chunks[place.chunk as usize].lock();
        let blocks = into.chunks_mut(self.block_bytes).zip(chunk.chain(place.block));
        blocks.for_each(|(part, block)| self.block(place.chunk, block).copy_to(0, part));
    }

    /// Frees a place, which the caller must own.
    pub(crate) fn free(&self, place: Place) {
        let mut chunk = self.chunks[place.chunk as usize].lock();
        chunk.put_back(place.block, self.blocks(place.len as usize));
        chunk.content.pages -= 1;
        chunk.content.bytes -= u64::from(place.len);
        self.relist_freed(place.chunk, &mut chunk);
        if chunk.list == List::Open {
            self.release_if_empty(place.chunk, &mut chunk);
        }
    }

    /// Returns the largest length that takes at least an eighth fewer blocks than `len` bytes take.
    /// The eighth is rounded up, so that at least one block is saved.
    pub(crate) fn tighter(&self, len: usize) -> usize {
        let blocks = self.blocks(len);
        (blocks - blocks.div_ceil(8)) * self.block_bytes
    }

    /// Overwrites the bytes at `place` with a shorter sequence of bytes. The new bytes go into the
    /// first blocks of the place's chain, and the other blocks are freed. The caller must own the
    /// place. Returns the new place, and whether other pages can use the free blocks of this chunk.
    pub(crate) fn shrink(&self, place: Place, bytes: &[u8]) -> (Place, bool) {
        let mut chunk = self.chunks[place.chunk as usize].lock();
        let blocks = bytes.chunks(self.block_bytes).zip(chunk.chain(place.block));
        blocks.for_each(|(part, block)| self.block(place.chunk, block).copy_from(0, part));
        let (shrunk, kept) = (Place { len: bytes.len() as u32, ..place }, self.blocks(bytes.len()));
        if let Some(rest) = chunk.cut(place.block, kept) {
            chunk.put_back(rest, self.blocks(place.len as usize) - kept);
        }
        chunk.content.bytes -= u64::from(place.len - shrunk.len);
        self.relist_freed(place.chunk, &mut chunk);
        // Relaxed: the caller only needs a hint.
        let is_in_hand = || self.hands.iter().any(|hand| hand.chunk.load(Ordering::Relaxed) == place.chunk);
        (shrunk, chunk.list != List::Full || is_in_hand())
    }

    /// Gives back the memory of empty chunks in hands.
    pub(crate) fn release_idle(&self) {
        for hand in self.hands.iter().chain([&self.last]) {
            let number = hand.chunk.load(Ordering::Relaxed);
            let Some(chunk) = self.chunks.get(number as usize) else { continue };
            let mut chunk = chunk.lock();
            if chunk.list == List::Held {
                self.release_if_empty(number, &mut chunk);
            }
        }
    }

    /// Fills the stock until it is full, or no more memory can be charged. Returns whether the
    /// stock is full, or the pool is at its limit.
    pub(crate) fn stock_up(&self) -> bool {
        self.allowance.stock_up()
    }

    /// First gives back memory that isn't in use. Returns whether the pool still has more memory
    /// than its limit allows now.
    pub(crate) fn is_beyond(&self) -> bool {
        if !self.allowance.is_beyond() {
            return false;
        }
        self.release_idle();
        while self.allowance.is_beyond() && self.allowance.give_up_stock() {}
        self.allowance.is_beyond()
    }

    /// Returns the current limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.allowance.limit()
    }

    /// Returns the bytes that are charged.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.allowance.held_bytes()
    }

    /// Returns the contents of the pool, summed up chunk by chunk.
    pub(crate) fn content(&self) -> Content {
        self.chunks.iter().fold(Content::default(), |sum, chunk| {
            let content = chunk.lock().content;
            Content { pages: sum.pages + content.pages, bytes: sum.bytes + content.bytes }
        })
    }

    /// Locks the first chunk, until the result is dropped.
    #[cfg(all(test, not(pagefold_loom)))]
    pub(crate) fn lock_first_chunk(&self) -> impl Sized + '_ {
        self.chunks[0].lock()
    }

    fn blocks(&self, len: usize) -> usize {
        len.div_ceil(self.block_bytes)
    }

    fn block(&self, chunk: u32, block: u16) -> SharedBytes<'_> {
        let words = self.block_bytes / size_of::<u64>();
        let start = (chunk as usize * BLOCKS + usize::from(block)) * words;
        SharedBytes::new(self.words.part(start..start + words))
    }

    /// Stores bytes into a chunk, if the chunk exists, and has memory and room.
    fn store_in(&self, number: u32, bytes: &[u8], need: Need) -> Option<Place> {
        let mut chunk = self.chunks.get(number as usize)?.lock();
        if need != Need::Last && chunk.list != List::Held && !self.allowance.has_kept() {
            return None; // B4
        }
        self.put(number, &mut chunk, bytes)
    }

    fn put(&self, number: u32, chunk: &mut Chunk, bytes: &[u8]) -> Option<Place> {
        let taken = chunk.take(self.blocks(bytes.len()), bytes.len());
        if let Some(first) = taken {
            let blocks = bytes.chunks(self.block_bytes).zip(chunk.chain(first));
            blocks.for_each(|(part, block)| self.block(number, block).copy_from(0, part));
        }
        let is_used_up = match chunk.list {
            // The free blocks are too few for this page, and for most others.
            List::Held => taken.is_none(),
            List::Open => usize::from(chunk.free_len) < OPEN_MIN,
            List::Absent | List::Full => false,
        };
        if is_used_up {
            self.relist(number, chunk, List::Full);
        }
        taken.map(|block| Place { chunk: number, block, len: bytes.len() as u32 })
    }

    /// Claims a chunk for a hand: an *open* chunk, or else an *absent* one, for which it takes
    /// memory.
    fn claim(&self, need: Need) -> Option<(u32, MutexGuard<'_, Chunk>)> {
        let found = |list, kind: List| {
            let locked = |number: u32| self.chunks[number as usize].try_lock().map(|chunk| (number, chunk));
            self.each_in(list).filter_map(locked).find(|(_, chunk)| chunk.list == kind)
        };
        let spares_one = need == Need::Last || self.allowance.has_kept() || self.open.len() > 1; // B4
        if spares_one && let Some((number, mut chunk)) = found(&self.open, List::Open) {
            self.relist(number, &mut chunk, List::Held);
            return Some((number, chunk));
        }
        if self.absent.is_empty() || !self.allowance.take(need) {
            return None;
        }
        let Some((number, mut chunk)) = found(&self.absent, List::Absent) else {
            self.allowance.give_back();
            return None;
        };
        if !chunk.become_empty() {
            drop(chunk);
            self.allowance.give_back();
            return None;
        }
        self.relist(number, &mut chunk, List::Held);
        Some((number, chunk))
    }

    /// Iterates over the chunks of a list, starting at this CPU's part of the pool. If the list
    /// changes meanwhile, a chunk is returned if it is on the list when the iterator reaches it.
    fn each_in<'a>(&'a self, list: &'a ClusterList) -> impl Iterator<Item = u32> + 'a {
        let (len, cpus) = (self.chunks.len(), sync::cpu::count());
        let start = len * (sync::cpu::current() % cpus) / cpus;
        [start..len, 0..start].into_iter().flat_map(move |range| {
            let mut from = range.start;
            std::iter::from_fn(move || {
                let found = if list.is_empty() { None } else { list.first_in(from..range.end) };
                found.inspect(|&found| from = found + 1).map(|found| found as u32)
            })
        })
    }

    fn release_if_empty(&self, number: u32, chunk: &mut Chunk) {
        if usize::from(chunk.free_len) < BLOCKS {
            return;
        }
        let words = BLOCKS * self.block_bytes / size_of::<u64>();
        if !self.words.discard(number as usize * words..(number as usize + 1) * words) {
            return self.relist(number, chunk, List::Open); // It keeps its memory, and so its charge.
        }
        chunk.become_absent();
        self.relist(number, chunk, List::Absent);
        self.allowance.give_back();
    }

    /// Moves a full chunk to the open ones if enough of its blocks became free.
    fn relist_freed(&self, number: u32, chunk: &mut Chunk) {
        if chunk.list == List::Full && usize::from(chunk.free_len) >= OPEN_MIN {
            self.relist(number, chunk, List::Open);
        }
    }

    fn relist(&self, number: u32, chunk: &mut Chunk, to: List) {
        let from = std::mem::replace(&mut chunk.list, to);
        if from == to {
            return;
        }
        if let Some(list) = self.list(to) {
            list.add(number as usize);
        }
        if let Some(list) = self.list(from) {
            list.remove(number as usize);
        }
    }

    fn list(&self, kind: List) -> Option<&ClusterList> {
        match kind {
            List::Absent => Some(&self.absent),
            List::Open => Some(&self.open),
            List::Held | List::Full => None,
        }
    }
}

#[cfg(test)]
mod purse;

#[cfg(all(test, pagefold_loom))]
mod models;

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
