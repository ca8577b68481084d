//! The state that all handles of one Pagefold share.

pub(crate) mod charges;
pub(crate) mod doorbell;
pub(crate) mod exchange_count;
pub(crate) mod group_handle;
pub(crate) mod listing;
pub(crate) mod lowering;
pub(crate) mod mailbox;
mod numbers;
pub(crate) mod page_owners;
pub(crate) mod parts;
pub(crate) mod ranking;
pub(crate) mod slot_search;
pub(crate) mod take_frame;
mod warm;

use std::time::Duration;

use frames::Frames;
use swap::Swap;
use sync::atomic::{AtomicBool, AtomicU64};
use sync::lock::{Mutex, OnceCell};
use sync::time::Instant;
use sync::{Arc, CachePadded};

use crate::dirty::device::{Devices, Flusher};
use crate::error::Error;
use crate::group::stocks::ChargeStocks;
use crate::group::table::GroupTable;
use crate::group::unclean::UncleanCount;
use crate::lru::entry_batches::EntryBatches;
use crate::manager::doorbell::Doorbell;
use crate::manager::exchange_count::ExchangeCount;
use crate::manager::lowering::Lowering;
use crate::manager::mailbox::Mailboxes;
use crate::manager::page_owners::SpaceTable;
use crate::manager::ranking::Ranking;
use crate::manager::slot_search::SlotSearch;
use crate::stats::owners::OwnerCounters;
use crate::timers::Timers;
use io::{Backend, Workers};

/// The state that all handles and the background threads share.
pub(crate) struct Manager {
    pub(crate) frames: Arc<Frames>,
    pub(crate) backend: Box<dyn Backend>,
    /// How long a call waits for a device; `None` for no limit. With a limit, `workers` wait in the
    /// caller's place (`watchdog`).
    pub(crate) io_timeout: Option<Duration>,
    pub(crate) workers: OnceCell<Workers>,
    /// The mailboxes of loads that futures wait for.
    pub(crate) mailboxes: Mailboxes,
    pub(crate) timers: Timers,
    pub(crate) groups: GroupTable,
    /// In which order groups are asked for pages.
    pub(crate) ranking: Ranking,
    /// The counters of files, by the owner number in their pages' frames.
    pub(crate) owners: OwnerCounters,
    pub(crate) entries: EntryBatches,
    pub(crate) charges: ChargeStocks,
    pub(crate) swap: Swap,
    /// Whether any swap area takes pages.
    pub(crate) swapping: AtomicBool,
    /// Held briefly while `swapping` is changed.
    pub(crate) area_changes: Mutex<()>,
    /// The search for swap slots that pages in memory don't need.
    pub(crate) slot_search: Mutex<SlotSearch>,
    /// When memory for compressed pages last ran out.
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
    /// The Pagefold's start, from which times are counted.
    pub(crate) clock: Instant,
    /// Whether a thread is filling up a reserve. On a cache line of its own: all CPUs read the
    /// fields around it.
    pub(crate) helping: CachePadded<AtomicBool>,
    /// Held while frames are turned into room for page maps and other metadata.
    pub(crate) room_making: Mutex<()>,
    pub(crate) lowering: Lowering,
    /// The bytes of a page that was never written.
    pub(crate) zeros: Arc<[u8]>,
}

impl Manager {
    /// Returns [`Error::Forked`] in a forked child process.
    pub(crate) fn refuse_child(&self) -> Result<(), Error> {
        if self.frames.forked() { Err(Error::Forked) } else { Ok(()) }
    }
}
