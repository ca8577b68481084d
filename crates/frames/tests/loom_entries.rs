//! Readers look entries up in a space's index, without a lock, while tables of the index are
//! allocated and freed. This file includes the source of `pagefold`'s `space/tree`, because that
//! crate isn't built for models. A table has two words here, so a part has two regions, a region
//! two granules, and a granule two pages.
#![cfg(pagefold_loom)]
#![allow(dead_code, reason = "a model uses some of it")]

mod model;
#[path = "../../pagefold/src/space/tree.rs"]
mod tree;

// The name by which `tree` knows this crate.
extern crate pagefold_frames as frames;

use model::{frames, thread};
use pagefold_frames::{Frames, PageMap, PageMaps, Table, Tables};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering, fence, fence_after_update};
use sync::thread::JoinHandle;
use tree::{LINK, Tree, close_leaf, is_link, link_table, map_of, region_link};

const OURS: u64 = 3;
const OTHERS: u64 = 9;

/// A space whose first region has a table: that of the page map `map`.
struct Space {
    frames: Arc<Frames>,
    tree: Tree,
    map: PageMap,
}

impl Space {
    fn new(granules: [u64; 2]) -> Arc<Self> {
        let frames = frames(1);
        let map = PageMap::new(Arc::clone(&frames), 2).unwrap();
        let space = Self { tree: Tree::new(), map, frames };
        assert!(link_table(space.tables(), space.tree.top(0).unwrap(), 0).unwrap());
        (0..2).for_each(|at| space.granule(at).store(granules[at as usize], Ordering::Release));
        space.part(0).store(region_link(space.map.number(), 1), Ordering::Release);
        Arc::new(space)
    }

    fn tables(&self) -> &Tables {
        self.frames.tables()
    }

    /// The word of a region.
    fn part(&self, region: u64) -> &AtomicU64 {
        let part = self.tree.top(0).unwrap().load(Ordering::Acquire);
        self.tables().word(Table::from_bits(part), region)
    }

    fn granule(&self, at: u64) -> &AtomicU64 {
        self.tables().word_of_map(self.map.number(), at)
    }

    fn look(&self, page: u64) -> u64 {
        self.tree.look(&PageMaps::new(Arc::clone(&self.frames)), page).entry
    }

    /// Looks up a page's entry by a trail (the words on the way to the entry), and then calls
    /// `meanwhile`. Returns the entry if the trail is still valid after that, else `None`.
    fn look_by_trail(&self, page: u64, meanwhile: impl FnOnce()) -> Option<u64> {
        let maps = PageMaps::new(Arc::clone(&self.frames));
        let trail = self.tree.trail(&maps, page)?;
        meanwhile();
        trail.is_still().then(|| trail.entry())
    }

    /// Changes the entry of one page like `Index::change`. The page's granule must have a leaf.
    fn change(&self, page: u64, to: u64) {
        let leaf = self.granule(page >> 1).load(Ordering::Acquire);
        self.tables().word(Table::from_bits(leaf), page).store(to, Ordering::Release);
    }

    /// Gives a granule a leaf, like `Index::leaf`.
    fn split(&self, granule: u64) {
        let word = self.granule(granule);
        let mut now = word.load(Ordering::Acquire);
        while !is_link(now) {
            link_table(self.tables(), word, now).unwrap();
            now = word.load(Ordering::Acquire);
        }
    }
}

fn changer(space: &Arc<Space>, page: u64, to: u64) -> JoinHandle<()> {
    let space = Arc::clone(space);
    thread(move || {
        space.split(page >> 1);
        space.change(page, to);
        assert_eq!(space.look(page), to, "changed by another thread");
    })
}

fn reader(space: &Arc<Space>, page: u64, allowed: &'static [u64], by_trail: bool) -> JoinHandle<()> {
    let space = Arc::clone(space);
    thread(move || {
        let entry = if by_trail { space.look_by_trail(page, || ()).unwrap_or(OURS) } else { space.look(page) };
        assert!(allowed.contains(&entry), "{entry}: what is mapped elsewhere");
    })
}

#[test]
fn two_disjoint_splits_end_right() {
    sync::model(|| {
        let space = Space::new([OURS; 2]);
        let both = [changer(&space, 0, 10), changer(&space, 1, 11)];
        both.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!([space.look(0), space.look(1), space.look(2)], [10, 11, OURS]);
    });
}

/// A reader that runs during a change sees the old entry or the new one. Once it has seen the new
/// entry, it never sees the old one again.
#[test]
fn a_reader_sees_old_or_new() {
    sync::model(|| {
        let space = Space::new([OURS; 2]);
        let changer = changer(&space, 0, 10);
        let seen = [0, 1, 0].map(|page| space.look(page));
        assert!(seen[1] == OURS && [OURS, 10].contains(&seen[0]) && [seen[0], 10].contains(&seen[2]), "{seen:?}");
        changer.join().unwrap();
    });
}

/// A reader has loaded the link to a leaf, but not yet the leaf's word. Meanwhile the leaf is
/// freed, and becomes the leaf of another granule. The reader must not return the other granule's
/// entry.
#[test]
fn a_leaf_that_went_isnt_read_for_its_granule() {
    for by_trail in [false, true] {
        sync::model(move || {
            let space = Space::new([OURS, OTHERS]);
            space.split(0);
            space.change(0, 4);
            let leaf = space.granule(0).load(Ordering::Acquire);
            let reader = reader(&space, 0, &[4, OURS], by_trail);
            space.change(0, OURS);
            assert!(close_leaf(space.tables(), space.granule(0), leaf));
            space.split(1);
            let other = space.granule(1).load(Ordering::Acquire);
            assert!((other ^ leaf) & 0xf_ffff_ffff == 0 && other != leaf, "not the same table");
            reader.join().unwrap();
        });
    }
}

/// A thread marks a page as in use, and then finds that its trail to the page's entry is still
/// valid. Another thread unmaps the page, and must see that the page is in use (S1 of `space`). It
/// unmaps the page in one of four ways: it clears the page's entry in a leaf; it first divides the
/// granule into pages, and then clears the entry; it removes the granule's leaf; or it removes the
/// whole region.
#[test]
fn a_toucher_that_goes_by_its_trail_is_seen_by_who_unmaps() {
    let unmappings: [(bool, fn(&Space)); 4] = [
        (true, |space| space.change(0, 0)),
        (false, |space| {
            space.split(0);
            space.change(0, 0);
        }),
        (true, |space| {
            let leaf = space.granule(0).load(Ordering::Acquire);
            assert!(close_leaf(space.tables(), space.granule(0), leaf));
            space.granule(0).store(0, Ordering::Release);
        }),
        (false, |space| {
            space.granule(0).store(0, Ordering::Release);
            space.part(0).store(0, Ordering::Release);
        }),
    ];
    for (is_cut, unmap) in unmappings {
        sync::model(move || {
            let (space, in_use) = (Space::new([OURS, 0]), Arc::new(AtomicU64::new(0)));
            if is_cut {
                space.split(0);
            }
            let theirs = (Arc::clone(&space), Arc::clone(&in_use));
            let toucher = thread(move || {
                let (space, in_use) = theirs;
                let entry = space.look_by_trail(0, || {
                    in_use.swap(1, Ordering::AcqRel);
                    fence_after_update();
                });
                entry == Some(OURS)
            });
            unmap(&space);
            fence(Ordering::SeqCst);
            let is_seen = in_use.load(Ordering::Acquire) == 1;
            assert!(!toucher.join().unwrap() || is_seen, "a page is used after it was unmapped");
        });
    }
}

/// A region becomes empty, and its page map, with the map's table, goes to another region. If
/// `comes_back`, the map then returns to the first region, in which nothing is mapped any more. A
/// reader of the first region must never return the other region's entry.
#[test]
fn a_region_that_went_isnt_read_for_its_pages() {
    for (comes_back, by_trail) in [(false, false), (true, false), (false, true), (true, true)] {
        sync::model(move || {
            let space = Space::new([OURS, 0]);
            let reader = reader(&space, 0, &[OURS, 0], by_trail);
            space.granule(0).store(0, Ordering::Release);
            space.part(0).store(0, Ordering::Release);
            space.tables().discard_of_map(space.map.number());
            let fill = |entry| (0..2).for_each(|at| space.granule(at).store(entry, Ordering::Release));
            fill(OTHERS);
            space.part(1).store(region_link(space.map.number(), 2), Ordering::Release);
            if comes_back {
                space.part(1).store(0, Ordering::Release);
                fill(0);
                space.part(0).store(region_link(space.map.number(), 3), Ordering::Release);
            }
            reader.join().unwrap();
        });
    }
}

/// A thread that touches a page for the first time replaces a word by a link to a table, without a
/// lock. Meanwhile another thread changes the same word under a lock. This change must not be lost.
#[test]
fn a_change_of_a_word_that_becomes_a_link_isnt_lost() {
    sync::model(|| {
        let space = Space::new([0; 2]);
        space.part(1).store(OURS, Ordering::Release);
        let theirs = Arc::clone(&space);
        // Like `Index::region_link`, but with a leaf instead of a map's table.
        let toucher = thread(move || link_table(theirs.tables(), theirs.part(1), OURS).unwrap());
        // Like `Index::change`.
        loop {
            let word = space.part(1).load(Ordering::Acquire);
            if is_link(word) {
                (0..2).for_each(|at| space.tables().word(Table::from_bits(word), at).store(10, Ordering::Release));
                break;
            }
            if space.part(1).compare_exchange(word, 10, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        let linked = toucher.join().unwrap();
        let word = space.part(1).load(Ordering::Acquire);
        assert_eq!(linked, is_link(word));
        let seen =
            if is_link(word) { space.tables().word(Table::from_bits(word), 0).load(Ordering::Acquire) } else { word };
        assert_eq!(seen, 10);
        let _ = (LINK, map_of(word));
    });
}
