//! A node: one word and its queue. Each node is an exact range lock by itself; a
//! [`RangeLock`](crate::RangeLock) has many nodes.
//!
//! If a claim fits into the word (`word`) and finds the word empty, one compare-and-swap makes the
//! claim, and one releases it. Readers of the full range are counted in the word. All other claims
//! are in the queue, under the queue's mutex.
//!
//! The table has a row for each state of a node. The last two columns say what a new claim does if
//! it finds this state, and what a release does:
//!
//! | word | in the queue | a claim | a release |
//! |---|---|---|---|
//! | empty | nothing | swapped in | |
//! | one claim | nothing | if compatible: sets `LISTED`, and joins the list; else spins, then waits | swaps the claim out |
//! | readers of the full range | nothing | if another such reader: counted; else as above | counts down |
//! | … `LISTED` | holders | looks at the word and the list under the mutex | removes the claim from the word, or from the list |
//! | … `WAITED` | waiters | may overtake waiters, see N4 | goes through the queue |
//!
//! - N1. Claims in the word and in the list never exclude each other.
//! - N2. `LISTED` is set and cleared only under the mutex. While it is set, no thread adds a claim
//!   to the word without the mutex. So a thread that holds the mutex and has set `LISTED` sees all
//!   claims. Until it unlocks the mutex or clears the flag, no other thread can add a claim.
//! - N3. Under the mutex, a waiter sets `WAITED`, then looks at the claims once more, and then
//!   sleeps. A release that empties the word after `WAITED` was set goes through the queue, and so
//!   finds the waiter. This excludes a lost wake-up:
//!   ```text
//!     waiter (mutex)                         holder
//!     word: one claim, in the way
//!                                            swap it out: no waiter, none is woken
//!     word |= WAITED
//!     sleep … for ever?                      no: it looks at the word again, which is empty, and takes it
//!   ```
//! - N4. A claim may overtake a waiter that it excludes; otherwise the lock would be idle while the
//!   waiter wakes up. Each waiter has a count that limits this. The count is incremented when a
//!   claim overtakes the waiter under the mutex, and when a release finds that the waiter can
//!   proceed. (A claim that is swapped into an empty word isn't counted, but the release of that
//!   claim is.) At first such a release only wakes the waiter. Once the count has reached
//!   [`BYPASS_MAX`], only older waiters may still overtake this waiter under the mutex, and the
//!   next such release hands the lock to it.
//! - N5. A release wakes the waiters that no holder and no older waiter excludes, and no others.
//! - N6. A release looks only at waiters that the released claim excluded. This loses no wake-up. A
//!   waiter sleeps because the claim of a holder, or of an older waiter, excludes its own claim. If
//!   the holder releases that claim, or the older waiter gives up, the sleeper is one of the
//!   waiters that are looked at then. If the older waiter becomes a holder, its claim excludes the
//!   sleeper as before. Claims in the node that don't exclude the sleeper don't matter: releases of
//!   such claims don't look at the sleeper, and such claims don't count as overtaking it.
//!
//! Orderings: a claim's compare-and-swap is `SeqCst`. Within one node, Acquire would be enough. If
//! the earlier claim was in the word, Acquire pairs with the Release that removed it. If it was in
//! the list, the mutex orders the two claims, or the Release in `settle` does. Between claims in
//! different nodes of the lock, the total order of `SeqCst` is needed: see L1 in `levels`.

#[cfg(pagefold_loom)]
use sync::atomic::fence;
use sync::atomic::{AtomicU32, AtomicU64, Ordering, spin_hint};
use sync::lock::{Mutex, MutexGuard};
use sync::time::{Duration, Instant};

use crate::claim::{Claim, Mode};
use crate::queue::{Patience, Queue};
use crate::word::{NodeWord, Packed};

/// How long a claim spins before it sleeps: about the cost of going to sleep and waking up.
const SPIN: Duration = Duration::from_micros(2);

/// How a claim was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Made {
    /// There was no other claim, or there were only other readers of the full range.
    Alone,
    /// There were other claims in the node.
    Beside,
}

/// A word and its queue.
#[derive(Debug)]
pub(crate) struct Node {
    word: AtomicU64,
    /// The number of claims since the last reset; approximate, because it isn't incremented
    /// atomically.
    uses: AtomicU32,
    /// The log2 of the unit of the ranges in the word.
    unit: u32,
    queue: Mutex<Queue>,
}

impl Node {
    pub(crate) fn new(unit: u32) -> Self {
        let (word, uses) = (AtomicU64::new(NodeWord::FREE.0), AtomicU32::new(0));
        Self { word, uses, unit, queue: Mutex::new(Queue::default()) }
    }

    /// Packs a claim for this node's word.
    #[inline(always)]
    pub(crate) fn pack(&self, claim: Claim) -> Packed {
        Packed::new(claim.range, claim.mode, self.unit)
    }

    /// Unpacks a claim from [`pack`](Self::pack).
    #[inline]
    pub(crate) fn unpack(&self, packed: Packed) -> Claim {
        packed.claim(self.unit)
    }

    /// Reads the word in the single total order of all `SeqCst` accesses.
    #[inline]
    pub(crate) fn look(&self) -> NodeWord {
        #[cfg(pagefold_loom)]
        fence(Ordering::SeqCst); // To loom, `SeqCst` accesses are `AcqRel`.
        NodeWord(self.word.load(Ordering::SeqCst))
    }

    /// Reads the word; the value may be outdated.
    #[inline]
    pub(crate) fn glance(&self) -> NodeWord {
        // Relaxed: a caller that relies on the value swaps the word, or reads it again.
        NodeWord(self.word.load(Ordering::Relaxed))
    }

    /// Replaces the word if it is still `from`. Returns whether it did.
    #[inline(always)]
    pub(crate) fn swap(&self, from: NodeWord, to: NodeWord) -> bool {
        let swapped = self.word.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        #[cfg(pagefold_loom)]
        fence(Ordering::SeqCst);
        swapped
    }

    #[inline]
    pub(crate) fn uses(&self) -> u32 {
        self.uses.load(Ordering::Relaxed) // Relaxed, as below: nothing depends on it.
    }

    #[inline]
    pub(crate) fn set_uses(&self, uses: u32) {
        self.uses.store(uses, Ordering::Relaxed);
    }

    /// Sets `flag`.
    pub(crate) fn set(&self, flag: u64) {
        self.word.fetch_or(flag, Ordering::SeqCst);
        #[cfg(pagefold_loom)]
        fence(Ordering::SeqCst);
    }

    /// Clears `flags`.
    pub(crate) fn clear(&self, flags: u64) {
        self.word.fetch_and(!flags, Ordering::SeqCst);
    }

    /// Makes the claim, unless it would have to wait.
    pub(crate) fn try_claim(&self, claim: Claim, packed: Packed) -> Option<Made> {
        loop {
            let word = self.glance();
            let to = if word.has(NodeWord::LISTED) {
                None
            } else if word.is_empty() && packed.fits() {
                Some(word.with(packed))
            } else if word.counts(packed) && !word.has(NodeWord::WAITED) {
                Some(word.plus_reader())
            } else if word.excludes(claim, self.unit) {
                return None;
            } else {
                None
            };
            match to {
                None => return self.claim_listed(&mut self.queue.lock(), claim, packed, u64::MAX),
                Some(to) if self.swap(word, to) => return Some(Made::Alone),
                Some(_) => {}
            }
        }
    }

    /// Makes the claim under the mutex. Fails if a holder excludes the claim, or if a waiter older
    /// than `ticket` excludes the claim and has been overtaken too often.
    fn claim_listed(&self, queue: &mut Queue, claim: Claim, packed: Packed, ticket: u64) -> Option<Made> {
        if queue.is_held_against(claim) || queue.is_owed_to_another(claim, ticket) {
            return None;
        }
        loop {
            let word = self.glance();
            if word.excludes(claim, self.unit) {
                return None;
            }
            let (to, listed) = if word.is_empty() && !word.has(NodeWord::LISTED) && packed.fits() {
                (word.with(packed), false)
            } else if word.counts(packed) {
                (word.plus_reader(), false)
            } else {
                (NodeWord(word.0 | NodeWord::LISTED), true)
            };
            // Swaps even if the word doesn't change: this `SeqCst` access orders the claim against
            // claims in other nodes (L1 in `levels`).
            if self.swap(word, to) {
                let alone = !listed || (word.is_empty() && !queue.has_holders());
                if listed {
                    // Transition: range, a claim is listed.
                    queue.hold(claim);
                }
                queue.overtake(claim, ticket);
                return Some(if alone { Made::Alone } else { Made::Beside });
            }
        }
    }

    /// Makes the claim, and waits for as long as `patience` allows. Returns `None` if `patience`
    /// runs out first.
    pub(crate) fn claim(&self, claim: Claim, packed: Packed, patience: &Patience) -> Option<Made> {
        self.try_claim(claim, packed).or_else(|| match patience {
            Patience::None => None,
            _ => self.spin(claim, packed).or_else(|| self.wait(claim, packed, patience)),
        })
    }

    /// Spins for a while until the claim can be made. Doesn't spin if other threads sleep already.
    #[cold]
    fn spin(&self, claim: Claim, packed: Packed) -> Option<Made> {
        if cfg!(pagefold_loom) {
            return None; // A model covers all interleavings without spinning.
        }
        let start = Instant::now();
        while !self.glance().has(NodeWord::WAITED) && start.elapsed() < SPIN {
            let word = self.glance();
            if !word.has(NodeWord::LISTED)
                && !word.excludes(claim, self.unit)
                && let Some(made) = self.try_claim(claim, packed)
            {
                return Some(made);
            }
            spin_hint();
        }
        None
    }

    #[cold]
    fn wait(&self, claim: Claim, packed: Packed, patience: &Patience) -> Option<Made> {
        let mut queue = self.queue.lock();
        // Transition: range, a claim waits.
        self.set(NodeWord::WAITED); // N3
        let seat = queue.sit(claim);
        loop {
            if seat.is_served() {
                return Some(Made::Alone);
            }
            if let Some(made) = self.claim_listed(&mut queue, claim, packed, seat.ticket()) {
                // Sometimes: a waiter finds its range free before it is served.
                queue.leave(&seat);
                self.settle(&queue);
                return Some(made);
            }
            if !seat.sleep(&mut queue, patience) {
                if seat.is_served() {
                    return Some(Made::Alone);
                }
                queue.leave(&seat);
                // Sometimes: a waiter for a range gives up.
                // A later waiter may have waited only for this waiter.
                self.serve(queue, claim);
                return None;
            }
        }
    }

    /// Waits until no holder in this node excludes `claim`, which the caller has made in another
    /// node. Returns false if `patience` has run out.
    pub(crate) fn wait_until_clear(&self, claim: Claim, patience: &Patience) -> bool {
        let word = self.look();
        if !word.has(NodeWord::LISTED) && !word.excludes(claim, self.unit) {
            return true;
        }
        if matches!(patience, Patience::None) {
            return !self.is_held_against(claim);
        }
        let mut queue = self.queue.lock();
        self.set(NodeWord::WAITED); // N3
        if !queue.is_held_against(claim) && !self.look().excludes(claim, self.unit) {
            self.settle(&queue);
            return true;
        }
        let seat = queue.watch(claim);
        while !seat.is_served() {
            if !seat.sleep(&mut queue, patience) && !seat.is_served() {
                queue.leave(&seat);
                self.settle(&queue);
                return false;
            }
        }
        true
    }

    /// Returns whether a holder in this node excludes `claim`.
    #[inline]
    pub(crate) fn is_held_against(&self, claim: Claim) -> bool {
        let word = self.look();
        word.excludes(claim, self.unit) || (word.has(NodeWord::LISTED) && self.is_listed_against(claim))
    }

    /// Returns whether, at one moment, all of `flags` were set and no holder in this node excluded
    /// `claim`.
    pub(crate) fn is_clear_with(&self, flags: u64, claim: Claim) -> bool {
        let is_clear = |word: NodeWord| word.0 & flags == flags && !word.excludes(claim, self.unit);
        let word = self.look();
        if !word.has(NodeWord::LISTED) {
            return is_clear(word);
        }
        let queue = self.queue.lock(); // The list can't change.
        !queue.is_held_against(claim) && is_clear(self.look())
    }

    #[cold]
    fn is_listed_against(&self, claim: Claim) -> bool {
        let queue = self.queue.lock();
        queue.is_held_against(claim) || self.look().excludes(claim, self.unit)
    }

    /// Releases a claim if it is alone in the word, with no flag set. Otherwise returns false.
    #[inline]
    pub(crate) fn release_alone(&self, packed: Packed) -> bool {
        let alone = NodeWord::FREE.with(packed);
        // Release: see `release`.
        self.word.compare_exchange(alone.0, NodeWord::FREE.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Releases a claim, and wakes the waiters that it blocked.
    pub(crate) fn release(&self, claim: Claim, packed: Packed) {
        loop {
            let word = self.glance();
            if !word.holds(packed) {
                break;
            }
            let left = word.minus(packed);
            if word.has(NodeWord::WAITED) && left.is_empty() {
                break;
            }
            // Release pairs with the Acquire of the next claim.
            if self.word.compare_exchange_weak(word.0, left.0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        self.release_queued(claim, packed);
    }

    #[cold]
    fn release_queued(&self, claim: Claim, packed: Packed) {
        let mut queue = self.queue.lock();
        // Transition: range, a claim leaves through the queue.
        self.replace(&mut queue, claim, packed, None);
        self.serve(queue, claim);
    }

    /// Removes a claim from the word or from the list, or replaces it by `instead`.
    fn replace(&self, queue: &mut Queue, claim: Claim, packed: Packed, instead: Option<(Claim, Packed)>) {
        loop {
            let word = self.glance();
            if !word.holds(packed) {
                return queue.replace(claim, instead.map(|(claim, _)| claim));
            }
            let left = word.minus(packed);
            let to = match instead {
                Some((_, packed)) => left.with(packed),
                None => left,
            };
            // `LISTED` keeps other threads from claiming the word before the waiters are served
            // (N2). Release: see `release`.
            let to = to.0 | NodeWord::LISTED;
            if self.word.compare_exchange(word.0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Turns a claim for writing into a claim for reading.
    pub(crate) fn downgrade(&self, claim: Claim, packed: Packed) {
        let reader = Claim { mode: Mode::Read, ..claim };
        let instead = (reader, self.pack(reader));
        loop {
            let word = self.glance();
            if word.has(NodeWord::WAITED) || !word.holds(packed) {
                break;
            }
            let to = word.minus(packed).with(instead.1);
            // Release pairs with the Acquire of readers.
            if self.word.compare_exchange_weak(word.0, to.0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        let mut queue = self.queue.lock();
        // Transition: range, a claim is downgraded through the queue.
        self.replace(&mut queue, claim, packed, Some(instead));
        self.serve(queue, claim);
    }

    /// Serves the waiters that no holder excludes, after `gone` has left (N4 to N6).
    fn serve(&self, mut queue: MutexGuard<'_, Queue>, gone: Claim) {
        self.set(NodeWord::LISTED); // N2
        queue.serve(self.glance().claim(self.unit), gone);
        self.settle(&queue);
    }

    /// Clears the flags that the queue's contents no longer require.
    fn settle(&self, queue: &Queue) {
        let stale = if queue.has_holders() { 0 } else { NodeWord::LISTED };
        let stale = stale | if queue.has_waiters() { 0 } else { NodeWord::WAITED };
        // Release: a claim that is swapped in next sees the writes of the listed holders.
        self.word.fetch_and(!stale, Ordering::Release);
    }
}
