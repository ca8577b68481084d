//! A page moves to another frame, and another page gets its old frame. Meanwhile other threads
//! read, pin or remove the page. The diagram is in `src/frames/moving.rs`.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginWrite, FrameId, Frames, Hold, PageMap, PageState, Unclean};
use sync::Arc;

/// Moves page 0 to another frame, and then loads page 1 into its old frame.
fn move_on(frames: &Frames, map: &PageMap) {
    let Some(page) = frames.isolate(frame_of(map, 0)) else { return };
    let to = frames.allocate().expect("two frames");
    match frames.move_page(page, to) {
        Ok((page, old)) => {
            drop(old);
            list(frames, page);
            load(map, 1, 0xb);
        }
        Err((page, to)) => {
            list(frames, page);
            drop(to);
        }
    }
}

#[test]
fn a_reader_finds_the_page_or_nothing() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let mut bytes = [0; PAGE];
            if theirs.read(0, &mut bytes) {
                assert_eq!(bytes, contents(0xa), "another page's");
            }
        });
        move_on(&frames, &map);
        reader.join().unwrap();
        let mut bytes = [0; PAGE];
        assert!(map.read(0, &mut bytes) && bytes == contents(0xa));
    });
}

#[test]
fn a_pin_holds_the_page() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let pinner = thread(move || {
            let Some(pin) = wait_for(|| theirs.pin(0).ok()) else { return };
            let mut bytes = [0; PAGE];
            pin.copy_to(0, &mut bytes);
            assert_eq!(bytes, contents(0xa), "another page's");
        });
        move_on(&frames, &map);
        pinner.join().unwrap();
        assert!(evict(&frames, frame_of(&map, 0), 0).is_some(), "a pin is left, or the page isn't listed");
    });
}

/// A page is removed while it moves. Its frame is freed by the remover, or by the mover as an
/// orphan.
#[test]
fn a_page_that_is_removed_leaves_its_frames() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let remover = thread(move || drop(theirs.detach(0, 0, false)));
        if let Some(page) = frames.isolate(frame_of_any(&map)) {
            let to = frames.allocate().expect("two frames");
            match frames.move_page(page, to) {
                Ok((page, old)) => {
                    drop(old);
                    list(&frames, page);
                }
                Err((page, _to)) => {
                    list(&frames, page);
                }
            }
        }
        remover.join().unwrap();
        let is_gone = matches!(map.state(0), PageState::Vacant { .. });
        let free: Vec<_> = std::iter::from_fn(|| frames.allocate()).collect();
        assert_eq!(free.len(), 1 + usize::from(is_gone), "a frame is lost, or free twice");
    });
}

/// A page was in use when it was settled, so its word still says *written*. Meanwhile a flusher
/// looks at the page, and a writer writes to it again.
#[test]
fn a_settled_page_moves_beside_a_flusher_and_a_writer() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        write(&map, 0xb);
        let pin = map.pin(0).unwrap().expect("it is in memory");
        let Hold::Held(held) = map.hold(0, Unclean::Dirty) else { panic!("it is dirty") };
        assert!(held.settle());
        drop(pin);
        let theirs = Arc::clone(&map);
        let writer = thread(move || write(&theirs, 0xc));
        // The flusher's look, between any two steps of the writer.
        let held = match map.hold(0, Unclean::Dirty) {
            Hold::Held(held) => held.settle(),
            Hold::Other | Hold::Busy => false,
        };
        move_on(&frames, &map);
        writer.join().unwrap();
        let mut bytes = [0; PAGE];
        assert!(map.read(0, &mut bytes) && bytes == contents(0xc), "a write is lost");
        let is_dirty = matches!(map.hold(0, Unclean::Dirty), Hold::Held(_));
        assert_eq!(is_dirty, !held, "a written page counts as clean, or a clean one as dirty");
    });
}

fn write(map: &PageMap, mark: u64) {
    let mut writing = wait_for(|| match map.begin_write(0) {
        BeginWrite::Begun(writing) => Some(writing),
        _ => None,
    });
    let _ = writing.write(0, &contents(mark));
}

/// Returns the frame of page 0 or, if the page was removed, the frame that it was in.
fn frame_of_any(map: &PageMap) -> FrameId {
    match map.state(0) {
        PageState::Resident { frame } => frame,
        _ => FrameId::new(0),
    }
}
