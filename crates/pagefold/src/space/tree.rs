//! The words of a space's index: four levels of tables, which are read without a lock.
//!
//! | level | a word covers | a link leads to |
//! |---|---|---|
//! | top, in the space itself | 2^27 pages | a *part*: a table that stays linked here as long as the space exists |
//! | part | 2^18 pages, a *region* | the region's table, which belongs to the page map that has the region's page words |
//! | region | 2^9 pages, a *granule* | a *leaf*: a table |
//! | leaf | a page | |
//!
//! A word holds either an entry or a link. An entry (`entry`) is what is mapped at every page that
//! the word covers. A link has bit 63 set, and leads to a table of the next level. If bit 62 of a
//! link is set, its table is noted as perhaps not needed any more (`tidy`). In a link of the top
//! level, bit 62 means that nothing is mapped in the part (`index`).
//!
//! Readers look words up without a lock. A thread may change the entry of a page only if it has
//! locked the page. One change needs no lock, and may happen at any time: a word that holds an
//! entry becomes a link to a table full of that entry. The pages keep their entry then.
//!
//! # Invariants
//! - TREE-1. No ABA: once a link has been removed from a word, the same link never appears in that
//!   word again (bit 62 aside). The reason: a link contains a count of uses. In a link to a leaf,
//!   it counts how often the leaf's table was used before; in a link to a region, how often the
//!   region's record was used.
//! - TREE-2. A table's words are filled before the link to it is stored (Release; loads are
//!   Acquire).
//! - TREE-3. A table is given back only after the link to it was replaced. Every later store to the
//!   table's words is a Release, even the stores of zeros while the table is unused. Suppose that a
//!   reader still uses the old link, and loads the value of such a later store. Then the reader's
//!   second look at the link finds that the link was replaced (T1 of `frames::tables`).
//! - TREE-4. A thread replaces a link to a leaf only if it has locked the whole granule. A thread
//!   replaces a link to a region only if it has locked the whole region, and nothing is mapped in
//!   the region. So while a thread has locked any page of a granule or region, no other thread
//!   replaces the link to it.
//!
//! # Looking without a lock
//! A reader walks down to a word that isn't a link. Then it loads the links above that word again,
//! the lowest first:
//! ```text
//!   reader                                others
//!   l = part[r]        a link             part[r] = 0: the region goes
//!   g = region[i]      a link             the leaf is given back, taken for another granule, and filled
//!   e = leaf[p]                           … with what is mapped there
//!   region[i] == g?                       no: replaced before the leaf was given back (TREE-3)
//!   part[r] == l?
//! ```
//! If each link still has the value that the reader loaded first, the link has had that value all
//! the time in between (TREE-1). So at the moment when the reader loaded `e`, the leaf belonged to
//! the page's granule, the granule belonged to the page's region, and `e` was the page's entry. The
//! link to a part needs no second look, because a part never moves.
//!
//! A thread that keeps the words of its [`Trail`] can check the entry again later with three loads:
//! the entry's word first, then the links above it. If all three are unchanged, the page still has
//! that entry; a new lookup would find the same. If one of them has changed, the entry may still be
//! the same, for example if only bit 62 of a link was set.
//!
//! A change of the entry is a store to one of these three words. The check may come too early to
//! see that store. S1 of `space` permits this. The checking thread gets hold of the page, executes
//! a fence, and then checks. The changing thread stores the new entry, executes a fence, and then
//! looks at the page. If the check missed the store, the checking thread's fence came first. So the
//! changing thread sees that the page is held, and waits until the page is released.

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
/// The position of the count in a link to a region. The bits from `NUMBER_SHIFT` up to the count
/// hold the number of the region's page map. (Every other link holds the bits of a [`Table`].)
const COUNT_SHIFT: u32 = NUMBER_SHIFT + MapInWord::BITS;
/// The largest count.
pub(super) const COUNT_MAX: u64 = (1 << (62 - COUNT_SHIFT)) - 1;

#[inline]
pub(super) fn is_link(word: u64) -> bool {
    word >= LINK
}

/// Returns the link to the table of a page map whose record is used for the `count`th time.
pub(super) fn region_link(map: MapNumber, count: u64) -> u64 {
    LINK | count << COUNT_SHIFT | map.bits() << NUMBER_SHIFT
}

/// Returns the page map of the region that a link leads to.
#[inline]
pub(super) fn map_of(link: u64) -> MapNumber {
    MapInWord(link).number()
}

/// Returns the count in a link to a region.
pub(super) fn count_of(link: u64) -> u64 {
    (link >> COUNT_SHIFT) & COUNT_MAX
}

fn same(link: u64, other: u64) -> bool {
    (link ^ other) & !NOTED == 0
}

/// The result of looking a page up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The page's entry.
    pub(super) entry: u64,
    /// 2^`shift` pages, aligned, around the page are known to have the same entry.
    pub(super) shift: u32,
    /// The link to the page's region, if it has one.
    pub(super) region: Option<u64>,
}

/// A word, and the value that was loaded from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a>(pub(super) &'a AtomicU64, pub(super) u64);

impl<'a> Seen<'a> {
    #[inline(always)]
    fn look(word: &'a AtomicU64) -> Self {
        // Acquire, here and below: each look comes before the next one.
        Self(word, word.load(Ordering::Acquire))
    }

    /// Returns whether the word still has that value.
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
    /// Returns the page's word in the granule's leaf, if there is a leaf.
    #[inline(always)]
    pub(super) fn leaf(self, maps: &'a PageMaps, page: u64) -> Option<Seen<'a>> {
        is_link(self.granule.1).then(|| Seen::look(maps.table_word(Table::from_bits(self.granule.1), page)))
    }

    /// Returns whether both words are unchanged at this moment. Called after the leaf's word was
    /// checked.
    #[inline(always)]
    pub(super) fn is_still(self) -> bool {
        self.granule.is_still() && self.region.is_still()
    }
}

/// The whole way to a page's entry: the word that has the entry, and the words above it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trail<'a> {
    way: Way<'a>,
    leaf: Option<Seen<'a>>,
}

impl<'a> Trail<'a> {
    /// Returns the entry that was found. It is the page's entry if [`is_still`](Self::is_still)
    /// returns true afterwards.
    #[inline]
    pub(super) fn entry(&self) -> u64 {
        self.leaf.unwrap_or(self.way.granule).1
    }

    /// Returns the link to the page's region.
    #[inline]
    pub(super) fn link(&self) -> u64 {
        self.way.region.1
    }

    /// Returns whether the words of the trail are unchanged. If so, the entry is that of the page
    /// at this moment. If not, the page may have this entry all the same.
    #[inline]
    pub(super) fn is_still(&self) -> bool {
        self.leaf.is_none_or(Seen::is_still) && self.way.is_still()
    }
}

/// The top level of the tables.
#[derive(Debug)]
pub(super) struct Tree {
    top: [AtomicU64; PARTS],
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { top: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Returns the word of the top level for a page, or `None` past the end of the space.
    #[inline]
    pub(super) fn top(&self, page: u64) -> Option<&AtomicU64> {
        self.top.get(usize::try_from(page >> PART_SHIFT).ok()?)
    }

    /// Looks up the words that lead to a page. Returns them as a [`Way`] if the page's region has a
    /// page map. Otherwise all pages of the region have the same entry, and this returns the word
    /// that holds the entry, as an `Err`. Returns `None` past the end of the space.
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

    /// Returns the trail to a page's entry, if the page's region has a page map.
    #[inline]
    pub(super) fn trail<'a>(&'a self, maps: &'a PageMaps, page: u64) -> Option<Trail<'a>> {
        let way = self.way(maps, page)?.ok()?;
        Some(Trail { way, leaf: way.leaf(maps, page) })
    }

    /// Looks up what is at a page, at one moment.
    #[inline(always)]
    pub(super) fn look(&self, maps: &PageMaps, page: u64) -> Found {
        self.look_up_to(maps, page, page + 1).0
    }

    /// Returns a page's entry, and the first page after it that may have a different entry. If the
    /// entry's word covers many pages, that is the first page that the word doesn't cover, even if
    /// it lies beyond `end`. If the entry is in a leaf, where each page has its own word, the words
    /// that follow are compared, up to the leaf's end or to `end`, whichever comes first.
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

/// Looks up a page in the region that has this page map. Returns the page's entry; the size of the
/// aligned block of pages around the page that is known to have this entry, as a power of two; and
/// the first page after it that may have a different entry. If each page has its own word, pages
/// from `end` on aren't compared. The caller must check afterwards that the page map still belongs
/// to the region; if it doesn't, the result isn't valid.
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

/// Links a new table, full of `entry`, into a word that holds `entry`. Returns false if the word
/// has another value by now.
///
/// # Errors
/// If no table is available.
pub(super) fn link_table(tables: &Tables, word: &AtomicU64, entry: u64) -> Result<bool, ReserveError> {
    let table = tables.take()?;
    // Release: a late reader from an earlier use of the table must find that the earlier use has
    // ended (TREE-3).
    (0..1 << TABLE_SHIFT).for_each(|at| tables.word(table, at).store(entry, Ordering::Release));
    // Release: TREE-2. Acquire on failure: the words of another thread's table are visible.
    let linked = word.compare_exchange(entry, LINK | table.bits(), Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !linked {
        tables.give_back(table);
    }
    Ok(linked)
}

/// Replaces a granule's leaf by an entry, and gives the leaf back, if all pages of the granule have
/// the same entry. Returns whether it did. The caller must have locked the whole granule.
pub(super) fn close_leaf(tables: &Tables, granule: &AtomicU64, leaf: u64) -> bool {
    let table = Table::from_bits(leaf);
    let entry = |at| tables.word(table, at).load(Ordering::Relaxed); // Changed under the lock alone.
    let same = entry(0);
    let is_alike = (1..1 << TABLE_SHIFT).all(|at| entry(at) == same);
    if is_alike {
        granule.store(same, Ordering::Release);
        tables.give_back(table); // TREE-3: after the link is replaced.
    }
    is_alike
}
