//! XFS's collection of extents, a B-tree. Here it has only a root and one level of leaves, enough
//! for hundreds of ranges.

use span_lock::LockRange;
use sync::atomic::{AtomicU64, Ordering};

use super::counting::{Counting, Ranges};
use super::measure;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "extent-tree",
    about: "the same over a B-tree of extents, whose nodes lie on few lines",
    hidden: false,
    measure: |job| measure::<Counting<Extents>>(job),
};

/// Extents in a leaf.
const LEAF: usize = 15;

/// Start, end and task of an extent.
type Extent = [AtomicU64; 3];

/// Extents in order of their starts.
#[derive(Default)]
#[repr(align(64))]
struct Leaf([Extent; LEAF]);

/// The root's entry for a leaf: the leaf's place, its number of extents, the start of the first
/// one, and the greatest end.
#[derive(Default)]
struct Entry([AtomicU64; 4]);

const PLACE: usize = 0;
const COUNT: usize = 1;
const START: usize = 2;
const REACH: usize = 3;

/// The tree. All under the spinlock, so `Relaxed` throughout.
pub(super) struct Extents {
    /// Entries in use; those behind them name the leaves that are free.
    used: Used,
    entries: Box<[Entry]>,
    leaves: Box<[Leaf]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Used(AtomicU64);

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn store(word: &AtomicU64, value: u64) {
    if load(word) != value {
        word.store(value, Ordering::Relaxed);
    }
}

fn copy<const N: usize>(from: &[AtomicU64; N], to: &[AtomicU64; N]) {
    from.iter().zip(to).for_each(|(from, to)| store(to, load(from)));
}

impl Extents {
    fn used(&self) -> usize {
        load(&self.used.0) as usize
    }

    fn leaf(&self, at: usize) -> (&[Extent], usize) {
        let entry = &self.entries[at].0;
        (&self.leaves[load(&entry[PLACE]) as usize].0, load(&entry[COUNT]) as usize)
    }

    /// Brings an entry up to date with its leaf of `count` extents.
    fn update(&self, at: usize, count: usize) {
        let (leaf, _) = self.leaf(at);
        let entry = &self.entries[at].0;
        store(&entry[COUNT], count as u64);
        store(&entry[START], load(&leaf[0][0]));
        store(&entry[REACH], leaf[..count].iter().map(|extent| load(&extent[1])).max().unwrap_or(0));
    }

    /// The last entry that may have an extent with that start.
    fn last_from(&self, start: u64) -> usize {
        (1..self.used()).take_while(|&at| load(&self.entries[at].0[START]) <= start).last().unwrap_or(0)
    }

    /// Moves the upper half of a full leaf to a free one.
    fn split(&self, at: usize) {
        let used = self.used();
        let free = load(&self.entries[used].0[PLACE]);
        for to in (at + 2..=used).rev() {
            copy(&self.entries[to - 1].0, &self.entries[to].0);
        }
        store(&self.entries[at + 1].0[PLACE], free);
        store(&self.used.0, used as u64 + 1);
        let half = LEAF / 2;
        let ((from, _), (to, _)) = (self.leaf(at), self.leaf(at + 1));
        from[half..].iter().zip(to).for_each(|(from, to)| copy(from, to));
        self.update(at, half);
        self.update(at + 1, LEAF - half);
    }

    /// Frees an empty leaf.
    fn drop_leaf(&self, at: usize) {
        let used = self.used();
        let free = load(&self.entries[at].0[PLACE]);
        for to in at..used - 1 {
            copy(&self.entries[to + 1].0, &self.entries[to].0);
        }
        store(&self.entries[used - 1].0[PLACE], free);
        store(&self.used.0, used as u64 - 1);
    }
}

impl Ranges for Extents {
    fn new(tasks: usize) -> Self {
        // A split makes leaves that are half full, but all extents of a leaf except one may then be
        // removed. So there may be nearly as many leaves as tasks.
        let count = tasks + 2;
        let entries = (0..count as u64).map(|place| Entry([place, 0, 0, 0].map(AtomicU64::new))).collect();
        Self { used: Used::default(), entries, leaves: (0..count).map(|_| Leaf::default()).collect() }
    }

    fn insert(&self, task: usize, range: LockRange) {
        if self.used() == 0 {
            store(&self.entries[0].0[COUNT], 0);
            store(&self.used.0, 1);
        }
        let mut at = self.last_from(range.start());
        if self.leaf(at).1 == LEAF {
            self.split(at);
            at = self.last_from(range.start());
        }
        let (leaf, count) = self.leaf(at);
        let place = leaf[..count].iter().take_while(|extent| load(&extent[0]) <= range.start()).count();
        for to in (place + 1..=count).rev() {
            copy(&leaf[to - 1], &leaf[to]);
        }
        let new = [range.start(), range.end(), task as u64];
        leaf[place].iter().zip(new).for_each(|(word, value)| store(word, value));
        self.update(at, count + 1);
    }

    fn remove(&self, task: usize, range: LockRange) {
        for at in (0..=self.last_from(range.start())).rev() {
            let (leaf, count) = self.leaf(at);
            let Some(place) = leaf[..count].iter().position(|extent| load(&extent[2]) == task as u64) else { continue };
            for to in place..count - 1 {
                copy(&leaf[to + 1], &leaf[to]);
            }
            return if count == 1 { self.drop_leaf(at) } else { self.update(at, count - 1) };
        }
    }

    fn overlapping(&self, range: LockRange, mut visit: impl FnMut(usize)) {
        for at in 0..self.used() {
            let entry = &self.entries[at].0;
            if load(&entry[START]) >= range.end() {
                return;
            }
            if load(&entry[REACH]) <= range.start() {
                continue;
            }
            let (leaf, count) = self.leaf(at);
            for extent in leaf[..count].iter().take_while(|extent| load(&extent[0]) < range.end()) {
                if load(&extent[1]) > range.start() {
                    visit(load(&extent[2]) as usize);
                }
            }
        }
    }
}
