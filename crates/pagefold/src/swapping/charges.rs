//! Charges swap slots to groups (`group::swapped`), from a CPU's stock first.

use crate::error::SwapFailure;
use crate::group::state::GroupState;
use crate::group::stocks::Stock;
use crate::memory::Memory;
use crate::swapping::Swapping;

/// The size of a batch of slots. A CPU's stock holds at most two batches (`ChargeStocks::put`).
const STOCK_BATCH: u64 = 64;

impl Swapping {
    /// Charges up to `wanted` slots, as far as the group's limit allows. Takes slots from the CPU's
    /// stock first. Returns the number of slots charged.
    pub(crate) fn charge(&self, memory: &Memory, group: &GroupState, wanted: u64) -> u64 {
        let stocked = if group.swapped.is_beyond_max() { 0 } else { self.charges.take(group.id, wanted) };
        let got = stocked + group.swapped.try_charge(wanted - stocked);
        if got == wanted || self.drain_charges(memory, Some(group.id)) == 0 {
            return got;
        }
        got + group.swapped.try_charge(wanted - got)
    }

    /// Uncharges slots that were freed.
    pub(crate) fn uncharge(&self, memory: &Memory, group: &GroupState, slots: u64) {
        if slots == 0 {
            return;
        }
        // A group without a handle can be removed only when no slot is charged to it. So the slots
        // aren't put into a stock, where they would stay charged.
        if group.is_abandoned() {
            return group.swapped.uncharge(slots);
        }
        let (rest, other) = self.charges.put(group.id, slots, STOCK_BATCH);
        if rest > 0 {
            // Makes room in the stock for the next slots that are freed.
            group.swapped.uncharge(rest + self.charges.take(group.id, STOCK_BATCH / 2));
        }
        if let Some(other) = other {
            self.give_back(memory, other);
        }
    }

    fn give_back(&self, memory: &Memory, stock: Stock) {
        memory.groups.with(stock.group, |group| group.swapped.uncharge(stock.pages));
    }

    /// Uncharges the slots that were charged in advance and wait in CPUs' stocks, of `group` or of
    /// all groups. Returns the number of slots.
    pub(crate) fn drain_charges(&self, memory: &Memory, group: Option<u32>) -> u64 {
        let stocks = self.charges.drain(group);
        stocks.inspect(|stock| self.give_back(memory, *stock)).map(|stock| stock.pages).sum()
    }

    /// Returns why the group's pages can't be swapped out, if an area's device failed.
    pub(crate) fn failure_of(&self, group: &GroupState) -> Option<SwapFailure> {
        let (number, error) = group.swapped.failure()?;
        self.areas.area_name(number).map(|area| SwapFailure { area, error })
    }

    /// Returns the number of slots that the group's pages occupy. Exact only while no thread takes
    /// or frees one.
    pub(crate) fn slots_of(&self, group: &GroupState) -> u64 {
        group.swapped.pages().saturating_sub(self.charges.of(group.id))
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use crate::Pagefold;
    use crate::group::swapped::BEYOND_MAX;

    /// Regression: slots in CPUs' stocks counted as in use when the limit was lowered. So exchanges
    /// could take that many more slots beyond the limit.
    #[test]
    fn slots_in_stock_are_not_in_use_when_the_limit_is_lowered() {
        const IN_USE: u64 = 40;
        const IN_STOCK: u64 = 60;
        let mm = Pagefold::builder().memory("8MiB").build().unwrap();
        let group = mm.group("tenant").build().unwrap();
        let (manager, state) = (group.manager(), group.state());
        assert_eq!(manager.swapping.charge(&manager.memory, state, IN_USE + IN_STOCK), IN_USE + IN_STOCK);
        manager.swapping.uncharge(&manager.memory, state, IN_STOCK);
        assert_eq!((manager.swapping.slots_of(state), state.swapped.pages()), (IN_USE, IN_USE + IN_STOCK));
        group.set_swap_max(0).unwrap();
        let charge = || {
            let swapped = &state.swapped;
            swapped.charge_one_more()
                || (manager.swapping.drain_charges(&manager.memory, Some(state.id)) > 0 && swapped.charge_one_more())
        };
        assert_eq!((0..).take_while(|_| charge()).count() as u64, BEYOND_MAX);
    }
}
