//! A node's queue: the claims that don't fit into the node's word, and the waiters. The node's
//! mutex protects all of it.

use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::{Condvar, MutexGuard};
use sync::time::{Duration, Instant};

use crate::claim::{Claim, Mode};
#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
use crate::range::LockRange;

/// How often a waiter may be overtaken before a release hands it the lock. The waiter's count is
/// approximate: it may include releases of claims that were made before the waiter arrived. Models
/// use a small value, so that they reach the hand-over in a few steps.
pub const BYPASS_MAX: u32 = if cfg!(pagefold_loom) { 1 } else { 64 };

/// How long a thread may wait.
#[derive(Debug)]
pub(crate) enum Patience {
    /// No wait.
    None,
    /// No limit.
    Endless,
    /// For this time, counted from this instant.
    Until(Instant, Duration),
}

impl Patience {
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Self::Endless)
    }
}

/// The place where a waiter sleeps.
#[derive(Debug)]
pub(crate) struct Seat {
    ticket: u64,
    bell: Condvar,
    /// The waiter has been given what it waited for.
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

    /// Sleeps until woken. Returns false, without sleeping, once `patience` has run out.
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
    /// The waiter has made its claim in another node, and waits here until no claim excludes that
    /// claim.
    only_watches: bool,
    /// The waiter was woken, and hasn't gone back to sleep since.
    woken: bool,
    /// How often it was overtaken.
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
    /// The number of waiters with `only_watches`.
    watchers: usize,
    tickets: u64,
    /// The number of waiters that all calls of `serve` looked at.
    #[cfg(test)]
    looks: usize,
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

    /// Removes a listed claim, or replaces it by `instead`.
    pub(crate) fn replace(&mut self, claim: Claim, instead: Option<Claim>) {
        let at = self.holders.iter().position(|&held| held == claim);
        debug_assert!(at.is_some(), "{claim:?} was never made, or given back twice");
        match (at, instead) {
            (Some(at), Some(instead)) => self.holders[at] = instead,
            (Some(at), None) => drop(self.holders.swap_remove(at)),
            (None, _) => {}
        }
    }

    /// Returns whether a listed claim excludes `claim`.
    pub(crate) fn is_held_against(&self, claim: Claim) -> bool {
        self.holders.iter().any(|held| held.excludes(claim))
    }

    /// Returns whether `claim` would overtake a waiter older than `ticket` that has been overtaken
    /// [`BYPASS_MAX`] times.
    pub(crate) fn is_owed_to_another(&self, claim: Claim, ticket: u64) -> bool {
        let elders = self.waiters.iter().take_while(|waiter| waiter.seat.ticket < ticket);
        elders.into_iter().any(|waiter| waiter.is_owed() && waiter.claim.excludes(claim))
    }

    /// Records that `claim` has overtaken the waiters that are older than `ticket` and that `claim`
    /// excludes.
    pub(crate) fn overtake(&mut self, claim: Claim, ticket: u64) {
        let elders = self.waiters.iter_mut().take_while(|waiter| waiter.seat.ticket < ticket);
        elders.filter(|waiter| waiter.claim.excludes(claim)).for_each(|waiter| waiter.bypassed += 1);
    }

    /// Appends a waiter for a thread that waits to make the claim.
    pub(crate) fn sit(&mut self, claim: Claim) -> Arc<Seat> {
        self.enter(claim, false)
    }

    /// Appends a waiter for a thread that has made the claim, and waits until no other claim
    /// excludes it.
    pub(crate) fn watch(&mut self, claim: Claim) -> Arc<Seat> {
        self.enter(claim, true)
    }

    fn enter(&mut self, claim: Claim, only_watches: bool) -> Arc<Seat> {
        self.tickets += 1;
        let seat = Arc::new(Seat { ticket: self.tickets, bell: Condvar::new(), served: AtomicBool::new(false) });
        let waiter = Waiter { seat: Arc::clone(&seat), claim, only_watches, woken: false, bypassed: 0 };
        self.waiters.push(waiter);
        self.watchers += usize::from(only_watches);
        seat
    }

    /// Removes a waiter, whether or not it got what it waited for.
    pub(crate) fn leave(&mut self, seat: &Seat) {
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.seat.ticket == seat.ticket) {
            let waiter = self.waiters.remove(at);
            self.watchers -= usize::from(waiter.only_watches);
        }
    }

    fn asleep(&mut self, ticket: u64) {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.seat.ticket == ticket);
        waiter.into_iter().for_each(|waiter| waiter.woken = false);
    }

    /// Wakes the waiters that neither a holder nor an older waiter excludes. If such a waiter was
    /// overtaken too often, also makes it a holder. A watcher (`only_watches`) waits for holders,
    /// but not for older waiters; when it is woken, it leaves the queue. `in_word`, the claim in
    /// the node's word, counts as a holder. The caller prevents other threads from making a claim
    /// meanwhile (N2 of `node`).
    ///
    /// `gone` is the claim that just left: its holder released it, or its waiter gave up. Only
    /// waiters that `gone` excluded can proceed now (N6 of `node`), so the others are skipped. A
    /// waiting writer whose range covers all of `gone` excludes all later waiters that `gone`
    /// excluded. So behind such a writer the search looks only for watchers. If the queue has no
    /// watchers, the search ends at the writer.
    pub(crate) fn serve(&mut self, in_word: Option<Claim>, gone: Claim) {
        let (mut at, mut is_barred) = (0, false);
        while at < self.waiters.len() && !(is_barred && self.watchers == 0) {
            #[cfg(test)]
            self.count_look();
            let (before, rest) = self.waiters.split_at_mut(at);
            let waiter = &mut rest[0];
            let (claim, only_watches) = (waiter.claim, waiter.only_watches);
            if !claim.excludes(gone) || is_barred && !only_watches {
                at += 1;
                continue;
            }
            let covers = claim.range.start() <= gone.range.start() && gone.range.end() <= claim.range.end();
            is_barred |= !only_watches && claim.mode == Mode::Write && covers;
            let held = in_word.iter().chain(&self.holders).any(|held| held.excludes(claim));
            let queued = || before.iter().any(|elder| !elder.only_watches && elder.claim.excludes(claim));
            if !held && (only_watches || !queued()) {
                if !waiter.woken {
                    waiter.seat.bell.notify_one();
                }
                waiter.woken = true;
                waiter.bypassed += 1;
                if only_watches || waiter.bypassed > BYPASS_MAX {
                    if only_watches {
                        self.watchers -= 1;
                    } else {
                        self.holders.push(claim);
                    }
                    let waiter = self.waiters.remove(at);
                    // Relaxed: under the mutex.
                    waiter.seat.served.store(true, Ordering::Relaxed);
                    continue;
                }
            }
            at += 1;
        }
    }

    #[cfg(test)]
    fn count_look(&mut self) {
        self.looks += 1;
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    fn claim(start: u64, len: u64, mode: Mode) -> Claim {
        Claim { range: LockRange::at(start, len).unwrap(), mode }
    }

    /// Regression: thousands of threads waited for one range, and each release looked at all of
    /// them. Now a release looks at no waiter after a waiting writer that covers the released
    /// range.
    #[test]
    fn a_release_looks_at_few_of_those_who_wait_for_the_same_range() {
        const WAITERS: usize = 1000;
        let (mut queue, mine) = (Queue::default(), claim(4096, 4096, Mode::Write));
        let seats: Vec<_> = (0..WAITERS).map(|_| queue.sit(mine)).collect();
        for seat in &seats {
            queue.serve(None, mine);
            queue.leave(seat); // It has made its claim.
        }
        assert!(queue.looks <= 2 * WAITERS, "{} looks for {WAITERS} releases", queue.looks);
        assert!(!queue.has_waiters());
    }

    #[test]
    fn those_whom_the_claim_that_left_was_in_the_way_of_are_woken() {
        let mut queue = Queue::default();
        let whole = claim(0, 1 << 20, Mode::Write);
        let held = claim(8192, 4096, Mode::Write);
        queue.hold(held);
        let watch = queue.watch(claim(0, 4096, Mode::Read));
        let [reader, writer, other, blocked] =
            [claim(0, 4096, Mode::Read), claim(0, 4096, Mode::Write), claim(1 << 30, 4096, Mode::Write), held]
                .map(|claim| queue.sit(claim));
        queue.serve(None, whole);
        let woken = |queue: &Queue, seat: &Seat| {
            queue.waiters.iter().any(|waiter| waiter.seat.ticket == seat.ticket && waiter.woken)
        };
        assert!(watch.is_served() && queue.watchers == 0);
        assert_eq!([&reader, &writer, &other, &blocked].map(|seat| woken(&queue, seat)), [true, false, false, false]);
        // The reader makes its claim and releases it; the writer is next.
        queue.leave(&reader);
        queue.serve(None, claim(0, 4096, Mode::Read));
        assert!(woken(&queue, &writer) && !woken(&queue, &other));
        // The writer is overtaken too often, so it is handed the lock.
        (0..=BYPASS_MAX).for_each(|_| queue.serve(None, claim(0, 8192, Mode::Write)));
        assert!(writer.is_served() && queue.is_held_against(claim(0, 1, Mode::Read)));
        queue.replace(held, None);
        queue.serve(None, held);
        assert!(woken(&queue, &blocked));
    }
}
