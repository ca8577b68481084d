//! All spaces, for whoever has the number of a page word and wants its page back.

use sync::lock::Mutex;
use sync::{Arc, Weak};

use super::SpaceState;
use super::swap_in::Fault;
use crate::error::Error;

/// See the module's head.
#[derive(Default)]
pub(crate) struct SpaceTable {
    all: Mutex<Vec<Weak<SpaceState>>>,
}

/// What became of a page that was to come back.
pub(crate) enum SwapIn {
    Back,
    /// It was unmapped, or its space is on its way out.
    Gone,
    Failed(Error),
}

impl SpaceTable {
    pub(super) fn add(&self, space: &Arc<SpaceState>) {
        let mut all = self.all.lock();
        all.retain(|space| space.strong_count() > 0);
        all.push(Arc::downgrade(space));
    }

    /// Brings the page back whose word has that number, to stay without a slot for now.
    pub(crate) fn swap_in(&self, word: u64) -> SwapIn {
        // Upgraded without the lock, as the last handle of a space may be dropped here.
        let all = self.all.lock().clone();
        for space in all.iter().filter_map(Weak::upgrade) {
            let Some((region, page)) = space.index.of_word(word) else { continue };
            return match space.fault(region, page, Fault::BringBack) {
                Ok(_) => SwapIn::Back,
                Err(Error::NotMapped { .. }) => SwapIn::Gone,
                Err(error) => SwapIn::Failed(error),
            };
        }
        SwapIn::Gone
    }
}
