//! Charges swap slots to groups (`group::swapped`), from a CPU's stock first.

use crate::error::SwapFailure;
use crate::group::state::GroupState;
use crate::group::stocks::Stock;
use crate::manager::Manager;

/// The most slots in a CPU's stock.
const STOCK_MAX: u64 = 64;

impl Manager {
    /// Charges up to `wanted` slots, as far as the group's limit allows, from the CPU's stock
    /// first. Returns the number of slots charged.
    pub(crate) fn charge_swapped(&self, group: &GroupState, wanted: u64) -> u64 {
        let stocked = if group.swapped.is_beyond_max() { 0 } else { self.swap_charges.take(group.id, wanted) };
        let got = stocked + group.swapped.try_charge(wanted - stocked);
        if got == wanted || self.drain_swapped(Some(group.id)) == 0 {
            return got;
        }
        got + group.swapped.try_charge(wanted - got)
    }

    /// Uncharges slots that were freed.
    pub(crate) fn uncharge_swapped(&self, group: &GroupState, slots: u64) {
        if slots == 0 {
            return;
        }
        // A group without a handle must end with its last slot, so none may stay in a stock.
        if group.is_abandoned() {
            return group.swapped.uncharge(slots);
        }
        let (rest, other) = self.swap_charges.put(group.id, slots, STOCK_MAX);
        if rest > 0 {
            // Makes room in the stock for the next slots that are freed.
            group.swapped.uncharge(rest + self.swap_charges.take(group.id, STOCK_MAX / 2));
        }
        if let Some(other) = other {
            self.give_back_swapped(other);
        }
    }

    fn give_back_swapped(&self, stock: Stock) {
        self.groups.with(stock.group, |group| group.swapped.uncharge(stock.pages));
    }

    /// Uncharges the slots that were charged in advance and wait in CPUs' stocks, of `group` or of
    /// all groups. Returns the number of slots.
    pub(crate) fn drain_swapped(&self, group: Option<u32>) -> u64 {
        let stocks = self.swap_charges.drain(group);
        stocks.inspect(|stock| self.give_back_swapped(*stock)).map(|stock| stock.pages).sum()
    }

    /// Returns why the group's pages can't be swapped out, if an area's device failed.
    pub(crate) fn swap_failure(&self, group: &GroupState) -> Option<SwapFailure> {
        let (number, error) = group.swapped.failure()?;
        self.swap.area_name(number).map(|area| SwapFailure { area, error })
    }

    /// Returns the number of slots that the group's pages occupy. Exact only while no thread takes
    /// or frees one.
    pub(crate) fn swapped_of(&self, group: &GroupState) -> u64 {
        group.swapped.pages().saturating_sub(self.swap_charges.of(group.id))
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
        assert_eq!(manager.charge_swapped(state, IN_USE + IN_STOCK), IN_USE + IN_STOCK);
        manager.uncharge_swapped(state, IN_STOCK);
        assert_eq!((manager.swapped_of(state), state.swapped.pages()), (IN_USE, IN_USE + IN_STOCK));
        group.set_swap_max(0).unwrap();
        let charge = || {
            let swapped = &state.swapped;
            swapped.charge_one_more() || (manager.drain_swapped(Some(state.id)) > 0 && swapped.charge_one_more())
        };
        assert_eq!((0..).take_while(|_| charge()).count() as u64, BEYOND_MAX);
    }
}
