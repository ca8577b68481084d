//! Reading at an address, which holds nothing, against threads that write, unmap and map:
//! `pagefold`'s `space/window`, whose source this includes, and both ways of `space/read`.
#![cfg(pagefold_loom)]

mod model;
#[path = "../../pagefold/src/space/window.rs"]
mod window;

// As it is called where `window` comes from.
extern crate pagefold_frames as frames;

use model::*;
use pagefold_frames::{BeginWrite, Detach, MapNumber, PageMap, PageMaps, PageState};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering, spin_hint};
use window::Window;

/// Entries: mappings by their numbers, which don't come back.
const NONE: u64 = 0;
const FIRST: u64 = 7;

/// Contents of the first file, and of the others.
const OURS: u64 = 1;
const OTHERS: u64 = 2;

/// A page that was used, so that reading it is a hit.
fn load_hot(map: &PageMap, mark: u64) {
    load(map, 0, mark);
    assert!(map.read(0, &mut [0; PAGE]));
}

/// Writes to all of a page in memory.
fn write(map: &PageMap, mark: u64) {
    loop {
        if let BeginWrite::Begun(mut writing) = map.begin_write(0) {
            let _ = writing.write(0, &contents(mark));
            return;
        }
        spin_hint();
    }
}

/// A page that was written to and used, so that reading it is a hit.
fn load_written(map: &PageMap, mark: u64) {
    load(map, 0, mark);
    write(map, mark);
    assert!(map.read(0, &mut [0; PAGE]));
}

/// As `Space::read_hot`, at address 0, where a map is mapped by an entry, and shown by a window.
fn reading(map: &PageMap) -> (sync::thread::JoinHandle<()>, Arc<AtomicU64>, Arc<Window>) {
    let (entry, window) = (Arc::new(AtomicU64::new(FIRST)), Arc::new(Window::new()));
    window.show(map.number(), 0);
    let (maps, theirs) = (PageMaps::new(Arc::clone(map.frames())), (Arc::clone(&entry), Arc::clone(&window)));
    let reader = thread(move || {
        let (entry, window) = theirs;
        let seen = entry.load(Ordering::Acquire);
        if seen == NONE {
            return;
        }
        let (map, start) = window.locate(0);
        let mut bytes = [0; PAGE];
        if maps.read_hot(map, start, &mut bytes, || entry.load(Ordering::Acquire) == seen) {
            assert_eq!(bytes, contents(OURS), "another mapping's page");
        }
    });
    (reader, entry, window)
}

/// The file is closed, and another one opened that gets its words, its frame and its map's number.
#[test]
fn a_closed_files_words_arent_read_for_it() {
    sync::model(|| {
        let frames = frames(1);
        let map = PageMap::new(Arc::clone(&frames), 2).unwrap();
        load_hot(&map, OURS);
        let (reader, entry, _) = reading(&map);
        entry.store(NONE, Ordering::Release);
        drop(map.detach(0, 0, true));
        let number = map.number();
        drop(map);
        let other = PageMap::new(Arc::clone(&frames), 2).unwrap();
        assert_eq!(other.number(), number);
        load_hot(&other, OTHERS);
        reader.join().unwrap();
    });
}

/// Another mapping gets the place in the table, and its window shows another file there.
#[test]
fn another_mappings_window_isnt_looked_through() {
    sync::model(|| {
        let frames = frames(2);
        let [ours, others] = [OURS, OTHERS].map(|mark| {
            let map = PageMap::new(Arc::clone(&frames), 2).unwrap();
            load_hot(&map, mark);
            map
        });
        let (reader, entry, window) = reading(&ours);
        entry.store(NONE, Ordering::Release);
        window.show(others.number(), 0);
        reader.join().unwrap();
    });
}

/// Mapped, unmapped and mapped again: the same entry twice, and nothing to be read in between.
/// (Memory of a space: its region is always the same, and so is its entry.)
#[test]
fn a_page_that_was_never_readable_isnt_read() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let (reader, entry, _) = reading(&map);
        entry.store(NONE, Ordering::Release);
        load_hot(&map, OTHERS);
        assert!(matches!(map.state(0), PageState::Resident { .. }));
        assert!(matches!(map.detach(0, 0, true), Detach::Listed { .. }));
        entry.store(FIRST, Ordering::Release);
        reader.join().unwrap();
    });
}

/// The same for a reader that takes the long way, as for pages whose use has to be noted.
#[test]
fn nor_is_it_the_long_way() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let entry = Arc::new(AtomicU64::new(FIRST));
        let theirs = (Arc::clone(&map), Arc::clone(&entry));
        let reader = thread(move || {
            let (map, entry) = theirs;
            let seen = entry.load(Ordering::Acquire);
            let mut bytes = [0; PAGE];
            if seen != NONE && map.read_while(0, &mut bytes, || entry.load(Ordering::Acquire) == seen) {
                panic!("another mapping's page: {bytes:x?}");
            }
        });
        entry.store(NONE, Ordering::Release);
        load(&map, 0, OTHERS);
        assert!(matches!(map.detach(0, 0, true), Detach::Listed { .. }));
        entry.store(FIRST, Ordering::Release);
        reader.join().unwrap();
    });
}

/// P1, with the version as the only difference: the word of a written page stays.
#[test]
fn a_written_page_is_read_as_one_writer_left_it() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load_written(&map, OURS);
        let (maps, number) = (PageMaps::new(Arc::clone(&frames)), map.number());
        let reader = thread(move || {
            let mut bytes = [0; PAGE];
            if maps.read_hot(number, 0, &mut bytes, || true) {
                assert!(bytes == contents(OURS) || bytes == contents(OTHERS), "torn: {bytes:x?}");
            }
        });
        write(&map, OTHERS);
        reader.join().unwrap();
        let mut bytes = [0; PAGE];
        assert!(PageMaps::new(frames).read_hot(number, 0, &mut bytes, || true), "not the short way");
        assert_eq!(bytes, contents(OTHERS));
    });
}

/// The entry is looked at before the second look at the version: what was written while the page
/// wasn't mapped isn't read, be it that the page has the same entry, and the same bytes, before and
/// after.
#[test]
fn what_was_written_while_unmapped_isnt_read() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load_written(&map, OURS);
        let (reader, entry, _) = reading(&map);
        entry.store(NONE, Ordering::Release);
        write(&map, OTHERS);
        write(&map, OURS);
        entry.store(FIRST, Ordering::Release);
        reader.join().unwrap();
    });
}

/// Another page gets the frame of a written one.
#[test]
fn a_written_pages_frame_isnt_read_for_it() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load_written(&map, OURS);
        let (reader, ..) = reading(&map);
        drop(map.detach(0, 0, true));
        load(&map, 1, OTHERS);
        reader.join().unwrap();
    });
}

#[test]
fn a_number_that_no_map_has_finds_nothing() {
    sync::model(|| {
        let maps = PageMaps::new(frames(1));
        for bits in [0, 3, 4, u64::MAX] {
            assert!(!maps.read_hot(MapNumber::from_bits(bits), 0, &mut [0; PAGE], || true));
        }
    });
}
