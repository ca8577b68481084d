//! Proof that a range is held.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::claim::Mode;
use crate::lock::{Held, RangeLock};
use crate::range::LockRange;

/// A range that its owner reads with others, until dropped.
#[derive(Debug)]
#[must_use = "the range is given back when the guard is dropped"]
pub struct RangeReadGuard<'a> {
    lock: &'a RangeLock,
    range: LockRange,
    held: Held<'a>,
    /// Not `Send`: the order of locking is checked thread by thread.
    _here: PhantomData<*const ()>,
}

/// A range that its owner has alone, until dropped.
#[derive(Debug)]
#[must_use = "the range is given back when the guard is dropped"]
pub struct RangeWriteGuard<'a> {
    lock: &'a RangeLock,
    range: LockRange,
    held: Held<'a>,
    _here: PhantomData<*const ()>,
}

impl<'a> RangeReadGuard<'a> {
    #[inline]
    pub(crate) fn new(lock: &'a RangeLock, range: LockRange, held: Held<'a>) -> Self {
        Self { lock, range, held, _here: PhantomData }
    }

    /// What is held.
    #[must_use]
    pub fn range(&self) -> LockRange {
        self.range
    }
}

impl<'a> RangeWriteGuard<'a> {
    #[inline]
    pub(crate) fn new(lock: &'a RangeLock, range: LockRange, held: Held<'a>) -> Self {
        Self { lock, range, held, _here: PhantomData }
    }

    /// What is held.
    #[must_use]
    pub fn range(&self) -> LockRange {
        self.range
    }

    /// Lets other readers in. No writer comes between.
    pub fn downgrade(self) -> RangeReadGuard<'a> {
        let this = ManuallyDrop::new(self);
        RangeReadGuard::new(this.lock, this.range, this.lock.downgrade(this.range, this.held))
    }
}

impl Drop for RangeReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock(self.range, Mode::Read, self.held);
    }
}

impl Drop for RangeWriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock(self.range, Mode::Write, self.held);
    }
}
