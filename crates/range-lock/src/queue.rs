//! What doesn't fit into a node's word: claims beside the one there, and who waits for what. All under the node's mutex.

use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::{Condvar, MutexGuard};
use sync::time::{Duration, Instant};

use crate::claim::{Claim, Mode};
use crate::node::BYPASS_MAX;
use crate::range::LockRange;

/// How long somebody is willing to wait.
#[derive(Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// As long as it takes.
    Endless,
    /// So long from then on.
    Until(Instant, Duration),
}

impl Patience {
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Self::Endless)
    }
}

/// Where a waiter sleeps.
#[derive(Debug)]
pub(crate) struct Seat {
    ticket: u64,
    bell: Condvar,
    /// It has what it waited for.
    served: AtomicBool,
}

impl Seat {
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    pub(crate) fn is_served(&self) -> bool {
        // Relaxed: under the mutex.
        self.served.load(Ordering::Relaxed)
    }

    /// Sleeps until woken. False, without sleep, once `patience` is over.
    pub(crate) fn sleep(&self, queue: &mut MutexGuard<'_, Queue>, patience: &Patience) -> bool {
        queue.asleep(self.ticket);
        match patience {
            Patience::None => return false,
            Patience::Endless => self.bell.wait(queue),
            Patience::Until(start, time) => {
                let left = time.saturating_sub(start.elapsed());
                if left.is_zero() {
                    return false;
                }
                self.bell.wait_for(queue, left);
            }
        }
        true
    }
}

#[derive(Debug)]
struct Waiter {
    seat: Arc<Seat>,
    claim: Claim,
    /// Wants to know that nobody excludes its claim, which it made elsewhere.
    only_watches: bool,
    /// Told that it could go on, and not asleep again since.
    woken: bool,
    /// How often it was passed over.
    bypassed: u32,
}

impl Waiter {
    fn is_owed(&self) -> bool {
        !self.only_watches && self.bypassed >= BYPASS_MAX
    }
}

/// Holders that aren't in the word, and waiters in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    holders: Vec<Claim>,
    waiters: Vec<Waiter>,
    tickets: u64,
}

impl Queue {
    pub(crate) fn has_holders(&self) -> bool {
        !self.holders.is_empty()
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    pub(crate) fn hold(&mut self, claim: Claim) {
        self.holders.push(claim);
    }

    /// Takes a listed claim out, or puts `instead` into its place.
    pub(crate) fn replace(&mut self, claim: Claim, instead: Option<Claim>) {
        let at = self.holders.iter().position(|&held| held == claim);
        debug_assert!(at.is_some(), "{claim:?} was never made, or given back twice");
        match (at, instead) {
            (Some(at), Some(instead)) => self.holders[at] = instead,
            (Some(at), None) => drop(self.holders.swap_remove(at)),
            (None, _) => {}
        }
    }

    /// Whether a listed claim excludes this one.
    pub(crate) fn is_held_against(&self, claim: Claim) -> bool {
        self.holders.iter().any(|held| held.excludes(claim))
    }

    /// Whether a waiter that came before `ticket` mustn't be overtaken by `claim`.
    pub(crate) fn is_owed_to_another(&self, claim: Claim, ticket: u64) -> bool {
        let elders = self.waiters.iter().take_while(|waiter| waiter.seat.ticket < ticket);
        elders.into_iter().any(|waiter| waiter.is_owed() && waiter.claim.excludes(claim))
    }

    /// Counts a claim that was made before those of waiters that came earlier.
    pub(crate) fn overtake(&mut self, claim: Claim, ticket: u64) {
        let elders = self.waiters.iter_mut().take_while(|waiter| waiter.seat.ticket < ticket);
        elders.filter(|waiter| waiter.claim.excludes(claim)).for_each(|waiter| waiter.bypassed += 1);
    }

    /// A place at the end, for who waits to make the claim.
    pub(crate) fn sit(&mut self, claim: Claim) -> Arc<Seat> {
        self.enter(claim, false)
    }

    /// A place for who waits until nobody excludes the claim.
    pub(crate) fn watch(&mut self, claim: Claim) -> Arc<Seat> {
        self.enter(claim, true)
    }

    fn enter(&mut self, claim: Claim, only_watches: bool) -> Arc<Seat> {
        self.tickets += 1;
        let seat = Arc::new(Seat { ticket: self.tickets, bell: Condvar::new(), served: AtomicBool::new(false) });
        let waiter = Waiter { seat: Arc::clone(&seat), claim, only_watches, woken: false, bypassed: 0 };
        self.waiters.push(waiter);
        seat
    }

    /// The waiter goes, with what it wanted or without.
    pub(crate) fn leave(&mut self, seat: &Seat) {
        self.waiters.retain(|waiter| waiter.seat.ticket != seat.ticket);
    }

    fn asleep(&mut self, ticket: u64) {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.seat.ticket == ticket);
        waiter.into_iter().for_each(|waiter| waiter.woken = false);
    }

    /// Wakes the waiters that neither a holder (`in_word` is one) nor an earlier waiter excludes; hands the claim to those
    /// that were overtaken too often. Nobody else makes a claim meanwhile.
    pub(crate) fn serve(&mut self, in_word: Option<Claim>) {
        let mut at = 0;
        while at < self.waiters.len() {
            let (before, rest) = self.waiters.split_at_mut(at);
            let waiter = &mut rest[0];
            let claim = waiter.claim;
            let held = in_word.iter().chain(&self.holders).any(|held| held.excludes(claim));
            let queued = || before.iter().any(|elder| !elder.only_watches && elder.claim.excludes(claim));
            if !held && (waiter.only_watches || !queued()) {
                if !waiter.woken {
                    waiter.seat.bell.notify_one();
                }
                waiter.woken = true;
                waiter.bypassed += 1;
                if waiter.only_watches || waiter.bypassed > BYPASS_MAX {
                    if !waiter.only_watches {
                        self.holders.push(claim);
                    }
                    let waiter = self.waiters.remove(at);
                    // Relaxed: under the mutex.
                    waiter.seat.served.store(true, Ordering::Relaxed);
                    continue;
                }
            }
            if !self.waiters[at].only_watches && claim == (Claim { range: LockRange::FULL, mode: Mode::Write }) {
                // All behind it wait for it; but for those that only watch, whoever they are.
                if !self.waiters[at + 1..].iter().any(|waiter| waiter.only_watches) {
                    return;
                }
            }
            at += 1;
        }
    }
}
