//! Frames move from one CPU's stock to another's, while a drain catches the frames of its extent.
//!
//! ```text
//!   freeing                              drain
//!   which extent is being drained? none
//!                                        start; sift the stocks; all other frames of the extent are caught
//!   put the frame into a stock
//!                                        sift again: here it is
//! ```
//! Each frame has exactly one owner, and none is lost. `src/free_frames/models.rs` has the models
//! of how batches move.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{Frames, OwnedFrame};
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};

/// For each frame, whether a thread owns it. The flags are swapped `Relaxed`. If two threads owned
/// a frame at the same time, one of them would find its flag set.
struct Held([AtomicBool; 3]);

impl Held {
    fn new() -> Arc<Self> {
        Arc::new(Self([0; 3].map(|_| AtomicBool::new(false))))
    }

    fn take<'a>(&self, frames: &'a Frames) -> Option<OwnedFrame<'a>> {
        let frame = frames.allocate()?;
        assert!(!self.0[frame.id().index()].swap(true, Ordering::Relaxed), "{:?} given twice", frame.id());
        Some(frame)
    }

    fn put(&self, frame: OwnedFrame<'_>) {
        self.0[frame.id().index()].store(false, Ordering::Relaxed);
        drop(frame);
    }
}

/// Checks that `count` frames are free, and that each of them can be allocated once.
fn all_there(frames: &Frames, held: &Held, count: usize) {
    assert_eq!(frames.stats().free_frames, count);
    let all: Vec<_> = (0..count).map(|_| held.take(frames).expect("a frame is lost")).collect();
    assert_eq!(frames.stats().free_frames, 0);
    drop(all);
}

#[test]
fn two_takers_get_two_frames() {
    sync::model(|| {
        let frames = frames(2);
        let held = Held::new();
        let (theirs, their_held) = (Arc::clone(&frames), Arc::clone(&held));
        let other = thread(move || {
            let frame = their_held.take(&theirs).expect("there is one for each");
            their_held.put(frame);
        });
        let frame = held.take(&frames).expect("there is one for each");
        held.put(frame);
        other.join().unwrap();
        frames.set_budget(0); // New memory would be taken before another CPU's.
        all_there(&frames, &held, frames.extents());
    });
}

/// Three threads on two CPUs, and one frame. The frame is in one CPU's stock while a thread on the
/// other CPU searches for a frame.
#[test]
fn a_frame_in_anothers_stock_is_found() {
    sync::model(|| {
        let frames = frames(1);
        let held = Held::new();
        held.put(held.take(&frames).unwrap());
        let others = [0; 2].map(|_| {
            let (theirs, their_held) = (Arc::clone(&frames), Arc::clone(&held));
            thread(move || {
                if let Some(frame) = their_held.take(&theirs) {
                    their_held.put(frame);
                }
            })
        });
        for other in others {
            other.join().unwrap();
        }
        all_there(&frames, &held, 1);
    });
}

#[test]
fn a_drain_gets_all_of_an_extent_or_leaves_it() {
    sync::model(|| {
        let frames = frames(2);
        let held = Held::new();
        let both = [held.take(&frames).unwrap(), held.take(&frames).unwrap()];
        // Puts the last frame back first: the drain chooses this frame's extent, and the other
        // thread finds this frame first.
        both.into_iter().rev().for_each(|frame| held.put(frame));
        frames.set_budget(0); // What is given back stays away.
        let charged = frames.budget().used();
        let (theirs, their_held) = (Arc::clone(&frames), Arc::clone(&held));
        let other = thread(move || {
            if let Some(frame) = their_held.take(&theirs) {
                their_held.put(frame);
            }
        });
        let drain = frames.begin_drain(1, 1, |_| true).expect("two extents have memory");
        drain.sift();
        let finished = drain.finish(0);
        drop(drain);
        other.join().unwrap();
        let left = 2 - usize::from(finished);
        assert_eq!(frames.extents(), left);
        assert_eq!(charged - frames.budget().used(), (2 - left) as u64 * PAGE as u64);
        all_there(&frames, &held, left);
    });
}

/// The last frame of the extent is freed while the drain ends.
#[test]
fn a_frame_freed_at_the_end_of_a_drain_is_caught_or_kept() {
    sync::model(|| {
        let frames = frames(1);
        let held = Held::new();
        let frame = held.take(&frames).unwrap();
        let id = frame.id();
        let map = map(&frames, 2);
        let (isolated, _) = load_into(&map, 0, 0xa, frame, false).unwrap();
        assert!(list(&frames, isolated));
        frames.set_budget(0);
        let theirs = Arc::clone(&frames);
        let evictor = thread(move || drop(evict(&theirs, id, 1).expect("listed")));
        let drain = frames.begin_drain(1, 1, |_| true).unwrap();
        drain.sift();
        let finished = drain.finish(0);
        drop(drain);
        evictor.join().unwrap();
        held.0[0].store(false, Ordering::Relaxed);
        all_there(&frames, &held, 1 - usize::from(finished));
    });
}

/// Regression: a drain was dropped before it was finished, and left behind the frames that it had
/// caught. The next drain counted them as frames of its own extent, so it gave back memory that was
/// in use. Now a drain that is dropped puts its frames back.
#[test]
fn a_drain_dropped_unfinished_gives_its_catch_back() {
    sync::model(|| {
        let frames = frames(2);
        let held = Held::new();
        let both = [held.take(&frames).unwrap(), held.take(&frames).unwrap()];
        both.into_iter().for_each(|frame| held.put(frame));
        frames.set_budget(0);
        let (theirs, their_held) = (Arc::clone(&frames), Arc::clone(&held));
        let other = thread(move || {
            if let Some(frame) = their_held.take(&theirs) {
                their_held.put(frame);
            }
        });
        drop(frames.begin_drain(1, 1, |_| true));
        other.join().unwrap();
        all_there(&frames, &held, 2);
    });
}
