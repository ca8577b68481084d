//! The lock as its users see it. How claims exclude each other is in `levels`.

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
/// Any number of readers, or one writer, hold a range at a time; holders of disjoint ranges don't
/// wait for each other. The lock guards no data of its own: what a number stands for is the user's
/// affair.
///
/// A thread that holds a range must not wait for one that overlaps it, not even to read both.
/// Builds with debug assertions panic then, and name both places. They do so too for orders of
/// locking that can end in a deadlock. `try_…_for` isn't checked, though it waits: it ends by
/// itself.
///
/// Nor must a thread that holds a range wait for any other range, unless no thread ever takes a
/// range that overlaps both. Otherwise it may be queued behind a thread that waits for such a
/// range, and so for the range that is held: both wait for ever. Use `try_…_for` for a second
/// range, and let go of the first if that fails.
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
    /// A free lock for ranges that mostly are whole pages of 4 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self::with_unit_bits(12)
    }

    /// A free lock for ranges that mostly begin and end at multiples of 2^`bits`, at most 2^40.
    /// Others can be locked too, but cost more.
    #[must_use]
    pub fn with_unit_bits(bits: u32) -> Self {
        Self { levels: Levels::new(bits.min(UNIT_BITS_MAX)), order: LockOrder::new() }
    }

    /// Waits for `range`, to read it with others.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub fn read(&self, range: LockRange) -> RangeReadGuard<'_> {
        RangeReadGuard::new(self.lock(range, Mode::Read), self.order.name())
    }

    /// Waits for `range`, to have it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub fn write(&self, range: LockRange) -> RangeWriteGuard<'_> {
        RangeWriteGuard::new(self.lock(range, Mode::Write), self.order.name())
    }

    /// Takes `range` to read. `None` if a part of it is held for writing, or a thread is just
    /// trying to lock a part for writing. `None` also while the lock is made
    /// [compact](Self::compact), which it may be at any time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self, range: LockRange) -> Option<RangeReadGuard<'_>> {
        self.lock_within(range, Mode::Read, &Patience::None).map(|held| RangeReadGuard::new(held, self.order.name()))
    }

    /// Takes `range` alone. `None` if a part of it is held, or a thread is just trying to lock a
    /// part. `None` also while the lock is made [compact](Self::compact), which it may be at any
    /// time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self, range: LockRange) -> Option<RangeWriteGuard<'_>> {
        self.lock_within(range, Mode::Write, &Patience::None).map(|held| RangeWriteGuard::new(held, self.order.name()))
    }

    /// As [`read`](Self::read), but waits no longer than `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read_for(&self, range: LockRange, timeout: Duration) -> Option<RangeReadGuard<'_>> {
        let patience = Patience::Until(Instant::now(), timeout);
        self.lock_within(range, Mode::Read, &patience).map(|held| RangeReadGuard::new(held, self.order.name()))
    }

    /// As [`write`](Self::write), but waits no longer than `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write_for(&self, range: LockRange, timeout: Duration) -> Option<RangeWriteGuard<'_>> {
        let patience = Patience::Until(Instant::now(), timeout);
        self.lock_within(range, Mode::Write, &patience).map(|held| RangeWriteGuard::new(held, self.order.name()))
    }

    /// Goes back to one word for all ranges, if no range is held: then a lock that has one user at
    /// a time is as cheap again as a plain lock. A lock that is used does so by itself now and
    /// then. False if the lock is in use.
    ///
    /// This looks at each node while it has the full range: other threads wait meanwhile, and tries
    /// fail.
    pub fn compact(&self) -> bool {
        self.levels.compact()
    }

    /// Bytes that the lock takes beyond itself, now that it has spread or hasn't.
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
