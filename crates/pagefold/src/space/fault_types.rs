//! What a fault does to a page, and the memory that it obtains for the page.

use swap::SlotId;
use sync::SharedBytes;

use super::entry::Entry;
use crate::error::Error;
use crate::lru::admission::History;
use crate::memory::charges::ChargedFrame;
use crate::swapping::exchange::Exchange;

/// What a fault does to a page that isn't in memory.
#[derive(Clone, Copy)]
pub(super) enum Fault<'a> {
    /// Reads the page.
    Read,
    /// Writes these bytes to the page. If there are none, the caller writes to the page afterwards.
    Write { offset: usize, bytes: &'a [u8] },
    /// Brings the page back from swap so that its slot becomes free, for example because the slot's
    /// area is being removed.
    BringBack,
    /// Brings the page back so that it can be moved. The thread has already taken `isolated` other
    /// pages off their lists, so these can't be evicted until the move has ended. If `isolated`
    /// isn't 0, the page has already been vacated: its entry permits no access.
    Move { isolated: u64 },
}

impl Fault<'_> {
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Write { .. })
    }

    pub(super) fn is_permitted(self, entry: Entry) -> bool {
        match self {
            Self::Read => entry.may_read_own(),
            Self::Write { .. } => entry.may_write_own(),
            Self::BringBack => entry.is_own(),
            Self::Move { .. } => true,
        }
    }

    /// Returns whether the caller should look the page up again because the access may still
    /// succeed. This is so in two cases: a file is mapped at the page's address by now, or the
    /// page's entry is being changed. In both cases the entry must permit the access; during a
    /// change, the old protection counts.
    pub(super) fn may_go_on(self, entry: Entry) -> bool {
        let permitted = match self {
            Self::Read => entry.restored().may_read(),
            Self::Write { .. } => entry.restored().may_write(),
            Self::BringBack | Self::Move { .. } => false,
        };
        permitted && (entry.file().is_some() || entry.kept().is_some())
    }

    /// Returns how many pages this thread has taken off their lists.
    pub(super) fn isolated(self) -> u64 {
        if let Self::Move { isolated } = self { isolated } else { 0 }
    }

    /// Initializes a new page: fills it with zeros, and with the bytes that the fault writes. If
    /// the frame is likely to be in the CPU's caches (`is_warm`), the zeros are stored through the
    /// caches. Otherwise they bypass the caches, except in cache lines that the fault writes to.
    pub(super) fn begin(self, page: SharedBytes<'_>, is_warm: bool) {
        let Self::Write { offset, bytes } = self else { return page.zero_from(0) };
        match (self.overwrites(page.len()), is_warm) {
            (true, true) => (),
            (true, false) => return page.stream_from(bytes),
            (false, true) => page.zero_from(0),
            (false, false) => page.stream_zeros(offset..offset + bytes.len()),
        }
        self.write_to(page);
    }

    pub(super) fn write_to(self, page: SharedBytes<'_>) {
        if let Self::Write { offset, bytes } = self
            && !bytes.is_empty()
        {
            page.copy_from(offset, bytes);
        }
    }

    /// Returns whether the fault overwrites the whole page.
    pub(super) fn overwrites(self, page_size: usize) -> bool {
        matches!(self, Self::Write { bytes, .. } if bytes.len() == page_size)
    }

    /// Returns whether the fault needs the bytes in the page's slot.
    pub(super) fn reads_slot(self, page_size: usize) -> bool {
        self.frees_slot() && !self.overwrites(page_size)
    }

    /// Returns whether the page may come back in an exchange (`exchange`): if memory and slots are
    /// used up, another page leaves memory, and this page gives up its slot in return. Returns
    /// false for `BringBack` and `Move`.
    pub(super) fn frees_slot(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }

    /// Returns whether the fault leaves the page as it is in its slot, so that the page may keep
    /// the slot.
    pub(super) fn leaves_unchanged(self) -> bool {
        matches!(self, Self::Read | Self::Write { bytes: [], .. })
    }
}

/// A charged frame for a page.
pub(super) struct Memory<'a> {
    pub(super) frame: ChargedFrame<'a>,
    /// Whether the page goes on an LRU list, so that it can be swapped out.
    pub(super) is_listed: bool,
    /// Whether the frame's bytes are likely to be in this CPU's caches.
    pub(super) is_warm: bool,
    /// The exchange that freed the frame, if there was one: another page left the frame and went to
    /// a reserved slot. In return, the slot of the page that comes into the frame becomes a
    /// reserved slot. So the page that comes in can't keep its slot.
    pub(super) exchange: Option<Exchange<'a>>,
}

impl Memory<'_> {
    /// Returns whether the frame is from an exchange, so that no more frames can be obtained, or
    /// the page can't be on a list.
    pub(super) fn is_last(&self) -> bool {
        self.exchange.is_some() || !self.is_listed
    }
}

/// The reason why there is no memory for a page.
pub(super) struct NoMemory {
    pub(super) error: Error,
    /// Whether another thread was working on the page meanwhile, or had discarded it. That thread
    /// may have finished by now.
    pub(super) is_outrun: bool,
}

/// What a page that comes into memory keeps from its time in swap.
#[derive(Default)]
pub(super) struct Past {
    /// The page's slot, if the slot has to be freed. If the page keeps its slot, the slot is in
    /// `kept` instead.
    pub(super) unused: Option<SlotId>,
    pub(super) kept: Option<SlotId>,
    pub(super) history: History,
}
