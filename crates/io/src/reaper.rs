//! The reaper: a thread that completes requests that no other thread waits for.
//!
//! The reaper sleeps in `epoll_wait` on all rings at once. The thread that waits for a ring's
//! answers is the ring's *leader* ([`Reaping`](crate::reaping::Reaping)). A ring that has
//! unfinished requests but no leader is *armed*: its next answer wakes the reaper, and this event
//! disarms the ring. So answers to a ring with a leader don't wake the reaper, and idle rings cost
//! nothing. A leader that leaves only for a moment sets a timer instead of arming the ring.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::OnceCell;

use io_uring::IoUring;

use crate::retry::retry_interrupted;

/// The reaper's state, which it shares with the rings.
#[derive(Debug)]
pub(crate) struct Reaper {
    epoll: OwnedFd,
    /// Becomes readable when the thread must stop waiting.
    end: OwnedFd,
    /// The thread must end.
    ended: AtomicBool,
    /// The kernel refuses to report answers.
    failed: AtomicBool,
}

/// The event number that ends the wait.
const END: u64 = u64::MAX;

/// Events taken by one `epoll_wait`.
const EVENTS_MAX: usize = 64;

impl Reaper {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &end, EventData::new_u64(END), EventFlags::IN)?;
        Ok(Self { epoll, end, ended: AtomicBool::new(false), failed: AtomicBool::new(false) })
    }

    /// Registers a ring under a number, disarmed.
    pub(crate) fn watch(self: &Arc<Self>, uring: &IoUring, number: usize) -> Result<Watch, Errno> {
        let number = number as u64;
        epoll::add(&self.epoll, fd_of(uring), EventData::new_u64(number), EventFlags::ONESHOT)?;
        Ok(Watch { reaper: Arc::clone(self), number, timer: OnceCell::new(), by_timer: AtomicBool::new(false) })
    }

    /// Creates a timer that makes the reaper visit a ring. Each expiry is an edge-triggered event,
    /// so the timer is never read.
    fn timer(&self, number: u64) -> Result<OwnedFd, Errno> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&self.epoll, &timer, EventData::new_u64(number), EventFlags::IN | EventFlags::ET)?;
        Ok(timer)
    }

    /// Waits for events, and calls `visit` with the number of each ring that has answers, or whose
    /// timer has expired. Returns when [`end`](Self::end) was called.
    ///
    /// # Errors
    /// The system's, if it refuses to report answers: a seccomp filter may be installed after the
    /// start.
    pub(crate) fn run(&self, visit: impl Fn(usize)) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            retry_interrupted(|| epoll::wait(&self.epoll, spare_capacity(&mut events), None))?;
            for event in &events {
                let number = event.data.u64();
                if number == END {
                    // Acquire: pairs with the Release in `fail`. `failed` or `ended` is set before
                    // the event.
                    return if self.failed.load(Ordering::Acquire) { Err(Errno::PERM) } else { Ok(()) };
                }
                visit(number as usize);
            }
        }
    }

    /// Makes the thread end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }

    /// Returns whether [`end`](Self::end) was called.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Makes the thread poll the rings for answers instead of waiting for events.
    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

/// The registration of one ring with the reaper.
#[derive(Debug)]
pub(crate) struct Watch {
    reaper: Arc<Reaper>,
    number: u64,
    /// Makes the reaper visit the ring after a delay. Created when it is first needed.
    timer: OnceCell<OwnedFd>,
    /// Only the timer was set; the ring's own event isn't armed.
    by_timer: AtomicBool,
}

/// How long a leader that leaves for now may stay away before the reaper visits the ring.
const WHILE_NS: i64 = 1_000_000;

impl Watch {
    /// Arms the ring for one event, or disarms it. If the ring has an answer already, arming
    /// triggers the event at once.
    pub(crate) fn set(&self, uring: &IoUring, watch: bool) {
        // Relaxed: the lock of `Reaping` serializes these calls. If only the timer was set, the
        // ring isn't armed, so it needn't be disarmed. The timer may then cause a needless visit.
        if self.by_timer.swap(false, Ordering::Relaxed) && !watch {
            return;
        }
        let flags = if watch { EventFlags::IN | EventFlags::ONESHOT } else { EventFlags::ONESHOT };
        // This call allocates no memory, and both descriptors are open, so only a seccomp filter
        // can make it fail.
        let number = EventData::new_u64(self.number);
        if epoll::modify(&self.reaper.epoll, fd_of(uring), number, flags).is_err() {
            self.reaper.fail();
        }
    }

    /// Makes the reaper visit the ring once, after a delay. If the timer can't be created or set,
    /// arms the ring instead, so that the ring's next answer wakes the reaper.
    pub(crate) fn set_later(&self, uring: &IoUring) {
        let after = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: 0, tv_nsec: WHILE_NS },
        };
        let timer = self.timer.get_or_try_init(|| self.reaper.timer(self.number));
        match timer.and_then(|timer| timerfd_settime(timer, TimerfdTimerFlags::empty(), &after)) {
            Ok(_) => self.by_timer.store(true, Ordering::Relaxed),
            Err(_) => self.set(uring, true),
        }
    }

    /// Unregisters the ring.
    pub(crate) fn end(&self, uring: &IoUring) {
        let _ = epoll::delete(&self.reaper.epoll, fd_of(uring));
    }
}

fn fd_of(uring: &IoUring) -> BorrowedFd<'_> {
    // SAFETY: the ring keeps its descriptor open, and is borrowed as long as the result.
    #[allow(unsafe_code)]
    unsafe {
        BorrowedFd::borrow_raw(uring.as_raw_fd())
    }
}
