//! Charging pages to groups, files' and spaces' alike: out of a CPU's stock of charges (`stocks`)
//! where it has one, and by the group's counter for a batch at a time.

use sync::Arc;

use crate::group::state::{GROUP_BYTES, GroupState};
use crate::group::stocks::{BATCHES, Stock};
use crate::manager::Manager;

/// What came of charging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charged {
    /// Pages that are charged now: none if the limit is reached.
    pub(crate) pages: u64,
    /// The group's counter was changed for it: about once in a batch.
    pub(crate) by_counter: bool,
}

impl Manager {
    /// Charges up to `wanted` pages to `group`, as far as the limit allows it.
    pub(crate) fn charge(&self, group: &GroupState, wanted: u64) -> Charged {
        let pages = self.charges.take(group.id, wanted);
        if pages == wanted {
            return Charged { pages, by_counter: false };
        }
        let (missing, batch) = (wanted - pages, group.stock_batch());
        let mut by_counter = group.try_charge(missing, batch);
        let mut got = by_counter;
        if by_counter == 0 && batch > 0 {
            got = self.charges.take_elsewhere(group.id, missing);
            if got == 0 {
                by_counter = group.try_charge(missing, 0); // In earnest: there may have been room.
                got = by_counter;
            }
        }
        if got > missing {
            let other = self.put_charges(group, got - missing, BATCHES * batch);
            self.give_back(other);
        }
        Charged { pages: pages + got.min(missing), by_counter: by_counter > 0 }
    }

    /// Uncharges pages whose frames were freed.
    pub(crate) fn uncharge(&self, group: &GroupState, pages: u64) {
        let other = self.stock_or_uncharge(group, pages);
        self.give_back(other);
    }

    /// The same for a caller that is looking at the table of groups: it calls
    /// [`give_back`](Self::give_back) with the result afterwards.
    pub(crate) fn stock_or_uncharge(&self, group: &GroupState, pages: u64) -> Option<Stock> {
        let batch = group.stock_batch();
        // A group without a handle is to end with its last page, and a group whose limit was
        // lowered is to shrink to that.
        if batch == 0 || group.is_abandoned() || group.charged() > group.max() {
            group.uncharge(pages);
        } else if pages > 0 {
            return self.put_charges(group, pages, BATCHES * batch);
        }
        None
    }

    fn put_charges(&self, group: &GroupState, pages: u64, most: u64) -> Option<Stock> {
        let (rest, other) = self.charges.put(group.id, pages, most);
        if rest > 0 {
            group.uncharge(rest);
        }
        other
    }

    /// Gives charges that were in a stock back to their group.
    pub(crate) fn give_back(&self, stock: Option<Stock>) {
        if let Some(stock) = stock {
            self.groups.with(stock.group, |group| group.uncharge(stock.pages));
        }
    }

    /// Gives back what CPUs have in stock of `group`, or of all. Says how many charges that were.
    pub(crate) fn drain_charges(&self, group: Option<u32>) -> u64 {
        let stocks = self.charges.drain(group);
        stocks.inspect(|stock| self.give_back(Some(*stock))).map(|stock| stock.pages).sum()
    }

    /// Pages of a group, without what is in stock. Exact only while no thread charges or uncharges.
    pub(crate) fn pages_of(&self, group: &GroupState) -> u64 {
        group.charged().saturating_sub(self.charges.of(group.id))
    }

    /// Forgets groups without a handle that have no page, of up to `most` that it looks at.
    pub(crate) fn sweep_groups(&self, most: usize) {
        let gone = self.groups.sweep(most, |id| {
            self.drain_charges(Some(id));
            self.drain_swapped(Some(id));
        });
        if gone > 0 {
            self.frames.budget().uncharge(gone as u64 * GROUP_BYTES);
        }
    }
}

/// One page's charge. Dropped, it is in stock again.
pub(crate) struct Charge<'a> {
    manager: &'a Manager,
    group: &'a GroupState,
}

impl<'a> Charge<'a> {
    /// That of a page that was charged to `group`.
    pub(crate) fn new(manager: &'a Manager, group: &'a GroupState) -> Self {
        Self { manager, group }
    }

    pub(crate) fn group(&self) -> &'a GroupState {
        self.group
    }

    /// It goes to its page.
    pub(crate) fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.manager.uncharge(self.group, 1);
    }
}

/// The charges of pages that are being loaded, which go on to the pages one by one.
#[derive(Debug)]
pub(crate) struct ChargedPages {
    group: Arc<GroupState>,
    pages: u64,
}

impl ChargedPages {
    /// Of `pages` frames that were charged to `group`.
    pub(crate) fn new(group: &Arc<GroupState>, pages: u64) -> Self {
        Self { group: Arc::clone(group), pages }
    }

    pub(crate) fn group(&self) -> &Arc<GroupState> {
        &self.group
    }

    /// One of them goes to its page.
    pub(crate) fn hand_over(&mut self) {
        self.pages -= 1;
    }
}

impl Drop for ChargedPages {
    fn drop(&mut self) {
        if self.pages > 0 {
            self.group.uncharge(self.pages);
        }
    }
}
