//! A value for each CPU, each on cache lines of its own.

use crossbeam_utils::CachePadded;

/// One `T` for each CPU. Which one a thread gets is a hint, so `T` has to be safe to share.
#[derive(Debug)]
pub struct PerCpu<T> {
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// Makes a value for each CPU of the machine.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self { slots: (0..crate::cpu::count()).map(|_| CachePadded::new(make())).collect() }
    }

    /// The value of the CPU that this thread runs on, or ran on a moment ago.
    #[inline]
    pub fn here(&self) -> &T {
        self.of(crate::cpu::current())
    }

    /// The value of a CPU.
    #[inline]
    pub fn of(&self, cpu: usize) -> &T {
        // Most often without a division.
        self.slots.get(cpu).unwrap_or_else(|| &self.slots[cpu % self.slots.len()])
    }

    /// All values, CPU 0 first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &**slot)
    }

    /// All values, starting with the one after this thread's: for a search of other CPUs' stocks.
    pub fn others_first(&self) -> impl Iterator<Item = &T> {
        self.from(crate::cpu::current() + 1)
    }

    /// All values, starting with the one of the CPU `start`, modulo how many there are.
    pub fn from(&self, start: usize) -> impl Iterator<Item = &T> {
        let len = self.slots.len();
        (0..len).map(move |i| &*self.slots[start.wrapping_add(i) % len])
    }

    /// Bytes that this value takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }
}
