//! Reclaim by a task that finds no free page, as in Linux 5.7. Pages go from the active list to the
//! inactive one, and from there to a swap area, 32 at a time.

use sync::atomic::{Backoff, Ordering, fence};

use super::area::Slots;
use super::page_table::Entry;
use super::{AREA_SHIFT, AREAS, OTHER_NS, Older, Task, region};
use crate::experiments::older::NODES;
use crate::experiments::older::node_of_cpu;
use crate::scaling::stage::own_work;

/// Pages that are taken off a list in one go: Linux's.
const BATCH: usize = 32;
const ACTIVE: bool = true;
const INACTIVE: bool = false;

impl<S: Slots> Older<S> {
    /// A free page.
    pub(super) fn free_page(&self, task: usize, own: &mut Task) -> u32 {
        let mut backoff = Backoff::new();
        loop {
            if let Some(page) = own.stock.take(&self.free, &self.pages) {
                return page;
            }
            if self.reclaim(task, own) == 0 {
                backoff.wait();
            }
        }
    }

    /// Returns how many pages are free now.
    fn reclaim(&self, task: usize, own: &mut Task) -> usize {
        let _region = region("shrink_lists");
        self.list(own);
        let here = node_of_cpu(sync::cpu::current());
        let mut batch = Vec::new();
        for node in [here, NODES - 1 - here] {
            if batch.is_empty() {
                self.age(node);
                batch = self.lists.take_last(&self.pages, node, INACTIVE, BATCH);
            }
        }
        // Those that were used while they were inactive stay.
        let is_used = |&page: &u32| self.table.take_accessed(self.owner(page));
        let (used, unused): (Vec<u32>, Vec<u32>) = batch.into_iter().partition(is_used);
        unused.iter().for_each(|&page| self.swap_out(task, own, page));
        self.lists.put(&self.pages, &used, ACTIVE);
        unused.len()
    }

    /// Keeps at least as many pages inactive as active, as Linux does with less than a gigabyte.
    fn age(&self, node: usize) {
        while self.lists.len(node, INACTIVE) < self.lists.len(node, ACTIVE) {
            let batch = self.lists.take_last(&self.pages, node, ACTIVE, BATCH);
            batch.iter().for_each(|&page| _ = self.table.take_accessed(self.owner(page)));
            self.lists.put(&self.pages, &batch, INACTIVE);
        }
    }

    fn swap_out(&self, task: usize, own: &mut Task, page: u32) {
        own_work(OTHER_NS / 2);
        let number = node_of_cpu(sync::cpu::current()) % AREAS;
        let area = &self.areas[number];
        let slot = area.slots.take(task);
        let at = self.owner(page);
        let place = Entry::Swapped((number << AREA_SHIFT | slot) as u64);
        let is_mapped = self.table.replace(at, Entry::Present(page), place);
        assert!(is_mapped, "a listed page is mapped until it is reclaimed");
        self.wait_for_users_of(at);
        area.bytes(slot).stream_from_shared(self.pages.bytes(page));
        area.slots.written(task, slot);
        self.tasks[task].went.fetch_add(1, Ordering::Relaxed);
        self.charges.uncharge(0, &mut own.charges, 1);
        own.stock.put(&self.free, &self.pages, page);
    }

    /// Takes the place of a TLB flush on other CPUs. A task of the space may be in an access to the
    /// page, which is no longer mapped. So waits until each of the space's tasks has been outside
    /// an access.
    fn wait_for_users_of(&self, at: usize) {
        let _region = region("flush");
        // Pairs with the fence in `access`: either the task sees the new entry, or this thread sees
        // that the task is in an access.
        fence(Ordering::SeqCst);
        for task in self.tasks_of(at) {
            let mut backoff = Backoff::new();
            // Acquire pairs with the Release at an access's end.
            while self.tasks[task].accesses.load(Ordering::Acquire) {
                backoff.wait();
            }
        }
    }

    fn owner(&self, page: u32) -> usize {
        // Relaxed: written before the page was listed.
        self.pages.record(page).owner.load(Ordering::Relaxed) as usize
    }
}
