//! A thread reads at an address, without a lock or a pin, while other threads write, unmap and map.
//! This file includes the source of `pagefold`'s `space/window`, and models both read paths of
//! `space/read`.
#![cfg(pagefold_loom)]

mod model;
#[path = "../../pagefold/src/space/window.rs"]
mod window;

// The name by which `window` knows this crate.
extern crate pagefold_frames as frames;

use model::*;
use pagefold_frames::{BeginWrite, Detach, MapNumber, PageMap, PageMaps, PageState, USES_MAX};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering, spin_hint};
use window::Window;

/// Entries of the index: numbers of mappings, which are never reused.
const NONE: u64 = 0;
const FIRST: u64 = 7;

/// The contents of the first file's page, and of all other pages.
const OURS: u64 = 1;
const OTHERS: u64 = 2;

/// Loads page 0, and makes it hot.
fn load_hot(map: &PageMap, mark: u64) {
    load(map, 0, mark);
    make_hot(map);
}

/// Uses page 0 until it is hot. Only then does `PageMaps::read_hot` read it.
fn make_hot(map: &PageMap) {
    for _ in 0..USES_MAX {
        assert!(map.read(0, &mut [0; PAGE]));
    }
    let maps = PageMaps::new(Arc::clone(map.frames()));
    assert!(maps.read_hot(map.number(), 0, &mut [0; PAGE], || true), "the page isn't hot");
}

/// Overwrites page 0, which must be in memory. Retries until it succeeds.
fn write(map: &PageMap, mark: u64) {
    loop {
        if let BeginWrite::Begun(mut writing) = map.begin_write(0) {
            let _ = writing.write(0, &contents(mark));
            return;
        }
        spin_hint();
    }
}

/// Loads page 0, overwrites it, and makes it hot.
fn load_written(map: &PageMap, mark: u64) {
    load(map, 0, mark);
    write(map, mark);
    make_hot(map);
}

/// Starts a thread that reads at address 0, like `Space::read_hot`. Returns the thread, the entry
/// of the address, and the mapping's window, which shows `map`.
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

/// The file is closed. Another file is opened, and gets the same page words, frame and map number.
/// The reader must not get the other file's bytes.
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

/// Another mapping gets the same place in the table of mappings, so the window shows another file.
/// The reader must not get that file's bytes.
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

/// An address is unmapped, and later mapped again with the same entry. The page is in memory only
/// while the address isn't mapped, so the reader must not get its bytes.
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

/// The same test for a reader on the slow path. Readers take this path if the use of the page must
/// be recorded.
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

/// A reader copies a written page while a writer changes it. The page's word stays the same, so the
/// reader must detect the change by the version.
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

/// A page is unmapped, overwritten twice, and mapped again. It then has the same entry and the same
/// bytes as before. The reader must not get the bytes that the page had in between. So it must
/// check the entry before it loads the version a second time (V4 of `writing`).
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

/// A written page is removed, and another page gets its frame.
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
