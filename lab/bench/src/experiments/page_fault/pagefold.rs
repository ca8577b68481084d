//! The product: a space's memory.

use pagefold::{Pagefold, Protection, Space, SwapArea};

#[cfg(not(pagefold_manycore))]
use super::PAGE;
use super::{Memory, measure};
use crate::experiments::OURS;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "a Pagefold space with a swap area, so that its pages are on LRU lists",
    hidden: false,
    measure: |job| measure::<Spaces<true>>(job),
};
/// The scheme without swap.
pub(super) const UNLISTED: Scheme = Scheme {
    name: "pagefold-no-swap",
    about: "the same without a swap area: pages that can't leave memory are on no list",
    hidden: false,
    measure: |job| measure::<Spaces<false>>(job),
};

struct Spaces<const SWAP: bool> {
    /// One, or one for each task.
    spaces: Vec<Space>,
    _manager: Pagefold,
    area: u64,
}

impl<const SWAP: bool> Spaces<SWAP> {
    fn of(&self, task: usize) -> &Space {
        &self.spaces[task % self.spaces.len()]
    }
}

impl<const SWAP: bool> Memory for Spaces<SWAP> {
    fn new(tasks: usize, shared: bool, area: u64) -> Self {
        let builder = Pagefold::builder().memory((tasks as u64 + 1) * area * 5 / 4 + (64 << 20));
        let builder = if SWAP { builder.swap_area(SwapArea::memory(1 << 20)) } else { builder };
        let manager = builder.build().expect("a budget that is large enough");
        let group = manager.group("touchers").build().expect("a group without a limit of its own");
        let count = if shared { 1 } else { tasks };
        let spaces = (0..count).map(|_| group.space().expect("room for a space")).collect();
        Self { spaces, _manager: manager, area }
    }

    fn map(&self, task: usize) -> u64 {
        self.of(task).map(self.area, Protection::ReadWrite).expect("addresses are plenty").start
    }

    fn unmap(&self, task: usize, area: u64) {
        self.of(task).unmap(area..area + self.area).expect("it is mapped");
    }

    #[inline]
    fn touch(&self, task: usize, address: u64) {
        self.of(task).write_at(&[1; 8], address).expect("the budget holds all areas");
    }

    #[inline]
    fn read(&self, task: usize, address: u64) {
        let mut bytes = [0; 8];
        self.of(task).read_at(&mut bytes, address).expect("it is mapped");
        std::hint::black_box(bytes);
    }
}

/// Zeroing alone, for subtraction from the other schemes.
#[cfg(not(pagefold_manycore))]
pub(super) const ZEROING: Scheme = Scheme {
    name: "zeroing",
    about: "nothing but zeroing a page of an area far larger than caches, past them: what every first touch contains",
    hidden: false,
    measure: |job| measure::<Zeroing>(job),
};

#[cfg(not(pagefold_manycore))]
struct Zeroing(Vec<Box<[sync::atomic::AtomicU64]>>);

#[cfg(not(pagefold_manycore))]
impl Memory for Zeroing {
    fn new(tasks: usize, _: bool, bytes: u64) -> Self {
        let area = || (0..bytes / 8).map(|_| sync::atomic::AtomicU64::new(1)).collect();
        Self((0..tasks).map(|_| area()).collect())
    }

    fn map(&self, _: usize) -> u64 {
        0
    }

    fn unmap(&self, _: usize, _: u64) {}

    fn touch(&self, task: usize, address: u64) {
        let first = (address / 8) as usize;
        let page = sync::SharedBytes::new(&self.0[task][first..first + (PAGE / 8) as usize]);
        page.stream_from(&[0; PAGE as usize]);
        page.copy_from(0, &[1; 8]);
    }

    fn read(&self, task: usize, address: u64) {
        std::hint::black_box(self.0[task][(address / 8) as usize].load(sync::atomic::Ordering::Relaxed));
    }
}
