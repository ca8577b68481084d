//! Waiting for a page without a thread: futures that run under any executor.
//!
//! A future launches the load of its page (`flight`), or finds that another one has, and is woken
//! by the thread that learns of its end. A page that was loaded for a future comes with a pin that
//! others may take ([`mailbox`](super::mailbox)), so a future that isn't polled keeps neither
//! writers from its page nor memory from readers. Dropped, a future loses its pin or its place
//! among those that wait, and nothing else: a load in flight needs no future, and its page is in
//! memory afterwards.
//!
//! A poll waits for nothing. What would is done by a worker: finding out how long the file is by
//! now, and making room for page maps. A future that can't get a frame, or meets a writer, comes
//! again after a pause (`timers`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use frames::{Ahead, Loading, PageState, PinError, PinnedFrame, Waiting};
use sync::Arc;
use sync::time::Instant;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::length::Attempt;
use crate::file::pinned_page::PinnedPage;
use crate::file::state::FileState;
use crate::manager::mailbox::{LoadMailbox, Mailbox, Outcome};
use crate::read::load_error::decode;
use crate::timers::Timer;
use io::IoError;

/// How long a future tries to get a frame, or a page that another thread writes to, while that may
/// change: then it is an error.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often, and how long at least, it tries in vain while nothing is seen to change.
const PATIENCE_PINNED: Duration = Duration::from_millis(200);
const TRIES_PINNED_MAX: u32 = 8;
/// Pauses between tries: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);
/// How often a page is loaded again because the file became shorter meanwhile, or another thread
/// failed to load more than it.
const TRIES_MAX: u32 = 8;
/// How often a page that had arrived is loaded again, because its memory was needed before the
/// future was polled.
const LOST_MAX: u32 = 64;

/// The page, pinned, some time: see [`File::page_async`](crate::File::page_async).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open("data")?;
/// // Any executor will do.
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let first = runtime.block_on(async {
///     let page = file.page_async(2).await?;
///     Ok::<_, pagefold::Error>(page[0])
/// })?;
/// assert_eq!(first, (2 * 4096 % 251) as u8);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is loaded before it is polled"]
pub struct PageFuture<'a> {
    handle: &'a Handle,
    page: u64,
    state: State<'a>,
    /// When a pause is over, or the device's time.
    timer: Option<Timer>,
    /// Loads of its own that came to nothing, pages that it lost, and tries for a frame.
    tries: u32,
    lost: u32,
    tries_pinned: u32,
    /// Since when there has been no frame, or a writer.
    short_since: Option<Instant>,
    /// The file's length was asked for; it may be another one than is known.
    asked: bool,
    in_doubt: bool,
    /// Read-ahead knows of it.
    told: bool,
    /// It is a miss, and was counted.
    missed: bool,
}

enum State<'a> {
    Idle,
    /// It comes again when the timer is over.
    Pausing,
    /// Another thread, or task, loads the page.
    Waiting(Waiting<'a>),
    /// The load is its own.
    Loading(Arc<LoadMailbox>),
    /// A worker does something for it.
    Elsewhere(Arc<Mailbox<Result<Done, Error>>>),
}

/// What a worker did.
enum Done {
    /// The file's length is known.
    Len,
    /// It isn't: this page is in use.
    Busy(u64),
    /// There is room for page maps.
    Room,
}

/// What the future waited for has come to.
enum Came<'a> {
    Nothing,
    Page(PinnedFrame<'a>),
    Done(Done),
}

/// What a look at the page came to.
enum Look<'a> {
    Found(PinnedFrame<'a>),
    /// The state has changed: it says what to wait for.
    Wait,
}

impl<'a> PageFuture<'a> {
    pub(crate) fn new(handle: &'a Handle, page: u64) -> Self {
        Self {
            handle,
            page,
            state: State::Idle,
            timer: None,
            tries: 0,
            lost: 0,
            tries_pinned: 0,
            short_since: None,
            asked: false,
            in_doubt: false,
            told: false,
            missed: false,
        }
    }

    /// What the future waits for has come to this; `None` if it hasn't yet.
    fn arrival(&mut self, waker: &Waker) -> Option<Result<Came<'a>, Error>> {
        let file = &self.handle.file;
        match &mut self.state {
            State::Idle => Some(Ok(Came::Nothing)),
            State::Pausing => {
                let is_over = self.timer.as_ref().is_none_or(|timer| timer.is_over(waker));
                is_over.then_some(Ok(Came::Nothing))
            }
            State::Waiting(waiting) => match waiting.poll(waker) {
                Poll::Pending => None,
                Poll::Ready(Err(failure)) if failure != Loading::ABANDONED => {
                    Some(Err(file.read_failed(self.page, decode(failure))))
                }
                Poll::Ready(_) => Some(Ok(Came::Nothing)),
            },
            State::Loading(load) => {
                let outcome = load.read(waker)?;
                file.manager.mailboxes.remove(load);
                Some(self.loaded(outcome))
            }
            State::Elsewhere(mailbox) => mailbox.read(waker).map(|result| result.map(Came::Done)),
        }
    }

    /// Its own load is over.
    fn loaded(&mut self, outcome: Outcome) -> Result<Came<'a>, Error> {
        let file = &self.handle.file;
        let is_hopeless = match outcome {
            Outcome::Failed(error) => return Err(file.read_failed(self.page, error)),
            Outcome::Page(pin) => return Ok(pin.lend(&file.map).map_or(Came::Nothing, Came::Page)),
            Outcome::Nothing => {
                // Perhaps the file has become shorter.
                (self.tries, self.asked, self.in_doubt) = (self.tries + 1, false, true);
                (self.tries > TRIES_MAX).then(|| file.read_failed(self.page, IoError::NoProgress))
            }
            Outcome::PinTaken => {
                self.lost += 1;
                (self.lost > LOST_MAX).then(|| file.manager.limit_reached(self.handle.group.state()))
            }
        };
        is_hopeless.map_or(Ok(Came::Nothing), Err)
    }

    /// [`arrival`](Self::arrival), as long as the device may take for it.
    fn settle(&mut self, waker: &Waker) -> Poll<Result<Came<'a>, Error>> {
        let mut came = self.arrival(waker);
        let file = &self.handle.file;
        if came.is_none()
            && !matches!(self.state, State::Pausing)
            && let Some(watch) = file.watch()
        {
            let is_over = match &self.timer {
                Some(timer) => timer.is_over(waker),
                None => {
                    self.timer = Some(file.manager.timers.after(watch.time(), waker));
                    false
                }
            };
            if is_over || watch.is_silent() {
                came = Some(watch.give_up(file, || self.arrival(waker)).flatten());
            }
        }
        let Some(came) = came else { return Poll::Pending };
        self.leave_state();
        Poll::Ready(came)
    }

    /// Waits for nothing any more.
    fn leave_state(&mut self) {
        self.timer = None;
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Loading(load) => self.handle.file.manager.mailboxes.remove(&load),
            State::Elsewhere(mailbox) => mailbox.forget(),
            State::Idle | State::Pausing | State::Waiting(_) => {}
        }
    }

    /// Looks for the page, and launches its load if no other thread has.
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
            Err(PinError::Busy) => return self.come_again(waker, |handle| handle.file.page_busy(page)),
        }
        if map.state(page) == PageState::Loading {
            if let Some(waiting) = map.begin_wait(page, Some(waker)) {
                self.wait_in(State::Waiting(waiting));
            }
            return Ok(Look::Wait); // Or looks again at once.
        }
        if handle.expected(page) > 0 {
            handle.file.check_device()?;
        }
        if !std::mem::replace(&mut self.told, true) {
            handle.read_ahead_of(page..page + 1, page);
        }
        let (manager, group) = (&handle.file.manager, handle.group.state());
        let mut frames = Vec::new();
        manager.spare_frames(group, 1, &mut frames);
        let Some(frame) = frames.pop() else { return self.come_again_for_frame(waker) };
        let load = LoadMailbox::new(handle.file.owner, page, group.id, waker);
        if handle.launch_for(page, frame, &load)? {
            self.missed = true;
            self.wait_in(State::Loading(load));
            return Ok(Look::Wait);
        }
        // There by now, or it has no place in the page map: making one may take a while, but that
        // happens once for many pages.
        if matches!(map.state(page), PageState::Vacant { .. }) {
            self.tries_pinned += 1;
            if self.tries_pinned > LOST_MAX {
                return Err(manager.limit_reached(group));
            }
            let group = Arc::clone(group);
            self.elsewhere(waker, move |file| file.manager.make_room(&group).map(|()| Done::Room))?;
        }
        Ok(Look::Wait)
    }

    /// It waits for something that takes as long as it takes: what it was short of before is no
    /// matter any more.
    fn wait_in(&mut self, state: State<'a>) {
        (self.state, self.timer, self.short_since) = (state, None, None);
    }

    /// Has a worker do something that may wait.
    fn elsewhere(
        &mut self,
        waker: &Waker,
        what: impl FnOnce(&FileState) -> Result<Done, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let mailbox = Arc::new(Mailbox::new(waker));
        let (file, its) = (Arc::clone(&self.handle.file), Arc::clone(&mailbox));
        let identity = file.backing.identity();
        self.handle.file.manager.workers()?.run(identity, move || {
            let (result, answers) = (what(&file), file.answers());
            drop(file);
            its.put(result);
            answers.heard();
        });
        self.wait_in(State::Elsewhere(mailbox));
        Ok(())
    }

    fn come_again_for_frame(&mut self, waker: &Waker) -> Result<Look<'a>, Error> {
        let (manager, group) = (&self.handle.file.manager, self.handle.group.state());
        // Charges in stock are of no use now.
        manager.drain_charges(Some(group.id));
        self.tries_pinned += 1;
        let patient = self.short_since.is_none_or(|since| since.elapsed() < PATIENCE_PINNED);
        if !patient && self.tries_pinned >= TRIES_PINNED_MAX {
            let whose = (group.charged() >= group.max()).then_some(group.id);
            if manager.mailboxes.take_pins(whose) == 0 && !manager.may_find_room(group) {
                return Err(manager.limit_reached(group));
            }
        }
        self.come_again(waker, |handle| handle.file.manager.limit_reached(handle.group.state()))
    }

    fn come_again(&mut self, waker: &Waker, error: impl FnOnce(&Handle) -> Error) -> Result<Look<'a>, Error> {
        let waited = self.short_since.get_or_insert_with(Instant::now).elapsed();
        if waited > PATIENCE {
            return Err(error(self.handle));
        }
        // Half as long as it has waited so far.
        let pause = (waited / 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.timer = Some(self.handle.file.manager.timers.after(pause, waker));
        self.state = State::Pausing;
        Ok(Look::Wait)
    }

    /// Whether the file has the page, which starts at `start`, as far as is known. If it hasn't,
    /// finds out.
    fn reach(&mut self, start: u64, waker: &Waker) -> Result<bool, Error> {
        let file = &self.handle.file;
        let is_there = || start < file.len();
        if !std::mem::replace(&mut self.in_doubt, false) && is_there() {
            return Ok(true);
        }
        if std::mem::replace(&mut self.asked, true) || file.is_len_sure()? {
            return if is_there() { Ok(true) } else { Err(self.handle.past_end(start, 1)) };
        }
        self.elsewhere(waker, move |file| {
            Ok(match file.refresh_len_once()? {
                Attempt::Done(_) => Done::Len,
                Attempt::Busy(page) => Done::Busy(page),
            })
        })?;
        Ok(false)
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
                Poll::Ready(Came::Page(frame)) => return Poll::Ready(this.page_of(frame)),
                Poll::Ready(Came::Done(Done::Busy(page))) => {
                    this.asked = false;
                    this.come_again(waker, |handle| handle.file.page_busy(page))?;
                    continue;
                }
                Poll::Ready(Came::Done(Done::Len | Done::Room) | Came::Nothing) => {}
            }
            if !this.reach(start, waker)? {
                continue;
            }
            if let Look::Found(frame) = this.look(waker)? {
                if !this.missed {
                    handle.hits.counter.add(1);
                }
                return Poll::Ready(this.page_of(frame));
            }
        }
    }
}

impl Drop for PageFuture<'_> {
    fn drop(&mut self) {
        // The parent's threads may have had the locks of what it waits for at the fork.
        if self.handle.file.manager.frames.forked() {
            std::mem::forget((std::mem::replace(&mut self.state, State::Idle), self.timer.take()));
            return;
        }
        self.leave_state();
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
