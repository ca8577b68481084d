//! A thread pins a page while the page's frame is evicted, freed, and given to another page.
//!
//! ```text
//!   pinner of page 0                     others
//!   a = word 0: resident(f, g)
//!                                        freeze f; word 0 = vacant; f is freed, taken, filled for page 1; unfreeze f
//!   count of f + 1: not frozen!
//!   b = word 0: not the same stay, so the pin is taken back
//! ```
//! The pinner's second load of the word must return what the eviction stored. It does, because the
//! eviction comes before the unfreezing of `f`, and the pinner's Acquire load of the count pairs
//! with the Release of this unfreezing.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{Ahead, BeginWrite, PageMap};
use sync::Arc;

/// Pins `page` and reads its bytes twice. Both reads must return the same one of `marks`. Returns
/// false if the page isn't in memory.
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
        // No pin is left on the frame, whether the pinner got the page or stepped back.
        assert!(evict(&frames, frame, 0).is_some());
    });
}

/// The page is evicted, and loaded into the same frame again with other bytes. The pinner may pin
/// either stay, but must read the bytes of one stay only.
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

/// A loader publishes a page and keeps a pin of it. An evictor that isolates the frame at once must
/// not be able to evict the page.
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

/// Two pins and an evictor: a pinner that steps back must not remove the other thread's pin.
///
/// One of the two pins is the loader's. If two threads waited for the evictor, loom's exploration
/// would never end.
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

/// Makes three attempts to pin page 0, and keeps a reservation in its frame between them. If it
/// gets the pin, checks the bytes like [`pin`], and returns true.
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

/// A pinner makes a reservation in a frame that a writer has frozen. When the writer unfreezes the
/// frame, the reservation becomes a pin, and the next writer can't freeze the frame.
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

/// While a pinner has a reservation in a frame, the page leaves the frame, and another page gets
/// it. The pinner must not take the reservation for a pin of its page, and must give it back.
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
