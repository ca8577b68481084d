//! What one call wants of a file's pages, and what it had loaded for that.

use std::ops::Range;

use sync::time::Duration;

use crate::manager::mailbox::Reply;
use io::{Batch, Helping, Queue};

/// One call's way through its pages: what it has done for those to come.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// The pages that it wants.
    pub(crate) pages: Range<u64>,
    /// Those before this one were launched.
    pub(crate) launched: u64,
    /// Pages that it had loaded and has yet to come to: they were counted as misses, and aren't
    /// hits as well.
    pub(crate) counted: u64,
    /// Read-ahead knows of it, or needn't.
    pub(crate) told: bool,
    /// Where to help with what it launched last.
    pub(crate) queue: Option<Queue>,
    /// The caller has the turn to change the file's length.
    pub(crate) turn: bool,
    /// It has waited for the device as long as it may.
    pub(crate) is_late: bool,
    /// What it launched.
    batch: Option<Batch>,
}

impl Call {
    /// A call that wants `pages` in this order; there are some.
    pub(crate) fn reading(pages: Range<u64>) -> Self {
        Self { pages, ..Self::default() }
    }

    /// A call that brings a page in because a part of it is overwritten.
    pub(crate) fn writing(page: u64, turn: bool) -> Self {
        Self { pages: page..page + 1, turn, ..Self::default() }
    }

    /// A call that has pages loaded which it will come to, in some order.
    pub(crate) fn of_many() -> Self {
        Self { told: true, ..Self::default() }
    }

    /// It had more loaded.
    pub(crate) fn add(&mut self, launched: Launched) {
        self.counted += launched.pages;
        if launched.queue.is_some() {
            self.queue = launched.queue;
        }
    }

    /// What it launches is of this batch.
    pub(crate) fn batch(&mut self) -> Batch {
        self.batch.get_or_insert_default().clone()
    }

    /// Where to help with what it launched, if any of that isn't over.
    pub(crate) fn unfinished(&self) -> Option<&Queue> {
        self.queue.as_ref().filter(|_| self.batch.as_ref().is_some_and(|batch| batch.unfinished() > 0))
    }

    /// Goes on with `pages`.
    pub(crate) fn begin(&mut self, pages: Range<u64>) {
        (self.pages, self.launched, self.is_late) = (pages, 0, false);
    }

    /// The same of a user that knows what comes next.
    pub(crate) fn told(pages: Range<u64>) -> Self {
        Self { pages, told: true, ..Self::default() }
    }
}

/// What is wanted of a page.
pub(crate) enum Want<'b> {
    /// Some of its bytes, from `at` in the file on.
    Copy { at: u64, into: &'b mut [u8] },
    /// A pin.
    Pin,
    /// That it is in memory.
    Presence,
}

/// For whom pages are loaded.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A reader waits for them, or will look for them soon.
    Use,
    /// They come ahead of their use, the page given first.
    ReadAhead(u64),
    /// A future.
    Future(Reply),
}

/// What came of launching loads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launched {
    /// Pages.
    pub(crate) pages: u64,
    /// Where to help with them.
    pub(crate) queue: Option<Queue>,
    /// Pages that weren't in memory were left out, as there was no memory for them.
    pub(crate) is_short: bool,
}

/// How a thread that waits for a page helps: until the page is there, but it notices only after so
/// long if that wasn't by what it helps with.
pub(crate) const HELPING: Helping =
    Helping { at_most: Some(Duration::from_millis(5)), back_soon: false, waits_only: false };
