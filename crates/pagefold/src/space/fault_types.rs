//! What a fault is to do with a page, and what it does it with.

use swap::SlotId;
use sync::SharedBytes;

use super::entry::Entry;
use crate::error::Error;
use crate::lru::admission::History;
use crate::manager::take_frame::ChargedFrame;
use crate::swapping::exchange::Exchange;

/// What is to be done to a page that isn't in memory.
#[derive(Clone, Copy)]
pub(super) enum Fault<'a> {
    /// It is read.
    Read,
    /// These bytes are written to it; if there are none, some will be.
    Write { offset: usize, bytes: &'a [u8] },
    /// Its slot is wanted.
    BringBack,
    /// It is about to move, and has no entry meanwhile.
    Move,
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
            Self::Move => true,
        }
    }

    /// Whether the caller, if it looks again, may find a way to do it: the page is a file's by now,
    /// or its entry is being changed.
    pub(super) fn may_go_on(self, entry: Entry) -> bool {
        let permitted = match self {
            Self::Read => entry.restored().may_read(),
            Self::Write { .. } => entry.restored().may_write(),
            Self::BringBack | Self::Move => false,
        };
        permitted && (entry.file().is_some() || entry.kept().is_some())
    }

    /// Makes `page` one that was never written, with what the fault writes: zeros go through the
    /// caches if the page is in them, and past them otherwise, but for the lines that are written
    /// to.
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

    /// Whether nothing of what the page was is left.
    pub(super) fn overwrites(self, page_size: usize) -> bool {
        matches!(self, Self::Write { bytes, .. } if bytes.len() == page_size)
    }

    /// Whether the fault needs the bytes in the page's slot.
    pub(super) fn reads_slot(self, page_size: usize) -> bool {
        self.frees_slot() && !self.overwrites(page_size)
    }

    /// Whether its slot is free for others when the page is back, if there are too few: not so
    /// where an area goes.
    pub(super) fn frees_slot(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }

    /// Whether the page may stay as it is in its slot.
    pub(super) fn leaves_unchanged(self) -> bool {
        matches!(self, Self::Read | Self::Write { bytes: [], .. })
    }
}

/// A frame for a page, charged.
pub(super) struct Memory<'a> {
    pub(super) frame: ChargedFrame<'a>,
    /// The page may be swapped out. Otherwise no list will have it.
    pub(super) is_listed: bool,
    /// Its bytes are likely to be in this CPU's caches.
    pub(super) is_warm: bool,
    /// Another page left it for this one, and took the last slot: so this one can't keep its own.
    pub(super) exchange: Option<Exchange<'a>>,
}

impl Memory<'_> {
    /// Whether there is no more, or the page can't be on a list.
    pub(super) fn is_last(&self) -> bool {
        self.exchange.is_some() || !self.is_listed
    }
}

/// Why there is no memory for a page.
pub(super) struct NoMemory {
    pub(super) error: Error,
    /// Others have been at the page meanwhile: that may be over.
    pub(super) is_outrun: bool,
}

/// What a page has from where it was.
#[derive(Default)]
pub(super) struct Past {
    /// The slot that is to be freed, or the one that it keeps.
    pub(super) unused: Option<SlotId>,
    pub(super) kept: Option<SlotId>,
    pub(super) history: History,
}
