//! Waiting for a page without a thread: futures that run under any executor.
//!
//! A future launches the load of its page (`flight`), or finds that somebody else has, and is woken by whoever learns of its
//! end. A page that was loaded for a future comes with a pin, so that it can't be evicted before the future is polled
//! again. Dropped, a future loses its pin or its place among those who wait, and nothing else: a load in flight needs
//! nobody, and its page is in memory afterwards.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use frames::{Ahead, KeptPin, Loading, PageState, PinError, PinnedFrame, Waiting};
use sync::Arc;
use sync::lock::Mutex;
use sync::time::Instant;

use crate::error::Error;
use crate::file::PinnedPage;
use crate::file::handle::Handle;
use crate::io::IoError;
use crate::read::load::decode;

/// How long a future tries to get a frame, or a page that somebody writes to, while that may change: then it is an error.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often, and how long at least, it tries in vain while nothing is seen to change.
const PATIENCE_PINNED: Duration = Duration::from_millis(200);
const TRIES_PINNED_MAX: u32 = 64;
/// How often a page is loaded again because the file became shorter meanwhile, or somebody failed to load more than it.
const TRIES_MAX: u32 = 8;

/// The page, pinned, some time: see [`File::page_async`](crate::File::page_async).
#[must_use = "nothing is loaded before it is polled"]
pub struct PageFuture<'a> {
    handle: &'a Handle,
    page: u64,
    state: State<'a>,
    /// Loads of its own that came to nothing, and tries for a frame.
    tries: u32,
    tries_pinned: u32,
    /// Since when there has been no frame.
    short_since: Option<Instant>,
    /// Read-ahead knows of it.
    told: bool,
    /// It is a miss, and was counted.
    missed: bool,
}

enum State<'a> {
    Idle,
    /// Somebody else loads the page.
    Waiting(Waiting<'a>),
    /// The load is its own.
    Loading(Arc<Mutex<Mailbox>>),
}

/// What a load tells its future: `None` is that the page isn't there, and why is for the future to find out.
type Outcome = Result<Option<KeptPin>, IoError>;

/// Where it does.
#[derive(Debug, Default)]
struct Mailbox {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
    /// Nobody will read it.
    forgotten: bool,
}

impl Mailbox {
    /// Takes what there is; if there is nothing yet, `waker` is the one that will be called. Wakers are cloned and dropped
    /// without the lock: either may do anything.
    fn read(mailbox: &Mutex<Self>, waker: &Waker) -> Option<Outcome> {
        let mut fresh = None;
        loop {
            let mut inside = mailbox.lock();
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
}

/// The other end of it. Dropped, it tells that the page isn't there.
#[derive(Debug)]
pub(crate) struct Reply(Arc<Mutex<Mailbox>>);

impl Reply {
    pub(crate) fn tell(self, outcome: Outcome) {
        self.post(outcome);
    }

    fn post(&self, outcome: Outcome) {
        let mut mailbox = self.0.lock();
        if mailbox.outcome.is_none() && !mailbox.forgotten {
            mailbox.outcome = Some(outcome);
            let waker = mailbox.waker.take();
            drop(mailbox);
            // Without the lock, and after the load has let go of everything: a waker may do anything.
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.post(Ok(None));
    }
}

/// What a look at the page came to.
enum Look<'a> {
    Found(PinnedFrame<'a>),
    /// The state has changed: it says what to wait for.
    Wait,
    /// Nobody will wake the future: it has to come again by itself.
    Again,
}

impl<'a> PageFuture<'a> {
    pub(crate) fn new(handle: &'a Handle, page: u64) -> Self {
        let state = State::Idle;
        Self { handle, page, state, tries: 0, tries_pinned: 0, short_since: None, told: false, missed: false }
    }

    /// What its load or somebody else's came to; `None` if there is none, or it came to nothing.
    fn settle(&mut self, waker: &Waker) -> Poll<Result<Option<PinnedFrame<'a>>, Error>> {
        let file = &self.handle.file;
        let result = match &mut self.state {
            State::Idle => return Poll::Ready(Ok(None)),
            State::Waiting(waiting) => match waiting.poll(waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(failure)) if failure != Loading::ABANDONED => {
                    Err(file.read_failed(self.page, decode(failure)))
                }
                Poll::Ready(_) => Ok(None),
            },
            State::Loading(mailbox) => match Mailbox::read(mailbox, waker) {
                None => return Poll::Pending,
                Some(Ok(pin)) => Ok(pin.and_then(|pin| pin.lend(&file.map))),
                Some(Err(error)) => Err(file.read_failed(self.page, error)),
            },
        };
        let was_own = matches!(self.state, State::Loading(_));
        self.state = State::Idle;
        if was_own && matches!(result, Ok(None)) {
            self.tries += 1;
            if self.tries > TRIES_MAX {
                return Poll::Ready(Err(file.read_failed(self.page, IoError::NoProgress)));
            }
            // Perhaps the file has become shorter.
            file.refresh_len(self.page << file.page_shift())?;
        }
        Poll::Ready(result)
    }

    /// Looks for the page, and launches its load if nobody else has.
    fn look(&mut self, waker: &Waker) -> Result<Look<'a>, Error> {
        let (handle, page) = (self.handle, self.page);
        let map = &handle.file.map;
        let mut ahead = Ahead::No;
        match map.pin_first(page, &mut ahead) {
            Ok(Some(pin)) => {
                if ahead == Ahead::Marked {
                    handle.mark_reached(page);
                }
                return Ok(Look::Found(pin));
            }
            Ok(None) => {}
            Err(PinError::TooMany) => return Err(handle.too_many_pins(page)),
            Err(PinError::Busy) => return self.come_again(|handle| handle.file.page_busy(page)),
        }
        if map.state(page) == PageState::Loading {
            if let Some(waiting) = map.begin_wait(page, Some(waker)) {
                self.state = State::Waiting(waiting);
                return Ok(Look::Wait);
            }
            return Ok(Look::Again);
        }
        if !std::mem::replace(&mut self.told, true) {
            handle.read_ahead_of(page..page + 1, page);
        }
        let (manager, group) = (&handle.file.manager, handle.group.state());
        let mut frames = Vec::new();
        manager.spare_frames(group, 1, &mut frames);
        let Some(frame) = frames.pop() else {
            // Charges in stock serve nobody now; and tries come as fast as the executor polls, so time has to pass as well.
            manager.drain_charges(Some(group.id));
            let patient = self.short_since.is_none_or(|since| since.elapsed() < PATIENCE_PINNED);
            let hopeless = !manager.may_find_room() && self.tries_pinned >= TRIES_PINNED_MAX && !patient;
            self.tries_pinned += 1;
            let error = |handle: &Handle| handle.file.manager.limit_reached(handle.group.state());
            return if hopeless { Err(error(handle)) } else { self.come_again(error) };
        };
        let mailbox = Arc::new(Mutex::new(Mailbox { waker: Some(waker.clone()), ..Mailbox::default() }));
        if handle.launch_for(page, frame, Reply(Arc::clone(&mailbox))) {
            (self.missed, self.short_since) = (true, None);
            self.state = State::Loading(mailbox);
            return Ok(Look::Wait);
        }
        // There by now, or it has no place in the page map: making one may take a while, but that happens once for many pages.
        if matches!(map.state(page), PageState::Vacant { .. }) {
            manager.make_room(group)?;
            return self.come_again(|handle| handle.file.manager.limit_reached(handle.group.state()));
        }
        Ok(Look::Again)
    }

    fn come_again(&mut self, error: impl FnOnce(&Handle) -> Error) -> Result<Look<'a>, Error> {
        let since = *self.short_since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE { Err(error(self.handle)) } else { Ok(Look::Again) }
    }

    fn page_of(&self, frame: PinnedFrame<'a>) -> Result<PinnedPage<'a>, Error> {
        let handle = self.handle;
        let start = self.page << handle.file.page_shift();
        let len = handle.clip(start, 1 << handle.file.page_shift());
        if len == 0 { Err(handle.past_end(start, 1)) } else { Ok(PinnedPage { frame, len }) }
    }
}

impl<'a> Future for PageFuture<'a> {
    type Output = Result<PinnedPage<'a>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (handle, waker) = (this.handle, context.waker());
        handle.file.manager.refuse_child()?;
        let start = this.page.checked_mul(handle.file.page_bytes());
        let start = start.ok_or_else(|| handle.past_end(u64::MAX, 1))?;
        loop {
            match this.settle(waker)? {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(frame)) => return Poll::Ready(this.page_of(frame)),
                Poll::Ready(None) => {}
            }
            if start >= handle.file.len() && start >= handle.refreshed_len(start)? {
                return Poll::Ready(Err(handle.past_end(start, 1)));
            }
            match this.look(waker)? {
                Look::Found(frame) => {
                    if !this.missed {
                        handle.hits.counter.add(1);
                    }
                    return Poll::Ready(this.page_of(frame));
                }
                Look::Wait => {}
                Look::Again => {
                    waker.wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }
}

impl Drop for PageFuture<'_> {
    fn drop(&mut self) {
        if let State::Loading(mailbox) = &self.state {
            let mut mailbox = mailbox.lock();
            mailbox.forgotten = true;
            let (pin, waker) = (mailbox.outcome.take(), mailbox.waker.take());
            drop(mailbox);
            drop((pin, waker)); // Without the lock.
        }
    }
}

impl fmt::Debug for PageFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageFuture")
            .field("path", &self.handle.file.path)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}
