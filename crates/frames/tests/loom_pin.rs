//! A page is pinned while its frame is being evicted, freed and given to another page.
//!
//! ```text
//!   pinner of page 0                     others
//!   a = word 0: resident(f, g)
//!                                        freeze f; word 0 = vacant; f is freed, taken, filled for page 1; unfreeze f
//!   count of f + 1: not frozen!
//!   b = word 0: not the same stay, so the pin is taken back
//! ```
//! What the second look has to see is the eviction before the count that the pin was added to.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{Ahead, BeginWrite, PageMap};
use sync::Arc;

/// Pins `page`, and looks at its bytes twice: they are one of `marks`, and stay so.
fn pin(map: &PageMap, page: u64, marks: &[u64]) -> bool {
    let Some(pin) = wait_for(|| map.pin(page).ok()) else { return false };
    let mut bytes = [[0; PAGE]; 2];
    pin.copy_to(0, &mut bytes[0]);
    pin.copy_to(0, &mut bytes[1]);
    assert!(marks.iter().any(|&mark| bytes[0] == contents(mark)), "page {page} pinned as {bytes:x?}");
    assert_eq!(bytes[0], bytes[1], "changed under the pin");
    true
}

#[test]
fn a_pin_holds_its_own_page() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let pinner = thread(move || {
            pin(&theirs, 0, &[0xa]);
        });
        let frame = frame_of(&map, 0);
        if let Some(evicted) = evict(&frames, frame, 0) {
            drop(evicted);
            load(&map, 1, 0xb);
            assert!(pin(&map, 1, &[0xb]));
        }
        pinner.join().unwrap();
        // No pin is left on the frame, whether it was taken or taken back.
        assert!(evict(&frames, frame, 0).is_some());
    });
}

/// The page itself comes back in the same frame: a pin that was added to the new stay is for the
/// new stay's bytes.
#[test]
fn a_pin_of_a_page_that_came_back_holds_what_it_reads() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let pinner = thread(move || {
            pin(&theirs, 0, &[0xa, 0xc]);
        });
        let frame = frame_of(&map, 0);
        if let Some(evicted) = evict(&frames, frame, 0) {
            drop(evicted);
            load(&map, 0, 0xc);
        }
        pinner.join().unwrap();
        assert!(evict(&frames, frame, 0).is_some());
    });
}

/// The loader keeps a pin of the page that it publishes; an evictor that has the frame isolated at
/// once can't get it.
#[test]
fn a_loaders_pin_is_there_before_the_page_can_be_evicted() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let theirs = Arc::clone(&map);
        let evictor = thread(move || {
            if let pagefold_frames::PageState::Resident { frame } = theirs.state(0)
                && let Some(evicted) = evict(theirs.frames(), frame, 0)
            {
                drop(evicted);
                load(&theirs, 1, 0xb);
            }
        });
        let frame = frames.allocate().unwrap();
        let (isolated, pinned) = load_into(&map, 0, 0xa, frame, true).unwrap();
        assert!(list(&frames, isolated));
        let mut bytes = [0; PAGE];
        pinned.as_ref().unwrap().copy_to(0, &mut bytes);
        assert_eq!(bytes, contents(0xa));
        drop(pinned);
        evictor.join().unwrap();
    });
}

/// Two pins and an evictor: one that is taken back never takes the other with it.
///
/// One of the two is the loader's, since two threads that wait for an evictor would keep loom going
/// for ever.
#[test]
fn a_pin_outlasts_anothers_coming_and_going() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let frame = frames.allocate().unwrap();
        let (isolated, first) = load_into(&map, 0, 0xa, frame, true).unwrap();
        let frame = isolated.id();
        assert!(list(&frames, isolated));
        let theirs = Arc::clone(&map);
        let pinner = thread(move || {
            pin(&theirs, 0, &[0xa]);
        });
        let theirs = Arc::clone(&map);
        let evictor = thread(move || {
            if let Some(evicted) = evict(theirs.frames(), frame, 0) {
                drop(evicted);
                load(&theirs, 1, 0xb);
            }
        });
        let mut bytes = [0; PAGE];
        first.as_ref().unwrap().copy_to(0, &mut bytes);
        assert_eq!(bytes, contents(0xa));
        drop(first);
        pinner.join().unwrap();
        evictor.join().unwrap();
        assert!(evict(&frames, frame, 0).is_some(), "no pin is left");
    });
}

/// Tries a few times to pin page 0, with a place in its frame between them, and looks at its bytes
/// twice. Returns whether it got it.
fn pin_with_a_place(map: &PageMap, marks: &[u64]) -> bool {
    let mut pinner = map.pinner(0);
    for _ in 0..3 {
        let Ok(pinned) = pinner.pin(&mut Ahead::No) else { continue };
        let Some(pin) = pinned else { return false };
        let mut bytes = [[0; PAGE]; 2];
        pin.copy_to(0, &mut bytes[0]);
        pin.copy_to(0, &mut bytes[1]);
        assert!(marks.iter().any(|&mark| bytes[0] == contents(mark)), "page 0 pinned as {bytes:x?}");
        assert_eq!(bytes[0], bytes[1], "changed under the pin");
        return true;
    }
    false
}

/// A pinner leaves its one in the count of a frame that a writer has: when the writer is done it is
/// a pin, and keeps the next off.
#[test]
fn a_place_becomes_a_pin_of_its_own_page() {
    sync::model_deeper(2, || {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let BeginWrite::Begun(mut writing) = map.writer(0).begin() else { panic!("no other thread has the page") };
        let theirs = Arc::clone(&map);
        let pinner = thread(move || {
            pin_with_a_place(&theirs, &[0xa, 0xb, 0xc]);
        });
        let _ = writing.write(0, &contents(0xb));
        drop(writing);
        if let BeginWrite::Begun(mut writing) = map.writer(0).begin() {
            let _ = writing.write(0, &contents(0xc));
        }
        pinner.join().unwrap();
        assert!(matches!(map.writer(0).begin(), BeginWrite::Begun(_)), "a place is left");
    });
}

/// The page leaves the frame while a pinner has a place there, and another one comes: the place is
/// no pin of that, and doesn't stay.
#[test]
fn a_place_of_another_stay_is_given_back() {
    sync::model_deeper(2, || {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let pinner = thread(move || {
            pin_with_a_place(&theirs, &[0xa]);
        });
        let frame = frame_of(&map, 0);
        if let Some(evicted) = evict(&frames, frame, 0) {
            drop(evicted);
            load(&map, 1, 0xb);
            assert!(pin(&map, 1, &[0xb]));
        }
        pinner.join().unwrap();
        assert!(evict(&frames, frame, 0).is_some(), "a place is left");
    });
}
