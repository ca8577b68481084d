//! Extents: the runs of frames in which memory is taken from the system and given back.
//!
//! An *extent* is a huge page if the budget is large enough. Then no huge page is split when memory
//! is taken or given back. The whole extent is charged, with its share of the frame table, before
//! its first frame is used.
//!
//! To give an extent back, a *drain* has to *catch* all its frames, that is, collect them so that
//! no thread can allocate them. The drain takes the free frames out of the stocks and depots of
//! `free_frames`. The policy evicts the pages in the other frames one by one. If a thread frees a
//! frame of the extent while the drain is running, the thread passes the frame to the drain
//! ([`Extents::catch`]).
//!
//! - E1. There is one drain at a time, of any number of extents. A thread that frees a frame checks
//!   `draining`. If the frame's extent is being drained, the thread passes the frame to the drain.
//!   But if the thread has read `draining` before the drain set it, the thread puts the frame into
//!   a stock, as usual. The drain finds this frame when it searches the stocks again (*sifts*
//!   them).
//! - E2. `caught` is the list of the extents that are being drained, with their caught frames.
//!   Before an extent's memory is given back, its entry is marked `is_over`. Adding a frame,
//!   marking an entry and emptying the list happen under the list's lock. So no frame is added to
//!   an extent whose drain is over.

use std::ops::Range;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::lock::{Mutex, MutexGuard};

use crate::frame_id::FrameId;
use crate::frame_table::FrameTable;
use crate::free_frames::Batch;
use crate::population::{NodeRuns, Population};

/// A range of extents in one word; 0 means no extent.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn to_word(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.len)
    }

    fn has(word: u64, extent: usize) -> bool {
        (extent as u32).wrapping_sub((word >> 32) as u32) < word as u32
    }
}

/// An extent that is being drained, and the frames of the extent that were caught so far.
#[derive(Debug)]
struct Caught {
    extent: usize,
    frames: Batch,
    is_over: bool,
}

/// The rank of an extent that could be drained, and the extent. The lowest ranks are drained.
type Choice = (usize, usize);

/// All extents of the arena.
#[derive(Debug)]
pub(crate) struct Extents {
    population: Mutex<Population>,
    populated: AtomicUsize,
    nodes: NodeRuns,
    shift: u32,
    /// The [`Span`] that encloses the extents being drained.
    draining: AtomicU64,
    /// The extents being drained, sorted by number.
    caught: Mutex<Vec<Caught>>,
    /// The drain lock. The vector holds the extents to choose from, and has enough room that
    /// draining one extent doesn't allocate.
    drain_turn: Mutex<Vec<Choice>>,
}

/// The initial capacity of the vector in `drain_turn`. A drain of a single extent chooses among at
/// most `CHOICES / 4` extents, so it doesn't allocate.
const CHOICES: usize = 16;

impl Extents {
    /// Creates extents of 2^`shift` frames each; `frames` is a multiple of that. Runs of
    /// 2^`node_shift` frames belong to the `nodes` nodes in turn.
    pub(crate) fn new(frames: usize, shift: u32, node_shift: u32, nodes: usize) -> Self {
        let nodes = NodeRuns { extents: frames >> shift, nodes, shift: node_shift - shift };
        Self {
            population: Mutex::new(Population::new(nodes)),
            populated: AtomicUsize::new(0),
            nodes,
            shift,
            draining: AtomicU64::new(0),
            caught: Mutex::new(Vec::with_capacity(1)),
            drain_turn: Mutex::new(Vec::with_capacity(CHOICES)),
        }
    }

    pub(crate) fn frames_each(&self) -> usize {
        1 << self.shift
    }

    /// Returns the number of extents, with memory or without.
    pub(crate) fn count(&self) -> usize {
        self.nodes.extents
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes.nodes
    }

    /// Returns the NUMA node for an extent's memory.
    pub(crate) fn node_of(&self, extent: usize) -> usize {
        self.nodes.node_of(extent)
    }

    /// Returns the number of extents that have memory.
    pub(crate) fn populated(&self) -> usize {
        // Relaxed: a statistic.
        self.populated.load(Ordering::Relaxed)
    }

    /// Returns the extents that have memory.
    pub(crate) fn with_memory(&self) -> Vec<usize> {
        self.population.lock().all().collect()
    }

    pub(crate) fn frames_of(&self, extent: usize) -> Range<usize> {
        extent << self.shift..(extent + 1) << self.shift
    }

    /// Chooses an extent without memory, on `node` if possible, otherwise on another node. Then
    /// calls `charge`, with true if the extent has never been used. If `charge` returns true,
    /// records that the extent has memory. Returns `None` if `charge` returns false, or if every
    /// extent already has memory.
    pub(crate) fn populate(&self, node: usize, charge: impl FnOnce(bool) -> bool) -> Option<usize> {
        let extent = self.population.lock().add(node, charge)?;
        self.populated.fetch_add(1, Ordering::Relaxed);
        Some(extent)
    }

    /// Starts to drain up to `wanted` extents. Continues where the last call ended: examines at
    /// most `looks` of the extents that have memory, and chooses those with the lowest ranks. If
    /// `wanted` is 1, stops after it has found `CHOICES / 4` extents that may be drained. `rank`
    /// returns the rank of an extent, or `None` if the extent mustn't be drained. If another drain
    /// is running, waits until it ends. Returns `None` if there is no extent to drain.
    pub(crate) fn begin_drain(
        &self,
        wanted: usize,
        looks: usize,
        mut rank: impl FnMut(usize) -> Option<usize>,
    ) -> Option<Drain<'_>> {
        let mut choices = self.drain_turn.lock();
        choices.clear();
        for _ in 0..looks.min(self.populated()) {
            let extent = self.population.lock().next()?;
            if choices.iter().any(|&(_, other)| other == extent) {
                break; // Extents were given back meanwhile; all others were examined.
            }
            choices.extend(rank(extent).map(|rank| (rank, extent)));
            if wanted == 1 && choices.len() == CHOICES / 4 {
                break;
            }
        }
        choices.sort_unstable();
        choices.truncate(wanted);
        let mut caught = self.caught.lock();
        caught.extend(choices.iter().map(|&(_, extent)| Caught { extent, frames: Batch::default(), is_over: false }));
        caught.sort_unstable_by_key(|it| it.extent);
        let (first, last) = (caught.first()?.extent, caught.last()?.extent);
        drop(caught);
        let span = Span { start: first as u32, len: (last - first + 1) as u32 };
        // Release: with the locks of the stocks, this ensures E1. If a thread that frees a frame
        // doesn't see the new value yet, a later sift finds the frame.
        self.draining.store(span.to_word(), Ordering::Release);
        Some(Drain { extents: self, choices })
    }

    /// Passes a frame that this thread is freeing to the drain of its extent, if there is one.
    /// Returns whether the drain has caught the frame.
    #[inline]
    pub(crate) fn catch(&self, table: &FrameTable, frame: FrameId) -> bool {
        // Acquire pairs with `begin_drain`. Only drains write `draining`.
        Span::has(self.draining.load(Ordering::Acquire), frame.index() >> self.shift)
            && self.catch_in(&mut self.caught.lock(), table, frame)
    }

    fn catch_in(&self, caught: &mut [Caught], table: &FrameTable, frame: FrameId) -> bool {
        let extent = frame.index() >> self.shift;
        let Some(caught) = find(caught, extent).filter(|it| !it.is_over) else { return false };
        caught.frames.push(table, frame);
        true
    }

    /// Catches the frames of a batch whose extents are being drained. Returns the others.
    pub(crate) fn catch_all(&self, table: &FrameTable, mut batch: Batch) -> Batch {
        // Relaxed: this thread already sees the span. If it runs the drain, it stored the span
        // itself. Otherwise it is an allocating thread that took this batch from the batches that
        // the drain hasn't examined yet; the lock of those batches makes the drain's earlier store
        // visible.
        let span = self.draining.load(Ordering::Relaxed);
        let mut rest = Batch::default();
        let mut caught = None;
        while let Some(frame) = batch.pop(table) {
            let is_caught = Span::has(span, frame.index() >> self.shift)
                && self.catch_in(caught.get_or_insert_with(|| self.caught.lock()), table, frame);
            if !is_caught {
                rest.push(table, frame);
            }
        }
        rest
    }
}

fn find(caught: &mut [Caught], extent: usize) -> Option<&mut Caught> {
    let at = caught.binary_search_by_key(&extent, |it| it.extent).ok()?;
    Some(&mut caught[at])
}

/// The extents of a running drain.
#[derive(Debug)]
pub(crate) struct Drain<'a> {
    extents: &'a Extents,
    choices: MutexGuard<'a, Vec<Choice>>,
}

impl Drain<'_> {
    /// Returns the number of extents in the drain.
    pub(crate) fn len(&self) -> usize {
        self.choices.len()
    }

    /// Returns the extent at position `at`; extents with the lowest ranks come first.
    pub(crate) fn extent(&self, at: usize) -> usize {
        self.choices[at].1
    }

    /// Returns how many frames of the extent at position `at` were caught.
    pub(crate) fn caught(&self, at: usize) -> usize {
        let extent = self.extent(at);
        find(&mut self.extents.caught.lock(), extent).map_or(0, |it| it.frames.len())
    }

    pub(crate) fn is_over(&self, at: usize) -> bool {
        let extent = self.extent(at);
        find(&mut self.extents.caught.lock(), extent).is_none_or(|it| it.is_over)
    }

    /// Ends the drain. Passes the caught frames of each remaining extent to `keep`; all frames of
    /// one call belong to one node.
    pub(crate) fn stop(&self, mut keep: impl FnMut(Batch)) {
        let mut caught = self.extents.caught.lock();
        // Relaxed: a thread that still sees the old span finds no entry under the list's lock (E2).
        self.extents.draining.store(0, Ordering::Relaxed);
        caught.drain(..).for_each(|it| keep(it.frames));
    }

    /// Calls `give_back` if all frames of the extent at position `at` were caught, apart from its
    /// `retired` frames (which are never used again). If `give_back` returns true, the extent has
    /// no memory any more; its drain ends, and this returns true. Otherwise returns false, and the
    /// caught frames stay in `caught` until [`stop`](Self::stop).
    pub(crate) fn end(&self, at: usize, retired: usize, give_back: impl FnOnce() -> bool) -> bool {
        let extent = self.extent(at);
        let mut all = self.extents.caught.lock();
        let Some(caught) = find(&mut all, extent) else { return false };
        if caught.is_over || caught.frames.len() + retired < self.extents.frames_each() {
            return false;
        }
        // All frames were caught, so no frame of the extent can be freed before the extent is
        // populated again. The extent is populated again only after its memory was given back.
        let frames = std::mem::take(&mut caught.frames);
        caught.is_over = true;
        drop(all);
        if !give_back() {
            if let Some(caught) = find(&mut self.extents.caught.lock(), extent) {
                (caught.frames, caught.is_over) = (frames, false);
            }
            return false;
        }
        self.extents.population.lock().remove(extent);
        self.extents.populated.fetch_sub(1, Ordering::Relaxed);
        true
    }
}
