//! A reader copies a page without a lock. Meanwhile the page's frame goes to another page, and may
//! then hold the first page again.
//!
//! ```text
//!   reader of page 0                     others
//!   a = word 0: resident(f, g)
//!   copy the first word of f
//!                                        evict page 0; f is freed, taken, filled for page 1
//!   copy the second word of f
//!                                        evict page 1; f is filled for page 0 again
//!   b = word 0: resident(f, g + 2)
//! ```
//! If the reader accepts the copy, all of its bytes must be from one stay of page 0.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::USES_MAX;
use sync::Arc;

/// Reads `page`, and returns whether the read succeeds. Then the bytes must be those of one of
/// `marks`.
fn read(map: &pagefold_frames::PageMap, page: u64, marks: &[u64]) -> bool {
    let mut bytes = [0; PAGE];
    let read = map.read_hot(page * PAGE as u64, &mut bytes) || map.read(page * PAGE as u64, &mut bytes);
    assert!(!read || marks.iter().any(|&mark| bytes == contents(mark)), "page {page} read as {bytes:x?}");
    read
}

#[test]
fn a_reader_never_sees_the_frames_next_page() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            read(&theirs, 0, &[0xa]);
        });
        let frame = frame_of(&map, 0);
        drop(evict(&frames, frame, 0).expect("nobody else wants it"));
        load(&map, 1, 0xb);
        assert!(read(&map, 1, &[0xb]), "the page was there all the time");
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_sees_all_of_a_page_that_is_being_loaded_or_nothing() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let frame = frame_of(&map, 0);
        drop(evict(&frames, frame, 0).unwrap());
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            read(&theirs, 1, &[0xb]);
        });
        load(&map, 1, 0xb);
        reader.join().unwrap();
    });
}

#[test]
fn a_word_never_comes_back() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            read(&theirs, 0, &[0xa, 0xc]);
        });
        let frame = frame_of(&map, 0);
        drop(evict(&frames, frame, 0).unwrap());
        load(&map, 1, 0xb);
        drop(evict(&frames, frame, 0).unwrap());
        load(&map, 0, 0xc);
        reader.join().unwrap();
    });
}

/// Reclaim clears the hot bit in a page's word, and then evicts the page. Meanwhile a reader sets
/// the bit. Neither change of the bit may undo the eviction.
#[test]
fn the_referenced_bit_never_revives_a_word() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        for _ in 1..USES_MAX {
            assert!(read(&map, 0, &[0xa]));
        }
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            read(&theirs, 0, &[0xa]); // The use that sets the hot bit.
        });
        let isolated = frames.isolate(frame_of(&map, 0)).unwrap();
        let _ = frames.take_referenced(isolated.id());
        drop(frames.evict(isolated, 7).expect("optimistic readers pin nothing"));
        assert_eq!(map.state(0), pagefold_frames::PageState::Vacant { shadow: 7 });
        reader.join().unwrap();
        assert_eq!(map.state(0), pagefold_frames::PageState::Vacant { shadow: 7 });
    });
}

/// Two threads, each with a frame, begin to load the same page. The thread that loses the race for
/// the page's word leaves the page to the other thread, and frees its own frame.
#[test]
fn one_of_two_loaders_loads() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        let theirs = Arc::clone(&map);
        let other = thread(move || {
            let frame = theirs.frames().allocate().unwrap();
            if let Some((frame, _)) = load_into(&theirs, 0, 0xb, frame, false) {
                assert!(list(theirs.frames(), frame));
            }
        });
        let frame = frames.allocate().unwrap();
        if let Some((frame, _)) = load_into(&map, 0, 0xa, frame, false) {
            assert!(list(&frames, frame));
        }
        other.join().unwrap();
        assert!(read(&map, 0, &[0xa, 0xb]));
        assert_eq!(frames.stats().free_frames, 1, "the loser's frame is free again");
        assert_eq!(frames.budget().used(), 2 * EXTENT + CHUNK + STATES);
    });
}
