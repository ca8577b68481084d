//! One io_uring: requests in, answers out.
//!
//! Requests wait in `line` until a *slot* is free, and are in it while the kernel has them. There are as many slots as the
//! completion queue has entries, so it can't overflow. The submission queue is short on purpose: each time it is full the
//! kernel is told, so that the device starts on the first few requests of a batch while the rest are prepared.
//!
//! | slot | who touches it | becomes |
//! |---|---|---|
//! | free | whoever submits, or the leader | in flight |
//! | in flight | the kernel has pointers into its memory, and reads its list of runs | free, when the leader has taken its answer |
//!
//! - U1. `state` is locked by whoever pushes entries or enters to submit. The submission queue is empty when the lock is
//!   released: the kernel has taken everything.
//! - U2. The completion queue is read by the leader alone ([`Reaping`]), under the lock as well, since it frees slots.
//! - U3. What a slot in flight holds isn't touched, moved out or dropped until its answer was taken: request, list of runs, open file.
//!   Nothing else ends a request. So a ring is dropped only when no slot is in flight.
//! - U4. `unfinished` counts requests from before they are in the line until after they were completed.
//!
//! The kernel posts an answer from within the thread that submitted, when that next leaves the kernel, or sleeps there; it
//! interrupts it for that if need be. If the thread is gone, the kernel does that elsewhere, and what it had no time to start (of
//! buffered reads and writes) comes back as cancelled, or as a bad address: then whoever reaps makes the attempt, by a call.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use arrayvec::ArrayVec;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::Mutex;
use sync::time::Duration;
use sync::{Arc, thread};

use crate::posix::PosixFile;
use crate::posix::route::Way;
use crate::reaper::Watch;
use crate::reaping::{Answers, Reaping};
use crate::{BackingFile as _, Direction, IoError, Request};

/// Entries of a ring's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Requests that the kernel is told of at once: powers of two.
    pub(crate) submissions: u32,
    /// Requests that it works on at most: a power of two.
    pub(crate) in_flight: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { submissions: 8, in_flight: 256 }
    }
}

/// Answers taken at once: few, so that who has more to submit can do so while the device works on the rest.
const ANSWERS_MAX: usize = 16;

/// How long a ring waits when the kernel has no memory for a request.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Ring {
    uring: IoUring,
    reaping: Reaping,
    state: Mutex<State>,
    unfinished: AtomicUsize,
    watch: Watch,
}

struct State {
    line: VecDeque<Submitted>,
    slots: Box<[Option<InFlight>]>,
    free: Vec<usize>,
}

/// A request, and the file that it is for.
pub(crate) struct Submitted {
    pub(crate) file: Arc<PosixFile>,
    pub(crate) request: Request,
}

/// What the kernel has.
struct InFlight {
    submitted: Submitted,
    way: Way,
    /// The runs of memory, if there are several.
    _runs: Box<[libc::iovec]>,
}

// SAFETY: the pointers in `_runs` are into the memory of the request, which may be sent to other threads. Only the kernel
// follows them.
#[allow(unsafe_code)]
unsafe impl Send for InFlight {}

impl Ring {
    /// # Errors
    /// The system's: `EPERM`, `ENOSYS`, `ENOMEM`, `EMFILE`; `EOPNOTSUPP` if the kernel is too old.
    pub(crate) fn new(sizes: Sizes, watch: impl FnOnce(&IoUring) -> Result<Watch, Errno>) -> Result<Self, IoError> {
        let mut builder = IoUring::builder();
        let uring = builder.dontfork().setup_cqsize(sizes.in_flight).build(sizes.submissions).map_err(error_of)?;
        if !uring.params().is_feature_nodrop() || !uring.params().is_feature_rw_cur_pos() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let watch = watch(&uring)?;
        let slots = uring.params().cq_entries() as usize;
        let state = State {
            line: VecDeque::new(),
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
        };
        let ring = Self {
            uring,
            reaping: Reaping::default(),
            state: Mutex::new(state),
            unfinished: AtomicUsize::new(0),
            watch,
        };
        Ok(ring)
    }

    /// Submits a request that does nothing, and takes its answer: seccomp may allow a ring and forbid its use. For a ring that
    /// nobody else has.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn probe(&mut self) -> Result<(), IoError> {
        let nop = opcode::Nop::new().build();
        // SAFETY: the entry has no pointers.
        #[allow(unsafe_code)]
        unsafe { self.uring.submission().push(&nop) }.map_err(|_| IoError::AGAIN)?;
        self.uring.submit_and_wait(1).map_err(error_of)?;
        self.uring.completion().next().map(|_| ()).ok_or(IoError::NoProgress)
    }

    /// Submits requests, and leaves the rest to the leader or the reaper.
    pub(crate) fn submit(&self, requests: impl ExactSizeIterator<Item = Submitted>) {
        // Relaxed: L3, through the lock of `reaping`.
        self.unfinished.fetch_add(requests.len(), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.line.extend(requests);
        self.start(&mut state);
        drop(state);
        self.reaping.attend(self);
    }

    /// See [`Reaping::help`].
    pub(crate) fn help(&self, done: &dyn Fn() -> bool) {
        self.reaping.help(self, done);
    }

    /// See [`Reaping::help_for_now`].
    pub(crate) fn help_for_now(&self, done: &dyn Fn() -> bool) {
        self.reaping.help_for_now(self, done);
    }

    /// See [`Reaping::visit`].
    pub(crate) fn visit(&self) {
        self.reaping.visit(self);
    }

    /// Gives the kernel as much of the line as there are slots for.
    fn start(&self, state: &mut State) {
        let mut pushed = 0;
        while let Some(&slot) = state.free.last() {
            let Some(submitted) = state.line.pop_front() else { break };
            let (in_flight, entry) = prepare(submitted);
            state.slots[slot] = Some(in_flight);
            state.free.pop();
            let entry = entry.user_data(slot as u64);
            // SAFETY: U1 makes this thread the only one at the submission queue. What the entry points to is the slot's until
            // its answer was taken (U3): memory that doesn't move, as `StableBytes` says, the list of runs on the heap, and a
            // descriptor of a file that stays open.
            #[allow(unsafe_code)]
            let push = |entry| unsafe { self.uring.submission_shared().push(entry) };
            if push(&entry).is_err() {
                self.enter();
                pushed = 0;
                let _ = push(&entry).inspect_err(|_| unreachable!("the kernel has taken everything"));
            }
            pushed += 1;
        }
        if pushed > 0 {
            self.enter();
        }
    }

    /// Has the kernel take all entries of the submission queue (U1). It may have no memory for a request just now; then this
    /// waits, as a read in this thread would.
    fn enter(&self) {
        let mut said = false;
        // SAFETY: U1.
        #[allow(unsafe_code)]
        while unsafe { !self.uring.submission_shared().is_empty() } {
            match self.uring.submit() {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::warn!(%error, "the kernel takes no requests; trying again");
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Takes answers out of the completion queue, and gives the kernel what was waiting for their slots.
    fn take_answers(&self) -> ArrayVec<(InFlight, i32), ANSWERS_MAX> {
        let mut answers = ArrayVec::new();
        let mut state = self.state.lock();
        // SAFETY: U2 makes this thread the only one at the completion queue.
        #[allow(unsafe_code)]
        let completions = unsafe { self.uring.completion_shared() };
        for completion in completions.take(ANSWERS_MAX) {
            let slot = completion.user_data() as usize;
            if let Some(in_flight) = state.slots[slot].take() {
                state.free.push(slot);
                answers.push((in_flight, completion.result()));
            }
        }
        self.start(&mut state);
        answers
    }
}

impl Answers for Ring {
    fn reap(&self, wait: bool) -> bool {
        let mut answers = self.take_answers();
        if answers.is_empty() && wait {
            // SAFETY: no argument is given, and none is needed with these flags; entries are submitted elsewhere (U1).
            // An error is an interruption, or the kernel's lack of memory: whoever waits looks, and comes again.
            #[allow(unsafe_code)]
            let _ = unsafe { self.uring.submitter().enter::<libc::sigset_t>(0, 1, GET_EVENTS, None) };
            answers = self.take_answers();
        }
        if answers.is_empty() {
            return false;
        }
        let (mut over, mut thrown) = (answers.len(), None);
        let mut rests = ArrayVec::<_, ANSWERS_MAX>::new();
        for (in_flight, result) in answers {
            match catch_unwind(AssertUnwindSafe(|| in_flight.complete(result))) {
                Ok(rest) => rests.extend(rest),
                Err(panic) => thrown = Some(panic),
            }
        }
        if !rests.is_empty() {
            over -= rests.len();
            let mut state = self.state.lock();
            rests.into_iter().for_each(|rest| state.line.push_front(rest));
            self.start(&mut state);
        }
        // Relaxed: the next leader gets it with the lead.
        self.unfinished.fetch_sub(over, Ordering::Relaxed);
        if let Some(panic) = thrown {
            resume_unwind(panic);
        }
        true
    }

    fn is_idle(&self) -> bool {
        // Relaxed: L1 and L3.
        self.unfinished.load(Ordering::Relaxed) == 0
    }

    fn watch(&self, watch: bool) {
        self.watch.set(&self.uring, watch);
    }

    fn watch_later(&self) {
        self.watch.set_later(&self.uring);
    }
}

impl Drop for Ring {
    /// Waits until all requests are over (U3), which they are unless something went wrong.
    fn drop(&mut self) {
        self.help(&|| false);
        self.watch.end(&self.uring);
    }
}

/// What the kernel answers if the thread that submitted has ended before the request was started, or when it was to be gone on with.
const SUBMITTER_GONE: i32 = -libc::ECANCELED;
const SUBMITTER_GONE_LATER: i32 = -libc::EFAULT;

/// `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1;

/// What the kernel is to be told of a request.
fn prepare(submitted: Submitted) -> (InFlight, io_uring::squeue::Entry) {
    let Submitted { file, request } = &submitted;
    let (slices, asked) = request.next();
    let route = file.route(request.direction(), &(request.offset()..request.offset() + asked as u64));
    let (fd, offset) = (types::Fd(route.fd.as_raw_fd()), request.offset());
    let runs = crate::system_calls::io_vecs(&slices, route.len());
    let write = request.direction() == Direction::Write;
    let (runs, entry) = match runs[..] {
        [libc::iovec { iov_base, iov_len }] => {
            // A run that is longer than the kernel can be told is read or written short.
            let len = u32::try_from(iov_len).unwrap_or(1 << 30);
            let entry = if write {
                opcode::Write::new(fd, iov_base.cast(), len).offset(offset).build()
            } else {
                opcode::Read::new(fd, iov_base.cast(), len).offset(offset).build()
            };
            (Box::default(), entry)
        }
        _ => {
            let runs: Box<[libc::iovec]> = runs.into_iter().collect();
            let (first, len) = (runs.as_ptr(), runs.len() as u32);
            let entry = if write {
                opcode::Writev::new(fd, first, len).offset(offset).build()
            } else {
                opcode::Readv::new(fd, first, len).offset(offset).build()
            };
            (runs, entry)
        }
    };
    let way = route.way;
    drop(slices);
    (InFlight { submitted, way, _runs: runs }, entry)
}

impl InFlight {
    /// Takes the answer. Gives back what is still to be done.
    fn complete(self, result: i32) -> Option<Submitted> {
        let Self { submitted: Submitted { file, request }, way, .. } = self;
        let answer = match result {
            0.. => file.answered(&way, Ok(result as usize)),
            SUBMITTER_GONE | SUBMITTER_GONE_LATER => Some(request.attempt(&*file)),
            _ => file.answered(&way, Err(IoError::Os(-result))),
        };
        let request = match answer {
            Some(answer) => request.complete(&|| file.len(), answer)?,
            None => request,
        };
        Some(Submitted { file, request })
    }
}

pub(crate) fn error_of(error: io::Error) -> IoError {
    error.raw_os_error().map_or(IoError::IO, IoError::Os)
}
