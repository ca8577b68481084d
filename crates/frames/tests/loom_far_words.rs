//! A map gets words for more pages, while other threads look pages up in it.
//!
//! ```text
//!   reader of part 1                     loader of part 2
//!   root ─▶ a table of height 1          root = a table of height 2, with the first one below
//!   part 1: its segment                  part 2: a segment
//! ```
//! Links are stored under a lock. A link changes from 0 to its final value, and then stays the
//! same. A reader finds either the old tree or the new one; part 1 is in both.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginLoad, LoadFailure, PageMap, PageState};
use sync::Arc;

/// The number of pages in the first run, and in a part.
const PART: u64 = 2;

fn growing(count: usize) -> Arc<PageMap> {
    Arc::new(PageMap::growing(frames(count), PART, PART).unwrap())
}

fn read(map: &PageMap, page: u64) -> Option<[u8; PAGE]> {
    let mut bytes = [0; PAGE];
    map.read(page * PAGE as u64, &mut bytes).then_some(bytes)
}

#[test]
fn a_page_is_found_while_the_tree_becomes_higher() {
    sync::model(|| {
        let map = growing(1);
        load(&map, PART, 0xa);
        let theirs = Arc::clone(&map);
        // The reader is the spawned thread, so that loom lets it run between the steps of this one.
        let reader = thread(move || {
            assert!(matches!(theirs.state(PART), PageState::Resident { .. }), "it isn't in the higher tree");
            assert_eq!(read(&theirs, PART), Some(contents(0xa)));
        });
        load_fails(&map, 2 * PART, true);
        reader.join().unwrap();
        assert_eq!(read(&map, PART), Some(contents(0xa)));
    });
}

#[test]
fn pages_are_found_in_order_while_the_tree_becomes_higher() {
    sync::model(|| {
        let map = growing(2);
        load(&map, PART, 0xa);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let pages: Vec<_> = theirs.pages_in_memory(0..u64::MAX).collect();
            assert!(pages == [PART] || pages == [PART, 2 * PART], "{pages:?}");
        });
        load(&map, 2 * PART, 0xb);
        reader.join().unwrap();
        assert_eq!((read(&map, PART), read(&map, 2 * PART)), (Some(contents(0xa)), Some(contents(0xb))));
        assert_eq!(map.pages_in_memory(0..u64::MAX).collect::<Vec<_>>(), [PART, 2 * PART]);
    });
}

#[test]
fn two_loaders_of_a_part_get_words_in_one_segment() {
    sync::model(|| {
        let map = growing(2);
        let theirs = Arc::clone(&map);
        let other = thread(move || load(&theirs, PART, 0xa));
        load(&map, PART + 1, 0xb);
        other.join().unwrap();
        assert_eq!((read(&map, PART), read(&map, PART + 1)), (Some(contents(0xa)), Some(contents(0xb))));
        // Parts may use one more segment, but not the last one.
        load_fails(&map, 2 * PART, true);
        load_fails(&map, 3 * PART, false);
    });
}

fn load_fails(map: &PageMap, page: u64, has_place: bool) {
    match map.begin_load(page) {
        BeginLoad::Begun(loading) if has_place => loading.fail(LoadFailure(5)),
        BeginLoad::NoPlace if !has_place => {}
        other => panic!("page {page}: {other:?}"),
    }
}

/// A page is loaded after its map has grown. A reader that finds the page by the new links must see
/// the page's bytes.
#[test]
fn a_reader_of_a_new_part_finds_nothing_or_the_page() {
    sync::model(|| {
        let map = growing(1);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let state = theirs.state(2 * PART + 1);
            let bytes = read(&theirs, 2 * PART + 1);
            assert!(bytes.is_none_or(|bytes| bytes == contents(0xa)));
            if let PageState::Resident { .. } = state {
                assert_eq!(bytes, Some(contents(0xa)));
            }
        });
        load(&map, 2 * PART + 1, 0xa);
        reader.join().unwrap();
    });
}

/// When a map is dropped, the segments and tables of its parts are given back. The next map must
/// find them empty.
#[test]
fn all_of_it_is_given_back() {
    sync::model(|| {
        let map = growing(1);
        let frames = Arc::clone(map.frames());
        let before = frames.budget().used();
        let theirs = Arc::clone(&map);
        let other = thread(move || load_fails(&theirs, PART, true));
        load_fails(&map, 2 * PART, true);
        other.join().unwrap();
        drop(map);
        assert_eq!(frames.budget().used(), before);
        let map = PageMap::growing(Arc::clone(&frames), PART, PART).unwrap();
        assert_eq!(map.state(2 * PART), PageState::Vacant { shadow: 0 });
        load_fails(&map, 2 * PART, true);
        drop(map);
        assert_eq!(frames.budget().used(), before);
    });
}
