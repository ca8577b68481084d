//! Extents: the runs of frames that memory is taken from the system and given back in.
//!
//! An extent is a huge page where the budget is large enough for that, so that taking and giving
//! back never splits one. It is charged whole before its first frame is used, with its share of the
//! frame table. To give one back, all its frames have to be caught: the free ones are sifted out of
//! the stocks, the used ones are evicted by the policy one after the other, and what is freed
//! meanwhile is caught on its way ([`Extents::catch`]).
//!
//! E1. One drain at a time; it takes as many extents as it wants. Their frames are caught by the
//! threads that free them: a free that read `draining` too early puts the frame into a stock, where
//! the drain's next sift finds it. E2. An extent that is drained has an entry in `caught` until its
//! memory is given back, or the drain ends; a frame is caught under that lock. So none is added to
//! an extent that is over.

use std::ops::Range;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::lock::{Mutex, MutexGuard};

use crate::frame_id::FrameId;
use crate::frame_table::FrameTable;
use crate::free_frames::Batch;
use crate::population::{NodeRuns, Population};

/// Some extents in a row, in one word; none of them if it is 0.
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

/// What was caught of an extent.
#[derive(Debug)]
struct Caught {
    extent: usize,
    frames: Batch,
    is_over: bool,
}

/// An extent that could be drained, and how many pages are in it.
type Choice = (usize, usize);

/// All extents of the arena.
#[derive(Debug)]
pub(crate) struct Extents {
    population: Mutex<Population>,
    populated: AtomicUsize,
    nodes: NodeRuns,
    shift: u32,
    /// Where the extents lie that are being drained: a [`Span`].
    draining: AtomicU64,
    /// Those, in order.
    caught: Mutex<Vec<Caught>>,
    /// With room for the extents to choose from, so that a drain of one doesn't allocate.
    drain_turn: Mutex<Vec<Choice>>,
}

/// Extents that there is room for in `drain_turn` from the beginning.
const CHOICES: usize = 16;

impl Extents {
    /// `frames` frames in extents of 2^`shift`, a whole number of them; every 2^`node_shift` frames
    /// are the next one's of `nodes` nodes.
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

    /// Takes an extent into use if `charge`, told whether it is the extent's first time, allows it:
    /// one of `node`'s if there is one.
    pub(crate) fn populate(&self, node: usize, charge: impl FnOnce(bool) -> bool) -> Option<usize> {
        let extent = self.population.lock().add(node, charge)?;
        self.populated.fetch_add(1, Ordering::Relaxed);
        Some(extent)
    }

    /// Starts to drain up to `wanted` extents: of the next `looks` that have memory, those with the
    /// fewest pages, as `pages` counts them, and none that it refuses. Waits for another drain to
    /// end.
    pub(crate) fn begin_drain(
        &self,
        wanted: usize,
        looks: usize,
        mut pages: impl FnMut(usize) -> Option<usize>,
    ) -> Option<Drain<'_>> {
        let mut choices = self.drain_turn.lock();
        choices.clear();
        for _ in 0..looks.min(self.populated()) {
            let extent = self.population.lock().next()?;
            if choices.iter().any(|&(_, other)| other == extent) {
                break; // Extents were given back meanwhile: these are all.
            }
            choices.extend(pages(extent).map(|pages| (pages, extent)));
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
        // Release: with the locks of the stocks this makes E1 true. A free that doesn't see it yet
        // is sifted later.
        self.draining.store(span.to_word(), Ordering::Release);
        Some(Drain { extents: self, choices })
    }

    /// Takes a frame that is being freed if its extent is being drained.
    #[inline]
    pub(crate) fn catch(&self, table: &FrameTable, frame: FrameId) -> bool {
        // Acquire pairs with `begin_drain`; the line is written only by drains.
        Span::has(self.draining.load(Ordering::Acquire), frame.index() >> self.shift)
            && self.catch_in(&mut self.caught.lock(), table, frame)
    }

    fn catch_in(&self, caught: &mut [Caught], table: &FrameTable, frame: FrameId) -> bool {
        let extent = frame.index() >> self.shift;
        let Some(caught) = find(caught, extent).filter(|it| !it.is_over) else { return false };
        caught.frames.push(table, frame);
        true
    }

    /// Takes the frames out of a batch whose extents are being drained. Returns the others.
    pub(crate) fn catch_all(&self, table: &FrameTable, mut batch: Batch) -> Batch {
        // Relaxed: a drain asks, which wrote it, or a thread that took a batch out of a depot after
        // the drain had begun to sift it.
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

/// Extents on their way back to the system.
#[derive(Debug)]
pub(crate) struct Drain<'a> {
    extents: &'a Extents,
    choices: MutexGuard<'a, Vec<Choice>>,
}

impl Drain<'_> {
    /// How many extents are drained.
    pub(crate) fn len(&self) -> usize {
        self.choices.len()
    }

    /// One of them, those with the fewest pages first.
    pub(crate) fn extent(&self, at: usize) -> usize {
        self.choices[at].1
    }

    pub(crate) fn is_over(&self, at: usize) -> bool {
        let extent = self.extent(at);
        find(&mut self.extents.caught.lock(), extent).is_none_or(|it| it.is_over)
    }

    /// Ends the drain, and passes on what was caught of extents that stay: frames of one node each
    /// time.
    pub(crate) fn stop(&self, mut keep: impl FnMut(Batch)) {
        let mut caught = self.extents.caught.lock();
        // Relaxed: E2.
        self.extents.draining.store(0, Ordering::Relaxed);
        caught.drain(..).for_each(|it| keep(it.frames));
    }

    /// Ends the drain of one extent if every frame of it that isn't retired was caught, and
    /// `give_back` could give its memory back: the extent is without memory afterwards. Else false,
    /// and what was caught is for [`stop`](Self::stop) to return.
    pub(crate) fn end(&self, at: usize, retired: usize, give_back: impl FnOnce() -> bool) -> bool {
        let extent = self.extent(at);
        let mut all = self.extents.caught.lock();
        let Some(caught) = find(&mut all, extent) else { return false };
        if caught.is_over || caught.frames.len() + retired < self.extents.frames_each() {
            return false;
        }
        // All frames are here, so there is none to catch until the extent is populated anew: before
        // that it is given back.
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
