//! Free frames: a stock for each CPU, depots for each NUMA node, and batches of frames that move
//! between them.
//!
//! A *stock* holds the free frames of one CPU, and a *depot* holds free frames of one node. A node
//! with many CPUs has several depots; each CPU uses one of them first. Frames move between stocks
//! and depots in *batches*: chains through the frames' free links, so that moving a batch touches
//! only its first frame.
//!
//! A stock holds at most two batches of its own node: the current one, which the CPU fills and
//! empties, and a spare. So a CPU that alternates between freeing and allocating goes to the depot
//! at most once per batch (Bonwick and Adams, "Magazines and Vmem", USENIX 2001). A thread that
//! wants many frames locks the stock once and takes them as one chain. A third batch collects
//! *strays*, frames of another node, until they go to that node's depot. A CPU that has no frame of
//! its own node takes its strays first, so it needn't go to another node's depot for each frame.
//!
//! A thread that finds no free frame in its CPU's stock or in a depot takes a batch from another
//! CPU's stock. It searches only a few stocks, and starts after those that the CPU's previous
//! search visited. On a machine with more CPUs than one search visits, two more rules apply. A CPU
//! whose search found nothing skips its next few searches. And if a stock's CPU has used the stock
//! since the last search that visited it, the stock gives only its spare batch. Otherwise CPUs that
//! are short of frames would take each other's last few frames, and each would soon be short again.
//! (Reclaim serves such a CPU better: it frees a whole batch.) A stock that its CPU hasn't used
//! since that search gives its other batches, too.
//!
//! The size of batches adapts to demand. The batches of a CPU begin small. Their size doubles each
//! time the CPU has to go to the depot, and is halved when another CPU takes the spare batch.
//!
//! While the stock of another CPU is locked, a thread that allocates treats this stock as empty
//! instead of waiting for the lock. So the thread may find no frame although there are free ones. A
//! thread that must know for certain whether there are free frames first moves all stocks to the
//! depots.
//!
//! A drain (the return of memory to the system, `extents`) *sifts* all free frames: it goes through
//! all batches, takes out the frames whose memory is to be given back, and puts back the rest.
//!
//! During a sift, most batches of a depot may not have been sifted yet. If another thread finds no
//! frame in the sifted batches, it takes a batch that hasn't been sifted, and sifts this batch
//! itself: it takes out the frames that the drain wants.
//!
//! Nothing here allocates memory: the batches of a depot are linked through their first frames.
//! Putting or taking a batch needs no lock. (If depots had a lock, and one thread had to sleep
//! until it was free, all later threads would have to sleep as well.) Only the batches that a sift
//! hasn't examined yet have a lock.
//!
//! A thread never holds the locks of two stocks.

use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sync::lock::Mutex;
use sync::{CachePadded, PerCpu};

use crate::frame_id::FrameId;
use crate::frame_table::FrameTable;
use crate::numa::Nodes;
use crate::page_word::FRAME_BITS;

/// The number of frames in a full batch if the arena is large enough.
pub(crate) const BATCH_MAX: usize = 64;

/// The number of frames in a batch of a CPU with little demand.
const BATCH_SMALL: usize = 8;

/// The maximum number of CPUs whose stocks a thread searches for a batch.
const LOOKED_AT: usize = 8;

/// The maximum number of CPUs of a node that share a depot. When 44 CPUs shared a depot and were
/// short of memory, they spent a quarter of their time contending for it.
const CPUS_A_DEPOT: usize = 8;

/// The number of searches of other CPUs' stocks that a CPU skips after a search that found nothing.
/// The next searches would probably find nothing either, and each takes cache lines away from the
/// CPUs whose stocks it visits. Used only if there are more CPUs than one search visits.
const SEARCHES_OFF: u32 = 7;

/// Frames chained by their free links.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    head: Option<FrameId>,
    len: usize,
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, table: &FrameTable, frame: FrameId) {
        table.set_next_free(frame, self.head);
        self.head = Some(frame);
        self.len += 1;
    }

    pub(crate) fn pop(&mut self, table: &FrameTable) -> Option<FrameId> {
        let frame = self.head?;
        self.head = table.next_free(frame);
        self.len -= 1;
        Some(frame)
    }

    /// Takes the first `wanted` frames, or all if there are fewer.
    fn split(&mut self, table: &FrameTable, wanted: usize) -> Self {
        if self.len <= wanted {
            return std::mem::take(self);
        }
        let mut last = None;
        let mut rest = self.head;
        for _ in 0..wanted {
            last = rest;
            rest = rest.and_then(|frame| table.next_free(frame));
        }
        let Some(last) = last else { return Self::default() };
        table.set_next_free(last, None);
        self.len -= wanted;
        Self { head: std::mem::replace(&mut self.head, rest), len: wanted }
    }
}

/// The free frames of one CPU.
#[derive(Debug, Default)]
struct Stock {
    /// Frames of the CPU's own node.
    current: Batch,
    /// Frames of the CPU's own node.
    spare: Batch,
    /// Frames of one other node.
    strays: Batch,
    /// The number of times that the batch size has doubled.
    doublings: u32,
    /// Where the next search of other CPUs' stocks begins.
    others: usize,
    /// The number of searches that the CPU still has to skip, because its last one found nothing.
    searches_off: u32,
    /// Whether the CPU has used the stock since the last search by another CPU visited it.
    is_used: bool,
}

impl Stock {
    /// Returns the number of frames in a batch of this stock; at most `max`.
    fn batch_len(&self, max: usize) -> usize {
        (BATCH_SMALL << self.doublings).min(max)
    }

    /// Doubles the batch size, because the CPU had to go to the depot.
    fn grow(&mut self, max: usize) {
        self.doublings += u32::from(self.batch_len(max) < max);
    }

    /// Returns where a search of other CPUs' stocks begins, or `None` if the CPU skips this search.
    fn start_of_search(&mut self) -> Option<usize> {
        if self.searches_off > 0 {
            self.searches_off -= 1;
            return None;
        }
        self.others = self.others.wrapping_add(LOOKED_AT);
        Some(self.others)
    }

    /// Gives a batch to another CPU. If the stock has a spare batch, its CPU has more frames than
    /// it needs, so the batch size is halved. With `keeps_last`, a stock in use gives only its
    /// spare batch.
    fn give_up(&mut self, keeps_last: bool) -> Option<Batch> {
        if self.spare.len > 0 {
            self.doublings = self.doublings.saturating_sub(1);
            return Some(std::mem::take(&mut self.spare));
        }
        if std::mem::take(&mut self.is_used) && keeps_last {
            return None;
        }
        let batch = if self.current.len > 0 { &mut self.current } else { &mut self.strays };
        (batch.len > 0).then(|| std::mem::take(batch))
    }
}

/// Free frames of a node that are in no stock.
#[derive(Debug, Default)]
struct Depot {
    /// The number of frames. Changed when a batch moves; read as an estimate.
    frames: CachePadded<AtomicUsize>,
    batches: CachePadded<Chain>,
    is_sifted: AtomicBool,
    /// The batches that a running sift hasn't examined yet: the first frame of the top one.
    unseen: Mutex<Option<FrameId>>,
}

/// A stack of batches. Each batch links to the batch below through its first frame. The value has
/// the link to the first frame of the top batch in its lower bits, and a count of changes above.
///
/// A thread that pops loads the link to the batch below the top, and then replaces the top by a
/// compare-and-swap. If another thread has taken the top batch meanwhile, the loaded link may be
/// wrong. But then the count of changes differs, even if the same batch is on top again, so the
/// compare-and-swap fails.
#[derive(Debug, Default)]
struct Chain(AtomicU64);

/// Bits of a link to a frame: see [`FrameId::to_link`].
const LINK_BITS: u32 = FRAME_BITS + 1;
const LINK: u64 = (1 << LINK_BITS) - 1;

impl Chain {
    fn put(&self, table: &FrameTable, batch: &Batch) {
        let Some(first) = batch.head else { return };
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            table.set_batch(first, batch.len, first_of(top));
            // Release pairs with Acquire in `pop`: the thread that takes the batch sees its links.
            // Other threads' exchanges in between continue the release sequence.
            match self.0.compare_exchange_weak(top, changed(top, Some(first)), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    fn pop(&self, table: &FrameTable) -> Option<Batch> {
        let mut top = self.0.load(Ordering::Acquire);
        loop {
            let first = first_of(top)?;
            let (len, below) = table.batch(first);
            match self.0.compare_exchange_weak(top, changed(top, below), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(Batch { head: Some(first), len }),
                Err(now) => top = now,
            }
        }
    }

    /// Takes all batches. Returns the first frame of the top one.
    fn pop_all(&self) -> Option<FrameId> {
        // Clears the link and keeps the count of changes. All other changes increment the count. So
        // at most two values have the same count: first one with a link, then one without.
        // Therefore the chain never has the same value again after a change. Acquire: see `put`.
        // Release pairs with the Acquire in `pop`: a thread that finds the chain empty sees that
        // `is_sifted` is set.
        first_of(self.0.fetch_and(!LINK, Ordering::AcqRel))
    }
}

fn first_of(top: u64) -> Option<FrameId> {
    FrameId::from_link((top & LINK) as u32)
}

/// Returns the value of a chain after a change: the count in `top` plus one, and a link to `first`.
fn changed(top: u64, first: Option<FrameId>) -> u64 {
    ((top >> LINK_BITS).wrapping_add(1) << LINK_BITS) | u64::from(FrameId::to_link(first))
}

impl Depot {
    /// Returns approximately the number of frames.
    fn len(&self) -> usize {
        // Relaxed: an estimate.
        self.frames.load(Ordering::Relaxed)
    }

    /// Takes the batch that was put last.
    fn take(&self, table: &FrameTable) -> Option<Batch> {
        self.counted(self.batches.pop(table))
    }

    /// Makes all batches unseen. Only one sift may run at a time.
    fn begin_sift(&self) {
        let mut unseen = self.unseen.lock(); // Held until other threads can find the batches here.
        self.is_sifted.store(true, Ordering::Relaxed); // `pop_all` makes it visible.
        *unseen = self.batches.pop_all();
    }

    /// Takes a batch that the running sift has yet to see.
    fn take_unseen(&self, table: &FrameTable) -> Option<Batch> {
        // Relaxed: suppose that `pop` found no batch because a sift had taken all. Then the Acquire
        // of `pop` paired with the Release of `pop_all`, so this load sees `is_sifted` set.
        if !self.is_sifted.load(Ordering::Relaxed) {
            return None;
        }
        let mut unseen = self.unseen.lock();
        let first = (*unseen)?;
        let (len, below) = table.batch(first);
        *unseen = below;
        drop(unseen);
        self.counted(Some(Batch { head: Some(first), len }))
    }

    /// Ends a sift that has seen all batches.
    fn end_sift(&self) {
        self.is_sifted.store(false, Ordering::Relaxed);
    }

    /// Subtracts the frames of a batch that was taken.
    fn counted(&self, taken: Option<Batch>) -> Option<Batch> {
        taken.inspect(|batch| {
            self.frames.fetch_sub(batch.len, Ordering::Relaxed);
        })
    }

    fn put(&self, table: &FrameTable, batch: &Batch) {
        // Counted first, so that the number never falls below zero.
        self.frames.fetch_add(batch.len, Ordering::Relaxed);
        self.batches.put(table, batch);
    }
}

/// All free frames that have memory behind them.
#[derive(Debug)]
pub(crate) struct FreeFrames {
    stocks: PerCpu<Mutex<Stock>>,
    /// The depots of the first node, then those of the next, and so on.
    depots: Box<[Depot]>,
    /// The number of depots of a node.
    beside: usize,
    /// Whether stocks in use give only their spares.
    keeps_last: bool,
    batch_max: usize,
    nodes: Nodes,
    /// Log2 of the length of a run of frames on one node: see `Extents`.
    node_shift: u32,
}

impl FreeFrames {
    pub(crate) fn new(nodes: Nodes, node_shift: u32, frames: usize) -> Self {
        let stocks = PerCpu::new(Mutex::default);
        // Stocks may hold three batches per CPU: at most three eighths of a small arena in total.
        let batch_max = (frames / (8 * sync::cpu::count())).clamp(1, BATCH_MAX);
        let beside = sync::cpu::count().div_ceil(nodes.count()).div_ceil(CPUS_A_DEPOT);
        let depots = (0..nodes.count() * beside).map(|_| Depot::default()).collect();
        let keeps_last = sync::cpu::count() > LOOKED_AT;
        Self { stocks, depots, beside, keeps_last, batch_max, nodes, node_shift }
    }

    fn node_of(&self, frame: FrameId) -> usize {
        (frame.index() >> self.node_shift) % self.nodes.count()
    }

    /// Returns the node of the CPU that this thread runs on.
    pub(crate) fn node_here(&self) -> usize {
        self.nodes.here()
    }

    /// Returns approximately the number of frames in the depots. Frames in the stocks of CPUs
    /// aren't counted.
    pub(crate) fn in_depots(&self) -> usize {
        self.depots.iter().map(|depot| depot.len()).sum()
    }

    /// Takes up to `wanted` frames from this CPU's stock or, if the stock is empty, from the depot
    /// of its node. Locks the stock only once for all frames. Returns an empty batch if both are
    /// empty.
    pub(crate) fn take(&self, table: &FrameTable, wanted: usize) -> Batch {
        let mut stock = self.stocks.here().lock();
        stock.is_used = true;
        if stock.current.len == 0 {
            stock.current = std::mem::take(&mut stock.spare);
        }
        if stock.current.len == 0 {
            let Some(batch) = self.take_batch(table, self.nodes.here()) else { return Batch::default() };
            stock.current = batch;
            stock.grow(self.batch_max);
        }
        let frames = stock.current.split(table, wanted);
        if let Some(next) = stock.current.head {
            table.prefetch_to_write(next); // Another CPU may have freed it.
        }
        frames
    }

    /// Takes a frame for this CPU, whose stock has no frame of its own node. First tries this CPU's
    /// strays (frames of another node). Next, takes a batch from a depot, of this node if possible,
    /// and puts the rest of the batch into this CPU's stock. If the depots are empty while a drain
    /// sifts the free frames, searches the batches that the drain hasn't sifted yet. Passes each of
    /// these batches to `keep`, which takes out the frames that the drain wants.
    pub(crate) fn take_anywhere(&self, table: &FrameTable, keep: impl FnMut(Batch) -> Batch) -> Option<FrameId> {
        let stray = self.stocks.here().lock().strays.pop(table);
        if stray.is_some() {
            return stray;
        }
        let here = self.nodes.here();
        for node in (here..self.nodes.count()).chain(0..here) {
            if let Some(mut batch) = self.take_batch(table, node) {
                let frame = batch.pop(table);
                let mut stock = self.stocks.here().lock();
                let place = if node == here { &mut stock.current } else { &mut stock.strays };
                let before = std::mem::replace(place, batch);
                drop(stock);
                self.put_batch(table, before);
                return frame;
            }
        }
        self.take_unseen_anywhere(table, keep)
    }

    /// Takes a batch out of another CPU's stock. Returns one of its frames, and puts the rest into
    /// this CPU's stock.
    pub(crate) fn take_of_others(&self, table: &FrameTable) -> Option<FrameId> {
        let start = self.stocks.here().lock().start_of_search()?;
        // Skips a stock that is locked: the holder of the lock may have been preempted. If
        // searching threads waited for the lock, all CPUs that are short of frames would end up in
        // one queue.
        let others = self.stocks.from(start).take(LOOKED_AT);
        let found = others.filter_map(|stock| stock.try_lock()).find_map(|mut it| it.give_up(self.keeps_last));
        let Some(mut batch) = found else {
            if self.keeps_last {
                self.stocks.here().lock().searches_off = SEARCHES_OFF;
            }
            return None;
        };
        let frame = batch.pop(table);
        self.put_each(table, batch);
        frame
    }

    /// Takes a frame of the batches that a sift hasn't reached yet. Passes each batch to `keep` on
    /// behalf of the sift.
    fn take_unseen_anywhere(&self, table: &FrameTable, mut keep: impl FnMut(Batch) -> Batch) -> Option<FrameId> {
        for depot in &self.depots {
            while let Some(batch) = depot.take_unseen(table) {
                let mut batch = keep(batch);
                let frame = batch.pop(table);
                self.put_batch(table, batch);
                if frame.is_some() {
                    return frame;
                }
            }
        }
        None
    }

    /// Moves the frames in all stocks to the depots. Returns the number of frames that are in the
    /// depots afterwards.
    pub(crate) fn gather(&self, table: &FrameTable) -> usize {
        self.sift_stocks(table, |batch| batch);
        self.in_depots()
    }

    /// Takes a batch out of one of a node's depots. First tries the depot that this CPU puts
    /// batches into.
    fn take_batch(&self, table: &FrameTable, node: usize) -> Option<Batch> {
        let depots = &self.depots[node * self.beside..][..self.beside];
        let (before, first) = depots.split_at(self.depot_here());
        first.iter().chain(before).find_map(|depot| depot.take(table))
    }

    /// Puts a batch of frames of one node into a depot of the node.
    pub(crate) fn put_batch(&self, table: &FrameTable, batch: Batch) {
        if let Some(first) = batch.head {
            self.depots[self.node_of(first) * self.beside + self.depot_here()].put(table, &batch);
        }
    }

    /// Returns which of each node's depots this CPU uses first.
    fn depot_here(&self) -> usize {
        // Works for both usual numberings of CPUs: node by node, or round robin over the nodes.
        if self.beside == 1 { 0 } else { sync::cpu::current() / self.nodes.count() % self.beside }
    }

    /// Puts any number of frames of one node into the node's depot.
    pub(crate) fn put_all(&self, table: &FrameTable, mut frames: Batch) {
        let mut batch = Batch::default();
        while let Some(frame) = frames.pop(table) {
            batch.push(table, frame);
            if batch.len == self.batch_max {
                self.put_batch(table, std::mem::take(&mut batch));
            }
        }
        self.put_batch(table, batch);
    }

    /// Puts frames into this CPU's stock, and locks the stock once for all of them.
    pub(crate) fn put_each(&self, table: &FrameTable, mut frames: Batch) {
        let here = self.nodes.here();
        let mut stock = self.stocks.here().lock();
        stock.is_used = true;
        while let Some(frame) = frames.pop(table) {
            let node = self.node_of(frame);
            if node != here {
                let batch_len = stock.batch_len(self.batch_max);
                let strays = &mut stock.strays;
                if strays.len >= batch_len || strays.head.is_some_and(|first| self.node_of(first) != node) {
                    self.put_batch(table, std::mem::take(strays));
                }
                strays.push(table, frame);
                continue;
            }
            stock.current.push(table, frame);
            if stock.current.len >= stock.batch_len(self.batch_max) {
                let current = std::mem::take(&mut stock.current);
                let full = std::mem::replace(&mut stock.spare, current);
                if full.len > 0 {
                    self.put_batch(table, full);
                    stock.grow(self.batch_max);
                }
            }
        }
    }

    /// Puts a frame into this CPU's stock; a spare batch that no longer fits goes to the depot.
    pub(crate) fn put(&self, table: &FrameTable, frame: FrameId) {
        let mut one = Batch::default();
        one.push(table, frame);
        self.put_each(table, one);
    }

    /// Returns the number of free frames. Locks one stock after the other, so the result may be
    /// wrong if frames move meanwhile.
    pub(crate) fn count(&self) -> usize {
        let stocks: usize = self
            .stocks
            .iter()
            .map(|stock| {
                let stock = stock.lock();
                stock.current.len + stock.spare.len + stock.strays.len
            })
            .sum();
        stocks + self.in_depots()
    }

    /// Passes all free frames to `keep`, batch by batch, and puts back the frames that `keep`
    /// returns. Only one sift may run at a time.
    ///
    /// Meanwhile other threads can still take free frames, but not those that `keep` is working on:
    /// the frames of one stock, or of one batch of a depot. If such a thread
    /// [takes](Self::take_anywhere) a batch of a depot that this sift hasn't reached yet, the
    /// thread sifts the batch with its own `keep`.
    pub(crate) fn sift(&self, table: &FrameTable, mut keep: impl FnMut(Batch) -> Batch) {
        self.sift_stocks(table, &mut keep);
        for depot in &self.depots {
            depot.begin_sift();
            while let Some(batch) = depot.take_unseen(table) {
                self.put_batch(table, keep(batch));
            }
            depot.end_sift();
        }
    }

    fn sift_stocks(&self, table: &FrameTable, mut keep: impl FnMut(Batch) -> Batch) {
        for stock in self.stocks.iter() {
            let Stock { current, spare, strays, .. } = std::mem::take(&mut *stock.lock());
            [current, spare, strays].into_iter().for_each(|batch| self.put_batch(table, keep(batch)));
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.stocks.bytes()
    }
}

#[cfg(all(test, pagefold_loom))]
mod models;

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::region::{Protection, Region};

    #[test]
    fn a_stock_sizes_itself_to_demand() {
        let frames = 8 * BATCH_MAX * sync::cpu::count();
        let table = FrameTable::new(Region::reserve(frames, Protection::default()).unwrap());
        let mut stock = Stock::default();
        assert_eq!(stock.batch_len(BATCH_MAX), BATCH_SMALL);
        assert_eq!(stock.batch_len(2), 2, "an arena too small for that");
        for _ in 0..20 {
            stock.grow(BATCH_MAX);
        }
        assert_eq!(stock.batch_len(BATCH_MAX), BATCH_MAX);
        assert!(stock.give_up(false).is_none());
        assert_eq!(stock.batch_len(BATCH_MAX), BATCH_MAX, "there was nothing lying idle");
        stock.spare.push(&table, FrameId::new(1));
        assert_eq!(stock.give_up(true).map(|batch| batch.len()), Some(1));
        assert_eq!(stock.batch_len(BATCH_MAX), BATCH_MAX / 2);
    }

    #[test]
    fn a_stock_in_use_keeps_its_last_batch_where_there_are_many() {
        let table = FrameTable::new(Region::reserve(8, Protection::default()).unwrap());
        let mut stock = Stock::default();
        let mut gives = |is_used: bool, keeps_last: bool| {
            stock.is_used = is_used;
            stock.current.push(&table, FrameId::new(1));
            let given = stock.give_up(keeps_last).is_some();
            let then = stock.give_up(keeps_last).is_some();
            (given, then)
        };
        assert_eq!(gives(true, true), (false, true), "not used between two looks");
        assert_eq!(gives(false, true), (true, false));
        assert_eq!(gives(true, false), (true, false), "every frame is found where there are few");
    }

    #[test]
    fn a_cpu_that_frees_much_goes_to_the_depot_seldom() {
        let frames = 8 * BATCH_MAX * sync::cpu::count();
        let table = FrameTable::new(Region::reserve(frames, Protection::default()).unwrap());
        let free = FreeFrames::new(Nodes::pretend(1), usize::BITS - 1, frames);
        let mut all = Batch::default();
        (0..4 * BATCH_MAX as u32).for_each(|number| all.push(&table, FrameId::new(number)));
        free.put_each(&table, all);
        assert_eq!(free.count(), 4 * BATCH_MAX);
        // The batch that was put last is taken first.
        let first = free.take_batch(&table, 0).unwrap();
        assert!(first.len() > BATCH_SMALL, "{}", first.len());
    }

    /// Regression: the sift, which runs when the budget is lowered, took all batches out of a depot
    /// and put them back one by one. Until the first batch was back, a thread that was short of a
    /// frame found none, and evicted pages or gave up. Now such a thread also takes batches that
    /// the sift hasn't examined yet.
    #[test]
    fn a_sift_hides_no_more_than_a_batch() {
        const FRAMES: u32 = 8 * BATCH_MAX as u32;
        let table = FrameTable::new(Region::reserve(FRAMES as usize, Protection::default()).unwrap());
        let free = FreeFrames::new(Nodes::pretend(1), usize::BITS - 1, FRAMES as usize * 8 * sync::cpu::count());
        let mut all = Batch::default();
        (0..FRAMES).for_each(|number| all.push(&table, FrameId::new(number)));
        free.put_all(&table, all);
        // Frames of the lower half are wanted.
        let wanted = |frame: FrameId| frame.index() < FRAMES as usize / 2;
        let sort = |mut batch: Batch, caught: &mut Batch| {
            let mut rest = Batch::default();
            while let Some(frame) = batch.pop(&table) {
                if wanted(frame) { caught.push(&table, frame) } else { rest.push(&table, frame) }
            }
            rest
        };
        let (mut caught, mut theirs, mut turns) = (Batch::default(), Batch::default(), 0);
        free.sift(&table, |batch| {
            if batch.len() > 0 && turns < 4 {
                turns += 1;
                let found = free.take_anywhere(&table, |batch| sort(batch, &mut theirs));
                assert!(found.is_some_and(|frame| !wanted(frame)), "turn {turns}: {found:?}");
            }
            sort(batch, &mut caught)
        });
        assert_eq!((caught.len() + theirs.len(), turns), (FRAMES as usize / 2, 4));
        assert_eq!(free.count(), FRAMES as usize / 2 - turns);
    }

    #[test]
    fn a_batch_is_found_in_each_depot_of_a_node() {
        let table = FrameTable::new(Region::reserve(8, Protection::default()).unwrap());
        let mut free = FreeFrames::new(Nodes::pretend(1), usize::BITS - 1, 8);
        (free.beside, free.depots) = (3, (0..3).map(|_| Depot::default()).collect());
        for (number, depot) in free.depots.iter().enumerate() {
            let mut batch = Batch::default();
            batch.push(&table, FrameId::new(number as u32));
            depot.put(&table, &batch);
        }
        let mut found: Vec<_> = (0..3).filter_map(|_| free.take_anywhere(&table, |batch| batch)).collect();
        found.sort_unstable_by_key(|frame| frame.index());
        assert_eq!(found, (0..3).map(FrameId::new).collect::<Vec<_>>());
        assert_eq!(free.count(), 0);
    }

    #[test]
    fn many_frames_are_taken_at_once_and_the_rest_stays() {
        let taken = loop {
            let table = FrameTable::new(Region::reserve(8, Protection::default()).unwrap());
            let free = FreeFrames::new(Nodes::pretend(1), usize::BITS - 1, 8 * 8 * sync::cpu::count());
            let mut all = Batch::default();
            (0..5).for_each(|number| all.push(&table, FrameId::new(number)));
            let cpu = sync::cpu::current();
            free.put_each(&table, all);
            let take = |wanted| {
                let mut batch = free.take(&table, wanted);
                let frames: Vec<_> = std::iter::from_fn(|| batch.pop(&table)).collect();
                assert_eq!((batch.len(), batch.head), (0, None));
                frames
            };
            let taken = [take(0), take(3), take(1), take(3), take(3)];
            // On another CPU, the thread would find nothing in its stock.
            if sync::cpu::current() == cpu {
                break taken;
            }
        };
        assert_eq!(taken.each_ref().map(Vec::len), [0, 3, 1, 1, 0]);
        let mut taken = taken.concat();
        taken.sort_unstable_by_key(|frame| frame.index());
        assert_eq!(taken, (0..5).map(FrameId::new).collect::<Vec<_>>());
    }
}
