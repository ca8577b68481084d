//! The wait table. Threads and tasks wait in it until another thread's load of a page has ended,
//! with or without success. A thread sleeps; a task registers its waker.
//!
//! Waiters are few and short-lived, so one small table serves all pages. Each page word hashes to a
//! bucket, which consists of a lock and a list of waiters.
//!
//! - K1. A waiter holds the bucket's lock while it sets `WAITED` in the loading word and then
//!   enters the list. A loader that finds `WAITED` takes the same lock before it ends the load. So
//!   the load can't end between the waiter's two steps. If it could, the wake-up would be lost.
//! - K2. The loader changes the word and gives the outcome to the waiters in one critical section.
//!   So the outcome goes to the waiters of this load, and never to waiters of the previous or the
//!   next load of the page.
//! - K3. A waker is cloned, called and dropped only without the lock. Each of these operations may
//!   run arbitrary code, for example code that ends a task that waits in the same bucket. Such code
//!   takes the lock, so it would deadlock if this thread held the lock.

use std::task::{Poll, Waker};

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::tasks::wake_all;
use sync::time::{Duration, Instant};

use crate::page_word::PageWord;

/// The reason why a page couldn't be loaded: a number that only the policy interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadFailure(pub i32);

#[derive(Debug)]
struct Waiter {
    word: usize,
    outcome: Option<Result<(), LoadFailure>>,
    /// The waker of a task. A thread has none; it sleeps on the bucket.
    waker: Option<Waker>,
}

/// The waiters of one bucket, that is, for the pages whose words hash to this bucket. A waiter's
/// ticket is its index in `places`. After the waiter is removed, another waiter may get the ticket.
#[derive(Debug)]
struct Waiters {
    places: Vec<Option<Waiter>>,
    free: Vec<usize>,
}

/// The number of waiters that a bucket has room for from the start. A bucket allocates only if it
/// has more waiters at once, which is rare.
const FEW: usize = 4;

impl Waiters {
    fn new() -> Self {
        Self { places: Vec::with_capacity(FEW), free: Vec::with_capacity(FEW) }
    }

    /// Enters a waiter for the load of `word`, whose index is `index`. Returns `None` if the word
    /// isn't loading.
    fn enter(&mut self, index: usize, word: &AtomicU64, waker: &mut Option<Waker>) -> Option<usize> {
        loop {
            // Relaxed: if the caller goes on to use the page, it loads the word again with Acquire.
            let now = PageWord::from_bits(word.load(Ordering::Relaxed));
            if !now.is_loading() {
                return None;
            }
            let waited = now.with_waited();
            if now.is_waited()
                || word.compare_exchange(now.bits(), waited.bits(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                break;
            }
        }
        let waiter = Some(Waiter { word: index, outcome: None, waker: waker.take() });
        let ticket = self.free.pop().unwrap_or(self.places.len());
        match self.places.get_mut(ticket) {
            Some(place) => *place = waiter,
            None => self.places.push(waiter),
        }
        Some(ticket)
    }

    fn remove(&mut self, ticket: usize) -> Option<Waiter> {
        let waiter = self.places.get_mut(ticket)?.take()?;
        self.free.push(ticket);
        if self.free.len() == self.places.len() {
            self.places.clear();
            self.free.clear();
        }
        Some(waiter)
    }

    /// Removes the waiter and returns its outcome, if the load has ended. The waiter has no waker
    /// any more: the thread that set the outcome has taken the waker (K3).
    fn take_outcome(&mut self, ticket: usize) -> Option<Result<(), LoadFailure>> {
        let outcome = self.places.get(ticket)?.as_ref()?.outcome?;
        self.remove(ticket);
        Some(outcome)
    }
}

#[derive(Debug)]
struct Bucket {
    waiters: Mutex<Waiters>,
    woken: Condvar,
}

impl Bucket {
    fn new() -> Self {
        Self { waiters: Mutex::new(Waiters::new()), woken: Condvar::default() }
    }
}

/// All waiters.
#[derive(Debug)]
pub(crate) struct WaitTable {
    buckets: Box<[Bucket]>,
}

impl WaitTable {
    const BUCKETS: usize = if cfg!(pagefold_loom) { 1 } else { 64 };

    pub(crate) fn new() -> Self {
        Self { buckets: (0..Self::BUCKETS).map(|_| Bucket::new()).collect() }
    }

    fn bucket(&self, word: usize) -> &Bucket {
        &self.buckets[sync::random::mix(word as u64) as usize % self.buckets.len()]
    }

    /// Enters a waiter for the load of `word`, whose index is `index`. Returns `None` if the word
    /// isn't loading.
    pub(crate) fn enter(&self, index: usize, word: &AtomicU64, waker: Option<&Waker>) -> Option<Waiting<'_>> {
        let bucket = self.bucket(index);
        let mut waker = waker.cloned(); // K3
        let ticket = bucket.waiters.lock().enter(index, word, &mut waker)?;
        Some(Waiting { bucket, ticket: Some(ticket) })
    }

    /// Ends the load of `word`, whose index is `index`: changes the word to `to` and gives
    /// `outcome` to all waiters. Takes the bucket's lock only if there are waiters.
    pub(crate) fn end_load(&self, index: usize, word: &AtomicU64, to: PageWord, outcome: Result<(), LoadFailure>) {
        // Release pairs with the Acquire loads of `read` and `pin`, which therefore see the page's
        // bytes and the frame's record. Relaxed on failure: besides the loader, only waiters change
        // a loading word, so the failure means only that a waiter has set `WAITED`.
        let loading = PageWord::loading().bits();
        if word.compare_exchange(loading, to.bits(), Ordering::Release, Ordering::Relaxed).is_err() {
            self.end_waited(index, word, to, outcome);
        }
    }

    #[cold]
    fn end_waited(&self, index: usize, word: &AtomicU64, to: PageWord, outcome: Result<(), LoadFailure>) {
        let bucket = self.bucket(index);
        let mut waiters = bucket.waiters.lock();
        // Release as in `end_load`.
        word.swap(to.bits(), Ordering::Release);
        let mut tasks = Vec::new();
        let places = waiters.places.iter_mut().flatten();
        for waiter in places.filter(|waiter| waiter.word == index && waiter.outcome.is_none()) {
            waiter.outcome = Some(outcome);
            tasks.extend(waiter.waker.take());
        }
        bucket.woken.notify_all();
        drop(waiters);
        wake_all(tasks); // K3
    }
}

/// A waiter for a load. Dropping it ends the wait.
#[derive(Debug)]
pub struct Waiting<'a> {
    bucket: &'a Bucket,
    ticket: Option<usize>,
}

impl Waiting<'_> {
    /// Returns the outcome of the load if the load has ended.
    #[must_use]
    pub fn outcome(&mut self) -> Option<Result<(), LoadFailure>> {
        let outcome = self.bucket.waiters.lock().take_outcome(self.ticket?)?;
        self.ticket = None;
        Some(outcome)
    }

    /// Sleeps until the load has ended. `Ok` doesn't mean that the page is still in memory.
    ///
    /// # Errors
    /// The failure of that load.
    pub fn sleep(mut self) -> Result<(), LoadFailure> {
        let Some(ticket) = self.ticket.take() else { return Ok(()) };
        let mut waiters = self.bucket.waiters.lock();
        loop {
            if let Some(outcome) = waiters.take_outcome(ticket) {
                return outcome;
            }
            self.bucket.woken.wait(&mut waiters);
        }
    }

    /// Sleeps until the load has ended, for at most `time`. Returns `None` if the load hasn't ended
    /// within this time.
    pub fn sleep_for(&mut self, time: Duration) -> Option<Result<(), LoadFailure>> {
        let Some(ticket) = self.ticket else { return Some(Ok(())) };
        let start = Instant::now();
        let mut waiters = self.bucket.waiters.lock();
        loop {
            if let Some(outcome) = waiters.take_outcome(ticket) {
                self.ticket = None;
                return Some(outcome);
            }
            let rest = time.saturating_sub(start.elapsed());
            if rest.is_zero() {
                return None;
            }
            self.bucket.woken.wait_for(&mut waiters, rest);
        }
    }

    /// Returns the outcome of the load if the load has ended; otherwise registers `waker` instead
    /// of the previous one.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<(), LoadFailure>> {
        let Some(ticket) = self.ticket else { return Poll::Ready(Ok(())) };
        let mut waker = Some(waker.clone());
        let mut waiters = self.bucket.waiters.lock();
        if let Some(outcome) = waiters.take_outcome(ticket) {
            self.ticket = None;
            drop(waiters); // K3: unlocks before `waker` is dropped.
            return Poll::Ready(outcome);
        }
        if let Some(Some(waiter)) = waiters.places.get_mut(ticket) {
            std::mem::swap(&mut waiter.waker, &mut waker);
        }
        drop(waiters);
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut waiters = self.bucket.waiters.lock();
            let waiter = waiters.remove(ticket);
            drop(waiters); // K3: before the waiter.
            drop(waiter);
        }
    }
}

#[cfg(all(test, pagefold_loom))]
mod models {
    use super::*;
    use sync::Arc;
    use sync::atomic::spin_hint;

    const FAILED: LoadFailure = LoadFailure(5);

    type Load = Arc<(WaitTable, AtomicU64)>;

    /// Creates a word that is loading and a thread that waits for it. Returns once this thread is
    /// in the list.
    fn waiter() -> (Load, sync::thread::JoinHandle<Result<(), LoadFailure>>) {
        let load = Arc::new((WaitTable::new(), AtomicU64::new(PageWord::loading().bits())));
        let theirs = Arc::clone(&load);
        let waiter =
            sync::thread::spawn("waiter", move || theirs.0.enter(0, &theirs.1, None).map_or(Ok(()), Waiting::sleep))
                .unwrap();
        while !PageWord::from_bits(load.1.load(Ordering::Relaxed)).is_waited() {
            spin_hint();
        }
        (load, waiter)
    }

    #[test]
    fn a_waiter_gets_its_loads_failure() {
        sync::model(|| {
            let (load, waiter) = waiter();
            load.0.end_load(0, &load.1, PageWord::NEVER, Err(FAILED));
            assert_eq!(waiter.join().unwrap(), Err(FAILED));
        });
    }

    /// Regression: two loads of one page followed each other. The first load succeeded: it changed
    /// the word, and only later gave its outcome to its waiters. In between, the second load began
    /// and failed. So the waiters of the first load got the second load's error. Now the loader
    /// changes the word and gives the outcome in one critical section (K2).
    #[test]
    fn a_waiter_gets_nobody_elses_outcome() {
        sync::model(|| {
            let (load, waiter) = waiter();
            let over = PageWord::vacant(1); // Stands for any word that isn't loading.
            let theirs = Arc::clone(&load);
            let next_loader = sync::thread::spawn("next", move || {
                let (waits, word) = &*theirs;
                // This load has a waiter, too.
                let loading = PageWord::loading().with_waited().bits();
                if word.compare_exchange(over.bits(), loading, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    waits.end_load(0, word, PageWord::NEVER, Err(FAILED));
                }
            })
            .unwrap();
            load.0.end_load(0, &load.1, over, Ok(()));
            assert_eq!(waiter.join().unwrap(), Ok(()), "it waited for the first load");
            next_loader.join().unwrap();
        });
    }
}
