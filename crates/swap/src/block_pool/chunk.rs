//! One chunk: its free blocks, and the chains of blocks. The pool is responsible for the lock.

/// Blocks per chunk.
pub(super) const BLOCKS: usize = if cfg!(pagefold_loom) { 4 } else { 512 };
/// The end of a chain.
const END: u16 = u16::MAX;

const _: () = assert!(BLOCKS < END as usize);

/// The contents of a chunk or a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Absent,
    Held,
    Open,
    Full,
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) list: List,
    /// For each block the next one in its chain. `None` while the chunk has no memory.
    next: Option<Box<[u16; BLOCKS]>>,
    /// The first free block.
    free: u16,
    /// The number of free blocks.
    pub(super) free_len: u16,
    pub(super) content: Content,
}

impl Chunk {
    pub(super) const ABSENT: Self =
        Self { list: List::Absent, next: None, free: END, free_len: 0, content: Content { pages: 0, bytes: 0 } };

    /// Allocates the links, and puts all blocks into the chain of free blocks. Returns false,
    /// rather than aborting the process, if there is no memory for the links.
    pub(super) fn become_empty(&mut self) -> bool {
        let following = |block: usize| if block + 1 < BLOCKS { block as u16 + 1 } else { END };
        let mut links = Vec::new();
        if links.try_reserve_exact(BLOCKS).is_err() {
            return false;
        }
        links.extend((0..BLOCKS).map(following));
        self.next = links.into_boxed_slice().try_into().ok();
        (self.free, self.free_len) = (0, BLOCKS as u16);
        self.next.is_some()
    }

    /// Gives the links back.
    pub(super) fn become_absent(&mut self) {
        (self.next, self.free_len) = (None, 0);
    }

    /// Iterates over the blocks of a chain.
    pub(super) fn chain(&self, first: u16) -> impl Iterator<Item = u16> + '_ {
        let next = |block: u16| self.next.as_ref()?.get(usize::from(block)).copied().filter(|&next| next != END);
        std::iter::successors(Some(first), move |&block| next(block))
    }

    /// Takes a chain of `blocks` free blocks, for `len` bytes.
    pub(super) fn take(&mut self, blocks: usize, len: usize) -> Option<u16> {
        if usize::from(self.free_len) < blocks {
            return None;
        }
        let first = self.free;
        let last = self.chain(first).nth(blocks - 1)?;
        let links = self.next.as_mut()?;
        self.free = std::mem::replace(&mut links[usize::from(last)], END);
        self.free_len -= blocks as u16;
        self.content.pages += 1;
        self.content.bytes += len as u64;
        Some(first)
    }

    /// Cuts a chain off after `blocks` blocks. Returns the first block of the rest.
    pub(super) fn cut(&mut self, first: u16, blocks: usize) -> Option<u16> {
        let last = self.chain(first).nth(blocks - 1)?;
        let rest = std::mem::replace(&mut self.next.as_mut()?[usize::from(last)], END);
        (rest != END).then_some(rest)
    }

    /// Adds a chain of `blocks` blocks to the free blocks.
    pub(super) fn put_back(&mut self, first: u16, blocks: usize) {
        let last = self.chain(first).last();
        if let (Some(last), Some(links)) = (last, self.next.as_mut()) {
            links[usize::from(last)] = std::mem::replace(&mut self.free, first);
            self.free_len += blocks as u16;
        }
    }
}
