//! Memory: frames, the groups that they are charged to, and the lists that they are on. No function
//! here makes room: if memory is short, `manager` chooses pages to evict.

pub(crate) mod charges;
pub(crate) mod doorbell;
pub(crate) mod eviction;
pub(crate) mod listing;
pub(crate) mod lowering;
pub(crate) mod part_charge;
pub(crate) mod ranking;
pub(crate) mod shares;
pub(crate) mod waits;

use frames::Frames;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::Mutex;
use sync::time::Instant;
use sync::{Arc, CachePadded};

use crate::error::Error;
use crate::group::reserve::{Shortage, beside_reserve};
use crate::group::state::GroupState;
use crate::group::stocks::ChargeStocks;
use crate::group::table::GroupTable;
use crate::lru::entry_batches::EntryBatches;
use crate::memory::doorbell::Doorbell;
use crate::memory::lowering::Lowering;
use crate::memory::ranking::Ranking;
use crate::stats::owners::OwnerCounters;

/// Frames, the groups that they are charged to, and the lists that they are on.
pub(crate) struct Memory {
    pub(crate) frames: Arc<Frames>,
    pub(crate) groups: GroupTable,
    /// In which order groups are asked for pages.
    pub(crate) ranking: Ranking,
    pub(crate) charges: ChargeStocks,
    entries: EntryBatches,
    /// The counters of files, by the owner number in their pages' frames.
    pub(crate) owners: OwnerCounters,
    /// Whether any swap area takes pages.
    pub(crate) lists_anonymous: AtomicBool,
    pub(crate) doorbell: Doorbell,
    /// Whether a thread is filling up a reserve. On a cache line of its own: all CPUs read the
    /// fields around it.
    pub(crate) helping: CachePadded<AtomicBool>,
    /// Held while frames are turned into room for page maps and other metadata.
    pub(crate) room_making: Mutex<()>,
    pub(crate) lowering: Lowering,
    /// The Pagefold's start, from which times are counted.
    clock: Instant,
    /// The bytes of a page that was never written.
    pub(crate) zeros: Arc<[u8]>,
}

impl Memory {
    pub(crate) fn new(frames: Frames) -> Self {
        Self {
            groups: Default::default(),
            ranking: Default::default(),
            charges: ChargeStocks::new(),
            entries: EntryBatches::new(),
            owners: Default::default(),
            lists_anonymous: Default::default(),
            doorbell: Default::default(),
            helping: Default::default(),
            room_making: Mutex::new(()),
            lowering: Default::default(),
            clock: Instant::now(),
            zeros: vec![0; frames.page_size()].into(),
            frames: Arc::new(frames),
        }
    }

    /// Returns [`Error::Forked`] in a forked child process.
    pub(crate) fn refuse_child(&self) -> Result<(), Error> {
        if self.frames.forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Returns whether anonymous pages can leave memory: whether there are swap areas.
    pub(crate) fn swaps(&self) -> bool {
        // Relaxed: the value changes only when areas are added or removed. At worst, a stale value
        // keeps a page in memory that could leave.
        self.lists_anonymous.load(Ordering::Relaxed)
    }

    pub(crate) fn budget_pages(&self) -> u64 {
        self.frames.budget().max() >> self.frames.page_size().trailing_zeros()
    }

    /// Returns how short of free frames the whole budget is.
    pub(crate) fn shortage(&self) -> Shortage {
        Shortage::of(self.budget_pages(), self.frames.available() as u64)
    }

    /// Returns two numbers: how many pages a group may take before the reserve of its limit becomes
    /// short, and how many before the reserve of the whole budget does.
    pub(crate) fn beside_reserves(&self, group: &GroupState) -> [u64; 2] {
        [group.beside_reserve(), beside_reserve(self.budget_pages(), self.frames.available() as u64)]
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.clock.elapsed().as_micros() as u64
    }

    /// Returns the milliseconds since the Pagefold was built.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.elapsed().as_millis() as u64
    }
}
