//! Models of four frames in batches of at most two, on two CPUs, with one NUMA node or two
//! simulated ones.

use super::*;
use std::ops::Range;

use crate::region::{Protection, Region};
use sync::Arc;
use sync::atomic::AtomicBool;

const FRAMES: usize = 4;

struct Model {
    table: FrameTable,
    free: FreeFrames,
    held: [AtomicBool; FRAMES],
}

impl Model {
    fn new(nodes: usize) -> Arc<Self> {
        let table = FrameTable::new(Region::reserve(FRAMES, Protection::default()).unwrap());
        // 32 frames are enough for batches of two.
        let free = FreeFrames::new(Nodes::pretend(nodes), 0, 32);
        assert_eq!(free.batch_max, 2);
        let model = Self { table, free, held: [0; FRAMES].map(|_| AtomicBool::new(true)) };
        (0..FRAMES).for_each(|number| model.put(FrameId::new(number as u32)));
        Arc::new(model)
    }

    /// A model whose free frames were all taken.
    fn emptied() -> Arc<Self> {
        let model = Self::new(1);
        while model.take().is_some() {}
        model
    }

    /// Makes a batch of frames that the model has taken. The frame with the highest number comes
    /// first.
    fn batch(&self, numbers: Range<u32>) -> Batch {
        let mut batch = Batch::default();
        numbers.for_each(|number| batch.push(&self.table, FrameId::new(number)));
        batch
    }

    fn take(&self) -> Option<FrameId> {
        let own = self.free.take(&self.table, 1).pop(&self.table);
        let anywhere = || self.free.take_anywhere(&self.table, |batch| batch);
        let frame = own.or_else(anywhere).or_else(|| self.free.take_of_others(&self.table))?;
        assert!(!self.held[frame.index()].swap(true, Ordering::Relaxed), "{frame:?} given twice");
        Some(frame)
    }

    fn put(&self, frame: FrameId) {
        self.held[frame.index()].store(false, Ordering::Relaxed);
        self.free.put(&self.table, frame);
    }

    fn all_there(&self) {
        assert_eq!(self.free.count(), FRAMES);
        (0..FRAMES).for_each(|_| assert!(self.take().is_some(), "a frame is lost"));
        assert!(self.take().is_none() && self.free.in_depots() == 0);
    }
}

fn take_and_put(model: &Arc<Model>) -> sync::thread::JoinHandle<()> {
    let model = Arc::clone(model);
    sync::thread::spawn("model", move || {
        let both = [model.take(), model.take()];
        both.into_iter().flatten().for_each(|frame| model.put(frame));
    })
    .unwrap()
}

#[test]
fn batches_move_between_stocks_and_depot_whole() {
    sync::model(|| {
        let model = Model::new(1);
        let other = take_and_put(&model);
        let frames = [model.take(), model.take(), model.take()];
        frames.into_iter().flatten().for_each(|frame| model.put(frame));
        other.join().unwrap();
        model.all_there();
    });
}

/// The count of frames in the depots is an estimate, but it must never fall below zero: it would
/// wrap to a huge number.
#[test]
fn a_batch_is_counted_before_it_can_be_taken() {
    sync::model(|| {
        let model = Model::new(1);
        let mut batch = Batch::default();
        model.free.sift(&model.table, |mut shown| {
            while let Some(frame) = shown.pop(&model.table) {
                batch.push(&model.table, frame);
            }
            shown
        });
        let theirs = Arc::clone(&model);
        let putter = sync::thread::spawn("putter", move || theirs.free.put_all(&theirs.table, batch)).unwrap();
        let _ = model.free.take_batch(&model.table, 0);
        assert!(model.free.in_depots() <= FRAMES);
        putter.join().unwrap();
    });
}

/// While one thread pops, another thread takes two batches and puts the first one back. The first
/// thread may then have loaded an outdated link, to a batch that the other thread holds. The first
/// thread must notice this, and retry.
#[test]
fn a_batch_that_is_on_top_again_is_told_from_before() {
    sync::model(|| {
        let model = Model::emptied();
        let chain = Arc::new(Chain::default());
        (0..3).for_each(|number| chain.put(&model.table, &model.batch(number..number + 1)));
        let (theirs, their_model) = (Arc::clone(&chain), Arc::clone(&model));
        let other = sync::thread::spawn("other", move || {
            let [first, second] = [(); 2].map(|()| theirs.pop(&their_model.table));
            first.inspect(|first| theirs.put(&their_model.table, first));
            second.map(|batch| batch.head)
        });
        let own = chain.pop(&model.table).map(|batch| batch.head);
        let theirs = other.unwrap().join().unwrap();
        let mut all: Vec<_> = std::iter::from_fn(|| chain.pop(&model.table)).map(|batch| batch.head).collect();
        all.extend([own, theirs].into_iter().flatten());
        all.sort_unstable_by_key(|frame| frame.map(FrameId::index));
        assert_eq!(all, (0..3).map(|number| Some(FrameId::new(number))).collect::<Vec<_>>());
    });
}

/// While a sift begins, other threads find every batch: either in the chain, or among the unseen
/// batches.
#[test]
fn a_batch_is_found_while_a_sift_begins() {
    sync::model(|| {
        let model = Model::emptied();
        let depot = Arc::new(Depot::default());
        let batch = model.batch(0..2);
        depot.put(&model.table, &batch);
        let sifted = Arc::clone(&depot);
        let sift = sync::thread::spawn("sift", move || sifted.begin_sift()).unwrap();
        let found = depot.take(&model.table).or_else(|| depot.take_unseen(&model.table));
        assert_eq!(found.map(|batch| (batch.head, batch.len)), Some((batch.head, 2)));
        sift.join().unwrap();
        assert!(depot.len() == 0 && depot.take_unseen(&model.table).is_none());
    });
}

/// A sift that begins sees the batches that other threads put.
#[test]
fn a_sift_sees_whole_batches() {
    sync::model(|| {
        let model = Model::emptied();
        let depot = Arc::new(Depot::default());
        let (theirs, their_model) = (Arc::clone(&depot), Arc::clone(&model));
        let putter = sync::thread::spawn("putter", move || {
            theirs.put(&their_model.table, &their_model.batch(0..2));
        })
        .unwrap();
        depot.begin_sift();
        if let Some(mut batch) = depot.take_unseen(&model.table) {
            let frames = [(); 3].map(|()| batch.pop(&model.table));
            assert_eq!(frames, [Some(FrameId::new(1)), Some(FrameId::new(0)), None]);
        }
        putter.join().unwrap();
    });
}

#[test]
fn strays_come_home() {
    sync::model(|| {
        let model = Model::new(2);
        let other = take_and_put(&model);
        let frames = [model.take(), model.take()];
        frames.into_iter().flatten().for_each(|frame| model.put(frame));
        other.join().unwrap();
        model.all_there();
    });
}

#[test]
fn strays_stay_with_a_cpu_until_they_make_a_batch() {
    sync::model(|| {
        let model = Model::new(2);
        // Two frames of each node.
        assert_eq!((model.free.count(), model.free.in_depots()), (FRAMES, 0));
        model.all_there();
    });
}

#[test]
fn a_sift_takes_what_it_is_shown_and_keeps_the_rest() {
    sync::model(|| {
        let model = Model::new(1);
        let other = take_and_put(&model);
        let mut sifted = Vec::new();
        model.free.sift(&model.table, |mut shown| {
            let mut kept = Batch::default();
            while let Some(frame) = shown.pop(&model.table) {
                if frame.index() < 2 {
                    sifted.push(frame);
                } else {
                    kept.push(&model.table, frame);
                }
            }
            kept
        });
        other.join().unwrap();
        for frame in sifted {
            model.free.put(&model.table, frame);
        }
        model.all_there();
    });
}
