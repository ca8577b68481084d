//! The store of an area whose pages stay in memory, compressed. It replaces a device.
//!
//! Slots work as in other areas: a page has a slot, an owner, and a checksum of its uncompressed
//! bytes. In addition, each slot has one word for the *place* of the page's compressed bytes in a
//! [`BlockPool`]. The place is set when the page is written, and cleared when the slot is freed.
//! Like the checksum, the place belongs to the slot's owner, and is published by a store to the
//! slot's word.
//!
//! | event | consequence |
//! |---|---|
//! | a page's compressed size is more than three quarters of a page | *refused*: it goes to the next area, or stays in memory |
//! | the limit is reached, or the budget has no room | the page is refused too, and then room is made (`spill`) |
//! | a page has been in the area for long when room is needed | *tightened*, once: recompressed in its place, with Zstandard |
//! | recompression saves less than an eighth of the page's blocks, or a recompressed page has become old again | *spilled*: it goes to another area, if one has a slot |
//! | compressed bytes are corrupt | they don't decompress, or the checksum doesn't match: `SwapCorrupt` |
//! | the area is removed | pages are brought back; dropping the pool uncharges its memory |
//!
//! An area has four slots for each uncompressed page that would fit into its limit, because most
//! pages that are worth compressing don't shrink below a quarter of their size. If pages shrink
//! further, the area runs out of slots before it runs out of memory.

use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::zeroed::zeroed;
use sync::{Arc, PerCpu, SharedBytes, SparseWords};

use crate::allowance::{Memory, Need};
use crate::block_pool::{BlockPool, Place};
use crate::codec::Codec;
use crate::cold_codec::{Compressor, Decompressors};
use crate::error::SwapOutError;

/// See the module's head.
pub(crate) struct Compressed {
    pool: BlockPool,
    codec: Codec,
    decompressors: Decompressors,
    /// The place of each slot's page; 0 without a page.
    places: Box<[AtomicU64]>,
    refused: PerCpu<Refused>,
    /// Set if pages were refused for lack of room since a thread last made room.
    crowded: AtomicBool,
    /// Set if there was no room for the last page. While it is set, only a few other pages are
    /// compressed, because there is probably no room for them either. Cleared when a page is freed,
    /// or more memory becomes available.
    full: AtomicBool,
    /// Where the search for old pages continues, and its buffers. The spilling thread holds the
    /// lock.
    clock: Mutex<Clock>,
    spilled: AtomicU64,
    /// The number of pages that are compressed with Zstandard now.
    tight: AtomicU64,
    limit: u64,
    page_size: usize,
}

/// Counts of pages that the area refused. `Relaxed`: statistics.
#[derive(Default)]
struct Refused {
    incompressible: AtomicU64,
    no_room: AtomicU64,
}

/// Walks round all slots. A page that the walk meets for the second time has been in its slot for a
/// whole round.
struct Clock {
    next: usize,
    page: SparseWords,
    compressor: Compressor,
}

/// What `spill` gets for an old page: a buffer to read the page, the compressor, and whether the
/// page may go to another area.
pub(crate) struct Turn<'a> {
    pub(crate) page: SharedBytes<'a>,
    pub(crate) compressor: &'a mut Compressor,
    pub(crate) can_go: bool,
}

/// State and statistics of a compressed area. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompressedInfo {
    /// The maximum of memory that the area may take now.
    pub limit_bytes: u64,
    /// The memory that the area has taken, including its stock.
    pub memory_bytes: u64,
    /// The uncompressed size of the pages in it.
    pub original_bytes: u64,
    /// Their compressed size.
    pub compressed_bytes: u64,
    /// Pages refused because their compressed size was more than three quarters of a page.
    pub incompressible: u64,
    /// Pages refused because there was no memory for them.
    pub no_room: u64,
    /// Pages that were moved to other areas.
    pub spilled: u64,
    /// Pages in the area that are compressed with LZ4.
    pub lz4_pages: u64,
    /// Pages in the area that are compressed with Zstandard.
    pub zstd_pages: u64,
}

/// The outcome for an old page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// It takes less room, in the same slot.
    Tightened,
    /// It is in another area.
    Gone,
}

/// While there seems to be no room, the area still tries to store one in this many pages.
const TRIED_SHARE: u64 = 64;

/// The maximum number of slots that a call of `spill` looks at while no page can go to another
/// area.
const LOOKS: usize = 4096;
/// The maximum number of slots that a call of `spill` looks at in any case. Looking at them takes
/// about 200 µs, and a fault may be waiting for the call.
const LOOKS_MAX: usize = 1 << 16;

/// Slots per page of the limit.
const SLOTS_PER_PAGE: u64 = 4;

impl Compressed {
    /// Creates the store with a limit of `limit` bytes; `None` if there is no memory for its tables
    /// or its buffers.
    pub(crate) fn new(limit: u64, reserve: u64, page_size: usize, memory: Arc<dyn Memory>) -> Option<Self> {
        let page = SparseWords::new(page_size / size_of::<u64>())?;
        Some(Self {
            pool: BlockPool::new(limit, reserve, page_size, memory)?,
            codec: Codec::new(page_size)?,
            decompressors: Decompressors::new()?,
            places: zeroed(usize::try_from(Self::slots(limit, page_size)).ok()?)?,
            refused: PerCpu::new(Refused::default),
            crowded: AtomicBool::new(false),
            full: AtomicBool::new(false),
            clock: Mutex::new(Clock { next: 0, page, compressor: Compressor::new(page_size)? }),
            spilled: AtomicU64::new(0),
            tight: AtomicU64::new(0),
            limit,
            page_size,
        })
    }

    /// Returns the number of slots of an area with this limit, including the header's slot, which
    /// stays unused.
    pub(crate) fn slots(limit: u64, page_size: usize) -> u64 {
        (limit / page_size as u64).saturating_mul(SLOTS_PER_PAGE)
    }

    /// Returns the smallest limit.
    pub(crate) fn limit_min(page_size: usize) -> u64 {
        BlockPool::chunk_cost(page_size)
    }

    /// Returns the bytes that an empty store with this limit takes.
    pub(crate) fn bytes(limit: u64, page_size: usize) -> u64 {
        let places = Self::slots(limit, page_size).saturating_mul(size_of::<u64>() as u64);
        let codecs = Codec::bytes(page_size) + Compressor::bytes(page_size) + Decompressors::bytes();
        places + BlockPool::bytes(limit, page_size) + codecs + page_size as u64
    }

    /// Returns the bytes that this store takes without its pages.
    pub(crate) fn table_bytes(&self) -> u64 {
        Self::bytes(self.limit, self.page_size)
    }

    /// Stores a page for a slot that the caller owns, and that has no page yet. Returns false if
    /// the page is refused.
    pub(crate) fn write(&self, slot: u32, page: SharedBytes<'_>, need: Need) -> bool {
        let refused = self.refused.here();
        // All accesses to `full` are Relaxed: it is a hint. A thread that has made room clears it.
        if need == Need::Usual && self.full.load(Ordering::Relaxed) {
            self.becomes_crowded();
            // Even so, one page in `TRIED_SHARE` is tried: another thread may have made room just
            // before `full` was set.
            if !(refused.no_room.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(TRIED_SHARE) {
                return false;
            }
        }
        let stored = self.codec.compress(page, self.pool.len_max(), |bytes| self.pool.store(bytes, need));
        match stored {
            Some(Some(place)) => {
                if need != Need::Last {
                    self.has_room();
                }
                // Relaxed: published by the slot's word.
                self.places[slot as usize].store(pack(place), Ordering::Relaxed);
                return true;
            }
            Some(None) => {
                self.becomes_crowded();
                self.full.store(true, Ordering::Relaxed);
                refused.no_room.fetch_add(1, Ordering::Relaxed)
            }
            None => refused.incompressible.fetch_add(1, Ordering::Relaxed),
        };
        false
    }

    /// Reads the page of a slot that the caller owns. Returns false if the bytes don't decompress
    /// to a page. The caller must verify the checksum.
    pub(crate) fn read(&self, slot: u32, into: SharedBytes<'_>) -> bool {
        // Relaxed: the place was stored before the slot's word, which the caller has read
        // (Acquire). Another thread may have recompressed the page since. That thread held the page
        // (*loading* in the page's word) while it changed the place, and then released the page's
        // word. The caller has acquired the page's word after that, because it owns the slot now.
        // So this load sees the change.
        let word = self.places[slot as usize].load(Ordering::Relaxed);
        let Some(place) = unpack(word) else { return false };
        let unpack = |packed: &[u8], page: &mut [u8]| match word & TIGHT {
            0 => Codec::unpack(packed, page),
            _ => self.decompressors.decompress(packed, page),
        };
        self.codec.decompress(place.len as usize, |bytes| self.pool.load(place, bytes), unpack, into)
    }

    /// Recompresses the page in `slot`, unless that was tried before. `bytes` are the page's
    /// uncompressed bytes. The caller must own the slot. Returns whether the page takes less room
    /// now.
    pub(crate) fn tighten(&self, slot: u32, bytes: SharedBytes<'_>, compressor: &mut Compressor) -> bool {
        let word = &self.places[slot as usize];
        // Relaxed, both: see `read` and `write`. While a page is in its slot, only the thread that
        // holds the clock's lock changes the page's place.
        let before = word.load(Ordering::Relaxed);
        let Some(place) = unpack(before).filter(|_| before & TRIED == 0) else { return false };
        let len_max = self.pool.tighter(place.len as usize);
        let tight = compressor.compress(bytes, len_max, |packed| self.pool.shrink(place, packed));
        // The new word lacks `OLD`: a recompressed page takes less room, so it may stay until the
        // clock has met it twice again.
        word.store(tight.map_or(before, |(place, _)| pack(place) | TIGHT) | TRIED, Ordering::Relaxed);
        if let Some((_, has_room)) = tight {
            self.tight.fetch_add(1, Ordering::Relaxed);
            if has_room {
                self.has_room();
            }
        }
        tight.is_some()
    }

    /// Frees the place of the page in a slot that the caller owns.
    pub(crate) fn forget(&self, slot: u32) {
        let word = self.places[slot as usize].swap(0, Ordering::Relaxed);
        if let Some(place) = unpack(word) {
            self.pool.free(place);
            if word & TIGHT != 0 {
                self.tight.fetch_sub(1, Ordering::Relaxed);
            }
            self.has_room();
        }
    }

    fn has_room(&self) {
        if self.full.load(Ordering::Relaxed) {
            self.full.store(false, Ordering::Relaxed);
        }
    }

    /// Records that there was no room, or no slot.
    pub(crate) fn becomes_crowded(&self) {
        // Relaxed: a hint. Read first, because many threads may do the same, and a store would
        // contend.
        if !self.crowded.load(Ordering::Relaxed) {
            self.crowded.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether pages were refused for lack of room since a thread last made room.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Passes old pages to `spill`. Returns how many pages were moved or recompressed. Returns
    /// `None` at once if another thread is spilling. A fault may be waiting for this call, so the
    /// call tries at most `wanted` pages, even if no attempt succeeds. Once `spill` has returned
    /// `Full`, no later page of this call can go to another area. After any other error the call
    /// ends.
    ///
    /// While no page can go to another area, pages can only be recompressed. Then the call skips
    /// pages whose recompression was tried already, and looks at fewer slots.
    pub(crate) fn spill(
        &self,
        wanted: usize,
        mut can_go: bool,
        mut spill: impl FnMut(u32, Turn<'_>) -> Result<Fate, SwapOutError>,
    ) -> Option<usize> {
        let mut clock = self.clock.try_lock()?;
        self.crowded.store(false, Ordering::Relaxed);
        let Clock { next, page, compressor } = &mut *clock;
        let (mut tried, mut gone, mut tightened, words) = (0, 0, 0, self.page_size / size_of::<u64>());
        // Up to two rounds, because all pages may be new in the first round, which marks them. In a
        // large area `LOOKS_MAX` ends the loop earlier. Then this call may find no old page, and
        // only mark pages for later calls.
        for look in 0..LOOKS_MAX.min(2 * self.places.len()) {
            if tried == wanted || !can_go && look >= LOOKS {
                break;
            }
            let slot = *next;
            *next = (slot + 1) % self.places.len();
            if !self.is_old(slot) || !can_go && self.places[slot].load(Ordering::Relaxed) & TRIED != 0 {
                continue;
            }
            tried += 1;
            let turn = Turn { page: SharedBytes::new(page.part(0..words)), compressor, can_go };
            match spill(slot as u32, turn) {
                Ok(Fate::Stays) => {}
                Ok(Fate::Tightened) => tightened += 1,
                Ok(Fate::Gone) => gone += 1,
                Err(SwapOutError::Full) => can_go = false,
                Err(_) => break,
            }
        }
        self.spilled.fetch_add(gone as u64, Ordering::Relaxed);
        Some(gone + tightened)
    }

    /// Returns how many calls of [`spill`](Self::spill) take the clock round all slots twice.
    pub(crate) fn calls_in_two_rounds(&self) -> usize {
        2 * self.places.len().div_ceil(LOOKS_MAX)
    }

    /// Returns whether the clock has met the page of a slot before. Marks the page.
    fn is_old(&self, slot: usize) -> bool {
        let place = &self.places[slot];
        // Relaxed: a hint. Between the load and the compare-exchange, the slot may be reused for
        // another page, whose compressed bytes may get the same place. Then that page is marked
        // instead, and counts as old too early.
        let seen = place.load(Ordering::Relaxed);
        seen != 0
            && (seen & OLD != 0 || {
                let _ = place.compare_exchange(seen, seen | OLD, Ordering::Relaxed, Ordering::Relaxed);
                false
            })
    }

    /// Fills the stock until it is full, or no more memory can be charged. Returns whether the
    /// stock is full, or the pool is at its limit.
    pub(crate) fn stock_up(&self) -> bool {
        let before = self.pool.held_bytes();
        let is_enough = self.pool.stock_up();
        if self.pool.held_bytes() > before {
            self.has_room();
        }
        is_enough
    }

    /// First gives back memory that isn't in use. Returns whether the area still has more memory
    /// than its limit allows now.
    pub(crate) fn is_beyond(&self) -> bool {
        self.pool.is_beyond()
    }

    /// Gives back memory that isn't in use.
    pub(crate) fn release_idle(&self) {
        self.pool.release_idle();
    }

    pub(crate) fn info(&self) -> CompressedInfo {
        let sum = |count: fn(&Refused) -> &AtomicU64| {
            self.refused.iter().map(|refused| count(refused).load(Ordering::Relaxed)).sum()
        };
        let content = self.pool.content();
        let tight = self.tight.load(Ordering::Relaxed).min(content.pages);
        CompressedInfo {
            limit_bytes: self.pool.limit(),
            memory_bytes: self.pool.held_bytes(),
            original_bytes: content.pages * self.page_size as u64,
            compressed_bytes: content.bytes,
            incompressible: sum(|refused| &refused.incompressible),
            no_room: sum(|refused| &refused.no_room),
            spilled: self.spilled.load(Ordering::Relaxed),
            lz4_pages: content.pages - tight,
            zstd_pages: tight,
        }
    }

    /// Flips a bit of a slot's compressed bytes.
    #[cfg(all(test, not(pagefold_loom)))]
    fn rot(&self, slot: u32, bit: usize) {
        let word = self.places[slot as usize].load(Ordering::Relaxed);
        let place = unpack(word).expect("a page");
        let mut bytes = vec![0; place.len as usize];
        self.pool.load(place, &mut bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        self.pool.free(place);
        let rotten = self.pool.store(&bytes, Need::Usual).expect("room");
        self.places[slot as usize].store(pack(rotten) | word & !PLACE, Ordering::Relaxed);
    }
}

const LEN_BITS: u32 = 22;
const BLOCK_BITS: u32 = 10;
const CHUNK_BITS: u32 = 29;
const PLACE: u64 = (1 << (LEN_BITS + BLOCK_BITS + CHUNK_BITS)) - 1;
/// The page is compressed with Zstandard.
const TIGHT: u64 = 1 << 61;
/// Recompression with Zstandard was tried, and isn't tried again.
const TRIED: u64 = 1 << 62;
/// The clock has met the page.
const OLD: u64 = 1 << 63;

const _: () = assert!(LEN_BITS + BLOCK_BITS + CHUNK_BITS == 61);

/// Packs a place into a word: 22 bits of length, 10 of block, 29 of chunk. The length isn't 0, so
/// the word isn't either. The chunk fits, because an area has at most 2^25 chunks (2^31 slots).
fn pack(place: Place) -> u64 {
    u64::from(place.chunk) << (LEN_BITS + BLOCK_BITS) | u64::from(place.block) << LEN_BITS | u64::from(place.len)
}

fn unpack(word: u64) -> Option<Place> {
    let len = word as u32 & ((1 << LEN_BITS) - 1);
    let block = (word >> LEN_BITS) as u16 & ((1 << BLOCK_BITS) - 1);
    let chunk = (word & PLACE) >> (LEN_BITS + BLOCK_BITS);
    (word != 0).then_some(Place { chunk: chunk as u32, block, len })
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
