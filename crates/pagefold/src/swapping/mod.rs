//! Swapping: how anonymous pages leave memory, and where their bytes are until the pages are
//! swapped in. The crate `swap` manages areas and slots.

pub(crate) mod area;
pub(crate) mod charges;
pub(crate) mod compressed;
pub(crate) mod exchange;
pub(crate) mod exchange_count;
pub(crate) mod slot_search;
pub(crate) mod swap_out;

use swap::Swap;
use sync::lock::Mutex;
use sync::time::Instant;

use crate::group::stocks::ChargeStocks;
use crate::swapping::exchange_count::ExchangeCount;
use crate::swapping::slot_search::SlotSearch;

/// Where anonymous pages are that aren't in memory.
pub(crate) struct Swapping {
    pub(crate) areas: Swap,
    /// Held briefly while [`Memory::lists_anonymous`](crate::memory::Memory::lists_anonymous) is
    /// changed.
    area_changes: Mutex<()>,
    /// The search for swap slots that pages in memory don't need.
    slot_search: Mutex<SlotSearch>,
    /// When a thread last failed to fill the stock of a compressed area. Locked while a thread
    /// drains extents to fill a stock.
    pub(crate) stocking_failed: Mutex<Option<Instant>>,
    charges: ChargeStocks,
    pub(crate) exchanges: ExchangeCount,
}

impl Swapping {
    pub(crate) fn new(page_size: usize) -> Self {
        Self {
            areas: Swap::new(page_size),
            area_changes: Mutex::new(()),
            slot_search: Mutex::default(),
            stocking_failed: Mutex::new(None),
            charges: ChargeStocks::new(),
            exchanges: ExchangeCount::default(),
        }
    }
}
