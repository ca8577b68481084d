//! The words of a space's index, in four levels of tables, read without a lock.
//!
//! | level | a word covers | | a link leads to |
//! |---|---|---|---|
//! | top | 2^27 pages | in the space itself | a *part*: a table that is the place's for as long as the space |
//! | part | 2^18 pages, a *region* | | the table of a page map: page words, for pages that come |
//! | region | 2^9 pages, a *granule* | | a *leaf*: a table |
//! | leaf | a page | | |
//!
//! A word is an entry (`entry`) for all that it covers, or a link: bit 63. Bit 62 of a link says
//! that it is noted as perhaps not needed any more (`tidy`). Words are looked up without a lock,
//! and changed by threads that have locked the pages; a word that isn't a link may become one at
//! any time, to words that say the same.
//!
//! # Invariants
//! - TREE-1. A link never comes back to a word, bit 62 aside: a leaf's has the table's count of
//!   uses, a region's its record's.
//! - TREE-2. A table's words are filled before the link to it is stored (Release; loads are
//!   Acquire).
//! - TREE-3. A table is given back after the link to it was replaced. What its words are then is
//!   other threads' affair, and a zero, too, is stored so that a reader that loads it finds the
//!   link replaced (T1 of `frames::tables`).
//! - TREE-4. A link to a leaf is replaced by a thread that has locked the whole granule; one to a
//!   region, by a thread that has locked the region, in which nothing is mapped. So neither goes
//!   while a thread has locked a part of what it covers.
//!
//! # Looking without a lock
//! A reader walks down to a word that isn't a link, and then looks at the links above it again, the
//! lowest first:
//! ```text
//!   reader                                others
//!   l = part[r]        a link             part[r] = 0: the region goes
//!   g = region[i]      a link             the leaf is given back, taken for another granule, and filled
//!   e = leaf[p]                           … with what is mapped there
//!   region[i] == g?                       no: replaced before the leaf was given back (TREE-3)
//!   part[r] == l?
//! ```
//! If all are as before, they were so in between (TREE-1), so `e` was in the leaf of that granule
//! of that region at the moment when it was loaded: it is what was mapped. Parts need no second
//! look, as they are never another place's.
//!
//! A thread that keeps the words of its [`Trail`] asks again later by three loads: the entry's word
//! first, then the links above it. Bit 62 counts there, too: a link that was noted meanwhile is
//! another way. What holds of the first look holds of this one. If a change of the page's entry
//! isn't seen, be it a store to the word that the way leads to, or to a link above it, then all
//! three loads came before that store in the order of fences: S1 of `space` needs no more.

use frames::{MapInWord, MapNumber, NUMBER_SHIFT, PageMaps, ReserveError, TABLE_SHIFT, Table, Tables};
use sync::atomic::{AtomicU64, Ordering};

/// Pages that a word of each level covers, as powers of two.
pub(super) const GRANULE_SHIFT: u32 = TABLE_SHIFT;
pub(super) const REGION_SHIFT: u32 = 2 * TABLE_SHIFT;
pub(super) const PART_SHIFT: u32 = 3 * TABLE_SHIFT;
/// Words of the top level: enough for 2^47 bytes in pages of 4 KiB.
pub(super) const PARTS: usize = if cfg!(pagefold_loom) { 1 } else { 256 };

pub(super) const LINK: u64 = 1 << 63;
pub(super) const NOTED: u64 = 1 << 62;
/// Where the count in a link to a region begins: above its page map's number, which stands where a
/// table's does.
const COUNT_SHIFT: u32 = NUMBER_SHIFT + MapInWord::BITS;
/// The largest count.
pub(super) const COUNT_MAX: u64 = (1 << (62 - COUNT_SHIFT)) - 1;

#[inline]
pub(super) fn is_link(word: u64) -> bool {
    word >= LINK
}

/// The link to the table of a page map, made for the `count`th time.
pub(super) fn region_link(map: MapNumber, count: u64) -> u64 {
    LINK | count << COUNT_SHIFT | map.bits() << NUMBER_SHIFT
}

/// The page map that a link to a region has.
#[inline]
pub(super) fn map_of(link: u64) -> MapNumber {
    MapInWord(link).number()
}

/// The count of a link to a region.
pub(super) fn count_of(link: u64) -> u64 {
    (link >> COUNT_SHIFT) & COUNT_MAX
}

fn same(link: u64, other: u64) -> bool {
    (link ^ other) & !NOTED == 0
}

/// What was found for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its entry.
    pub(super) entry: u64,
    /// How many pages around it, aligned, have the same for certain: a power of two.
    pub(super) shift: u32,
    /// The link to its region, if it has one.
    pub(super) region: Option<u64>,
}

/// A word, and what it said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a>(pub(super) &'a AtomicU64, pub(super) u64);

impl<'a> Seen<'a> {
    #[inline(always)]
    fn look(word: &'a AtomicU64) -> Self {
        // Acquire, here and below: each look comes before the next one.
        Self(word, word.load(Ordering::Acquire))
    }

    /// Whether the word says so still.
    #[inline(always)]
    pub(super) fn is_still(self) -> bool {
        self.0.load(Ordering::Acquire) == self.1
    }
}

/// The words on the way to a page whose region has a page map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    pub(super) region: Seen<'a>,
    pub(super) granule: Seen<'a>,
}

impl<'a> Way<'a> {
    /// The page's word in the granule's leaf, if there is one.
    #[inline(always)]
    pub(super) fn leaf(self, maps: &'a PageMaps, page: u64) -> Option<Seen<'a>> {
        is_link(self.granule.1).then(|| Seen::look(maps.table_word(Table::from_bits(self.granule.1), page)))
    }

    /// Whether this is the way at this moment: asked after the leaf.
    #[inline(always)]
    pub(super) fn is_still(self) -> bool {
        self.granule.is_still() && self.region.is_still()
    }
}

/// A way to the very end: the page's entry, and the words above it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trail<'a> {
    way: Way<'a>,
    leaf: Option<Seen<'a>>,
}

impl<'a> Trail<'a> {
    /// The page's entry, as it was if the trail [is still](Self::is_still) there.
    #[inline]
    pub(super) fn entry(&self) -> u64 {
        self.leaf.unwrap_or(self.way.granule).1
    }

    /// The link to the page's region.
    #[inline]
    pub(super) fn link(&self) -> u64 {
        self.way.region.1
    }

    /// Whether the entry is what is mapped at the page at this moment.
    #[inline]
    pub(super) fn is_still(&self) -> bool {
        self.leaf.is_none_or(Seen::is_still) && self.way.is_still()
    }
}

/// The top level.
#[derive(Debug)]
pub(super) struct Tree {
    top: [AtomicU64; PARTS],
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { top: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The word of the top level for a page. `None` past the end of the space.
    #[inline]
    pub(super) fn top(&self, page: u64) -> Option<&AtomicU64> {
        self.top.get(usize::try_from(page >> PART_SHIFT).ok()?)
    }

    /// The way to a page, or the word that has its entry, which is one of whole regions. `None`
    /// past the end of the space.
    #[inline(always)]
    pub(super) fn way<'a>(&'a self, maps: &'a PageMaps, page: u64) -> Option<Result<Way<'a>, Seen<'a>>> {
        let top = Seen::look(self.top(page)?);
        if !is_link(top.1) {
            return Some(Err(top));
        }
        let region = Seen::look(maps.table_word(Table::from_bits(top.1), page >> REGION_SHIFT));
        if !is_link(region.1) {
            return Some(Err(region));
        }
        let granule = Seen::look(maps.map_table_word(MapInWord(region.1), page >> GRANULE_SHIFT));
        Some(Ok(Way { region, granule }))
    }

    /// The way to a page's entry, if its region has a page map.
    #[inline]
    pub(super) fn trail<'a>(&'a self, maps: &'a PageMaps, page: u64) -> Option<Trail<'a>> {
        let way = self.way(maps, page)?.ok()?;
        Some(Trail { way, leaf: way.leaf(maps, page) })
    }

    /// What is at a page, at one moment.
    #[inline(always)]
    pub(super) fn look(&self, maps: &PageMaps, page: u64) -> Found {
        self.look_up_to(maps, page, page + 1).0
    }

    /// The same, and the end of the pages after it that have the same: as far as a word shows, or a
    /// leaf, up to `end`.
    #[inline(always)]
    pub(super) fn look_up_to(&self, maps: &PageMaps, page: u64, end: u64) -> (Found, u64) {
        let whole = |entry, shift, region| (Found { entry, shift, region }, ((page >> shift) + 1) << shift);
        let Some(top) = self.top(page) else { return whole(0, PART_SHIFT, None) };
        loop {
            // Acquire, here and below: TREE-2, and each look comes before the next one.
            let part = top.load(Ordering::Acquire);
            if !is_link(part) {
                return whole(part, PART_SHIFT, None);
            }
            let region = maps.table_word(Table::from_bits(part), page >> REGION_SHIFT);
            let link = region.load(Ordering::Acquire);
            if !is_link(link) {
                return whole(link, REGION_SHIFT, None);
            }
            let (entry, shift, same_end) = look_in_region(maps, MapInWord(link), page, end);
            if same(region.load(Ordering::Acquire), link) {
                return (Found { entry, shift, region: Some(link) }, same_end);
            }
        }
    }
}

/// What is at a page of the region that has a page map, as long as it does; how many pages around
/// it have that, as a power of two; and the end of the pages after it that have it, up to `end`.
#[inline(always)]
pub(super) fn look_in_region(maps: &PageMaps, map: MapInWord, page: u64, end: u64) -> (u64, u32, u64) {
    let granule = maps.map_table_word(map, page >> GRANULE_SHIFT);
    let granule_end = ((page >> GRANULE_SHIFT) + 1) << GRANULE_SHIFT;
    loop {
        let leaf = granule.load(Ordering::Acquire);
        if !is_link(leaf) {
            return (leaf, GRANULE_SHIFT, granule_end);
        }
        let entry = |page| maps.table_word(Table::from_bits(leaf), page).load(Ordering::Acquire);
        let (found, mut same_end) = (entry(page), page + 1);
        while same_end < end.min(granule_end) && entry(same_end) == found {
            same_end += 1;
        }
        if same(granule.load(Ordering::Acquire), leaf) {
            return (found, 0, same_end);
        }
    }
}

/// Puts the link to a new table, full of `entry`, into a word that says so. False if the word says
/// something else by now.
///
/// # Errors
/// When there is no table.
pub(super) fn link_table(tables: &Tables, word: &AtomicU64, entry: u64) -> Result<bool, ReserveError> {
    let table = tables.take()?;
    // Release, as a late reader of an earlier use of the table has to find that use over (TREE-3).
    (0..1 << TABLE_SHIFT).for_each(|at| tables.word(table, at).store(entry, Ordering::Release));
    // Release: TREE-2. Acquire on failure: another thread's table is filled.
    let linked = word.compare_exchange(entry, LINK | table.bits(), Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !linked {
        tables.give_back(table);
    }
    Ok(linked)
}

/// Makes a granule one entry if its pages are alike, and gives its leaf back. All of it is locked.
pub(super) fn close_leaf(tables: &Tables, granule: &AtomicU64, leaf: u64) -> bool {
    let table = Table::from_bits(leaf);
    let entry = |at| tables.word(table, at).load(Ordering::Relaxed); // Changed under the lock alone.
    let same = entry(0);
    let is_alike = (1..1 << TABLE_SHIFT).all(|at| entry(at) == same);
    if is_alike {
        granule.store(same, Ordering::Release);
        tables.give_back(table); // TREE-3: after the link.
    }
    is_alike
}
