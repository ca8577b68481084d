//! Futures that wait for a page without blocking a thread, under any executor.
//!
//! A future launches the load of its page (`flight`), or finds that another thread is loading it.
//! The thread that completes the load wakes the future.
//!
//! A page that was loaded for a future is pinned for it, but other threads may take that pin away
//! ([`mailbox`](crate::manager::mailbox)). So a future that isn't polled blocks neither writers of
//! its page nor readers that need memory.
//!
//! Dropping a future gives up only its pin, or its place among the waiting threads and futures. A
//! load in flight needs no future: it brings its page into memory in any case.
//!
//! A poll waits for no page and for no file. Three kinds of work may take long, and are left to a
//! worker thread: refreshing the file's length; making room for page maps; and, before the future
//! fails because it gets no frame, a last reclaim that may look at all pages. If a future can't get
//! a frame, or a writer holds the page, the future retries after a pause (`timers`).
//!
//! The device's time limit (`watchdog`) applies to waits for loads, and for the file's length. A
//! wait for memory says nothing about the device, and has time limits of its own.
//!
//! A poll may wait for a device in one case: if the poll needs a frame, it may reclaim pages
//! itself. If a swap area is on a device, the poll may write a batch of pages there, and wait for
//! that device.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use frames::{Ahead, Loading, PageState, PinError, PinnedFrame, Waiting};
use sync::Arc;
use sync::lock::OnceCell;
use sync::time::Instant;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::length::Attempt;
use crate::file::page_ref::PageRef;
use crate::file::state::FileState;
use crate::file::watch::Watch;
use crate::group::state::GroupState;
use crate::manager::mailbox::{LoadMailbox, Mailbox, Outcome};
use crate::manager::reclaim::room::RoomsMade;
use crate::read::load_error::decode;
use crate::timers::{Measured, Timer};
use io::{Identity, IoError, unless_it_panics};

/// How long a future retries, at most, to get a frame or a page that another thread writes to.
/// After that it fails.
const PATIENCE: Duration = Duration::from_secs(4);
/// A future that can't get a frame retries for at least `PATIENCE_PINNED`, and at least
/// `TRIES_PINNED_MAX` times. After that it fails as soon as no page is likely to be freed for it,
/// even before `PATIENCE` has passed.
const PATIENCE_PINNED: Duration = Duration::from_millis(200);
const TRIES_PINNED_MAX: u32 = 8;
/// The first and the longest pause between tries.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);
/// The most times that a future loads its page again because the file has become shorter.
const TRIES_MAX: u32 = 8;
/// The most times that a future loads its page again because the page's memory was needed before
/// the future was polled.
const LOST_MAX: u32 = 64;

/// A future of a pinned page: see [`File::page_at_async`](crate::File::page_at_async).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open("data")?;
/// // Any executor will do.
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let first = runtime.block_on(async {
///     let page = file.page_at_async(8192).await?;
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
    /// If set, the future is a reader's, and the page must have this byte of the file.
    byte: Option<u64>,
    state: State<'a>,
    /// Wakes the future at the end of a pause, or of the device's time limit.
    timer: Option<Timer>,
    /// Counts of the future's attempts. `tries`: loads that brought no page. `lost`: loads after
    /// which the page's pin was taken away. `tries_pinned`: tries to get a frame, since the future
    /// last got one. `rooms_made`: tries to make room for the page's word.
    tries: u32,
    lost: u32,
    tries_pinned: u32,
    rooms_made: RoomsMade,
    /// The future has tried its last resort (`reclaim_in_earnest`) since it last got a frame.
    in_earnest: bool,
    /// Since when the future has lacked a frame, or has waited for a writer that holds the page.
    short_since: Option<Instant>,
    /// `asked`: the file's length was refreshed, and needn't be refreshed again. `in_doubt`: the
    /// known length may be too large, because a load brought no page.
    asked: bool,
    in_doubt: bool,
    /// The access was reported to readahead.
    told: bool,
    /// The access is a miss, and was counted as such.
    missed: bool,
}

enum State<'a> {
    Idle,
    /// The future retries when the timer expires.
    Pausing,
    /// Another thread, or task, loads the page.
    Waiting(Waiting<'a>),
    /// The future waits for a load that it launched itself.
    Loading(Arc<LoadMailbox>),
    /// The future waits for a worker.
    Elsewhere(Arc<Work>),
}

/// Work that a worker does for a future.
struct Work {
    mailbox: Mailbox<Result<Done, Error>>,
    /// Whether the work may wait for the file's device. If it can't, it waits for memory.
    asks_device: bool,
    /// When a worker began the work, in milliseconds.
    begun_ms: OnceCell<u64>,
}

/// Whether a worker has begun the work that a future waits for, and when, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// The future waits for no worker.
    NoWork,
    InLine,
    At(u64),
}

/// Returns the identity under which workers make room and reclaim for a group. The device number is
/// used for nothing else, so this work doesn't queue behind the work for a device that doesn't
/// answer. Each group has a queue of its own, so no group waits for all the work of another.
fn memory_for(group: &GroupState) -> Identity {
    Identity { device: u64::MAX - 1, inode: group.id.into() }
}

/// What a future found.
pub(crate) enum Found<'a> {
    Page(PageRef<'a>),
    /// The bytes of the page as the file has them, read without keeping the page. The page can't
    /// come into memory, because Pagefold can't adopt the file's new length now.
    Apart(Vec<u8>),
}

/// What a worker did.
enum Done {
    /// The file's length is known.
    Len,
    /// The file's length can't be refreshed, so these bytes were read without keeping them.
    Apart(Vec<u8>),
    /// The file's length can't be refreshed: this page is in use.
    Busy(u64),
    /// There is room for page maps.
    Room,
}

/// The result of a wait.
enum Came<'a> {
    Nothing,
    Page(PinnedFrame<'a>),
    Done(Done),
}

/// The result of a look at the page.
enum Look<'a> {
    Found(PinnedFrame<'a>),
    /// The page isn't available. The new state tells what to wait for.
    Wait,
    /// The page isn't available. The future has begun a pause, whose end wakes the task.
    Pause,
}

impl<'a> PageFuture<'a> {
    pub(crate) fn new(handle: &'a Handle, page: u64) -> Self {
        Self {
            handle,
            page,
            byte: None,
            state: State::Idle,
            timer: None,
            tries: 0,
            lost: 0,
            tries_pinned: 0,
            rooms_made: RoomsMade::default(),
            in_earnest: false,
            short_since: None,
            asked: false,
            in_doubt: false,
            told: false,
            missed: false,
        }
    }

    /// Creates a reader's future of the page that contains byte `at`. If the byte lies past the
    /// known end of the file, the future asks for the file's length, even if the page begins before
    /// the known end.
    pub(crate) fn of_byte(handle: &'a Handle, at: u64) -> Self {
        let mut future = Self::new(handle, at >> handle.file.page_shift());
        future.byte = Some(at);
        future
    }

    /// Returns the result of the wait. If the wait isn't over, registers `waker` and returns
    /// `None`.
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
                file.manager.file_io.mailboxes.remove(load);
                Some(self.loaded(outcome))
            }
            State::Elsewhere(work) => work.mailbox.read(waker).map(|result| result.map(Came::Done)),
        }
    }

    /// Handles the outcome of its own load.
    fn loaded(&mut self, outcome: Outcome) -> Result<Came<'a>, Error> {
        let file = &self.handle.file;
        let is_hopeless = match outcome {
            Outcome::Failed(error) => return Err(file.read_failed(self.page, error)),
            Outcome::Page(pin) => return Ok(pin.lend(&file.map).map_or(Came::Nothing, Came::Page)),
            Outcome::Nothing => {
                // The file may have become shorter.
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

    /// Polls the wait like [`arrival`](Self::arrival), but returns an error once the device's time
    /// limit has passed.
    fn settle(&mut self, waker: &Waker) -> Poll<Result<Came<'a>, Error>> {
        let mut came = self.arrival(waker);
        let file = &self.handle.file;
        if came.is_none()
            && self.waits_for_device()
            && let Some(watch) = file.watch()
        {
            // Read only once, because a worker may begin the work at any moment.
            let begun = self.begun();
            let measured = self.timer.as_ref().filter(|timer| timer.is_over(waker)).map(Timer::measured);
            let rest = match measured {
                None if self.timer.is_none() => Some(watch.time()),
                Some(Measured::StoppedFor(time)) => Some(time.min(watch.time())), // WATCH-4
                Some(Measured::Whole) => self.rest_of_work(watch, begun),
                _ => None,
            };
            if let Some(rest) = rest {
                self.timer = Some(file.manager.file_io.timers.after(rest, waker));
            }
            if measured == Some(Measured::Whole) && rest.is_none() || watch.is_silent() {
                came = Some(self.give_up(watch, waker, begun));
            }
        }
        let Some(came) = came else { return Poll::Pending };
        self.leave_state();
        Poll::Ready(came)
    }

    /// Returns whether the future waits for the device, and not for memory or for a writer.
    fn waits_for_device(&self) -> bool {
        match &self.state {
            State::Idle | State::Pausing => false,
            State::Waiting(_) | State::Loading(_) => true,
            State::Elsewhere(work) => work.asks_device,
        }
    }

    /// Returns whether a worker has begun the work that the future waits for.
    fn begun(&self) -> Begun {
        match &self.state {
            State::Elsewhere(work) => work.begun_ms.get().map_or(Begun::InLine, |&ms| Begun::At(ms)),
            _ => Begun::NoWork,
        }
    }

    /// Called when the future's timer has measured the device's whole time limit. Returns how much
    /// longer the future may wait nevertheless; `None` if it may wait no longer. If the future
    /// waits for a worker's work, the limit counts from the time at which a worker began the work.
    /// Until a worker begins the work, the limit counts from the last progress of the device's
    /// workers (WATCH-3 of `watchdog`).
    fn rest_of_work(&self, watch: &Watch<FileState>, begun: Begun) -> Option<Duration> {
        let last_ms = match begun {
            Begun::NoWork => return None,
            Begun::InLine => watch.device.workers.get(),
            Begun::At(ms) => ms,
        };
        let waited_ms = self.handle.file.manager.memory.now_ms().saturating_sub(last_ms);
        watch.time().checked_sub(Duration::from_millis(waited_ms)).filter(|rest| !rest.is_zero())
    }

    /// Gives up the wait, unless it is over. Marks the device as silent, unless the future waits
    /// for work that no worker has begun: such a wait says nothing about the device.
    fn give_up(&mut self, watch: &Watch<FileState>, waker: &Waker, begun: Begun) -> Result<Came<'a>, Error> {
        let file = &self.handle.file;
        if begun == Begun::InLine {
            self.arrival(waker).unwrap_or_else(|| Err(file.device_timeout()))
        } else {
            watch.give_up(file, || self.arrival(waker)).flatten()
        }
    }

    /// Ends any wait, and returns to the idle state.
    fn leave_state(&mut self) {
        self.timer = None;
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Loading(load) => self.handle.file.manager.file_io.mailboxes.remove(&load),
            State::Elsewhere(work) => work.mailbox.forget(),
            State::Idle | State::Pausing | State::Waiting(_) => {}
        }
    }

    /// Pins the page if it is in memory. Otherwise launches its load, unless another thread has.
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
            return Ok(Look::Wait); // If there is nothing to wait for, the next step looks again.
        }
        handle.file.check_device()?;
        if !std::mem::replace(&mut self.told, true) {
            handle.read_ahead_of(page..page + 1, page);
        }
        let (manager, group) = (&handle.file.manager, handle.group.state());
        let mut frames = Vec::new();
        manager.spare_frames(group, 1, &mut frames);
        let Some(frame) = frames.pop() else { return self.come_again_for_frame(waker) };
        (self.tries_pinned, self.in_earnest) = (0, false); // The future may lack a frame once more.
        let load = LoadMailbox::new(handle.file.owner, page, group.id, waker);
        if handle.launch_for(page, frame, &load)? {
            self.missed = true;
            self.wait_in(State::Loading(load));
            return Ok(Look::Wait);
        }
        // Here the page is in memory or is being loaded, the file was cut off before the page, or
        // the page map has no word for the page. If there is no word, a worker makes room for the
        // part of the map that holds the word. Making room may take a while, but it is seldom
        // needed, because one part holds the words of many pages.
        if handle.expected(page) > 0 && matches!(map.state(page), PageState::Vacant { .. }) {
            if !self.rooms_made.may_make() {
                return Err(manager.limit_reached(group));
            }
            let group = Arc::clone(group);
            self.elsewhere(waker, false, move |file| file.manager.make_room(&group).map(|()| Done::Room))?;
        }
        Ok(Look::Wait)
    }

    /// Enters a state in which the future waits without a time limit of its own. Clears
    /// `short_since`, because the future no longer lacks a frame or waits for a writer.
    fn wait_in(&mut self, state: State<'a>) {
        (self.state, self.timer, self.short_since) = (state, None, None);
    }

    /// Lets a worker do something that may block. `asks_device` tells whether this work may wait
    /// for the file's device. If the worker panics, the future fails.
    fn elsewhere(
        &mut self,
        waker: &Waker,
        asks_device: bool,
        what: impl FnOnce(&FileState) -> Result<Done, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let work = Arc::new(Work { mailbox: Mailbox::new(waker), asks_device, begun_ms: OnceCell::new() });
        let (file, its, page) = (Arc::clone(&self.handle.file), Arc::clone(&work), self.page);
        let does = move |file: Arc<FileState>| {
            let _ = its.begun_ms.set(file.manager.memory.now_ms()); // Set once.
            let result = unless_it_panics(|| what(&file)).unwrap_or_else(|| Err(file.read_failed(page, IoError::IO)));
            file.worker_progresses();
            let answers = file.answers();
            unless_it_panics(|| drop(file)); // If this is the last reference, the backend's file is dropped, too.
            its.mailbox.put(result);
            if asks_device {
                answers.heard();
            }
        };
        if asks_device {
            file.run_by_worker(does)?;
        } else {
            let identity = memory_for(self.handle.group.state());
            self.handle.file.manager.file_io.workers()?.run(identity, move || does(file));
        }
        // Keeps `short_since`, so that `PATIENCE` also limits the wait for a page that one worker
        // after another finds in use.
        (self.state, self.timer) = (State::Elsewhere(work), None);
        Ok(())
    }

    fn come_again_for_frame(&mut self, waker: &Waker) -> Result<Look<'a>, Error> {
        let (manager, group) = (&self.handle.file.manager, self.handle.group.state());
        // Uncharges what CPUs have in stock, so that this group can charge it.
        manager.memory.drain_charges(Some(group.id));
        self.tries_pinned += 1;
        let patient = self.short_since.is_none_or(|since| since.elapsed() < PATIENCE_PINNED);
        if !patient && self.tries_pinned >= TRIES_PINNED_MAX {
            let whose = (group.charged() >= group.max()).then_some(group.id);
            if manager.file_io.mailboxes.take_pins(whose) == 0 && !manager.may_find_room(group) {
                if std::mem::replace(&mut self.in_earnest, true) {
                    return Err(manager.limit_reached(group));
                }
                // The last resort, as in `Manager::take_frame`. It may look at all pages.
                let group = Arc::clone(group);
                self.elsewhere(waker, false, move |file| {
                    let _ = file.manager.memory.frames.gather();
                    file.manager.reclaim_in_earnest(&group, whose.is_some(), 1);
                    Ok(Done::Room)
                })?;
                return Ok(Look::Wait);
            }
        }
        self.come_again(waker, |handle| handle.file.manager.limit_reached(handle.group.state()))
    }

    fn come_again(&mut self, waker: &Waker, error: impl FnOnce(&Handle) -> Error) -> Result<Look<'a>, Error> {
        let waited = self.short_since.get_or_insert_with(Instant::now).elapsed();
        if waited > PATIENCE {
            return Err(error(self.handle));
        }
        // Pauses half as long as it has waited so far.
        let pause = (waited / 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.timer = Some(self.handle.file.manager.file_io.timers.after(pause, waker));
        self.state = State::Pausing;
        Ok(Look::Pause)
    }

    /// Returns whether the known length of the file includes the byte that the future needs. This
    /// is the byte that the reader wants, if the future is a reader's; otherwise it is byte
    /// `start`, where the page begins. If the length doesn't include that byte, a worker refreshes
    /// the length, once.
    fn reach(&mut self, start: u64, waker: &Waker) -> Result<bool, Error> {
        let file = &self.handle.file;
        let (first, is_readers) = (self.byte.unwrap_or(start), self.byte.is_some());
        let is_there = || first < file.len();
        if !std::mem::replace(&mut self.in_doubt, false) && is_there() {
            return Ok(true);
        }
        if std::mem::replace(&mut self.asked, true) || file.is_len_sure()? {
            return if is_there() { Ok(true) } else { Err(self.handle.past_end(first, 1)) };
        }
        file.check_device()?;
        self.elsewhere(waker, true, move |file| {
            Ok(match file.refresh_len_once()? {
                Attempt::Done(_) => Done::Len,
                Attempt::Busy(_) if is_readers => Done::Apart(file.read_apart(start)?),
                Attempt::Busy(page) => Done::Busy(page),
            })
        })?;
        Ok(false)
    }

    fn page_of(&self, frame: PinnedFrame<'a>) -> Result<Found<'a>, Error> {
        let handle = self.handle;
        let start = self.page << handle.file.page_shift();
        let len = handle.clip(start, 1 << handle.file.page_shift());
        if len == 0 { Err(handle.past_end(start, 1)) } else { Ok(Found::Page(PageRef::pinned(frame, len))) }
    }

    /// Polls the future.
    pub(crate) fn poll_found(&mut self, context: &mut Context<'_>) -> Poll<Result<Found<'a>, Error>> {
        let (handle, waker) = (self.handle, context.waker());
        handle.file.manager.memory.refuse_child()?;
        let start = self.page.checked_mul(handle.file.page_bytes());
        let start = start.ok_or_else(|| handle.past_end(u64::MAX, 1))?;
        loop {
            match self.settle(waker)? {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Came::Page(frame)) => return Poll::Ready(self.page_of(frame)),
                Poll::Ready(Came::Done(Done::Apart(bytes))) => return Poll::Ready(Ok(Found::Apart(bytes))),
                Poll::Ready(Came::Done(Done::Busy(page))) => {
                    self.asked = false;
                    self.come_again(waker, |handle| handle.file.page_busy(page))?;
                    return Poll::Pending; // As for `Look::Pause`.
                }
                Poll::Ready(Came::Done(Done::Len | Done::Room)) => self.short_since = None,
                Poll::Ready(Came::Nothing) => {}
            }
            if !self.reach(start, waker)? {
                continue;
            }
            match self.look(waker)? {
                Look::Found(frame) => {
                    if !self.missed {
                        handle.hits.counter.add(1);
                    }
                    return Poll::Ready(self.page_of(frame));
                }
                Look::Wait => {}
                // Returns without looking at the timer. If the timers' thread couldn't be started,
                // the pause is over at once, and the task has been woken. If this poll went on, it
                // would keep the executor's thread busy until the future fails.
                Look::Pause => return Poll::Pending,
            }
        }
    }
}

impl<'a> Future for PageFuture<'a> {
    type Output = Result<PageRef<'a>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.poll_found(context).map(|found| match found? {
            Found::Page(page) => Ok(page),
            Found::Apart(_) => Err(this.handle.file.page_busy(this.page)), // For readers only.
        })
    }
}

impl Drop for PageFuture<'_> {
    fn drop(&mut self) {
        // In a forked child, locks that other threads held at the fork stay locked forever.
        // Dropping the state may take such a lock, so the state isn't dropped.
        if self.handle.file.manager.memory.frames.forked() {
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

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests;
