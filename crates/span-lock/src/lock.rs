//! The lock's public interface. How claims exclude each other is described in `levels`.

use std::panic::Location;

use sync::time::{Duration, Instant};

use crate::claim::{Claim, Mode};
use crate::geometry::UNIT_BITS_MAX;
use crate::guard::{RangeReadGuard, RangeWriteGuard};
use crate::levels::{Held, Levels};
use crate::order::LockOrder;
use crate::queue::Patience;
use crate::range::LockRange;

/// A reader/writer lock over ranges of `u64`.
///
/// Any number of readers, or one writer, hold a range at a time. Holders of disjoint ranges don't
/// wait for each other. The lock guards no data of its own: the user decides what the numbers stand
/// for.
///
/// A thread that holds a range must not wait for a range that overlaps it, not even if both are
/// locked for reading. Builds with debug assertions panic in this case, and name both places. They
/// also panic on lock orders that can end in a deadlock. `try_…_for` waits, but isn't checked,
/// because its wait ends with the timeout.
///
/// A thread that holds a range must not wait for a disjoint range either, if any thread may request
/// a range that overlaps both. That thread may be queued ahead of it for the second range, and wait
/// for the first: a deadlock. Use `try_…_for` for the second range, and release the first if that
/// fails.
#[derive(Debug)]
pub struct RangeLock {
    levels: Levels,
    order: LockOrder,
}

impl Default for RangeLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeLock {
    /// Creates a free lock for ranges that mostly are whole pages of 4 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self::with_unit_bits(12)
    }

    /// Creates a free lock for ranges that mostly begin and end at multiples of 2^`bits`; `bits`
    /// above 40 count as 40. Other ranges can be locked too, at a higher cost.
    #[must_use]
    pub fn with_unit_bits(bits: u32) -> Self {
        Self { levels: Levels::new(bits.min(UNIT_BITS_MAX)), order: LockOrder::new() }
    }

    /// Locks `range` for reading, together with other readers. Waits for as long as necessary.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub fn read(&self, range: LockRange) -> RangeReadGuard<'_> {
        RangeReadGuard::new(self.lock(range, Mode::Read), self.order.name())
    }

    /// Locks `range` for writing, alone. Waits for as long as necessary.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub fn write(&self, range: LockRange) -> RangeWriteGuard<'_> {
        RangeWriteGuard::new(self.lock(range, Mode::Write), self.order.name())
    }

    /// Locks `range` for reading, without waiting. Returns `None` if a part is held for writing, or
    /// another thread is just trying to lock a part for writing. Also returns `None` while the lock
    /// is made [compact](Self::compact), which can happen at any time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self, range: LockRange) -> Option<RangeReadGuard<'_>> {
        self.lock_within(range, Mode::Read, &Patience::None).map(|held| RangeReadGuard::new(held, self.order.name()))
    }

    /// Locks `range` for writing, without waiting. Returns `None` if a part is held, or another
    /// thread is just trying to lock a part. Also returns `None` while the lock is made
    /// [compact](Self::compact), which can happen at any time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self, range: LockRange) -> Option<RangeWriteGuard<'_>> {
        self.lock_within(range, Mode::Write, &Patience::None).map(|held| RangeWriteGuard::new(held, self.order.name()))
    }

    /// Locks `range` for reading. Returns `None` if `timeout` passes first. See also
    /// [`read`](Self::read).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read_for(&self, range: LockRange, timeout: Duration) -> Option<RangeReadGuard<'_>> {
        let patience = Patience::Until(Instant::now(), timeout);
        self.lock_within(range, Mode::Read, &patience).map(|held| RangeReadGuard::new(held, self.order.name()))
    }

    /// Locks `range` for writing. Returns `None` if `timeout` passes first. See also
    /// [`write`](Self::write).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write_for(&self, range: LockRange, timeout: Duration) -> Option<RangeWriteGuard<'_>> {
        let patience = Patience::Until(Instant::now(), timeout);
        self.lock_within(range, Mode::Write, &patience).map(|held| RangeWriteGuard::new(held, self.order.name()))
    }

    /// Makes the lock one word for all ranges again, if no range is held. After that, a lock that
    /// has one user at a time is as cheap as a plain lock. The lock also tries this by itself now
    /// and then. Returns false if the lock is in use.
    ///
    /// The call holds the full range while it looks at each node: meanwhile other threads wait, and
    /// `try_…` fails.
    pub fn compact(&self) -> bool {
        self.levels.compact()
    }

    /// Returns the bytes of the lock's tables: 0 until it spreads for the first time.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.levels.table_bytes()
    }

    #[cfg_attr(debug_assertions, track_caller)]
    #[inline(always)]
    fn lock(&self, range: LockRange, mode: Mode) -> Held<'_> {
        let claim = Claim { range, mode };
        self.order.wait(claim, Location::caller());
        let held = self.levels.hold(claim);
        self.order.taken(claim, Location::caller());
        held
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_within(&self, range: LockRange, mode: Mode, patience: &Patience) -> Option<Held<'_>> {
        let claim = Claim { range, mode };
        let held = self.levels.hold_within(claim, patience)?;
        self.order.taken(claim, Location::caller());
        Some(held)
    }
}
