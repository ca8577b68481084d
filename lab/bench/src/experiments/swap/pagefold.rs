//! The product: a space, and a swap area.

use pagefold::{Group, Pagefold, Placement, Protection, Space, SwapArea};
use test_disks::SimulatedDisk;

use super::{Memory, PAGE, Sizes, measure};
use crate::experiments::OURS;
use crate::experiments::older::NODES;
use crate::scaling::device::Device;
use crate::scaling::experiment::Scheme;
use crate::scaling::job::Job;
use crate::scaling::sample::Counts;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "Pagefold's spaces, and the budget is all that Pagefold has; a task that faults reclaims a few pages, and \
            writes them together",
    hidden: false,
    measure: |job| measure(job, |sizes| Swapping::new(sizes, job, Placement::PerCpu)),
};

/// The same as on disks that rotate.
pub(super) const ONE_POSITION: Scheme = Scheme {
    name: "pagefold-one-position",
    about: "the same, but all CPUs take slots from the same cluster, as on disks that rotate (only when asked for)",
    hidden: true,
    measure: |job| measure(job, |sizes| Swapping::new(sizes, job, Placement::Sequential)),
};

struct Swapping {
    spaces: Vec<Space>,
    group: Group,
    _manager: Pagefold,
}

impl Swapping {
    fn new(sizes: Sizes, job: &Job<'_>, placement: Placement) -> Self {
        let device = job.choices.device;
        let bytes = (sizes.area + 1) * PAGE;
        // The compressed area has room for all pages if they shrink to a half. Here it is part of
        // the budget; with the kernel, zram takes its memory in addition to the cgroup's.
        let compressed = if device == Device::Compressed { bytes / 2 } else { 0 };
        let builder = Pagefold::builder().memory(sizes.budget * PAGE + compressed).pretouch(compressed == 0);
        let builder = match device {
            Device::Compressed => builder.compressed_swap(compressed),
            // One for each socket.
            Device::Memory => {
                let area = || SwapArea::memory(bytes.div_ceil(NODES as u64)).placement(placement);
                (0..NODES).fold(builder, |builder, _| builder.swap_area(area()))
            }
            Device::Disk => builder.swap_area(SwapArea::unlinked(".", bytes).placement(placement)),
            Device::Simulated | Device::Rotating => {
                let disk = SimulatedDisk::default();
                disk.add_bytes("/swap", vec![0; bytes as usize]);
                builder.backend(disk).swap_area(SwapArea::path("/swap").overwrite(true).placement(placement))
            }
        };
        let manager = builder.build().expect("a budget and an area");
        let group = manager.group("touchers");
        let group = if compressed > 0 { group.max(sizes.budget * PAGE) } else { group };
        let group = group.build().expect("a group");
        let spaces = if sizes.own_spaces { job.tasks } else { 1 };
        let spaces = (0..spaces).map(|_| group.space().expect("room for a space")).collect();
        Self { spaces, group, _manager: manager }
    }

    fn space(&self, task: usize) -> &Space {
        &self.spaces[task % self.spaces.len()]
    }
}

impl Memory for Swapping {
    fn map(&self, task: usize, pages: u64) -> u64 {
        self.space(task).map(pages * PAGE, Protection::ReadWrite).expect("addresses are plenty").start
    }

    fn fill(&self, task: usize, address: u64, page: &[u8; PAGE as usize]) {
        self.space(task).write_at(page, address).expect("the area holds all pages");
    }

    fn discard(&self, task: usize, address: u64) {
        self.space(task).discard(address..address + PAGE).expect("it is mapped");
    }

    #[inline]
    fn read(&self, task: usize, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.space(task).read_at(&mut bytes, address).expect("the page comes back");
        u64::from_ne_bytes(bytes)
    }

    #[inline]
    fn write(&self, task: usize, address: u64, word: u64) {
        self.space(task).write_at(&word.to_ne_bytes(), address).expect("the page comes back");
    }

    fn count(&self) -> Counts {
        let stats = self.group.stats();
        // Pages that were read along with a faulting page caused no fault.
        let faults = stats.swap_ins - stats.swap_read_along;
        Counts { faults, bytes_in: stats.swap_bytes_in, bytes_out: stats.swap_bytes_out }
    }
}
