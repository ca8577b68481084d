//! A thread removes a page whose frame reclaim has isolated.
//!
//! ```text
//!   reclaim                              remover
//!   isolate f
//!                                        freeze f; word = vacant; f isn't listed: leave it to its holder (orphan)
//!   put f back: it is an orphan, free it
//! ```
//! Exactly one of the two frees the frame: the one that finishes last.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{Detach, FrameId, Frames, PageMap, PageState};
use sync::Arc;

/// Tries to evict the page in a frame, as reclaim does.
fn reclaim(frames: &Frames, frame: FrameId) {
    drop(evict(frames, frame, 1));
}

/// Removes page 0. Gives up if another thread is using it.
fn remove(map: &PageMap) {
    match map.detach(0, 2, false) {
        Detach::Listed { frame, .. } => drop(frame),
        Detach::Vacant
        | Detach::Busy
        | Detach::Pinned
        | Detach::Loading
        | Detach::Unclean
        | Detach::Swapped { .. }
        | Detach::Orphaned { .. } => {}
    }
}

/// Checks that the only frame is free exactly once, or that it holds page 0 and can be reclaimed.
fn settled(frames: &Frames, map: &PageMap, frame: FrameId) {
    if let PageState::Resident { .. } = map.state(0) {
        assert_eq!(frames.stats().free_frames, 0);
        drop(evict(frames, frame, 3).expect("the frame is listed and nobody has it pinned"));
    }
    assert!(matches!(map.state(0), PageState::Vacant { shadow: 1..=3 }));
    assert_eq!(frames.stats().free_frames, 1, "freed exactly once");
    let again = frames.allocate().expect("it is free");
    assert!(frames.allocate().is_none(), "given out twice");
    let (isolated, _) = load_into(map, 1, 0xb, again, false).unwrap();
    assert!(list(frames, isolated), "the next stay starts as if nothing had been");
    assert!(frames.isolate(frame).is_some());
}

#[test]
fn reclaim_and_removal_free_the_frame_once() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&map);
        let reclaimer = thread(move || reclaim(theirs.frames(), frame));
        remove(&map);
        reclaimer.join().unwrap();
        settled(&frames, &map, frame);
    });
}

#[test]
fn so_they_do_beside_a_pinner() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&map);
        let reclaimer = thread(move || reclaim(theirs.frames(), frame));
        let theirs = Arc::clone(&map);
        let pinner = thread(move || drop(theirs.pin(0)));
        remove(&map);
        reclaimer.join().unwrap();
        pinner.join().unwrap();
        settled(&frames, &map, frame);
    });
}

#[test]
fn two_removers_free_the_frame_once() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&map);
        let other = thread(move || remove(&theirs));
        let isolated = frames.isolate(frame);
        remove(&map);
        if let Some(isolated) = isolated {
            list(&frames, isolated);
        }
        other.join().unwrap();
        settled(&frames, &map, frame);
    });
}

/// A page is removed after it was published, but before its loader has listed the frame. Then the
/// loader must free the frame.
#[test]
fn a_page_removed_before_it_is_listed_is_its_loaders_to_free() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let theirs = Arc::clone(&map);
        let remover = thread(move || remove(&theirs));
        load_or_find_removed(&map);
        remover.join().unwrap();
        let free = usize::from(!matches!(map.state(0), PageState::Resident { .. }));
        assert_eq!(frames.stats().free_frames, free);
    });
}

fn load_or_find_removed(map: &PageMap) {
    let frame = map.frames().allocate().unwrap();
    let (isolated, _) = load_into(map, 0, 0xa, frame, false).unwrap();
    list(map.frames(), isolated);
}

/// The remover loads the page's word. Before it freezes the frame, the frame goes to another page.
/// The remover must notice this, and leave the other page unchanged.
#[test]
fn a_removers_late_freeze_harms_no_other_page() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&map);
        let remover = thread(move || remove(&theirs));
        if let Some(evicted) = evict(&frames, frame, 1) {
            drop(evicted);
            load(&map, 1, 0xb);
            remover.join().unwrap();
            let mut bytes = [0; PAGE];
            assert!(map.read(1 * PAGE as u64, &mut bytes) && bytes == contents(0xb));
            assert!(evict(&frames, frame, 1).is_some(), "the frame is neither frozen nor pinned");
        } else {
            remover.join().unwrap();
        }
        assert_eq!(frames.stats().free_frames, 1);
    });
}

/// A remover leaves a frame to its holder as an orphan. The holder frees the frame, and loads
/// another page into it. If a reader of the removed page copies a byte of the new page, it must
/// also see that the page was removed. Remover and holder synchronize only through the frame's
/// `place`.
#[test]
fn an_orphans_next_page_isnt_taken_for_its_last() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 4);
        // Makes the new page's part of the map present beforehand: charging it later would execute
        // a fence, which could hide a missing ordering.
        load(&map, 2, 0xb);
        drop(evict(&frames, frame_of(&map, 2), 0));
        load(&map, 0, 0xa);
        let isolated = frames.isolate(frame_of(&map, 0)).unwrap();
        let theirs = Arc::clone(&map);
        let remover = thread(move || remove(&theirs));
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let mut bytes = [0; PAGE];
            assert!(!theirs.read(0, &mut bytes) || bytes == contents(0xa), "page 0 read as {bytes:x?}");
        });
        if let Err(orphan) = frames.put_back(isolated) {
            drop(orphan);
            load(&map, 2, 0xb);
        }
        remover.join().unwrap();
        reader.join().unwrap();
    });
}
