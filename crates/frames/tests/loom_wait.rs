//! Threads sleep until another thread's load is over.
//!
//! ```text
//!   waiter                               loader
//!   word is loading
//!                                        word = resident; WAITED isn't set, so no waiter is woken
//!   sleep … for ever?
//! ```
//! The waiter sets `WAITED` in the loading word itself, and sleeps under the lock that the end of a
//! waited load takes. A lost wake-up is a deadlock, which the model reports.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginLoad, Labels, LoadFailure, PageMap};
use sync::Arc;

const FAILED: LoadFailure = LoadFailure(5);

/// What a waiter that found the page busy was told; `None` if it wasn't busy.
fn wait(map: &PageMap) -> Option<Result<(), LoadFailure>> {
    match map.begin_load(0) {
        BeginLoad::Busy => Some(map.wait(0)),
        BeginLoad::Begun(loading) => {
            loading.fail(LoadFailure(9));
            None
        }
        _ => None,
    }
}

#[test]
fn all_waiters_wake_when_the_page_is_there() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let frame = frames.allocate().unwrap();
        frame.fill(|bytes| bytes.copy_from(0, &contents(0xa)));
        let BeginLoad::Begun(loading) = map.begin_load(0) else { panic!("nobody else loads") };
        let waiters = [0; 2].map(|_| {
            let theirs = Arc::clone(&map);
            thread(move || {
                let mut bytes = [0; PAGE];
                assert!(wait(&theirs).is_none_or(|outcome| outcome.is_ok()));
                assert!(theirs.read(0, &mut bytes) && bytes == contents(0xa), "woken too early");
            })
        });
        list(&frames, loading.publish(frame, Labels::default(), false).0);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn waiters_get_the_error_of_the_load_they_waited_for() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let BeginLoad::Begun(loading) = map.begin_load(0) else { panic!("nobody else loads") };
        let waiters = [0; 2].map(|_| {
            let theirs = Arc::clone(&map);
            thread(move || {
                // A waiter that came too late for the first load may fail one of its own, with
                // another's error.
                let _ = wait(&theirs);
            })
        });
        loading.fail(FAILED);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!(map.state(0), pagefold_frames::PageState::Vacant { shadow: 0 });
        assert_eq!(frames.sweep_maps(1), 1, "every load that failed has left its chunk");
        assert_eq!(frames.budget().used(), STATES);
    });
}

#[test]
fn a_waiter_is_told_the_failure() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let BeginLoad::Begun(loading) = map.begin_load(0) else { panic!("nobody else loads") };
        let theirs = Arc::clone(&map);
        let waiter = thread(move || {
            // Too late to wait, or told.
            let outcome = theirs.wait(0);
            assert!(outcome == Err(FAILED) || outcome == Ok(()));
        });
        loading.fail(FAILED);
        waiter.join().unwrap();
    });
}

/// A loader that unwinds has dropped its load unended.
#[test]
fn an_abandoned_load_wakes_its_waiter() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let loading = map.begin_load(0);
        let theirs = Arc::clone(&map);
        let waiter = thread(move || {
            let outcome = theirs.wait(0);
            assert!(outcome == Err(pagefold_frames::Loading::ABANDONED) || outcome == Ok(()));
        });
        drop(loading);
        waiter.join().unwrap();
    });
}
