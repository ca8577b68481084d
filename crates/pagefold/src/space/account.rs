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
    /// Allocates the place of a new region in the table of page-word owners, unless it is there.
    ///
    /// # Errors
    /// If the budget has no room for it.
    pub(super) fn prepare_place(self, first_word: u64) -> Result<(), Error> {
        let manager = self.manager;
        let uncharge = |bytes| manager.memory.frames.budget().uncharge(bytes);
        manager.spaces.prepare(first_word, |bytes| manager.charge_metadata(bytes), uncharge)
    }

    fn pages(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.manager.memory.frames.page_size() as u64)
    }
}

impl Charged {
    /// Returns how many more pages have to be charged for `bytes` more bytes.
    fn pages_for(&self, payer: Payer<'_>, bytes: u64) -> u64 {
        payer.pages(self.bytes + bytes) - self.pages
    }

    /// Counts bytes that are charged, together with the pages for them.
    fn add(&mut self, payer: Payer<'_>, bytes: u64) {
        let pages = self.pages_for(payer, bytes);
        self.bytes += bytes;
        self.pages += pages;
        payer.group.add_metadata(pages);
    }
}

impl Account {
    /// Charges `bytes`, and reclaims if need be, as for a page. The caller holds no page word.
    ///
    /// # Errors
    /// [`Error::LimitReached`]; no room in the budget.
    pub(super) fn charge(&self, payer: Payer<'_>, bytes: u64) -> Result<(), Error> {
        let (manager, group) = (payer.manager, payer.group);
        let mut pages = 0;
        let paid = self.pay(payer, bytes, &mut pages).and_then(|()| manager.charge_metadata(bytes));
        paid.inspect_err(|_| manager.memory.uncharge_pages(group, pages))?;
        // The bytes are counted only once they are charged. Otherwise another charge could rely on
        // a page that this thread is still waiting for, and may not get.
        while !self.count(payer, bytes, pages) {
            // Another thread has used the rest of the last page, or uncharged that page.
            self.pay(payer, bytes, &mut pages).inspect_err(|_| {
                manager.memory.uncharge_pages(group, pages);
                manager.memory.frames.budget().uncharge(bytes);
            })?;
        }
        Ok(())
    }

    /// Charges the group for the pages that `bytes` more bytes need. `pages` is the number of these
    /// pages that the caller has charged already. This call adds the pages that it charges to
    /// `pages`, even if it then fails.
    fn pay(&self, payer: Payer<'_>, bytes: u64, pages: &mut u64) -> Result<(), Error> {
        loop {
            let needed = self.charged.lock().pages_for(payer, bytes);
            if needed <= *pages {
                return Ok(());
            }
            match payer.manager.charge_pages(payer.group, needed - *pages) {
                Ok(()) => *pages = needed,
                // If another thread has charged a page meanwhile, the bytes may fit into it.
                Err(error) if self.charged.lock().pages_for(payer, bytes) > *pages => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Adds `bytes` to the account. The caller has already charged `pages` pages to the group for
    /// them; the pages that turn out not to be needed are uncharged. If the bytes need more than
    /// `pages` pages, does nothing and returns false.
    fn count(&self, payer: Payer<'_>, bytes: u64, pages: u64) -> bool {
        let mut charged = self.charged.lock();
        let needed = charged.pages_for(payer, bytes);
        if needed > pages {
            return false;
        }
        charged.add(payer, bytes);
        drop(charged);
        payer.manager.memory.uncharge_pages(payer.group, pages - needed);
        true
    }

    /// Charges `bytes` if that needs no reclaim. Returns whether it has.
    pub(super) fn try_charge(&self, payer: Payer<'_>, bytes: u64) -> bool {
        let mut charged = self.charged.lock();
        let pages = charged.pages_for(payer, bytes);
        if !payer.manager.memory.try_charge_pages(payer.group, pages) {
            return false;
        }
        if !payer.manager.memory.frames.try_charge_beside_maps(bytes) {
            payer.manager.memory.uncharge_pages(payer.group, pages);
            return false;
        }
        charged.add(payer, bytes);
        true
    }

    /// Uncharges `bytes`, and the pages that the remaining bytes don't need.
    pub(super) fn uncharge(&self, payer: Payer<'_>, bytes: u64) {
        let pages = {
            let mut charged = self.charged.lock();
            charged.bytes -= bytes;
            let pages = charged.pages - payer.pages(charged.bytes);
            charged.pages -= pages;
            pages
        };
        payer.group.subtract_metadata(pages);
        payer.manager.memory.uncharge_pages(payer.group, pages);
        payer.manager.memory.frames.budget().uncharge(bytes);
    }

    /// Uncharges everything. Called when the space is dropped.
    pub(super) fn uncharge_all(&self, payer: Payer<'_>) {
        let bytes = self.charged.lock().bytes;
        self.uncharge(payer, bytes);
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::super::for_tests::{PAGE, Tenant};
    use super::*;
    use crate::Pagefold;
    use test_disks::SimulatedDisk;

    /// Regression: a charge that waited for memory had already raised the count of charged pages.
    /// The last page was thus counted, but not charged. Another charge relied on that page, and
    /// succeeded although the group was at its limit. If the first charge then failed, bytes were
    /// left for which no page was charged. Later calls then uncharged more pages than had been
    /// charged.
    #[test]
    fn a_page_is_counted_only_once_it_is_charged() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 1);
        let (account, payer) = (Account::default(), Payer { manager: it.manager(), group: it.group_state() });
        account.charge(payer, PAGE - 96).unwrap();
        let before = it.group.charged();
        let mut taken = it.take_all();
        let others = it.while_it_waits(
            || account.charge(payer, 200),
            || {
                assert!(!account.try_charge(payer, PAGE - 196), "the group is at its limit");
                account.uncharge(payer, 96);
                account.charge(payer, 96).unwrap();
                // Now it needs no further page, but the other thread has one for itself by then.
                account.uncharge(payer, PAGE - 196);
                taken.clear();
            },
        );
        let has = |bytes: u64| {
            let charged = account.charged.lock();
            (charged.bytes, charged.pages, it.group.charged()) == (bytes, 1, before)
        };
        match others {
            (Err(_), false) => account.charge(payer, 200).unwrap(),
            (charged, _) => charged.unwrap(),
        }
        assert!(has(300), "{account:?}");
        account.uncharge(payer, 200);
        assert!(has(100), "{account:?}");
        account.uncharge_all(payer);
        assert_eq!(it.group.charged() + PAGE, before);
    }
}
