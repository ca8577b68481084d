//! Admission: how a page enters memory.
//!
//! Pages enter memory in five ways. A miss reads one page (`read::load`). A request reads a run of
//! pages (`read::flight`). A write creates a page without reading (`write`). A page comes back from
//! swap, or is touched for the first time (`space::fault`). A page moves within its space
//! (`space::relocate`). In each case the caller has the page's word in *loading*, and a charged
//! frame with the page's bytes. An [`Arrival`] then decides the page's labels and publishes the
//! page. [`Memory::admit`] publishes an arrival, and adds the page to the batch of pages that wait
//! for their lists (`entry_batches`). The pages of a run enter the lists together.
//!
//! | the page | enters with |
//! |---|---|
//! | is new | no interval |
//! | was away for long: it counts as new | its mean interval, without this absence |
//! | comes back (`GroupState::history`) | its mean interval |
//! | is read in sequence, as was advised | no interval |
//! | moves within its space | its mean interval |
//!
//! [`Memory::admit`]: crate::memory::Memory::admit

use frames::{Ahead, IsolatedFrame, KeptPin, Labels, Loading, OwnedFrame, PinnedFrame};
use swap::SlotId;

use crate::lru::interval::Interval;
use crate::lru::rank::{Origin, Rank};

/// The owner number in the frames of anonymous pages.
pub(crate) const ANONYMOUS: u32 = u32::MAX;

/// The history of a page that enters memory, from its earlier residencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The page's mean interval, updated with the interval that ends with this load. Not updated if
    /// the page was away for so long that it counts as new.
    pub(crate) interval: Interval,
    pub(crate) origin: Origin,
    /// Whether the page was evicted before.
    pub(crate) is_refault: bool,
}

impl History {
    /// Returns the history of a page that moves within its space, or to another group, and has this
    /// rank.
    pub(crate) fn of_moved(rank: Rank) -> Self {
        let interval = rank.interval();
        let origin = if interval == Interval::UNKNOWN { Origin::New } else { Origin::Back };
        Self { interval, origin, is_refault: false }
    }

    /// Returns the rank with which the page enters.
    pub(crate) fn rank(self) -> Rank {
        Rank::young(self.origin, self.interval)
    }
}

/// A page that enters memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) group: u32,
    pub(crate) owner: u32,
    pub(crate) history: History,
    /// Whether the page enters before its first use.
    pub(crate) ahead: Ahead,
    /// The swap slot that holds the same bytes.
    pub(crate) slot: Option<SlotId>,
    /// Whether the page's file lacks these bytes.
    pub(crate) is_dirty: bool,
}

impl Arrival {
    /// Creates the arrival of a file's page that was read because a caller needs it now.
    pub(crate) fn of_file(group: u32, owner: u32, history: History) -> Self {
        Self { group, owner, history, ahead: Ahead::No, slot: None, is_dirty: false }
    }

    /// Creates the arrival of a space's page.
    pub(crate) fn of_space(group: u32, history: History) -> Self {
        Self::of_file(group, ANONYMOUS, history)
    }

    /// Publishes the page in `frame`, which must hold the page's bytes already. Returns the frame
    /// isolated, so that the caller can put it on its list. If `pin` is set, returns a pin, too.
    #[inline]
    pub(crate) fn publish<'a>(
        self,
        loading: Loading<'a>,
        frame: OwnedFrame<'a>,
        pin: bool,
    ) -> (IsolatedFrame, Option<PinnedFrame<'a>>) {
        debug_assert!(!(self.is_dirty && pin), "no caller pins a page that it makes");
        let labels = self.labels(self.history.rank());
        if self.is_dirty { (loading.publish_dirty(frame, labels), None) } else { loading.publish(frame, labels, pin) }
    }

    /// Publishes the page and returns a pin that outlives the borrow of the page map.
    pub(crate) fn publish_pinned<'a>(self, loading: Loading<'a>, frame: OwnedFrame<'a>) -> (IsolatedFrame, KeptPin) {
        debug_assert!(!self.is_dirty, "no caller pins a page that it makes");
        loading.publish_pinned(frame, self.labels(self.history.rank()))
    }

    /// Publishes a page of a space that goes on no list, because there is no swap.
    #[inline]
    pub(crate) fn publish_unlisted<'a>(self, loading: Loading<'a>, frame: OwnedFrame<'a>) {
        loading.publish_unlisted(frame, self.labels(Rank::unlisted()));
    }

    #[inline]
    fn labels(self, rank: Rank) -> Labels {
        let slot = self.slot.map_or(0, SlotId::bits);
        Labels { group: self.group, owner: self.owner, rank: rank.bits(), ahead: self.ahead, slot }
    }
}
