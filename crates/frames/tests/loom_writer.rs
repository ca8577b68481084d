//! A writer waits until the pins of its page have ended, and keeps new pinners out meanwhile.
//!
//! ```text
//!   writer of page 0                      others
//!   a = word 0: resident(f, g)
//!   f is pinned
//!                                         the pin ends; page 0 is evicted; page 1 comes into f, and is pinned
//!   count of f: + WRITER_WAITS
//! ```
//! Now the writer keeps pinners of page 1 out, although it waits for page 0. This ends when the
//! writer tries again, or is dropped.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{Ahead, BeginWrite, PageMap};
use sync::Arc;

/// Makes two attempts to pin page 0, and keeps a reservation in its frame between them. If it gets
/// the pin, reads the bytes twice, and checks that they are the same.
fn pin(map: &PageMap) {
    let mut pinner = map.pinner(0);
    let Some(pin) = (0..2).find_map(|_| pinner.pin(&mut Ahead::No).ok()) else { return };
    let pin = pin.expect("the page stays in memory");
    let mut bytes = [[0; PAGE]; 2];
    pin.copy_to(0, &mut bytes[0]);
    pin.copy_to(0, &mut bytes[1]);
    assert_eq!(bytes[0], bytes[1], "changed under the pin");
    assert!([0xa, 0xb, 0xc].iter().any(|&mark| bytes[0] == contents(mark)), "torn: {bytes:x?}");
}

/// Tries to write to page 0. Returns whether it has.
fn write(map: &PageMap, mark: u64) -> bool {
    let mut writer = map.writer(0);
    for _ in 0..2 {
        if let BeginWrite::Begun(mut writing) = writer.begin() {
            let _ = writing.write(0, &contents(mark));
            return true;
        }
    }
    false
}

/// Two writers, and pins that overlap. Pinned bytes must not change. Afterwards, the page must be
/// available to pinners and writers again.
#[test]
fn writers_and_pinners_leave_the_page_to_one_another() {
    sync::model_deeper(2, || {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let [for_pins, for_writes] = [Arc::clone(&map), Arc::clone(&map)];
        let pinner = thread(move || {
            pin(&for_pins);
            pin(&for_pins);
        });
        let writer = thread(move || {
            write(&for_writes, 0xb);
        });
        let pinned = map.pin(0);
        drop(pinned);
        write(&map, 0xc);
        pinner.join().unwrap();
        writer.join().unwrap();
        assert!(map.pin(0).unwrap().is_some(), "a writer that is gone keeps pinners out");
        assert!(write(&map, 0xb), "a pinner that is gone keeps writers out");
    });
}

/// A writer finds its page pinned. Before it sets `WRITER_WAITS`, the frame goes to another page.
/// After the writer has given up, the other page must be pinnable.
#[test]
fn a_writer_that_gives_up_leaves_nothing_behind() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let pinned = map.pin(0).unwrap().unwrap();
        let theirs = Arc::clone(&map);
        let writer = thread(move || {
            let mut writer = theirs.writer(0);
            for _ in 0..2 {
                drop(writer.begin());
            }
        });
        let frame = frame_of(&map, 0);
        drop(pinned);
        if let Some(evicted) = evict(&frames, frame, 0) {
            drop(evicted);
            let frame = frames.allocate().expect("the frame is free");
            let (isolated, pinned) = load_into(&map, 1, 0xb, frame, true).expect("page 1 isn't in memory");
            drop(pinned);
            list(&frames, isolated);
        }
        writer.join().unwrap();
        let page = u64::from(map.pin(0).unwrap().is_none());
        assert!(map.pin(page).is_ok_and(|pin| pin.is_some()), "a writer that has given up keeps pinners out");
    });
}
