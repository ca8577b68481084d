//! What stands in a device's place in an area whose pages stay in memory, compressed.
//!
//! Everything about slots is as in other areas: a page has a slot, a seal over its bytes
//! as they were, an owner. What a slot has besides is the *place* of the compressed bytes
//! in a [`BlockPool`]: one word, the slot's owner's as the seal is, and published by the
//! slot's word. It is set when the page is written, and taken away when the slot is freed.
//!
//! | what happens | |
//! |---|---|
//! | a page takes more than three quarters of its size, compressed | *refused*: it goes to the next area, or stays |
//! | the limit is reached, or the budget has no room | the same; then there is made room (`spill`) |
//! | a page has been there for long when room is wanted | *tightened*, once: compressed again, with Zstandard, in its place |
//! | it takes no less so, or has been there for long again | *spilled*: it goes to another area, if one has a slot |
//! | compressed bytes have rotted | they are none any more, or the seal doesn't fit: `SwapCorrupt` |
//! | the area is removed | pages are brought back; the pool uncharges what is left when it goes |
//!
//! An area has four slots for each page of its limit, as most pages that are worth compressing
//! shrink to more than a quarter; where they shrink further, slots are what it runs out of first.

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
    /// Of each slot; 0 without one.
    places: Box<[AtomicU64]>,
    refused: PerCpu<Refused>,
    /// Pages were refused for want of room since a thread last made room.
    crowded: AtomicBool,
    /// There was no room for the last page that came: until a page goes, or there is memory again,
    /// others needn't be compressed.
    full: AtomicBool,
    /// Where the search for old pages goes on, and what it needs. The thread whose turn it is has
    /// the lock.
    clock: Mutex<Clock>,
    spilled: AtomicU64,
    /// Pages in it that were tightened.
    tight: AtomicU64,
    limit: u64,
    page_size: usize,
}

/// Pages that it didn't take. `Relaxed`: statistics.
#[derive(Default)]
struct Refused {
    incompressible: AtomicU64,
    no_room: AtomicU64,
}

/// Goes round the slots. A page that it meets for the second time has been there for a whole round.
struct Clock {
    next: usize,
    page: SparseWords,
    compressor: Compressor,
}

/// What there is for an old page: room to read it, what tightens it, and whether it may go to
/// another area.
pub(crate) struct Turn<'a> {
    pub(crate) page: SharedBytes<'a>,
    pub(crate) compressor: &'a mut Compressor,
    pub(crate) can_go: bool,
}

/// What a compressed area has and does. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompressedInfo {
    /// The most memory that it may take.
    pub limit_bytes: u64,
    /// What it has taken, what it keeps in stock included.
    pub memory_bytes: u64,
    /// Pages in it, as they were.
    pub original_bytes: u64,
    /// The same, compressed.
    pub compressed_bytes: u64,
    /// Pages that it refused because they would have taken more than three quarters of their size.
    pub incompressible: u64,
    /// And those because it had no memory for them.
    pub no_room: u64,
    /// Pages that went on to other areas.
    pub spilled: u64,
    /// Pages in it that are compressed with LZ4.
    pub lz4_pages: u64,
    /// And those with Zstandard.
    pub zstd_pages: u64,
}

/// What came of an old page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// It takes less room.
    Tightened,
    /// It is somewhere else.
    Gone,
}

/// One page in so many is tried although there seems to be no room.
const TRIED_SHARE: u64 = 64;

/// Slots that are looked at for pages that may be tightened, where none can go on.
const LOOKS: usize = 4096;
/// And for any pages: about 200 µs, for which a fault waits.
const LOOKS_MAX: usize = 1 << 16;

/// Slots for each page of the limit.
const SLOTS_PER_PAGE: u64 = 4;

impl Compressed {
    /// Of at most `limit` bytes; `None` if there is no memory for its tables.
    pub(crate) fn new(limit: u64, reserve: u64, page_size: usize, memory: Arc<dyn Memory>) -> Option<Self> {
        let page = SparseWords::new(page_size / size_of::<u64>())?;
        Some(Self {
            pool: BlockPool::new(limit, reserve, page_size, memory)?,
            codec: Codec::new(page_size),
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

    /// Slots of an area of that limit, the header's included, which it has no use for.
    pub(crate) fn slots(limit: u64, page_size: usize) -> u64 {
        (limit / page_size as u64).saturating_mul(SLOTS_PER_PAGE)
    }

    /// The smallest limit.
    pub(crate) fn limit_min(page_size: usize) -> u64 {
        BlockPool::chunk_cost(page_size)
    }

    /// Memory that it takes when it is empty.
    pub(crate) fn bytes(limit: u64, page_size: usize) -> u64 {
        let places = Self::slots(limit, page_size).saturating_mul(size_of::<u64>() as u64);
        let codecs = Codec::bytes(page_size) + Compressor::bytes(page_size) + Decompressors::bytes();
        places + BlockPool::bytes(limit, page_size) + codecs + page_size as u64
    }

    /// The same of this one.
    pub(crate) fn table_bytes(&self) -> u64 {
        Self::bytes(self.limit, self.page_size)
    }

    /// Keeps a page for a slot that is the caller's, and has none. False if it is refused.
    pub(crate) fn write(&self, slot: u32, page: SharedBytes<'_>, need: Need) -> bool {
        let refused = self.refused.here();
        // Relaxed, all accesses: a hint, which a thread that makes room clears afterwards.
        if need == Need::Usual && self.full.load(Ordering::Relaxed) {
            self.becomes_crowded();
            // Now and then a page is tried all the same: a thread may have made room a moment too
            // early to be noticed.
            if !(refused.no_room.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(TRIED_SHARE) {
                return false;
            }
        }
        let stored = self.codec.compress(page, self.pool.len_max(), |bytes| self.pool.store(bytes, need));
        match stored {
            Some(Some(place)) => {
                if need == Need::Usual {
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

    /// Reads the page of a slot that is the caller's. False if it is none any more; its seal is for
    /// the caller to check.
    pub(crate) fn read(&self, slot: u32, into: SharedBytes<'_>) -> bool {
        // Relaxed: the place was stored before the slot's word, which was looked at (Acquire). If
        // the page was recompressed since, the thread that did so had the page then, and having the
        // page (its word's *loading*) orders that.
        let word = self.places[slot as usize].load(Ordering::Relaxed);
        let Some(place) = unpack(word) else { return false };
        let unpack = |packed: &[u8], page: &mut [u8]| match word & TIGHT {
            0 => Codec::unpack(packed, page),
            _ => self.decompressors.decompress(packed, page),
        };
        self.codec.decompress(place.len as usize, |bytes| self.pool.load(place, bytes), unpack, into)
    }

    /// Recompresses a page, which is in `bytes` and in a slot that is the caller's, if that wasn't
    /// tried before. Returns whether the page takes less room now.
    pub(crate) fn tighten(&self, slot: u32, bytes: SharedBytes<'_>, compressor: &mut Compressor) -> bool {
        let word = &self.places[slot as usize];
        // Relaxed, both: as in `read` and `write`. Only the thread that has the clock changes the
        // word of a page that is there.
        let before = word.load(Ordering::Relaxed);
        let Some(place) = unpack(before).filter(|_| before & TRIED == 0) else { return false };
        let len_max = self.pool.tighter(place.len as usize);
        let tight = compressor.compress(bytes, len_max, |packed| self.pool.shrink(place, packed));
        // A tight one is new again: it may stay for as long as it did, for less.
        word.store(tight.map_or(before, |(place, _)| pack(place) | TIGHT) | TRIED, Ordering::Relaxed);
        if let Some((_, has_room)) = tight {
            self.tight.fetch_add(1, Ordering::Relaxed);
            if has_room {
                self.has_room();
            }
        }
        tight.is_some()
    }

    /// Forgets the page of a slot that is the caller's.
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

    /// There was no room, or no slot.
    pub(crate) fn becomes_crowded(&self) {
        // Relaxed: a hint. Looked at first, as others may do the same.
        if !self.crowded.load(Ordering::Relaxed) {
            self.crowded.store(true, Ordering::Relaxed);
        }
    }

    /// Whether pages were refused for want of room since a thread last made room.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Passes up to `wanted` old pages to `spill`. An attempt counts whatever comes of it, because
    /// a fault waits for this. Once a page found all other areas full, later ones may not go on any
    /// more; another error ends the pass. While no page can go on, pages that were recompressed in
    /// vain aren't passed, and fewer slots are looked at. Returns the number of pages that have
    /// gone or take less room. Returns 0 at once if another thread is spilling.
    pub(crate) fn spill(
        &self,
        wanted: usize,
        mut can_go: bool,
        mut spill: impl FnMut(u32, Turn<'_>) -> Result<Fate, SwapOutError>,
    ) -> usize {
        let Some(mut clock) = self.clock.try_lock() else { return 0 };
        self.crowded.store(false, Ordering::Relaxed);
        let Clock { next, page, compressor } = &mut *clock;
        let (mut tried, mut gone, mut tightened, words) = (0, 0, 0, self.page_size / size_of::<u64>());
        // Two rounds: in the first one all may be new. In a large area this call may only mark
        // them, for the next ones.
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
        gone + tightened
    }

    /// Whether a slot's page was there when this last came by. Marks it.
    fn is_old(&self, slot: usize) -> bool {
        let place = &self.places[slot];
        // Relaxed: a hint. If it is another page's by the time that it is marked, which needs the
        // same place, that one is taken for old.
        let seen = place.load(Ordering::Relaxed);
        seen != 0
            && (seen & OLD != 0 || {
                let _ = place.compare_exchange(seen, seen | OLD, Ordering::Relaxed, Ordering::Relaxed);
                false
            })
    }

    /// Takes memory into stock, if it can be had. Says whether that is enough.
    pub(crate) fn stock_up(&self) -> bool {
        let before = self.pool.held_bytes();
        let is_enough = self.pool.stock_up();
        if self.pool.held_bytes() > before {
            self.has_room();
        }
        is_enough
    }

    /// Whether it has more memory than it may, as there is less of it.
    pub(crate) fn is_beyond(&self) -> bool {
        self.pool.is_beyond()
    }

    /// Gives back what isn't in use.
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
/// That was tried, and won't be again.
const TRIED: u64 = 1 << 62;
/// The clock came by.
const OLD: u64 = 1 << 63;

const _: () = assert!(LEN_BITS + BLOCK_BITS + CHUNK_BITS == 61);

/// A place as a word: 22 bits of length, which isn't 0, 10 of block, 29 of chunk, of which an area
/// has no more than 2^25 (2^31 slots).
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
