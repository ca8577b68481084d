//! A sweep gives back a part of a page map while a page in this part is being loaded or evicted.
//!
//! ```text
//!   sweep                                loader, or evictor
//!   the chunk has been idle twice
//!                                        a page's word: vacant → loading
//!   discard the chunk: the word is lost
//! ```
//! Sweeps, loaders and evictors all change the chunk's state word. A sweep locks the chunk by a
//! compare-and-swap from *idle*. A loader increments the count of words in use before it changes a
//! page's word; an evictor decrements the count afterwards. So the interleaving above is
//! impossible.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginLoad, Detach, LoadFailure, PageState, Payment};
use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};

/// Returns the charge for `frames` frames and `chunks` chunks, and for the system page that holds
/// the states of all chunks.
fn cost(frames: u64, chunks: u64) -> u64 {
    frames * EXTENT + chunks * CHUNK + STATES
}

#[test]
fn a_resident_pages_word_is_never_given_back() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        drop(evict(&frames, frame_of(&map, 0), 5));
        let theirs = Arc::clone(&frames);
        let sweeper = thread(move || {
            theirs.sweep_maps(1, |_| ());
        });
        load(&map, 1, 0xb);
        sweeper.join().unwrap();
        let mut bytes = [0; PAGE];
        assert!(map.read(1 * PAGE as u64, &mut bytes) && bytes == contents(0xb), "the word is gone");
        assert_eq!(frames.budget().used(), cost(1, 1));
        // The word still names the frame, so the page can be evicted, and then the chunk can be
        // given back.
        drop(evict(&frames, frame_of(&map, 1), 6).expect("listed"));
        frames.sweep_maps(2, |_| ());
        assert_eq!(frames.budget().used(), cost(1, 0));
    });
}

/// An evictor must store the shadow before it decrements the chunk's count. Then the shadow is
/// discarded together with the chunk. If the evictor stored it later, the chunk might have been
/// given back already, and the shadow would take memory that isn't charged.
#[test]
fn the_last_shadow_goes_with_the_chunk() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&frames);
        let sweeper = thread(move || {
            theirs.sweep_maps(1, |_| ());
        });
        drop(evict(&frames, frame, 5).expect("listed"));
        sweeper.join().unwrap();
        let shadow = match frames.budget().used() - cost(1, 0) {
            0 => 0,
            CHUNK => 5,
            other => panic!("{other} bytes are charged for a chunk of {CHUNK}"),
        };
        assert_eq!(map.state(0), PageState::Vacant { shadow });
    });
}

#[test]
fn two_loaders_charge_a_chunk_once() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        let theirs = Arc::clone(&map);
        let other = thread(move || load(&theirs, 1, 0xb));
        load(&map, 0, 0xa);
        other.join().unwrap();
        assert_eq!(frames.budget().used(), cost(2, 1));
        let mut bytes = [0; PAGE];
        assert!(map.read(0, &mut bytes) && bytes == contents(0xa));
        assert!(map.read(1 * PAGE as u64, &mut bytes) && bytes == contents(0xb));
    });
}

/// The budget has room for one chunk and for the system page with the states. Two threads begin to
/// load pages of different chunks. One of them may succeed. But if both have charged their chunks
/// before either has charged the states, both are refused. A refused load must uncharge what it has
/// charged.
#[test]
fn a_refused_chunk_leaves_nothing_charged() {
    sync::model(|| {
        let frames = frames(1);
        frames.set_budget(CHUNK + STATES);
        let map = map(&frames, 4);
        let theirs = Arc::clone(&map);
        let begin = |map: &pagefold_frames::PageMap, page| match map.begin_load(page) {
            BeginLoad::Begun(loading) => loading.fail(LoadFailure(5)),
            BeginLoad::NoRoom => {}
            other => panic!("only one loader wants the page: {other:?}"),
        };
        let other = thread(move || begin(&theirs, 2));
        begin(&map, 0);
        other.join().unwrap();
        let used = frames.budget().used();
        assert!([0, CHUNK + STATES].contains(&used), "{used} bytes are charged");
        drop(map);
        assert_eq!(frames.budget().used(), 0);
    });
}

/// The states of two maps' chunks lie in one system page. The page must be charged once, and
/// uncharged when the last of the two maps is dropped.
#[test]
fn maps_that_share_a_page_of_states_charge_it_once() {
    sync::model(|| {
        let frames = frames(1);
        let stays = map(&frames, 2);
        let goes = map(&frames, 2);
        let begin = |map: &pagefold_frames::PageMap| match map.begin_load(0) {
            BeginLoad::Begun(loading) => loading.fail(LoadFailure(5)),
            other => panic!("there is room: {other:?}"),
        };
        let other = thread(move || {
            begin(&goes);
            drop(goes);
        });
        begin(&stays);
        other.join().unwrap();
        assert_eq!(frames.budget().used(), CHUNK + STATES);
        drop(stays);
        assert_eq!(frames.budget().used(), 0);
    });
}

/// Regression: a map was dropped. While the drop was giving back a chunk, a sweep marked this chunk
/// as aged. The drop noticed the change, and took it for another thread's use of the chunk. So the
/// chunk stayed charged, and the next map that got its words found the shadows of the old file. Now
/// the drop tries again.
#[test]
fn a_map_dropped_during_a_sweep_leaves_nothing() {
    sync::model(|| {
        let frames = frames(1);
        let old = map(&frames, 2);
        let first = old.first_word();
        load(&old, 0, 0xa);
        drop(evict(&frames, frame_of(&old, 0), 5).expect("listed"));
        let theirs = Arc::clone(&frames);
        let sweeper = thread(move || {
            theirs.sweep_maps(1, |_| ());
        });
        drop(old);
        let new = map(&frames, 2);
        assert_eq!(new.first_word(), first, "the old map's words are lost");
        assert_eq!(new.state(0), PageState::Vacant { shadow: 0 }, "another file's shadow");
        load(&new, 0, 0xb);
        sweeper.join().unwrap();
        assert_eq!(frames.budget().used(), cost(1, 1));
    });
}

/// Regression: an evictor had made the last page *vacant*, but hadn't yet decremented the chunk's
/// count, when the map was dropped. The drop found the chunk in use, and leaked the map's whole
/// range of words. Now the drop waits for the evictor.
#[test]
fn a_map_dropped_during_an_eviction_leaves_nothing() {
    sync::model(|| {
        let frames = frames(1);
        let old = map(&frames, 2);
        let first = old.first_word();
        load(&old, 0, 0xa);
        let frame = frame_of(&old, 0);
        let theirs = Arc::clone(&frames);
        let evictor = thread(move || drop(evict(&theirs, frame, 5)));
        match old.detach(0, 0, false) {
            Detach::Listed { frame, .. } => drop(frame),
            Detach::Vacant | Detach::Swapped { .. } | Detach::Orphaned { .. } => {}
            // The file's owner would wait until the page isn't in use; the model ends here.
            Detach::Busy | Detach::Pinned => {
                evictor.join().unwrap();
                return;
            }
            Detach::Loading | Detach::Unclean => panic!("nobody loads"),
        }
        drop(old);
        evictor.join().unwrap();
        assert_eq!(frames.budget().used(), EXTENT);
        let new = map(&frames, 2);
        assert_eq!(new.first_word(), first, "the old map's words are lost");
        assert_eq!(new.state(0), PageState::Vacant { shadow: 0 });
        assert_eq!(frames.stats().free_frames, 1);
    });
}

/// The owner of a map pays for its chunk once. It gets the payment back once, from the sweep or
/// when it gives back all chunks, whichever comes first. Even if the sweep gives the chunk back,
/// the owner gets the payment before `give_back_parts` returns.
#[test]
fn what_is_paid_for_a_chunk_is_returned_once() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let owed = Arc::new(AtomicUsize::new(0));
        let load = |map: &pagefold_frames::PageMap, page, owed: &AtomicUsize| {
            let mut payment = Payment::Made;
            // Relaxed, here and below: only the count matters.
            owed.fetch_add(1, Ordering::Relaxed);
            match map.begin_paid_load(page, &mut payment) {
                Ok(BeginLoad::Begun(loading)) => loading.fail(LoadFailure(5)),
                other => panic!("there is room, and it is paid for: {other:?}"),
            }
            if payment == Payment::Made {
                owed.fetch_sub(1, Ordering::Relaxed);
            }
        };
        load(&map, 0, &owed);
        assert_eq!(owed.load(Ordering::Relaxed), 1);
        let (theirs, their_owed) = (Arc::clone(&frames), Arc::clone(&owed));
        let sweeper = thread(move || {
            theirs.sweep_maps(1, |_| {
                their_owed.fetch_sub(1, Ordering::Relaxed);
            });
        });
        load(&map, 1, &owed);
        let left = map.give_back_parts(|_| {
            owed.fetch_sub(1, Ordering::Relaxed);
        });
        assert_eq!(left, 0);
        assert_eq!(owed.load(Ordering::Relaxed), 0, "payments that weren't returned yet");
        drop(map);
        sweeper.join().unwrap();
        assert_eq!((owed.load(Ordering::Relaxed), frames.budget().used()), (0, 0));
    });
}

/// Two threads pay for one chunk. One of the payments is used up.
#[test]
fn of_two_payments_for_a_chunk_one_is_used_up() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        let theirs = Arc::clone(&map);
        let pay = |map: &pagefold_frames::PageMap, page| {
            let mut payment = Payment::Made;
            let begun = map.begin_paid_load(page, &mut payment);
            assert!(matches!(begun, Ok(BeginLoad::Begun(_))));
            usize::from(payment == Payment::Due)
        };
        let other = thread(move || pay(&theirs, 1));
        let used = pay(&map, 0) + other.join().unwrap();
        let mut returned = 0;
        map.give_back_parts(|_| returned += 1);
        assert_eq!((used, returned), (1, 1));
    });
}

/// A thread that lowers the limit gives back the memory that is in use beyond it. So if another
/// thread charges memory at the same time, either the first thread must see this charge, or the
/// charge must be refused.
#[test]
fn a_limit_lowered_during_a_charge_is_kept_or_the_charge_is_seen() {
    sync::model(|| {
        let frames = frames(1);
        let theirs = Arc::clone(&frames);
        let charger = thread(move || drop(theirs.allocate()));
        frames.set_budget(0);
        let seen = frames.budget().used();
        charger.join().unwrap();
        assert!(frames.budget().used() <= seen, "charged after the limit was lowered, and nobody knows");
    });
}
