//! Guards, which prove that a range is held.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::claim::{Claim, Mode};
use crate::levels::Held;
use crate::order::LockName;
use crate::range::LockRange;

/// A range that is locked for reading until the guard is dropped.
#[derive(Debug)]
#[must_use = "the range is given back when the guard is dropped"]
pub struct RangeReadGuard<'a> {
    held: Held<'a>,
    /// Empty in builds that don't check the lock order.
    lock: LockName,
    /// Not `Send`: the lock order is checked per thread.
    _here: PhantomData<*const ()>,
}

/// A range that is locked for writing until the guard is dropped.
#[derive(Debug)]
#[must_use = "the range is given back when the guard is dropped"]
pub struct RangeWriteGuard<'a> {
    held: Held<'a>,
    /// Empty in builds that don't check the lock order.
    lock: LockName,
    _here: PhantomData<*const ()>,
}

impl<'a> RangeReadGuard<'a> {
    #[inline]
    pub(crate) fn new(held: Held<'a>, lock: LockName) -> Self {
        Self { held, lock, _here: PhantomData }
    }

    /// Returns the locked range.
    #[must_use]
    pub fn range(&self) -> LockRange {
        self.held.range()
    }
}

impl<'a> RangeWriteGuard<'a> {
    #[inline]
    pub(crate) fn new(held: Held<'a>, lock: LockName) -> Self {
        Self { held, lock, _here: PhantomData }
    }

    /// Returns the locked range.
    #[must_use]
    pub fn range(&self) -> LockRange {
        self.held.range()
    }

    /// Turns the write lock into a read lock. No writer gets the range in between.
    pub fn downgrade(self) -> RangeReadGuard<'a> {
        let this = ManuallyDrop::new(self);
        this.lock.downgraded(Claim { range: this.range(), mode: Mode::Write });
        RangeReadGuard::new(this.held.downgrade(), this.lock)
    }
}

impl Drop for RangeReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.released(|| Claim { range: self.range(), mode: Mode::Read });
        self.held.release(Mode::Read);
    }
}

impl Drop for RangeWriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.released(|| Claim { range: self.range(), mode: Mode::Write });
        self.held.release(Mode::Write);
    }
}
