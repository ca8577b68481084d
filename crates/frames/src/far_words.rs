//! Page words of *far* pages: pages beyond a map's first run of words. An object has far pages if
//! it has grown since its map was made, or if no free run was long enough for it.
//!
//! When a map is made, it gets a run of page words for its *near* pages. A hit finds the word of a
//! near page by a single addition.
//!
//! The rest of the object is divided into *parts*, each with as many pages as a *segment* (a unit
//! of page words, `page_words`) has words. A part gets a segment of its own when one of its pages
//! is first loaded, and keeps the segment as long as the map lives. So an object may grow to the
//! maximum length, and only parts whose pages were used take address space and memory.
//!
//! A reader finds the part's segment in a tree of tables (`tables`), without a lock. The tree is
//! just high enough for the last part that has a segment:
//! ```text
//!   root: table, height 2 ─▶ [part / 512]: table ─▶ [part % 512]: segment + 1
//! ```
//! The tables are charged to the budget. A map whose parts have no segments has no tables and needs
//! no memory here.
//!
//! # Invariants
//! - FAR-1. A link (an entry of a table, or the root) changes only under `PageWords::growing`, and
//!   only from 0 to its final value. Only the root may change again: to the root of a higher tree
//!   whose first child is the previous tree. So a reader with an old root still finds every part
//!   that had a segment when that root was stored.
//! - FAR-2. A segment belongs to one part of one map, from the moment when its link is stored until
//!   the map is dropped.
//! - FAR-3. Parts of near pages have no segment here.
//!
//! A reader that finds no link treats the page as vacant. That may be wrong: another thread may be
//! loading the page, or may have loaded it already, and this reader may not see the new link yet.
//! So a thread that is about to load the page looks for the link again under the lock:
//! ```text
//!   reader, or second loader               first loader
//!   root: covers the part not yet
//!                                          lock; table; root = higher tree (Release)
//!                                          segment; leaf = it (Release); unlock
//!   vacant ─▶ begin_load
//!   lock: the leaf is there, the same segment
//! ```
//!
//! # Memory ordering
//! Loads of links are Acquire and pair with the Release stores in `make`. So a reader that has
//! loaded a link to a table sees the contents of the table, zeros or links; and a reader that has
//! loaded a link to a segment sees which part the segment belongs to (`PageWords::parts`).
//!
//! # Locking
//! The lock `growing` is taken before the locks of the free tables and of the free segments; a
//! thread that holds one of these two takes no other lock. The holder of `growing` never waits for
//! memory: if no memory is left, the call fails, and the caller has to make room and try again.

use sync::atomic::{AtomicU64, Ordering};

use crate::frames::Frames;
use crate::map_number::NUMBER_SHIFT;
use crate::tables::{TABLE_BYTES, TABLE_SHIFT, Table, Tables};

/// A flag in each link to a table, so that no link is 0. The bits below [`NUMBER_SHIFT`] are free
/// for this.
const THERE: u64 = 1;
/// The position of the tree's height in the root.
const HEIGHT_SHIFT: u32 = 1;
const LOW_BITS: u64 = (1 << NUMBER_SHIFT) - 1;

/// The reason why a part gets no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoWords {
    /// The budget has no room for a table.
    NoRoom,
    /// The page is past the map's maximum; or all segments for parts are in use, or all tables; or
    /// the system refuses to make a table writable.
    NoPlace,
}

/// The segments of a map's parts.
#[derive(Debug, Default)]
pub(crate) struct FarWords {
    /// 0, or a link to the highest table together with the height of the tree.
    root: AtomicU64,
}

/// A table and its height above the segments: 1 if its words name segments.
#[derive(Clone, Copy)]
struct Tree {
    table: Table,
    height: u32,
}

impl Tree {
    fn of_root(root: u64) -> Option<Self> {
        (root != 0).then(|| Self {
            table: Table::from_bits(root & !LOW_BITS),
            height: ((root & LOW_BITS) >> HEIGHT_SHIFT) as u32,
        })
    }

    fn root(self) -> u64 {
        self.table.bits() | u64::from(self.height) << HEIGHT_SHIFT | THERE
    }

    fn of_link(link: u64, height: u32) -> Self {
        Self { table: Table::from_bits(link & !LOW_BITS), height }
    }

    fn link(self) -> u64 {
        self.table.bits() | THERE
    }

    /// Returns the height that a tree needs to contain `part`.
    fn height_for(part: u64) -> u32 {
        (u64::BITS - part.leading_zeros()).div_ceil(TABLE_SHIFT).max(1)
    }

    /// Returns log2 of the number of parts under each word of the table.
    fn shift(self) -> u32 {
        (self.height - 1) * TABLE_SHIFT
    }

    /// Returns the table's word for a part. Bits of `part` above those that the tree covers are
    /// ignored.
    fn word(self, tables: &Tables, part: u64) -> &AtomicU64 {
        tables.word(self.table, part >> self.shift())
    }

    /// Returns the first part from `from` on that has a segment, and this segment.
    fn next(self, tables: &Tables, from: u64) -> Option<(u64, usize)> {
        let mut within = from & ((1 << self.shift()) - 1);
        for at in from >> self.shift()..1 << TABLE_SHIFT {
            let link = tables.word(self.table, at).load(Ordering::Acquire);
            if link != 0 {
                let found = match self.height {
                    1 => Some((0, segment_of(link))),
                    height => Self::of_link(link, height - 1).next(tables, within),
                };
                if let Some((part, segment)) = found {
                    return Some((at << self.shift() | part, segment));
                }
            }
            within = 0;
        }
        None
    }

    /// Frees all tables.
    fn take_down(self, frames: &Frames) {
        let tables = frames.tables();
        if self.height > 1 {
            for at in 0..1 << TABLE_SHIFT {
                // Relaxed, like the load of the root: this thread is the last user of the map.
                let link = tables.word(self.table, at).load(Ordering::Relaxed);
                if link != 0 {
                    Self::of_link(link, self.height - 1).take_down(frames);
                }
            }
        }
        tables.give_back(self.table);
        frames.budget.uncharge(TABLE_BYTES);
    }
}

fn segment_of(leaf: u64) -> usize {
    leaf as usize - 1
}

impl FarWords {
    /// Returns the segment of a part, if it has one.
    pub(crate) fn find(&self, tables: &Tables, part: u64) -> Option<usize> {
        let mut tree = Tree::of_root(self.root.load(Ordering::Acquire))?;
        if tree.height < Tree::height_for(part) {
            return None;
        }
        loop {
            let link = tree.word(tables, part).load(Ordering::Acquire);
            if link == 0 {
                return None;
            }
            if tree.height == 1 {
                return Some(segment_of(link));
            }
            tree = Tree::of_link(link, tree.height - 1);
        }
    }

    /// Returns the first part from `from` on that has a segment, and this segment. May miss parts
    /// that get a segment meanwhile.
    pub(crate) fn next(&self, tables: &Tables, from: u64) -> Option<(u64, usize)> {
        let tree = Tree::of_root(self.root.load(Ordering::Acquire))?;
        if tree.height < Tree::height_for(from) { None } else { tree.next(tables, from) }
    }

    /// Returns the segment of a part; allocates one if the part has none.
    ///
    /// # Errors
    /// [`NoWords`]. Tables that were already allocated stay, so the next attempt needs fewer.
    pub(crate) fn make(&self, frames: &Frames, part: u64) -> Result<usize, NoWords> {
        let tables = frames.tables();
        let _growing = frames.words.growing.lock();
        let mut tree = self.reach(frames, part)?;
        while tree.height > 1 {
            let (word, below) = (tree.word(tables, part), tree.height - 1);
            // Relaxed, here and below: links change only under this lock (FAR-1).
            let link = word.load(Ordering::Relaxed);
            tree = if link == 0 {
                let next = Tree { table: take_table(frames)?, height: below };
                word.store(next.link(), Ordering::Release);
                next
            } else {
                Tree::of_link(link, below)
            };
        }
        let leaf = tree.word(tables, part);
        let there = leaf.load(Ordering::Relaxed);
        if there != 0 {
            // Sometimes: two threads want the first words of a part at once.
            return Ok(segment_of(there));
        }
        let segment = frames.words.take_part(part).ok_or(NoWords::NoPlace)?;
        leaf.store(segment as u64 + 1, Ordering::Release);
        Ok(segment)
    }

    /// Returns the tree, made high enough for a part. The caller holds `growing`.
    fn reach(&self, frames: &Frames, part: u64) -> Result<Tree, NoWords> {
        let wanted = Tree::height_for(part);
        let mut tree = Tree::of_root(self.root.load(Ordering::Relaxed));
        loop {
            let higher = match tree {
                Some(tree) if tree.height >= wanted => return Ok(tree),
                Some(tree) => Tree { table: take_table(frames)?, height: tree.height + 1 },
                None => Tree { table: take_table(frames)?, height: wanted },
            };
            if let Some(lower) = tree {
                higher.word(frames.tables(), 0).store(lower.link(), Ordering::Release);
            }
            self.root.store(higher.root(), Ordering::Release);
            tree = Some(higher);
        }
    }

    /// Frees all segments, and then all tables, at the map's end.
    pub(crate) fn take_down(&self, frames: &Frames) {
        let Some(tree) = Tree::of_root(self.root.load(Ordering::Relaxed)) else { return };
        let mut from = 0;
        while let Some((part, segment)) = self.next(frames.tables(), from) {
            frames.words.give_part(segment, &frames.budget);
            from = part + 1;
        }
        self.root.store(0, Ordering::Relaxed);
        tree.take_down(frames);
    }
}

/// Allocates a table of zeros and charges it.
fn take_table(frames: &Frames) -> Result<Table, NoWords> {
    if !frames.budget.try_charge(TABLE_BYTES) {
        return Err(NoWords::NoRoom);
    }
    frames.tables().take().map_err(|_| {
        frames.budget.uncharge(TABLE_BYTES);
        NoWords::NoPlace
    })
}
