//! Where threads sleep until a page that somebody else is loading is there, or couldn't be loaded.
//!
//! Waiters are few and short-lived, so one small table serves all pages: a page word hashes to a bucket, a lock with a
//! list of who waits for what.
//!
//! - W1. A waiter sets `WAITED` in the loading word and enters the list under the bucket's lock. A loading word that has
//!   `WAITED` ends under that lock as well: no waiter can be between the two.
//! - W2. Word and waiters are settled in one turn of the lock, so a load's outcome goes to those who waited for that
//!   very load, and never to the waiters of the one before or after.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};

use crate::page_word::PageWord;

/// Why a page couldn't be loaded, in a number whose meaning is the policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadFailure(pub i32);

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    word: usize,
    outcome: Option<Result<(), LoadFailure>>,
}

#[derive(Debug, Default)]
struct Bucket {
    waiters: Mutex<(u64, Vec<Waiter>)>,
    woken: Condvar,
}

/// All waiters.
#[derive(Debug)]
pub(crate) struct WaitTable {
    buckets: Box<[Bucket]>,
}

impl WaitTable {
    const BUCKETS: usize = if cfg!(pagefold_loom) { 1 } else { 64 };

    pub(crate) fn new() -> Self {
        Self { buckets: (0..Self::BUCKETS).map(|_| Bucket::default()).collect() }
    }

    fn bucket(&self, word: usize) -> &Bucket {
        &self.buckets[sync::random::mix(word as u64) as usize % self.buckets.len()]
    }

    /// Sleeps while `word`, the one with the number `index`, is loading. `Ok` says no more than that the load is over.
    pub(crate) fn wait(&self, index: usize, word: &AtomicU64) -> Result<(), LoadFailure> {
        let bucket = self.bucket(index);
        let mut waiters = bucket.waiters.lock();
        loop {
            // Relaxed: whoever goes on looks at the word again, with Acquire.
            let now = PageWord::from_bits(word.load(Ordering::Relaxed));
            if !now.is_loading() {
                return Ok(());
            }
            let waited = now.with_waited();
            if now.is_waited()
                || word.compare_exchange(now.bits(), waited.bits(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                break;
            }
        }
        waiters.0 += 1;
        let ticket = waiters.0;
        waiters.1.push(Waiter { ticket, word: index, outcome: None });
        loop {
            bucket.woken.wait(&mut waiters);
            let at = waiters.1.iter().position(|waiter| waiter.ticket == ticket);
            if let Some((at, outcome)) = at.and_then(|at| Some((at, waiters.1[at].outcome?))) {
                waiters.1.swap_remove(at);
                return outcome;
            }
        }
    }

    /// Ends the load of `word`, the one with the number `index`: changes it to `to`, and gives `outcome` to all who
    /// waited. The lock is for them; without waiters there is none to take.
    pub(crate) fn end_load(&self, index: usize, word: &AtomicU64, to: PageWord, outcome: Result<(), LoadFailure>) {
        // Release pairs with the Acquire loads of `read` and `pin`: the bytes and the record are visible. Relaxed on
        // failure: the loader alone may change a loading word, `WAITED` aside.
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
        for waiter in waiters.1.iter_mut().filter(|waiter| waiter.word == index && waiter.outcome.is_none()) {
            waiter.outcome = Some(outcome);
        }
        bucket.woken.notify_all();
    }
}

#[cfg(all(test, pagefold_loom))]
mod models {
    use super::*;
    use sync::Arc;
    use sync::atomic::spin_hint;

    const FAILED: LoadFailure = LoadFailure(5);

    type Load = Arc<(WaitTable, AtomicU64)>;

    /// A word that is loading, and a thread that waits for it; returns when that thread is in the list.
    fn waiter() -> (Load, sync::thread::JoinHandle<Result<(), LoadFailure>>) {
        let load = Arc::new((WaitTable::new(), AtomicU64::new(PageWord::loading().bits())));
        let theirs = Arc::clone(&load);
        let waiter = sync::thread::spawn("waiter", move || theirs.0.wait(0, &theirs.1)).unwrap();
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

    /// The story: a load ended well, and its word went on to the next load, which failed, before the waiters of the
    /// first were told. They got the error of a load that they hadn't waited for.
    #[test]
    fn a_waiter_gets_nobody_elses_outcome() {
        sync::model(|| {
            let (load, waiter) = waiter();
            let over = PageWord::vacant(1); // Stands for any word that isn't loading.
            let theirs = Arc::clone(&load);
            let next_loader = sync::thread::spawn("next", move || {
                let (waits, word) = &*theirs;
                // Somebody waits for this load too.
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
