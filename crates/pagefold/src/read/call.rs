//! The state of one call: the pages that it wants, and the loads that it launched for them.

use std::ops::Range;

use sync::time::Duration;

use crate::manager::mailbox::Reply;
use io::{Batch, Helping, Queue};

/// One call's progress through its pages, and what it has launched for later ones.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// The pages that the call wants.
    pub(crate) pages: Range<u64>,
    /// The loads of pages before this one were launched.
    pub(crate) launched: u64,
    /// The number of pages that the call hasn't used since it launched their loads. Each page was
    /// counted as a miss at the launch, so its first use isn't counted as a hit.
    pub(crate) counted: u64,
    /// The call was reported to readahead, or needn't be.
    pub(crate) told: bool,
    /// The queue of the last launched loads. A thread that waits for them can help to process the
    /// queue's requests.
    pub(crate) queue: Option<Queue>,
    /// The caller holds `extension`, the lock for changing the file's length.
    pub(crate) turn: bool,
    /// The call has waited for the device for its full time limit.
    pub(crate) is_late: bool,
    /// The batch of all requests that the call launched.
    batch: Option<Batch>,
}

impl Call {
    /// Creates a call that wants `pages` in this order, at least one.
    pub(crate) fn reading(pages: Range<u64>) -> Self {
        Self { pages, ..Self::default() }
    }

    /// Creates a call that loads a page because a part of it is overwritten.
    pub(crate) fn writing(page: u64, turn: bool) -> Self {
        Self { pages: page..page + 1, turn, ..Self::default() }
    }

    /// Creates a call that launches loads of pages and then uses the pages in any order.
    pub(crate) fn of_many() -> Self {
        Self { told: true, ..Self::default() }
    }

    /// Notes that the call launched more loads.
    pub(crate) fn add(&mut self, launched: Launched) {
        self.counted += launched.pages;
        if launched.queue.is_some() {
            self.queue = launched.queue;
        }
    }

    /// Returns the batch that the call's requests belong to.
    pub(crate) fn batch(&mut self) -> Batch {
        self.batch.get_or_insert_default().clone()
    }

    /// Returns the queue in which to help, if any request of the call hasn't completed.
    pub(crate) fn unfinished(&self) -> Option<&Queue> {
        self.queue.as_ref().filter(|_| self.batch.as_ref().is_some_and(|batch| batch.unfinished() > 0))
    }

    /// Continues the call with `pages`.
    pub(crate) fn begin(&mut self, pages: Range<u64>) {
        (self.pages, self.launched, self.is_late) = (pages, 0, false);
    }

    /// Creates a call that wants `pages`. The call isn't reported to readahead, because its user
    /// has announced the accesses.
    pub(crate) fn told(pages: Range<u64>) -> Self {
        Self { pages, told: true, ..Self::default() }
    }
}

/// What a call wants of a page.
pub(crate) enum Want<'b> {
    /// Some of its bytes, from offset `at` of the file on.
    Copy { at: u64, into: &'b mut [u8] },
    /// A pin.
    Pin,
    /// That the page is in memory.
    Presence,
}

/// The purpose of a load.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A reader waits for the pages, or will use them soon.
    Use,
    /// The pages are read ahead; the given page will be used first.
    ReadAhead(u64),
    /// A future.
    Future(Reply),
}

/// The outcome of launching loads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launched {
    /// The number of pages launched.
    pub(crate) pages: u64,
    /// The queue of these loads. A thread that waits for them can help to process the queue's
    /// requests.
    pub(crate) queue: Option<Queue>,
    /// Some pages weren't launched because there was no memory for them.
    pub(crate) is_short: bool,
}

/// How a thread that waits for a page helps to process the device's requests. The thread stops
/// helping when the page is in memory. If another thread brings the page in while the helping
/// thread sleeps, the helping thread notices within `at_most`.
pub(crate) const HELPING: Helping =
    Helping { at_most: Some(Duration::from_millis(5)), back_soon: false, waits_only: false };
