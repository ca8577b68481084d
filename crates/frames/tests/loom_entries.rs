//! Two who change disjoint pages of one granule of a space at once, taking an area apart or putting it together:
//! `pagefold`'s `space/entries`, whose source this includes as that crate isn't built for models.
#![cfg(pagefold_loom)]
#![allow(dead_code, reason = "a model uses some of it")]

#[path = "../../pagefold/src/space/entries.rs"]
mod entries;

use entries::{Entries, GRANULE_PAGES};
use sync::Arc;
use sync::thread::{JoinHandle, spawn};

const OLD: u64 = 3;

/// A granule of one entry, with memory for two.
fn granule() -> Arc<Entries<1>> {
    let entries = Entries::new();
    entries.change(0..GRANULE_PAGES, OLD);
    entries.prepare_leaf(0);
    Arc::new(entries)
}

fn changer(entries: &Arc<Entries<1>>, page: u64, to: u64) -> JoinHandle<()> {
    let entries = Arc::clone(entries);
    spawn("change", move || {
        entries.change(page..page + 1, to);
        assert_eq!(entries.get(page).0, to, "changed by somebody else");
    })
    .unwrap()
}

#[test]
fn two_disjoint_splits_end_right() {
    sync::model(|| {
        let entries = granule();
        let both = [changer(&entries, 0, 10), changer(&entries, 1, 11)];
        both.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!([entries.get(0).0, entries.get(1).0], [10, 11]);
    });
}

/// Back to what the area was, from two sides: one area again.
#[test]
fn two_disjoint_merges_end_right() {
    sync::model(|| {
        let entries = granule();
        (0..2).for_each(|page| entries.change(page..page + 1, 10 + page));
        let both = [changer(&entries, 0, OLD), changer(&entries, 1, OLD)];
        both.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!([entries.get(0).0, entries.get(1).0], [OLD, OLD]);
    });
}

/// Who looks meanwhile sees a page as it was or as it is to be, and never an earlier one after a later one.
#[test]
fn whoever_looks_sees_old_or_new() {
    sync::model(|| {
        let entries = granule();
        let changer = changer(&entries, 0, 10);
        let seen = [0, 1, 0].map(|page| entries.get(page).0);
        assert!(seen[1] == OLD && [OLD, 10].contains(&seen[0]) && [seen[0], 10].contains(&seen[2]), "{seen:?}");
        changer.join().unwrap();
        // The whole of it, then a part again: an old leaf isn't seen.
        entries.change(0..2, 20);
        entries.change(1..2, 21);
        assert_eq!([entries.get(0).0, entries.get(1).0], [20, 21]);
    });
}
