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
/// A range is held by any number of readers, or by one writer. Threads that hold disjoint ranges
/// don't wait for each other. The lock guards no data of its own: the user decides what the numbers
/// stand for.
///
/// A thread that holds a range must not wait for a range that overlaps the held one, not even if
/// both are locked for reading. Builds with debug assertions panic if a thread does so. The message
/// names the places in the source where the two ranges are locked. They also panic if ranges are
/// locked in an order that can end in a deadlock. Waits of `try_…_for` aren't checked, because they
/// end with the timeout.
///
/// A thread that holds a range A must not wait for a disjoint range B either, if any other thread
/// may request a range that overlaps both. That other thread may be ahead in the queue for B while
/// it waits for A: a deadlock. Lock B with `try_…_for` instead, and release A if that fails.
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

    /// Creates a free lock. Ranges that begin and end at multiples of 2^`bits` are cheap to lock;
    /// other ranges can be locked at a higher cost. Values of `bits` above 40 count as 40.
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

    /// Locks `range` for reading, without waiting. Returns `None` if any thread, this one included,
    /// holds a part of `range` for writing, or if another thread is trying to lock a part for
    /// writing at this moment. Also returns `None` while the lock is being made
    /// [compact](Self::compact). The lock may do this by itself at any time, so `None` doesn't
    /// prove that the range is in use.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self, range: LockRange) -> Option<RangeReadGuard<'_>> {
        self.lock_within(range, Mode::Read, &Patience::None).map(|held| RangeReadGuard::new(held, self.order.name()))
    }

    /// Locks `range` for writing, without waiting. Returns `None` if any thread, this one included,
    /// holds a part of `range`, or if another thread is trying to lock a part at this moment. Also
    /// returns `None` while the lock is being made [compact](Self::compact). The lock may do this
    /// by itself at any time, so `None` doesn't prove that the range is in use.
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

    /// Makes the lock compact: one word for all ranges again, as cheap as a plain lock while it has
    /// one user at a time. Returns false, and changes nothing, if a held range prevents this. The
    /// lock also tries this by itself, after many claims.
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
