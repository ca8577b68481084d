//! What all handles of one Pagefold share.

pub(crate) mod listing;
pub(crate) mod take_frame;

use std::time::Duration;

use frames::Frames;
use swap::Swap;
use sync::atomic::{AtomicBool, AtomicU64};
use sync::lock::{Mutex, OnceCell};
use sync::time::Instant;
use sync::{Arc, CachePadded};

use crate::error::Error;
use crate::group::stocks::ChargeStocks;
use crate::group::table::GroupTable;
use crate::group::unclean::UncleanCount;
use crate::io::{Backend, Workers};
use crate::lru::entry_batches::EntryBatches;
use crate::read::mailbox::Mailboxes;
use crate::reclaim::doorbell::Doorbell;
use crate::reclaim::lowering::Lowering;
use crate::reclaim::ranking::Ranking;
use crate::space::table::SpaceTable;
use crate::stats::owners::OwnerCounters;
use crate::swapping::exchange_count::ExchangeCount;
use crate::swapping::slot_search::SlotSearch;
use crate::timers::Timers;
use crate::write::device::{Devices, Flusher};

/// Everything but the background thread, which shares it.
pub(crate) struct Manager {
    pub(crate) frames: Arc<Frames>,
    pub(crate) backend: Box<dyn Backend>,
    /// How long a call waits for a device, if not for good, and the threads that then wait in its
    /// place (`watchdog`).
    pub(crate) io_timeout: Option<Duration>,
    pub(crate) workers: OnceCell<Workers>,
    /// What futures wait for.
    pub(crate) mailboxes: Mailboxes,
    pub(crate) timers: Timers,
    pub(crate) groups: GroupTable,
    /// Which groups pages are taken of first.
    pub(crate) ranking: Ranking,
    /// The counters of files, by the number that their pages' frames carry.
    pub(crate) owners: OwnerCounters,
    pub(crate) entries: EntryBatches,
    pub(crate) charges: ChargeStocks,
    pub(crate) swap: Swap,
    /// Some area gets pages.
    pub(crate) swapping: AtomicBool,
    /// Held while `swapping` is changed, for moments.
    pub(crate) area_changes: Mutex<()>,
    /// When slots were last taken from pages that had no use for them.
    pub(crate) slot_search: Mutex<SlotSearch>,
    /// When there was last no memory for compressed pages.
    pub(crate) stocking_failed: Mutex<Option<Instant>>,
    pub(crate) swap_charges: ChargeStocks,
    pub(crate) exchanges: ExchangeCount,
    pub(crate) spaces: SpaceTable,
    pub(crate) doorbell: Doorbell,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) devices: Devices,
    pub(crate) unclean: UncleanCount,
    /// Pages that have become clean so far.
    pub(crate) cleaned: AtomicU64,
    /// Started at the beginning.
    pub(crate) clock: Instant,
    /// A thread is filling up a reserve. On a line of its own: all CPUs read the fields around it.
    pub(crate) helping: CachePadded<AtomicBool>,
    /// Held while frames are turned into room for page maps and the like.
    pub(crate) room_making: Mutex<()>,
    pub(crate) lowering: Lowering,
    /// A page that was never written.
    pub(crate) zeros: Box<[u8]>,
}

impl Manager {
    /// Refuses a forked child.
    pub(crate) fn refuse_child(&self) -> Result<(), Error> {
        if self.frames.forked() { Err(Error::Forked) } else { Ok(()) }
    }
}
