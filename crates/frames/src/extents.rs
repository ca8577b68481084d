//! Extents: the runs of frames that memory is taken from the system and given back in.
//!
//! An extent is a huge page where the budget is large enough for that, so that taking and giving back never splits
//! one. It is charged whole before its first frame is used, with its share of the frame table. To give one back, all
//! its frames have to be caught: the free ones are sifted out of the stocks, the used ones are evicted by the policy
//! one after the other, and what is freed meanwhile is caught on its way ([`Extents::catch`]).
//!
//! E1. At most one extent is being drained. Its frames are caught by whoever frees them: a free that read `draining`
//!     too early puts the frame into a stock, where the last sift of the drain finds it.

use std::ops::Range;

use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::{Mutex, MutexGuard};

use crate::frame_table::{FrameId, FrameTable};
use crate::free_frames::Batch;
use crate::population::{NodeRuns, Population};

const NONE: usize = usize::MAX;

/// All extents of the arena.
#[derive(Debug)]
pub(crate) struct Extents {
    population: Mutex<Population>,
    populated: AtomicUsize,
    nodes: NodeRuns,
    shift: u32,
    draining: AtomicUsize,
    caught: Mutex<Batch>,
    drain_turn: Mutex<()>,
}

impl Extents {
    /// `frames` frames in extents of 2^`shift`, a whole number of them; every 2^`node_shift` frames are the next one's
    /// of `nodes` nodes.
    pub(crate) fn new(frames: usize, shift: u32, node_shift: u32, nodes: usize) -> Self {
        let nodes = NodeRuns { extents: frames >> shift, nodes, shift: node_shift - shift };
        Self {
            population: Mutex::new(Population::new(nodes)),
            populated: AtomicUsize::new(0),
            nodes,
            shift,
            draining: AtomicUsize::new(NONE),
            caught: Mutex::default(),
            drain_turn: Mutex::new(()),
        }
    }

    pub(crate) fn frames_each(&self) -> usize {
        1 << self.shift
    }

    /// Extents, with memory or without.
    pub(crate) fn count(&self) -> usize {
        self.nodes.extents
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.nodes
    }

    /// The node that an extent's memory is to be on.
    pub(crate) fn node_of(&self, extent: usize) -> usize {
        self.nodes.node_of(extent)
    }

    /// Extents that have memory.
    pub(crate) fn populated(&self) -> usize {
        // Relaxed: a statistic.
        self.populated.load(Ordering::Relaxed)
    }

    /// Those.
    pub(crate) fn with_memory(&self) -> Vec<usize> {
        self.population.lock().all().collect()
    }

    pub(crate) fn frames_of(&self, extent: usize) -> Range<usize> {
        extent << self.shift..(extent + 1) << self.shift
    }

    /// Takes an extent into use if `charge`, told whether it is the extent's first time, allows it: one of `node`'s if
    /// there is one.
    pub(crate) fn populate(&self, node: usize, charge: impl FnOnce(bool) -> bool) -> Option<usize> {
        let extent = self.population.lock().add(node, charge)?;
        self.populated.fetch_add(1, Ordering::Relaxed);
        Some(extent)
    }

    /// Starts to drain the next extent that has memory. Waits for another drain to end.
    pub(crate) fn begin_drain(&self) -> Option<Drain<'_>> {
        let turn = self.drain_turn.lock();
        let extent = self.population.lock().next()?;
        // Release: with the locks of the stocks this makes E1 true. A free that doesn't see it yet is sifted later.
        self.draining.store(extent, Ordering::Release);
        Some(Drain { extents: self, extent, _turn: turn })
    }

    /// Takes a frame that is being freed if its extent is being drained.
    #[inline]
    pub(crate) fn catch(&self, table: &FrameTable, frame: FrameId) -> bool {
        // Acquire pairs with `begin_drain`; the line is written only by drains.
        if frame.index() >> self.shift != self.draining.load(Ordering::Acquire) {
            return false;
        }
        let mut caught = self.caught.lock();
        // Under the lock that the end of the drain takes: a frame is never added to a drain that is over.
        let ours = frame.index() >> self.shift == self.draining.load(Ordering::Relaxed);
        if ours {
            caught.push(table, frame);
        }
        ours
    }
}

/// An extent on its way back to the system.
#[derive(Debug)]
pub(crate) struct Drain<'a> {
    extents: &'a Extents,
    extent: usize,
    _turn: MutexGuard<'a, ()>,
}

impl Drain<'_> {
    pub(crate) fn extent(&self) -> usize {
        self.extent
    }

    /// Stops catching, and says what was caught.
    pub(crate) fn stop(&self) -> Batch {
        let mut caught = self.extents.caught.lock();
        self.extents.draining.store(NONE, Ordering::Relaxed);
        std::mem::take(&mut *caught)
    }

    /// Ends the drain if every frame that isn't retired was caught: calls `give_back`, and the extent is without memory
    /// afterwards. Else false, and what was caught is for [`stop`](Self::stop) to return.
    pub(crate) fn end(&self, retired: usize, give_back: impl FnOnce()) -> bool {
        let mut caught = self.extents.caught.lock();
        if caught.len() + retired < self.extents.frames_each() {
            return false;
        }
        self.extents.draining.store(NONE, Ordering::Relaxed);
        *caught = Batch::default();
        drop(caught);
        // Before anybody can populate the extent anew.
        give_back();
        self.extents.population.lock().remove(self.extent);
        self.extents.populated.fetch_sub(1, Ordering::Relaxed);
        true
    }
}
