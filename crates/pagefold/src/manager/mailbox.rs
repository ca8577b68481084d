//! What a future is told by the thread that does something for it, and the pins that come with
//! that.
//!
//! A page that was loaded for a future comes with a pin, so that it isn't evicted before the future
//! is polled again. That may be at any time, so the pin is lent: a thread that needs the
//! page for itself, or memory that has to come from such pages, takes it out of the mailbox
//! ([`Mailboxes::take_pin`], [`Mailboxes::take_pins`]). The future then looks for its page anew.
//!
//! - MAIL-1. A mailbox has one outcome, once: of its load, or that the pin was taken. A thread
//!   that puts it there, reads it or takes the pin has the mailbox's lock; pins, and wakers, are
//!   dropped without it.
//! - MAIL-2. A mailbox is in the table from before its load is submitted, with the page's word in
//!   *loading*, until its future has read it or is dropped, or its pin was taken. So every pin in a
//!   mailbox is found in the table; one that is about to be put there is found by the next look,
//!   and those that look, look again while the page is pinned.

use std::collections::HashMap;
use std::task::Waker;

use frames::KeptPin;
use sync::Arc;
use sync::lock::Mutex;
use sync::tasks::wake_all;

use io::IoError;

/// Where one thread puts what a task is to be told.
pub(crate) struct Mailbox<T> {
    inside: Mutex<Inside<T>>,
}

struct Inside<T> {
    outcome: Option<T>,
    waker: Option<Waker>,
    /// No future will read it.
    forgotten: bool,
}

impl<T> Mailbox<T> {
    /// Empty; `waker` is the one to be called.
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

    /// Takes what there is. If there is nothing yet, `waker` is the one that will be called.
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

    /// No future will read it.
    pub(crate) fn forget(&self) {
        let mut inside = self.inside.lock();
        inside.forgotten = true;
        let (outcome, waker) = (inside.outcome.take(), inside.waker.take());
        drop(inside);
        drop((outcome, waker)); // MAIL-1
    }
}

/// What came of a load.
#[derive(Debug)]
pub(crate) enum Outcome {
    Page(KeptPin),
    /// The page was there, and its pin was taken.
    PinTaken,
    /// The page isn't there, and why is for the future to find out.
    Nothing,
    Failed(IoError),
}

/// The mailbox of a load.
pub(crate) struct LoadMailbox {
    mailbox: Mailbox<Outcome>,
    /// The page's file and number.
    page: Page,
    /// The group that it is charged to.
    group: u32,
}

type Page = (u32, u64);

impl LoadMailbox {
    /// For the load of a page of the file with the number `owner`, charged to `group`.
    pub(crate) fn new(owner: u32, page: u64, group: u32, waker: &Waker) -> Arc<Self> {
        Arc::new(Self { mailbox: Mailbox::new(waker), page: (owner, page), group })
    }

    pub(crate) fn read(&self, waker: &Waker) -> Option<Outcome> {
        self.mailbox.read(waker)
    }

    /// Takes the pin, if there is one.
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

/// The load's end of a mailbox. Dropped, it tells that the page isn't there.
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

    /// Adds a mailbox, for the caller that has the page's word in *loading*. So one that is in its
    /// place, for an earlier load, has no pin.
    pub(crate) fn add(&self, load: &Arc<LoadMailbox>) {
        let earlier = self.share(load.page).lock().insert(load.page, Arc::clone(load));
        drop(earlier);
    }

    /// The future has read it, or is dropped.
    pub(crate) fn remove(&self, load: &Arc<LoadMailbox>) {
        let mut share = self.share(load.page).lock();
        if share.get(&load.page).is_some_and(|it| Arc::ptr_eq(it, load)) {
            let it = share.remove(&load.page);
            drop(share);
            drop(it);
        }
        load.mailbox.forget();
    }

    /// Takes the pin of a page that waits in a mailbox, for a thread that needs the page for
    /// itself. Returns whether there was one.
    pub(crate) fn take_pin(&self, owner: u32, page: u64) -> bool {
        let load = self.share((owner, page)).lock().get(&(owner, page)).cloned();
        load.and_then(|load| load.take_pin()).is_some()
    }

    /// Takes the pins of all pages that wait in mailboxes, or of those charged to `group`: their
    /// memory is needed. Returns their number.
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
