//! Mailboxes: how the thread that completes a load reports the outcome to a future, together with a
//! pin on the page.
//!
//! A page that is loaded for a future is pinned, so that it stays in memory until the future is
//! polled again. The next poll may come late. So another thread that needs the page for itself, or
//! that needs memory, may take the pin out of the mailbox ([`Mailboxes::take_pin`],
//! [`Mailboxes::take_pins`]). The future then has to look its page up again.
//!
//! - MAIL-1. A load puts exactly one outcome into its mailbox. A thread that takes the pin out of
//!   the mailbox replaces the outcome with [`Outcome::PinTaken`]. Threads hold the mailbox's lock
//!   while they put the outcome, read it, or take the pin. They drop pins and wakers after they
//!   have released the lock.
//! - MAIL-2. A mailbox is added to the table before its load is submitted, while the page's word is
//!   in *loading*. It stays in the table until its future has read it or is dropped, or until a
//!   later load of the page replaces it. So each pin in a mailbox can be found through the table.
//!   If a pin arrives just after a thread has looked for it, the thread's next look finds the pin:
//!   threads look again as long as the page is pinned.

use std::collections::HashMap;
use std::task::Waker;

use frames::KeptPin;
use sync::Arc;
use sync::lock::Mutex;
use sync::tasks::wake_all;

use io::IoError;

/// A place where one thread leaves an outcome for a task.
pub(crate) struct Mailbox<T> {
    inside: Mutex<Inside<T>>,
}

struct Inside<T> {
    outcome: Option<T>,
    waker: Option<Waker>,
    /// The future is gone: an outcome would be read by no task.
    forgotten: bool,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox. `waker` is woken when the outcome arrives.
    pub(crate) fn new(waker: &Waker) -> Self {
        Self { inside: Mutex::new(Inside { outcome: None, waker: Some(waker.clone()), forgotten: false }) }
    }

    pub(crate) fn put(&self, outcome: T) {
        let mut inside = self.inside.lock();
        if !inside.forgotten {
            inside.outcome = Some(outcome);
            let waker = inside.waker.take();
            drop(inside);
            wake_all(waker); // MAIL-1
        }
    }

    /// Takes the outcome. If there is none yet, registers `waker` in place of the previous waker.
    pub(crate) fn read(&self, waker: &Waker) -> Option<T> {
        let mut fresh = None;
        loop {
            let mut inside = self.inside.lock();
            if inside.outcome.is_some() {
                return inside.outcome.take();
            }
            if inside.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                return None;
            }
            if fresh.is_some() {
                std::mem::swap(&mut inside.waker, &mut fresh);
                return None;
            }
            drop(inside);
            fresh = Some(waker.clone());
        }
    }

    /// Marks the mailbox as abandoned by its future, and drops the outcome and the waker.
    pub(crate) fn forget(&self) {
        let mut inside = self.inside.lock();
        inside.forgotten = true;
        let (outcome, waker) = (inside.outcome.take(), inside.waker.take());
        drop(inside);
        drop((outcome, waker)); // MAIL-1
    }
}

/// The outcome of a load.
#[derive(Debug)]
pub(crate) enum Outcome {
    Page(KeptPin),
    /// The page was loaded, and its pin was taken by another thread.
    PinTaken,
    /// The page isn't in memory. The future finds out why.
    Nothing,
    Failed(IoError),
}

/// The mailbox of a load.
pub(crate) struct LoadMailbox {
    mailbox: Mailbox<Outcome>,
    /// The page's file and number.
    page: Page,
    /// The group that the page is charged to.
    group: u32,
}

type Page = (u32, u64);

impl LoadMailbox {
    /// Creates the mailbox for the load of `page` of the file numbered `owner`, charged to `group`.
    pub(crate) fn new(owner: u32, page: u64, group: u32, waker: &Waker) -> Arc<Self> {
        Arc::new(Self { mailbox: Mailbox::new(waker), page: (owner, page), group })
    }

    pub(crate) fn read(&self, waker: &Waker) -> Option<Outcome> {
        self.mailbox.read(waker)
    }

    /// Takes the pin out of the mailbox, if there is one.
    fn take_pin(&self) -> Option<KeptPin> {
        let mut inside = self.mailbox.inside.lock();
        match inside.outcome.take() {
            Some(Outcome::Page(pin)) => {
                inside.outcome = Some(Outcome::PinTaken);
                Some(pin)
            }
            other => {
                inside.outcome = other;
                None
            }
        }
    }
}

/// The loader's end of a mailbox. If it is dropped without an outcome, it reports
/// [`Outcome::Nothing`].
pub(crate) struct Reply(Option<Arc<LoadMailbox>>);

impl Reply {
    pub(crate) fn to(mailbox: &Arc<LoadMailbox>) -> Self {
        Self(Some(Arc::clone(mailbox)))
    }

    pub(crate) fn tell(mut self, outcome: Outcome) {
        if let Some(load) = self.0.take() {
            load.mailbox.put(outcome);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(load) = self.0.take() {
            load.mailbox.put(Outcome::Nothing);
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

const SHARES: usize = 16;

/// The mailboxes of loads that futures wait for.
pub(crate) struct Mailboxes {
    shares: [Mutex<HashMap<Page, Arc<LoadMailbox>>>; SHARES],
}

impl Default for Mailboxes {
    fn default() -> Self {
        Self { shares: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Mailboxes {
    fn share(&self, page: Page) -> &Mutex<HashMap<Page, Arc<LoadMailbox>>> {
        &self.shares[sync::random::mix(u64::from(page.0) << 40 ^ page.1) as usize % SHARES]
    }

    /// Adds a mailbox. It may replace the mailbox of an earlier load of the page. That earlier
    /// mailbox can't hold a pin, because the caller has the page's word in *loading*.
    pub(crate) fn add(&self, load: &Arc<LoadMailbox>) {
        let earlier = self.share(load.page).lock().insert(load.page, Arc::clone(load));
        drop(earlier);
    }

    /// Removes a mailbox whose future has read it or is dropped.
    pub(crate) fn remove(&self, load: &Arc<LoadMailbox>) {
        let mut share = self.share(load.page).lock();
        if share.get(&load.page).is_some_and(|it| Arc::ptr_eq(it, load)) {
            let it = share.remove(&load.page);
            drop(share);
            drop(it);
        }
        load.mailbox.forget();
    }

    /// Takes the pin of a page out of its mailbox, for a thread that needs the page for itself.
    /// Returns whether there was a pin.
    pub(crate) fn take_pin(&self, owner: u32, page: u64) -> bool {
        let load = self.share((owner, page)).lock().get(&(owner, page)).cloned();
        load.and_then(|load| load.take_pin()).is_some()
    }

    /// Takes all pins out of the mailboxes, or those of pages charged to `group`, because the
    /// pages' memory is needed. Returns the number of pins.
    pub(crate) fn take_pins(&self, group: Option<u32>) -> usize {
        let is_of = |load: &&Arc<LoadMailbox>| group.is_none_or(|group| load.group == group);
        let mut pins = 0;
        for share in &self.shares {
            let loads: Vec<_> = share.lock().values().filter(is_of).cloned().collect();
            pins += loads.iter().filter_map(|load| load.take_pin()).count();
        }
        pins
    }
}
