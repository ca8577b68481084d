//! Threads sleep until another thread's load has ended.
//!
//! ```text
//!   waiter                               loader
//!   word is loading
//!                                        word = resident; WAITED isn't set, so no waiter is woken
//!   sleep … for ever?
//! ```
//! To exclude this, the waiter sets `WAITED` in the loading word and enters the list of waiters,
//! both under one lock. A loader that finds `WAITED` takes the same lock before it ends the load,
//! and wakes the waiters in the list. If a wake-up were lost, the model would report a deadlock.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginLoad, Labels, LoadFailure, PageMap};
use sync::Arc;

const FAILED: LoadFailure = LoadFailure(5);

/// If another thread is loading page 0, waits for that load and returns its outcome. Otherwise
/// returns `None`.
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

/// The next load of the page has a waiter, too, and fails with another error.
#[test]
fn waiters_get_the_error_of_the_load_they_waited_for() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let BeginLoad::Begun(loading) = map.begin_load(0) else { panic!("nobody else loads") };
        let waiters = [(); 2].map(|()| map.begin_wait(0, None).expect("the page is being loaded"));
        let theirs = Arc::clone(&map);
        let next = thread(move || {
            if let BeginLoad::Begun(loading) = theirs.begin_load(0) {
                let waiting = theirs.begin_wait(0, None).expect("the page is being loaded");
                loading.fail(LoadFailure(9));
                assert_eq!(waiting.sleep(), Err(LoadFailure(9)));
            }
        });
        loading.fail(FAILED);
        for waiter in waiters {
            assert_eq!(waiter.sleep(), Err(FAILED));
        }
        next.join().unwrap();
        assert_eq!(map.state(0), pagefold_frames::PageState::Vacant { shadow: 0 });
        assert_eq!(frames.sweep_maps(1, |_| ()), 1, "every load that failed has left its chunk");
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
            // `None` if the load has ended already.
            if let Some(waiting) = theirs.begin_wait(0, None) {
                assert_eq!(waiting.sleep(), Err(FAILED));
            }
        });
        loading.fail(FAILED);
        waiter.join().unwrap();
    });
}

/// A loader that unwinds drops its load without ending it.
#[test]
fn an_abandoned_load_wakes_its_waiter() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let loading = map.begin_load(0);
        let theirs = Arc::clone(&map);
        let waiter = thread(move || {
            if let Some(waiting) = theirs.begin_wait(0, None) {
                assert_eq!(waiting.sleep(), Err(pagefold_frames::Loading::ABANDONED));
            }
        });
        drop(loading);
        waiter.join().unwrap();
    });
}
