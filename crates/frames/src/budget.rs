//! The memory budget: the limit in bytes for all memory that is charged.
//!
//! What is charged, and when:
//! - an *extent* of frames (`extents`), with its share of the frame table, before it is first used.
//!   A free frame stays charged, because its memory hasn't been given back to the system;
//! - a *chunk* of a page map (`chunks`), before the first of its words is used;
//! - the policy's own objects, such as groups and open files, when they are made.
//!
//! U1. `used ≤ max`, with one exception: after `max` was lowered, `used` may be higher until the
//! excess has been given back.
//!
//! If the limit is lowered by much, it takes a while to give back the memory. If `max` fell to its
//! goal in one step, no thread could charge anything meanwhile. So `max` falls in steps: a thread
//! that gives back an extent calls `Budget::give_up`, which lowers `max` to the memory that is
//! still in use, plus a reserve for page maps.
//!
//! U2. `max` and `goal` are changed only under the lock `changing`, a leaf. A thread that lowers
//! `max` computes it from the `max` and the `goal` that it loads. So without the lock, it could
//! overwrite a limit that another thread has set in between:
//! ```text
//!   gives up an extent                       ends the lowering
//!   max = 64, goal = 10: lowers it to 50
//!                                            goal: → 100, max: → 100
//!   max: → 50
//! ```
//! A thread that only reads `max` or `goal` takes no lock.

use sync::atomic::{AtomicU64, Ordering, fence, fence_after_update};
use sync::lock::Mutex;

/// The number of bytes charged, and their limit.
#[derive(Debug)]
pub struct Budget {
    max: AtomicU64,
    goal: AtomicU64,
    /// Held while `max` and `goal` change (U2).
    changing: Mutex<()>,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// Creates a budget of `max` bytes, none of them charged.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self {
            max: AtomicU64::new(max),
            goal: AtomicU64::new(max),
            changing: Mutex::new(()),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes charged now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the highest number of bytes that were ever charged.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that could be charged now.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.max().saturating_sub(self.used())
    }

    /// Charges `bytes` if the limit allows it.
    ///
    /// All accesses here are `Relaxed`, because nothing else is published through them. The
    /// read-modify-write of `used` enforces the limit. If another thread lowers the limit at the
    /// same time, a fence in each of the two threads ensures that at least one of them sees the
    /// other's change.
    #[must_use]
    pub fn try_charge(&self, bytes: u64) -> bool {
        self.try_charge_leaving(bytes, 0)
    }

    /// Charges `bytes`, provided that `rest` more bytes could still be charged afterwards.
    #[must_use]
    pub(crate) fn try_charge_leaving(&self, bytes: u64, rest: u64) -> bool {
        let max = self.max().saturating_sub(rest);
        let charged = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&after| after <= max)
        });
        let Ok(before) = charged else { return false };
        // Pairs with the fence in `limit`. If another thread has lowered the limit meanwhile,
        // either the check below sees the lower limit, or the other thread sees this charge in
        // `used` and gives back the excess.
        fence_after_update();
        if before + bytes > self.max() {
            self.uncharge(bytes);
            return false;
        }
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        true
    }

    /// Uncharges `bytes`.
    pub fn uncharge(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more given back than was charged");
    }

    /// Returns the value that the limit is being lowered to, or the limit itself if it isn't being
    /// lowered.
    #[must_use]
    pub fn goal(&self) -> u64 {
        self.goal.load(Ordering::Relaxed)
    }

    /// Begins to lower the limit to `goal`. The limit falls to `used + rest` at once, and again
    /// each time memory is given back with [`give_up`](Self::give_up), until it reaches `goal`. So
    /// other threads can't charge the memory that was given back; they can only charge `rest`
    /// bytes. Only one thread may lower the limit at a time.
    pub(crate) fn lower_to(&self, goal: u64, rest: u64) {
        let _changing = self.changing.lock();
        self.goal.store(goal, Ordering::Relaxed);
        self.lower(0, rest);
    }

    /// Uncharges `bytes`. If the limit is being lowered, first lowers it accordingly.
    pub(crate) fn give_up(&self, bytes: u64, rest: u64) {
        let _changing = self.changing.lock();
        // Lowers the limit first: otherwise other threads could charge these bytes as soon as they
        // are uncharged.
        self.lower(bytes, rest);
        self.uncharge(bytes);
    }

    /// Sets a new limit. If more than `max` bytes are charged, the caller must give back the
    /// excess.
    pub(crate) fn set_max(&self, max: u64) {
        let _changing = self.changing.lock();
        self.goal.store(max, Ordering::Relaxed);
        self.limit(max);
    }

    /// If the limit is being lowered, lowers it to `used - bytes + rest`, but not below the goal.
    /// The caller must hold `changing`.
    fn lower(&self, bytes: u64, rest: u64) {
        let (max, goal) = (self.max(), self.goal());
        if goal < max {
            self.limit((self.used().saturating_sub(bytes) + rest).max(goal).min(max));
        }
    }

    /// The caller must hold `changing`.
    fn limit(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
        // Orders the store before the caller's load of `used`: see `try_charge_leaving`.
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, pagefold_loom))]
mod models {
    use super::*;
    use sync::Arc;

    const REST: u64 = 5;

    /// Returns a budget that is being lowered from 100 to 40, and a thread that gives up `bytes` of
    /// it.
    fn lowered(bytes: u64) -> (Arc<Budget>, sync::thread::JoinHandle<()>) {
        let budget = Arc::new(Budget::new(100));
        assert!(budget.try_charge(98));
        budget.lower_to(40, REST);
        let theirs = Arc::clone(&budget);
        let giver = sync::thread::spawn("model", move || theirs.give_up(bytes, REST)).unwrap();
        (budget, giver)
    }

    /// Regression: a thread that gave memory back lowered the limit that it had loaded before. In
    /// between, another thread had ended the lowering and restored the limit. So a resize that had
    /// failed cut the budget all the same.
    #[test]
    fn a_limit_that_is_restored_stays() {
        sync::model(|| {
            let (budget, giver) = lowered(10);
            budget.set_max(100);
            giver.join().unwrap();
            assert_eq!((budget.max(), budget.goal(), budget.used()), (100, 100, 88));
        });
    }

    /// Regression: see above. Here another thread had already set the limit to its goal, and the
    /// thread that gave memory back raised it again.
    #[test]
    fn a_limit_that_has_reached_its_goal_stays_there() {
        sync::model(|| {
            let (budget, giver) = lowered(2);
            budget.uncharge(60);
            budget.set_max(40);
            giver.join().unwrap();
            assert_eq!((budget.max(), budget.goal(), budget.used()), (40, 40, 36));
        });
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_lowered_follows_what_is_used() {
        let budget = Budget::new(100);
        assert!(budget.try_charge(98));
        budget.lower_to(40, 5);
        assert_eq!((budget.max(), budget.goal()), (100, 40), "it never rises");
        budget.give_up(30, 5);
        assert_eq!((budget.used(), budget.max()), (68, 73));
        assert!(!budget.try_charge(6) && budget.try_charge(5), "the rest can be charged");
        budget.give_up(50, 5);
        assert_eq!((budget.used(), budget.max()), (23, 40), "not below the goal");
        budget.give_up(3, 50);
        assert_eq!((budget.used(), budget.max()), (20, 40));
    }

    #[test]
    fn a_charge_past_the_limit_is_refused_and_changes_nothing() {
        let budget = Budget::new(100);
        assert!(budget.try_charge(60) && !budget.try_charge(41) && budget.try_charge(40));
        assert_eq!((budget.used(), budget.room(), budget.peak()), (100, 0, 100));
        budget.uncharge(100);
        assert!(!budget.try_charge(u64::MAX), "sums are checked");
        assert_eq!((budget.used(), budget.peak()), (0, 100));
    }
}
