//! The account of the memory that a space takes besides its pages. This memory is charged to the
//! budget, and also to the space's group, which counts it as pages that are on no list.

use sync::lock::Mutex;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::manager::Manager;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Account {
    charged: Mutex<Charged>,
}

#[derive(Debug, Default)]
struct Charged {
    bytes: u64,
    /// The pages charged to the group for these bytes, rounded up.
    pages: u64,
}

/// The group that a space charges, and its manager.
#[derive(Clone, Copy)]
pub(super) struct Payer<'a> {
    pub(super) manager: &'a Manager,
    pub(super) group: &'a GroupState,
}

impl Payer<'_> {
    /// Makes the place of a new region in the table of page-word owners.
    ///
    /// # Errors
    /// If the budget has no room for it.
    pub(super) fn prepare_place(self, first_word: u64) -> Result<(), Error> {
        let manager = self.manager;
        let uncharge = |bytes| manager.frames.budget().uncharge(bytes);
        manager.spaces.prepare(first_word, |bytes| manager.charge_metadata(bytes), uncharge)
    }

    fn pages(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.manager.frames.page_size() as u64)
    }
}

impl Account {
    /// Charges `bytes`, and reclaims if need be, as for a page. The caller holds no page word.
    ///
    /// # Errors
    /// [`Error::LimitReached`]; no room in the budget.
    pub(super) fn charge(&self, payer: Payer<'_>, bytes: u64) -> Result<(), Error> {
        let pages = {
            let mut charged = self.charged.lock();
            charged.bytes += bytes;
            let pages = payer.pages(charged.bytes).saturating_sub(charged.pages);
            charged.pages += pages;
            pages
        };
        let charge = || {
            payer.manager.charge_pages(payer.group, pages)?;
            payer.manager.charge_metadata(bytes).inspect_err(|_| payer.manager.uncharge_pages(payer.group, pages))?;
            payer.group.add_metadata(pages);
            Ok(())
        };
        charge().inspect_err(|_| {
            let mut charged = self.charged.lock();
            charged.bytes -= bytes;
            charged.pages -= pages;
        })
    }

    /// Charges `bytes` if that needs no reclaim. Returns whether it has.
    pub(super) fn try_charge(&self, payer: Payer<'_>, bytes: u64) -> bool {
        let mut charged = self.charged.lock();
        let pages = payer.pages(charged.bytes + bytes).saturating_sub(charged.pages);
        if !payer.manager.try_charge_pages(payer.group, pages) {
            return false;
        }
        if !payer.manager.frames.try_charge_beside_maps(bytes) {
            payer.manager.uncharge_pages(payer.group, pages);
            return false;
        }
        charged.bytes += bytes;
        charged.pages += pages;
        payer.group.add_metadata(pages);
        true
    }

    /// Returns `bytes` that were charged.
    pub(super) fn uncharge(&self, payer: Payer<'_>, bytes: u64) {
        let pages = {
            let mut charged = self.charged.lock();
            charged.bytes -= bytes;
            let pages = charged.pages.saturating_sub(payer.pages(charged.bytes));
            charged.pages -= pages;
            pages
        };
        payer.group.subtract_metadata(pages);
        payer.manager.uncharge_pages(payer.group, pages);
        payer.manager.frames.budget().uncharge(bytes);
    }

    /// Returns everything that is charged. Called when the space is dropped.
    pub(super) fn uncharge_all(&self, payer: Payer<'_>) {
        let bytes = self.charged.lock().bytes;
        self.uncharge(payer, bytes);
    }
}
