//! Charges pages of files and of spaces to groups. Each type here holds a charge until the page or
//! the metadata exists. If an error or a panic drops the value earlier, the charge is taken back.
//!
//! If a group's limit is large enough, CPUs keep stocks of charges that were made to the group in
//! advance (`stocks`). Then a page takes its charge from the CPU's stock, and the group's counter
//! changes only once for a batch of charges. For a group without stocks, each charge changes the
//! counter.

use std::ops::Deref;

use frames::{Budget, OwnedFrame};
use sync::Arc;

use crate::group::state::GroupState;
use crate::group::stocks::Stock;
use crate::memory::Memory;

impl Memory {
    /// Charges up to `wanted` pages to `group`, as far as the limit allows it. Returns how many.
    pub(crate) fn charge(&self, group: &GroupState, wanted: u64) -> u64 {
        let pages = self.charges.take(group.id, wanted);
        if pages == wanted {
            return pages;
        }
        let (missing, batch) = (wanted - pages, group.stock_batch());
        let mut got = group.try_charge(missing, batch);
        if got == 0 && batch > 0 {
            got = self.charges.take_elsewhere(group.id, missing);
            if got == 0 {
                got = group.try_charge(missing, 0); // Retries: there may be room.
            }
        }
        if got > missing {
            let other = self.put_charges(group, got - missing, batch);
            self.give_back(other);
        }
        pages + got.min(missing)
    }

    /// Uncharges pages whose frames were freed.
    pub(crate) fn uncharge(&self, group: &GroupState, pages: u64) {
        let other = self.stock_or_uncharge(group, pages);
        self.give_back(other);
    }

    /// Uncharges pages, for a caller that holds the table of groups in shared mode. The caller must
    /// pass the result to [`give_back`](Self::give_back), but only after it has released the table:
    /// `give_back` accesses the table itself.
    pub(crate) fn stock_or_uncharge(&self, group: &GroupState, pages: u64) -> Option<Stock> {
        let batch = group.stock_batch();
        // Charges in a CPU's stock still count as the group's. So there are two cases in which
        // charges that are given back don't go into stock. An abandoned group is forgotten only
        // when its last charge is gone. A group above a lowered limit has to shrink to the limit.
        if batch == 0 || group.is_abandoned() || group.has_to_shrink() {
            group.uncharge(pages);
        } else if pages > 0 {
            return self.put_charges(group, pages, batch);
        }
        None
    }

    fn put_charges(&self, group: &GroupState, pages: u64, batch: u64) -> Option<Stock> {
        let (rest, other) = self.charges.put(group.id, pages, batch);
        if rest > 0 {
            group.uncharge(rest);
        }
        other
    }

    /// Uncharges what a displaced stock held from the stock's group.
    pub(crate) fn give_back(&self, stock: Option<Stock>) {
        if let Some(stock) = stock {
            self.groups.with(stock.group, |group| group.uncharge(stock.pages));
        }
    }

    /// Empties all CPUs' stocks of charges of `group`, or of all groups, and uncharges what they
    /// held. Returns the number of charges.
    pub(crate) fn drain_charges(&self, group: Option<u32>) -> u64 {
        let stocks = self.charges.drain(group);
        stocks.inspect(|stock| self.give_back(Some(*stock))).map(|stock| stock.pages).sum()
    }

    /// Returns how many pages are charged to a group, without the charges in stock. Exact only
    /// while no thread charges or uncharges.
    pub(crate) fn pages_of(&self, group: &GroupState) -> u64 {
        group.charged().saturating_sub(self.charges.of(group.id))
    }

    /// Charges like [`charge_pages`](Self::charge_pages), but without reclaim. Returns false, with
    /// nothing charged, if that would require reclaim.
    pub(crate) fn try_charge_pages(&self, group: &GroupState, pages: u64) -> bool {
        let charged = if pages == 0 { 0 } else { self.charge(group, pages) };
        if charged < pages {
            self.uncharge(group, charged);
            return false;
        }
        (0..pages).for_each(|_| group.becomes_anonymous());
        true
    }

    /// Charges up to `wanted` pages to `group`, and takes free frames for them, without reclaim. If
    /// there is no frame at all, returns what was short.
    pub(crate) fn frames_of_reserve<'a>(
        &'a self,
        group: &'a GroupState,
        wanted: usize,
        mut give: impl FnMut(ChargedFrame<'a>),
    ) -> Result<(), Short> {
        if self.has_to_give_first(group) {
            return Err(Short::Share);
        }
        let charged = self.charge(group, wanted as u64);
        let give = |frame| give(ChargedFrame::new(self, group, frame));
        let got = self.frames.allocate_each(charged as usize, give) as u64;
        if got < charged {
            self.uncharge(group, charged - got);
        }
        match (charged, got) {
            (0, _) => Err(Short::Charge),
            (_, 0) => Err(Short::Frames),
            _ => Ok(()),
        }
    }

    /// Uncharges pages that [`charge_pages`](Self::charge_pages) charged.
    pub(crate) fn uncharge_pages(&self, group: &GroupState, pages: u64) {
        if pages > 0 {
            group.anonymous_gone(pages);
            self.uncharge(group, pages);
        }
    }
}

/// Why there is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// The group's limit is reached.
    Charge,
    /// All frames are in use.
    Frames,
    /// The free frames belong to other groups ([`Memory::has_to_give_first`]).
    Share,
}

/// The charge of one page. If it is dropped, the page is uncharged.
pub(crate) struct Charge<'a> {
    memory: &'a Memory,
    group: &'a GroupState,
}

impl<'a> Charge<'a> {
    /// Takes over the charge of a page that was charged to `group`.
    pub(crate) fn new(memory: &'a Memory, group: &'a GroupState) -> Self {
        Self { memory, group }
    }

    pub(crate) fn group(&self) -> &'a GroupState {
        self.group
    }

    /// Hands the charge over to the page: dropping the page uncharges it from then on.
    pub(crate) fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.memory.uncharge(self.group, 1);
    }
}

/// A frame that is charged to a group. If it is dropped, it is freed and uncharged.
pub(crate) struct ChargedFrame<'a> {
    frame: OwnedFrame<'a>,
    charge: Charge<'a>,
}

impl<'a> ChargedFrame<'a> {
    /// A frame that is charged to `group` already.
    pub(crate) fn new(memory: &'a Memory, group: &'a GroupState, frame: OwnedFrame<'a>) -> Self {
        Self { frame, charge: Charge::new(memory, group) }
    }

    /// Returns the frame for a page of a space and hands the charge over to the page.
    pub(crate) fn into_anonymous(self) -> OwnedFrame<'a> {
        self.charge.group().becomes_anonymous();
        self.into_frame()
    }

    /// Frees the frame and returns the charge, for a page that has a frame already.
    pub(crate) fn into_page_charge(self) -> Charge<'a> {
        self.charge
    }

    /// Frees the frame and keeps its page charged, for memory that isn't a page.
    pub(crate) fn into_charge(self) {
        self.charge.group().becomes_anonymous();
        self.charge.hand_over();
    }

    /// Returns the frame and hands its charge over to the page in it.
    pub(crate) fn into_frame(self) -> OwnedFrame<'a> {
        self.charge.hand_over();
        self.frame
    }
}

impl<'a> Deref for ChargedFrame<'a> {
    type Target = OwnedFrame<'a>;

    fn deref(&self) -> &OwnedFrame<'a> {
        &self.frame
    }
}

/// A charge of Pagefold's own metadata to the budget, made before the metadata exists. Once the
/// metadata exists, the charge is [handed over](Self::hand_over) to it. If this value is dropped
/// earlier, because of an error or because a user's backend panics, the bytes are uncharged.
pub(crate) struct MetadataCharge<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl<'a> MetadataCharge<'a> {
    /// Takes over bytes that were charged.
    pub(crate) fn new(budget: &'a Budget, bytes: u64) -> Self {
        Self { budget, bytes }
    }

    /// Hands the charge over to the metadata: dropping the metadata uncharges the bytes from then
    /// on.
    pub(crate) fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl Drop for MetadataCharge<'_> {
    fn drop(&mut self) {
        self.budget.uncharge(self.bytes);
    }
}

/// The charges of pages that are being loaded. They are handed over to the pages one by one.
#[derive(Debug)]
pub(crate) struct ChargedPages {
    group: Arc<GroupState>,
    pages: u64,
}

impl ChargedPages {
    /// Takes over the charges of `pages` frames that were charged to `group`.
    pub(crate) fn new(group: &Arc<GroupState>, pages: u64) -> Self {
        Self { group: Arc::clone(group), pages }
    }

    pub(crate) fn group(&self) -> &Arc<GroupState> {
        &self.group
    }

    /// Hands one charge over to its page.
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
