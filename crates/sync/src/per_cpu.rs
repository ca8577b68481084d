//! A value for each CPU, each on cache lines of its own.

use crossbeam_utils::CachePadded;

/// One `T` for each CPU. A thread that has chosen the value of its CPU may be moved to another CPU
/// at any time. So several threads may use one value at the same time, and `T` must be safe to
/// share.
#[derive(Debug)]
pub struct PerCpu<T> {
    slots: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// Creates a value for each CPU of the machine.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self { slots: (0..crate::cpu::count()).map(|_| CachePadded::new(make())).collect() }
    }

    /// Creates a value for each CPU of the machine. `None` if `make` can't create one of them.
    pub fn try_new(mut make: impl FnMut() -> Option<T>) -> Option<Self> {
        let slots = (0..crate::cpu::count()).map(|_| make().map(CachePadded::new));
        Some(Self { slots: slots.collect::<Option<_>>()? })
    }

    /// Returns the value of the CPU that this thread runs on, or ran on a moment ago.
    #[inline]
    pub fn here(&self) -> &T {
        self.of(crate::cpu::current())
    }

    /// Returns the value of a CPU.
    #[inline]
    pub fn of(&self, cpu: usize) -> &T {
        // Usually avoids the division.
        self.slots.get(cpu).unwrap_or_else(|| &self.slots[cpu % self.slots.len()])
    }

    /// Returns all values, starting with CPU 0.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &**slot)
    }

    /// Returns all values, starting with the one after this thread's CPU: for a search in other
    /// CPUs' stocks.
    pub fn others_first(&self) -> impl Iterator<Item = &T> {
        self.from(crate::cpu::current() + 1)
    }

    /// Returns all values, starting with that of CPU `start` modulo their number.
    pub fn from(&self, start: usize) -> impl Iterator<Item = &T> {
        let len = self.slots.len();
        (0..len).map(move |i| &*self.slots[start.wrapping_add(i) % len])
    }

    /// Returns the number of bytes that the values take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }
}
