//! Pages: a record of a line, and 4 KiB of bytes.

use std::sync::OnceLock;

use smp_list::{Links, Nodes};
use sync::SharedBytes;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::NODES;

const WORDS: usize = 4096 / 8;

/// The record of a page, like Linux's `struct page`, in one cache line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Record {
    /// Under a lock: neighbours on a [`Ring`](super::ring::Ring).
    pub(crate) next: AtomicU32,
    /// As `next`.
    pub(crate) prev: AtomicU32,
    /// Neighbours on a concurrent list.
    links: Links,
    /// Whether it is on an LRU list: the claim.
    pub(crate) listed: AtomicU32,
    /// Bits that depend on the scheme: which LRU list the page is on, whether it was referenced,
    /// whether it is free.
    pub(crate) flags: AtomicU32,
    /// Whose page it is.
    pub(crate) owner: AtomicU32,
    /// The first page of the batch below, for the first of a batch.
    pub(crate) below: AtomicU32,
}

/// A page's bytes.
#[repr(align(4096))]
struct Bytes([AtomicU64; WORDS]);

/// Pages whose bytes are allocated together, when the first of them is used.
const CHUNK: usize = 512;

/// All pages. The first half of them is on node 0, the second half on node 1.
pub(crate) struct Pages {
    pub(crate) records: Box<[Record]>,
    /// `std`'s cells: a real machine's memory is there from the start.
    bytes: Box<[OnceLock<Box<[Bytes]>>]>,
}

impl Pages {
    /// So many on each node at least.
    pub(crate) fn new(each: usize) -> Self {
        let count = NODES * each.next_multiple_of(1 << 10); // Whole blocks of the largest order.
        let bytes = (0..count.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        Self { records: (0..count).map(|_| Record::default()).collect(), bytes }
    }

    /// A page's bytes.
    pub(crate) fn bytes(&self, page: u32) -> SharedBytes<'_> {
        let zeros = || Bytes(std::array::from_fn(|_| AtomicU64::new(0)));
        let page = page as usize;
        let chunk = self.bytes[page / CHUNK].get_or_init(|| (0..CHUNK).map(|_| zeros()).collect());
        SharedBytes::new(&chunk[page % CHUNK].0)
    }

    /// The node of a page.
    pub(crate) fn node_of(&self, page: u32) -> usize {
        page as usize / (self.records.len() / NODES)
    }

    /// A node's pages.
    pub(crate) fn of_node(&self, node: usize) -> std::ops::Range<u32> {
        let each = (self.records.len() / NODES) as u32;
        node as u32 * each..(node as u32 + 1) * each
    }

    pub(crate) fn record(&self, page: u32) -> &Record {
        &self.records[page as usize]
    }

    /// Writes zeros to a page, for its first touch or as if a disk read filled it. Doesn't read the
    /// lines first, like `rep stosb`.
    pub(crate) fn zero(&self, page: u32) {
        self.bytes(page).stream_from(&[0; 4096]);
    }

    /// Writes a page.
    pub(crate) fn fill(&self, page: u32, from: &[u8]) {
        self.bytes(page).copy_from(0, from);
    }

    /// The word at an offset in bytes.
    pub(crate) fn read(&self, page: u32, offset: usize) -> u64 {
        let mut word = [0; 8];
        self.bytes(page).copy_to(offset, &mut word);
        u64::from_ne_bytes(word)
    }

    /// Writes a word at an offset in bytes.
    pub(crate) fn write(&self, page: u32, offset: usize, word: u64) {
        self.bytes(page).copy_from(offset, &word.to_ne_bytes());
    }

    /// Copies a page's beginning.
    pub(crate) fn copy(&self, page: u32, into: &mut [u8]) {
        self.bytes(page).copy_to(0, into);
    }

    /// Clears the page's LRU bit. Only the task that cleared it may take the page off its list.
    pub(crate) fn claim(&self, page: u32) -> bool {
        // Acquire pairs with the Release in `publish`.
        self.record(page).listed.swap(0, Ordering::Acquire) == 1
    }

    /// Sets the page's LRU bit.
    pub(crate) fn publish(&self, page: u32) {
        self.record(page).listed.store(1, Ordering::Release);
    }
}

impl Nodes for Pages {
    fn links(&self, number: u32) -> &Links {
        &self.record(number).links
    }
}
