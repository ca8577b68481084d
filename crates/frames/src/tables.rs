//! Tables of words, for an index that readers search without a lock.
//!
//! A table is 512 words in a reserved array. Tables are allocated and freed; most free tables have
//! no memory. The array is never unmapped. So a reader that loads a word of a freed table gets
//! zero, or a word of the table's next use.
//!
//! The index (`pagefold`'s `space::tree`) has to detect such a reuse. Therefore the index refers to
//! tables by [`Table`]s. A `Table` contains the table's number and a count of the table's previous
//! uses, so its value is never reused.
//!
//! - T1. A freed table reads as zeros before it is allocated again. A reader that loads one of
//!   these zeros also sees every change that was made to the index before the table was zeroed. If
//!   a thread stored the zero, the store was a Release, which pairs with the Acquire of the
//!   reader's load. If a system call replaced the memory by zeros, the kernel provides the order:
//!   the changes were made before the call, and no CPU can load the zeros before the kernel has
//!   unmapped the old memory on all CPUs.
//! - T2. A table number whose count of uses has reached its maximum is never allocated again.
//!
//! Each page map also has a table of its own, in a second array, as long as the map lives. The
//! index of the table in this array is the map's number.
//!
//! If a system page is larger than a table, freed tables keep their memory until they are used
//! again.

use std::collections::BTreeSet;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;

use crate::error::ReserveError;
#[cfg(not(pagefold_loom))]
use crate::map_number::MapInWord;
use crate::map_number::{MapNumber, NUMBER_SHIFT};
use crate::region::{Protection, Region};

/// Log2 of the words in a table. A loom model needs only a few.
pub const TABLE_SHIFT: u32 = if cfg!(pagefold_loom) { 1 } else { 9 };
/// The size of a table in bytes.
pub const TABLE_BYTES: u64 = 8 << TABLE_SHIFT;

/// The bits of a [`Table`], from the lowest: `NUMBER_SHIFT` zeros, then the table's number, then
/// the count of the table's uses. A table has `1 << NUMBER_SHIFT` bytes. So masking out the count
/// leaves the table's offset in the array in bytes.
const NUMBER_BITS: u32 = 24;
const COUNT_BITS: u32 = 26;
/// The number of tables that are made writable at a time.
const STEP: usize = 512;
/// The maximum number of freed tables that keep their memory for the next use.
const WARM_MAX: usize = 16;

#[cfg(not(pagefold_loom))]
const _: () = assert!(TABLE_BYTES == 1 << NUMBER_SHIFT, "a number stands where its place is");

/// A table that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table(u64);

impl Table {
    /// The maximum number of bits of [`bits`](Self::bits).
    pub const BITS: u32 = NUMBER_SHIFT + NUMBER_BITS + COUNT_BITS;

    /// Returns the table as bits that can be stored in a word.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Creates the table from [`bits`](Self::bits). Higher bits are ignored.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    fn number(self) -> usize {
        (self.0 >> NUMBER_SHIFT) as usize & ((1 << NUMBER_BITS) - 1)
    }

    /// Returns the same table number with the next count of uses. Returns `None` if the count has
    /// reached its maximum (T2).
    fn again(self) -> Option<Self> {
        let next = self.0 + (1 << (NUMBER_SHIFT + NUMBER_BITS));
        (next >> Self::BITS == 0).then_some(Self(next))
    }
}

/// All tables.
#[derive(Debug)]
pub struct Tables {
    words: Region<AtomicU64>,
    of_maps: Region<AtomicU64>,
    /// For each page map, a number that the map's owner keeps there.
    notes: Region<AtomicU32>,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// The lowest table number that was never allocated.
    next: usize,
    /// Free tables without memory.
    cold: Vec<Table>,
    /// Free tables with memory, all zeros.
    warm: Vec<Table>,
    /// The runs of [`STEP`] tables that are writable, in each of the two arrays.
    open: BTreeSet<usize>,
    open_of_maps: BTreeSet<usize>,
}

impl Tables {
    /// Reserves address space for `count` tables, and for one table for each of `maps` page maps.
    /// If the system refuses the space for `count` tables, this halves `count` and retries, down to
    /// [`STEP`] tables.
    pub(crate) fn reserve(count: usize, maps: usize) -> Result<Self, ReserveError> {
        assert!(maps.is_power_of_two(), "a mask leaves a map's number");
        // A forked child reads zeros: nothing is mapped.
        let open = Protection::default();
        let closed = Protection { closed: true, ..open };
        let mut count = count.next_power_of_two().min(1 << NUMBER_BITS);
        let words = loop {
            match Region::reserve(count << TABLE_SHIFT, closed) {
                Err(_) if count > STEP => count /= 2,
                reserved => break reserved?,
            }
        };
        Ok(Self {
            words,
            of_maps: Region::reserve(maps << TABLE_SHIFT, closed)?,
            notes: Region::reserve(maps, open)?,
            free: Mutex::default(),
        })
    }

    /// Allocates a table of zeros.
    ///
    /// # Errors
    /// If all tables are in use, or the system refuses memory.
    pub fn take(&self) -> Result<Table, ReserveError> {
        let mut free = self.free.lock();
        if let Some(table) = free.warm.pop().or_else(|| free.cold.pop()) {
            return Ok(table);
        }
        let number = free.next;
        if number >= self.words.len() >> TABLE_SHIFT {
            return Err(ReserveError { bytes: TABLE_BYTES, errno: rustix::io::Errno::NOMEM.raw_os_error() });
        }
        open(&self.words, number, &mut free.open)?;
        free.next += 1;
        Ok(Table((number as u64) << NUMBER_SHIFT))
    }

    /// Frees a table to which no index refers any longer. Late readers may still read it.
    pub fn give_back(&self, table: Table) {
        let warm = self.free.lock().warm.len() < WARM_MAX;
        self.clear(&self.words, table.number(), warm);
        let Some(again) = table.again() else { return };
        let mut free = self.free.lock();
        if warm { free.warm.push(again) } else { free.cold.push(again) }
    }

    /// Makes the table of a page map writable.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn open_of_map(&self, map: MapNumber) -> Result<(), ReserveError> {
        open(&self.of_maps, map.0, &mut self.free.lock().open_of_maps)
    }

    /// Gives the memory of a page map's table back to the system. The table reads as zeros then.
    pub fn discard_of_map(&self, map: MapNumber) {
        self.clear(&self.of_maps, map.0, false);
    }

    /// Gives the memory of a table back to the system. The table stays allocated and reads as
    /// zeros.
    pub fn discard(&self, table: Table) {
        self.clear(&self.words, table.number(), false);
    }

    fn clear(&self, words: &Region<AtomicU64>, number: usize, keep_memory: bool) {
        let range = number << TABLE_SHIFT..(number + 1) << TABLE_SHIFT;
        let gives_memory = !keep_memory && crate::system_page_size() as u64 <= TABLE_BYTES;
        if !(gives_memory && words.discard(range.clone())) {
            words[range].iter().for_each(|word| word.store(0, Ordering::Release)); // T1
        }
    }

    /// Returns a word of a table; `at` is taken modulo the table's length.
    #[inline]
    #[must_use]
    pub fn word(&self, table: Table, at: u64) -> &AtomicU64 {
        &self.words[(table.number() << TABLE_SHIFT) + (at as usize & ((1 << TABLE_SHIFT) - 1))]
    }

    /// Returns a word of a page map's table; `at` is taken modulo the table's length.
    #[inline]
    #[must_use]
    pub fn word_of_map(&self, map: MapNumber, at: u64) -> &AtomicU64 {
        &self.of_maps[(map.0 << TABLE_SHIFT) + (at as usize & ((1 << TABLE_SHIFT) - 1))]
    }

    /// Returns the number that the owner of a page map keeps with the map.
    #[must_use]
    pub fn note_of_map(&self, map: MapNumber) -> &AtomicU32 {
        &self.notes[map.0]
    }

    /// Returns the addresses of the tables, for hits.
    #[cfg(not(pagefold_loom))]
    pub(crate) fn lookup(&self) -> TableLookup {
        TableLookup {
            words: core::ptr::NonNull::from(&*self.words).cast(),
            of_maps: core::ptr::NonNull::from(&*self.of_maps).cast(),
            mask: (size_of_val(&*self.words) - 1) >> NUMBER_SHIFT << NUMBER_SHIFT,
            mask_of_maps: (size_of_val(&*self.of_maps) - 1) >> NUMBER_SHIFT << NUMBER_SHIFT,
        }
    }
}

/// The addresses of all tables. The number of tables is a power of two, so a mask can select the
/// bits of a table's number. In a word that contains the number at [`NUMBER_SHIFT`], the selected
/// bits are the table's offset in bytes.
#[cfg(not(pagefold_loom))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableLookup {
    words: core::ptr::NonNull<AtomicU64>,
    of_maps: core::ptr::NonNull<AtomicU64>,
    mask: usize,
    mask_of_maps: usize,
}

#[cfg(not(pagefold_loom))]
// SAFETY: the pointers are to atomics that live as long as the frames, and only shared references
// are made from them.
unsafe impl Send for TableLookup {}
#[cfg(not(pagefold_loom))]
// SAFETY: as above.
unsafe impl Sync for TableLookup {}

#[cfg(not(pagefold_loom))]
impl TableLookup {
    /// Returns a word of a table. See also [`Tables::word`].
    ///
    /// # Safety
    /// The caller must keep the frames alive as long as the result.
    #[inline(always)]
    pub(crate) unsafe fn word<'a>(self, table: Table, at: u64) -> &'a AtomicU64 {
        // SAFETY: the mask yields the offset of a table of the array, which has the word at `at`;
        // the caller ensures the lifetime.
        unsafe {
            self.words.byte_add(table.0 as usize & self.mask).add(at as usize & ((1 << TABLE_SHIFT) - 1)).as_ref()
        }
    }

    /// Returns a word of a page map's table. See also [`Tables::word_of_map`].
    ///
    /// # Safety
    /// The caller must keep the frames alive as long as the result.
    #[inline(always)]
    pub(crate) unsafe fn word_of_map<'a>(self, map: MapInWord, at: u64) -> &'a AtomicU64 {
        // SAFETY: as in `word`.
        unsafe { self.of_maps.byte_add(self.place_of(map)).add(at as usize & ((1 << TABLE_SHIFT) - 1)).as_ref() }
    }

    /// Returns the offset of a map's table in bytes. The mask keeps the offset in range.
    #[inline(always)]
    pub(crate) fn place_of(self, MapInWord(word): MapInWord) -> usize {
        word as usize & self.mask_of_maps
    }
}

fn open(words: &Region<AtomicU64>, number: usize, steps: &mut BTreeSet<usize>) -> Result<(), ReserveError> {
    let step = number / STEP;
    if !steps.contains(&step) {
        let tables = step * STEP..((step + 1) * STEP).min(words.len() >> TABLE_SHIFT);
        words.open(tables.start << TABLE_SHIFT..tables.end << TABLE_SHIFT)?;
        steps.insert(step);
    }
    Ok(())
}
