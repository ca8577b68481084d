//! A load is ended by another thread than the one that began it. The requester of the page may be
//! gone by then.
//!
//! ```text
//!   submitter                reaper                       reader, waiter
//!   word → loading
//!   hands the run over
//!                            bytes, word → resident       sees the whole page, or none
//!                            or drops the run             is woken; the frame is free, and leaves nothing behind
//! ```
#![cfg(pagefold_loom)]

mod model;

use std::task::{Poll, Wake, Waker};

use model::*;
use pagefold_frames::{BeginLoad, Frames, Labels, LoadFailure, Loading, LoadingRun, PageMap};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Arc, StableBytes};

const FAILED: LoadFailure = LoadFailure(5);

fn run(map: &PageMap, pages: std::ops::Range<u64>) -> LoadingRun {
    let mut run = LoadingRun::new(map);
    for page in pages {
        let frame = map.frames().allocate().unwrap();
        let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("nobody else loads") };
        run.push(loading, frame);
    }
    run
}

/// Fills the frames of a run, as a device does, and publishes its pages, as the reaper does.
fn complete(mut run: LoadingRun, frames: &Frames) {
    let mut page = run.pages().start;
    run.each(&mut |bytes| {
        page += 1;
        bytes.copy_from(0, &contents(page));
    });
    while let Some((loading, frame)) = run.next() {
        list(frames, loading.publish(frame, Labels::default(), false).0);
    }
}

fn check(map: &PageMap, page: u64) -> bool {
    let mut bytes = [0; PAGE];
    let there = map.read(page * PAGE as u64, &mut bytes);
    assert!(!there || bytes == contents(page + 1), "{bytes:x?}");
    there
}

#[test]
fn readers_see_whole_pages_of_a_run_that_another_thread_completes() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        let run = run(&map, 0..2);
        let theirs = Arc::clone(&frames);
        let reaper = thread(move || complete(run, &theirs));
        // If page 1 is still being loaded, it gets a waiter for a moment. Then its load ends under
        // the lock of the waiters, but this thread reads the page without taking this lock again.
        drop(map.begin_wait(1, None));
        check(&map, 1);
        assert_eq!(map.wait(0), Ok(()));
        assert!(check(&map, 0), "waited for");
        reaper.join().unwrap();
        assert!(check(&map, 1));
    });
}

#[test]
fn a_failed_or_forgotten_run_tells_its_waiters_and_frees_its_frames() {
    for forget in [false, true] {
        sync::model(move || {
            let frames = frames(1);
            let map = map(&frames, 2);
            let mut run = run(&map, 0..1);
            let reaper = thread(move || {
                if !forget {
                    run.next().unwrap().0.fail(FAILED);
                }
            });
            // `None` if the load has ended already.
            if let Some(waiting) = map.begin_wait(0, None) {
                assert_eq!(waiting.sleep(), Err(if forget { Loading::ABANDONED } else { FAILED }));
            }
            reaper.join().unwrap();
            assert_eq!(frames.stats().free_frames, 1);
            assert_eq!(map.state(0), pagefold_frames::PageState::Vacant { shadow: 0 });
            load(&map, 0, 1);
            assert!(check(&map, 0));
        });
    }
}

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A task that registers before the load ends is woken. A waiter that was dropped isn't left in the
/// list.
#[test]
fn tasks_are_woken_by_the_load_that_they_waited_for() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let run = run(&map, 0..1);
        let theirs = Arc::clone(&frames);
        let reaper = thread(move || complete(run, &theirs));
        let [gone, count] = [(); 2].map(|()| std::sync::Arc::new(Count::default()));
        let [gone_waker, waker] = [&gone, &count].map(|count| Waker::from(std::sync::Arc::clone(count)));
        drop(map.begin_wait(0, Some(&gone_waker)));
        let mut waiting = map.begin_wait(0, Some(&waker));
        // If this thread can still wait, the load ends after the first waiter was dropped.
        let is_gone_in_time = waiting.is_some();
        let early = waiting.as_mut().map(|waiting| waiting.poll(&waker));
        reaper.join().unwrap();
        assert!(!is_gone_in_time || gone.0.load(Ordering::SeqCst) == 0, "a waiter that was dropped was woken");
        match (early, waiting) {
            (None, _) => {}
            (Some(Poll::Ready(outcome)), _) => assert_eq!(outcome, Ok(())),
            (Some(Poll::Pending), Some(mut waiting)) => {
                assert!(count.0.load(Ordering::SeqCst) > 0, "nobody was woken");
                assert_eq!(waiting.poll(&waker), Poll::Ready(Ok(())));
            }
            (Some(Poll::Pending), None) => unreachable!(),
        }
        assert!(check(&map, 0));
    });
}

/// A pin that was made for a future keeps the page in memory until the future drops the pin,
/// whether or not it has lent the pin. Afterwards no pin is left.
#[test]
fn a_kept_pin_is_lent_or_given_back() {
    [true, false].into_iter().for_each(keep_pin);
}

fn keep_pin(lends: bool) {
    sync::model(move || {
        let frames = frames(1);
        let map = map(&frames, 2);
        let mut run = run(&map, 0..1);
        run.each(&mut |bytes| bytes.copy_from(0, &contents(1)));
        let (loading, frame) = run.next().unwrap();
        let (isolated, pin) = loading.publish_pinned(frame, Labels::default());
        list(&frames, isolated);
        let theirs = Arc::clone(&map);
        let future = thread(move || {
            if !lends {
                return drop(pin);
            }
            let pin = pin.lend(&theirs).expect("of these frames");
            let mut bytes = [0; PAGE];
            pin.copy_to(0, &mut bytes);
            assert_eq!(bytes, contents(1), "changed under the pin");
        });
        let evicted = evict(&frames, frame_of(&map, 0), 0);
        let page = u64::from(evicted.is_some());
        if evicted.map(drop).is_some() {
            load(&map, 1, 2);
        }
        future.join().unwrap();
        assert!(evict(&frames, frame_of(&map, page), 0).is_some(), "a pin is left");
    });
}
