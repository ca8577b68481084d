//! Admission: how a page enters memory.
//!
//! Pages come on five ways: a miss reads one (`read::load`), a request a run of them
//! (`read::flight`); a write makes one without reading (`write`); one comes back from swap, or was
//! never written (`space::fault`); one moves within its space (`space::relocate`). Each has the
//! page's word in *loading*, and a charged frame with the page's bytes. From there on there is one
//! way, [`Manager::admit`]: publication with the labels that an [`Arrival`] decides, then the batch
//! of pages that wait for their lists (`entry_batches`).
//!
//! | the page | enters at level |
//! |---|---|
//! | is new, or was away for long | 0 |
//! | comes back soon (`GroupState::welcome`) | one above that at which it left |
//! | is read in sequence, as was advised | 0 |
//! | moves within its space | its own |
//!
//! [`Manager::admit`]: crate::manager::Manager::admit

use frames::{Ahead, IsolatedFrame, KeptPin, Labels, Loading, OwnedFrame, PinnedFrame};
use swap::SlotId;

use crate::lru::rank::Rank;
use crate::lru::shadow::Level;

/// The owner, as frames are labelled, of pages that are no file's.
pub(crate) const ANONYMOUS: u32 = u32::MAX;

/// What earlier stays in memory say of a page that comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The level at which it enters.
    pub(crate) level: Level,
    /// It was evicted before.
    pub(crate) is_refault: bool,
}

/// A page that comes into memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) group: u32,
    pub(crate) owner: u32,
    pub(crate) history: History,
    /// Whether it comes ahead of its first use.
    pub(crate) ahead: Ahead,
    /// The slot that has its bytes, too.
    pub(crate) slot: Option<SlotId>,
    /// Whether its file lacks these bytes.
    pub(crate) is_dirty: bool,
}

impl Arrival {
    /// A page of a file that is wanted now, and was read.
    pub(crate) fn of_file(group: u32, owner: u32, history: History) -> Self {
        Self { group, owner, history, ahead: Ahead::No, slot: None, is_dirty: false }
    }

    /// A page of a space.
    pub(crate) fn of_space(group: u32, history: History) -> Self {
        Self::of_file(group, ANONYMOUS, history)
    }

    /// Publishes the page in `frame`, which holds its bytes. Its lists get the isolated frame; the
    /// caller gets a pin, if it wants one.
    #[inline]
    pub(crate) fn publish<'a>(
        self,
        loading: Loading<'a>,
        frame: OwnedFrame<'a>,
        pin: bool,
    ) -> (IsolatedFrame, Option<PinnedFrame<'a>>) {
        let labels = self.labels(Rank::young(self.history.level));
        if self.is_dirty { (loading.publish_dirty(frame, labels), None) } else { loading.publish(frame, labels, pin) }
    }

    /// The same with a pin that outlives the borrow of the page map.
    pub(crate) fn publish_pinned<'a>(self, loading: Loading<'a>, frame: OwnedFrame<'a>) -> (IsolatedFrame, KeptPin) {
        loading.publish_pinned(frame, self.labels(Rank::young(self.history.level)))
    }

    /// Publishes a page of a space that no list gets, since there is no swap.
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
