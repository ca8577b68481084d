//! One io_uring: submits requests to the kernel and takes its answers.
//!
//! A request waits in the *lane* of its device until it gets a *slot*, and occupies the slot while
//! the kernel has the request. The completion queue has one entry for each slot, so it can't
//! overflow.
//!
//! A device may start another request only while it has fewer than 3 × (number of free slots) in
//! flight. So one device occupies at most about three quarters of the slots that the others leave
//! free. The last quarter stays free for other devices, even if this device never answers.
//!
//! The submission queue is deliberately short. Each time it is full, the submitter enters the
//! kernel. So the device starts on the first few requests of a batch while the submitter prepares
//! the rest.
//!
//! | slot | touched by | becomes |
//! |---|---|---|
//! | free | the submitter, under the lock | in flight |
//! | in flight | the kernel has pointers into its memory, and reads its list of runs | free, when the leader has taken its answer |
//!
//! - U1. One thread at a time is the *submitter*: it has set `submitting`, pushes entries, and
//!   enters the kernel to submit them. The submitter holds no lock while it is in the kernel.
//!   Another thread that has requests to submit waits for the submitter for a few yields at most,
//!   and then leaves its requests to the pool. While `submitting` is unset, the submission queue is
//!   empty, unless the ring is dead.
//! - U2. Only the leader ([`Reaping`]) reads the completion queue. It also holds the lock, because
//!   it frees slots.
//! - U3. While a slot is in flight, no thread accesses, moves or drops its contents: the request,
//!   the list of runs, and the open file. This ends when the leader has taken the kernel's answer,
//!   or when the submitter takes back a request that the kernel never saw (U6). So dropping a ring
//!   first waits until no slot is in flight.
//! - U4. `unfinished` counts a request from before it enters a lane until after it has completed,
//!   or was handed to the pool's threads.
//! - U5. The submitter unsets `submitting` under the lock, and only when no lane could use a slot.
//!   A thread that frees a slot does so under the lock, too. If a lane could then use the slot and
//!   there is no submitter, the thread that freed the slot becomes the submitter. The exception is
//!   the reaper, which never submits: it summons a thread of the pool to become the submitter. So
//!   no request is left waiting in a lane that could use a slot:
//!
//! ```text
//! submitter: lane full ── lock, no slot, unset ─┐
//! leader:                                       └─ lock, frees a slot, no submitter: becomes the submitter
//! ```
//!
//! - U6. The kernel may refuse to be entered, because of a seccomp filter or lack of memory. Then
//!   the ring is *dead*: no thread pushes or submits entries any more, so the kernel never reads
//!   the pushed entries that it hasn't taken. The submitter takes the requests of these entries out
//!   of their slots, and hands them to the pool's threads, together with all requests in lanes. The
//!   kernel still answers the requests that it has taken.
//! - U7. While a request is being handed to the pool's threads, it gets no answer from this ring,
//!   but it counts as unfinished here until it is in the pool's queue. So a leader that checked
//!   only for unfinished requests could sleep forever. A slot in flight doesn't guarantee an answer
//!   either: the submitter may have to take back all requests that it is just submitting (U6). The
//!   kernel certainly has a request only if more slots are in flight than requests are being
//!   submitted. Only then does a leader sleep without a time limit. Otherwise the leader checks
//!   again after a pause:
//!
//! ```text
//! reaper: ring dead, takes the lanes ──────────────────────────── with the threads, counts them off
//! leader:                            └─ last answer, not idle yet: no sleep without end
//! ```
//!
//! The reaper serves all rings, so it leaves all work that may delay it to the threads of the pool:
//! submitting requests, continuing a request after a short read or write, and dropping pages from
//! the kernel's cache. The reaper does query a file's length itself. This query can't delay it,
//! because only requests for *prompt* files go to rings.
//!
//! The kernel posts an answer in the context of the thread that submitted the request, when this
//! thread next leaves the kernel or sleeps in it. If necessary, the kernel interrupts the thread.
//! If the thread has ended, the kernel posts the answer from another context, such as a kernel
//! worker.
//!
//! A thread may end before the kernel has started one of the thread's buffered reads or writes.
//! Then the kernel answers that the request was cancelled, or that its address is bad. On such an
//! answer, a thread of the pool makes the attempt again, with a system call.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use arrayvec::ArrayVec;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use sync::atomic::{AtomicBool, AtomicUsize, Backoff, Ordering};
use sync::lock::{Mutex, MutexGuard};
use sync::time::Duration;
use sync::{Arc, Weak, thread};

use crate::lines::{self, Work};
use crate::posix::PosixFile;
use crate::posix::route::Way;
use crate::reaper::Watch;
use crate::reaping::{Answers, Reaping, Visit};
use crate::thread_pool::Pool;
use crate::{BackingFile as _, Direction, Helping, Identity, IoError, Request};

/// The sizes of a ring's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Entries of the submission queue: a power of two.
    pub(crate) submissions: u32,
    /// The most requests that the kernel works on at once: a power of two.
    pub(crate) in_flight: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { submissions: 8, in_flight: 256 }
    }
}

/// Answers taken at once. Few, so that a thread with more requests can submit them while the device
/// works on the rest.
const ANSWERS_MAX: usize = 16;
/// The most entries pushed before the kernel is entered.
const PUSHED_MAX: usize = 16;
/// A device may start a request while it has fewer than `SLOT_SHARE` × (number of free slots) in
/// flight.
const SLOT_SHARE: usize = 3;

/// How long a submitter waits when the kernel has no memory for a request, and how often before it
/// gives up the ring.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES_MAX: u32 = 1000;

/// The device number of the pool queue in which threads are summoned to submit. No file's device
/// has it.
const RINGS_DEVICE: u64 = u64::MAX;

/// Performs the requests that a ring can't: the pool's threads.
pub(crate) struct Others {
    pub(crate) pool: Pool,
    /// The kernel refuses to be entered: no requests go to rings any more.
    refused: AtomicBool,
}

impl Others {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, refused: AtomicBool::new(false) }
    }

    /// Returns whether the kernel has refused io_uring, so that rings can't be used.
    pub(crate) fn refused(&self) -> bool {
        // Relaxed: a thread that sees the change late finds its ring dead.
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self, refusal: &dyn std::fmt::Display) {
        if !self.refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(%refusal, "io_uring refused; requests are done by threads from now on");
        }
    }

    /// Hands the requests to the pool's threads.
    pub(crate) fn put(&self, submitted: impl IntoIterator<Item = Submitted>) {
        for Submitted { file, request } in submitted {
            let identity = file.identity();
            let work = Work::Request(lines::Submitted { file, request });
            self.pool.put(identity, std::iter::once(work));
        }
    }
}

/// Returns whether the refusal is transient. Other rings may have room now.
fn is_passing(refusal: &io::Error) -> bool {
    matches!(refusal.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

pub(crate) struct Ring {
    uring: IoUring,
    reaping: Reaping,
    state: Mutex<State>,
    unfinished: AtomicUsize,
    watch: Watch,
    others: Arc<Others>,
    me: Weak<Self>,
}

struct State {
    /// The devices that have requests in flight or waiting.
    lanes: Vec<Lane>,
    /// The lane to check first.
    turn: usize,
    slots: Box<[Option<InFlight>]>,
    free: Vec<usize>,
    /// There is a submitter.
    submitting: bool,
    /// The slots that the submitter is entering the kernel with.
    entering: usize,
    /// A thread of the pool is on its way to become the submitter.
    summoned: bool,
    dead: bool,
}

struct Lane {
    device: u64,
    in_flight: usize,
    line: VecDeque<Submitted>,
}

/// A request and its file.
pub(crate) struct Submitted {
    pub(crate) file: Arc<PosixFile>,
    pub(crate) request: Request,
}

/// A request that the kernel has.
struct InFlight {
    submitted: Submitted,
    way: Way,
    /// The runs of memory, if there is more than one.
    _runs: Box<[libc::iovec]>,
}

// SAFETY: the pointers in `_runs` are into the memory of the request, which may be sent to other
// threads. Only the kernel dereferences them.
#[allow(unsafe_code)]
unsafe impl Send for InFlight {}

impl State {
    fn lane(&mut self, device: u64) -> &mut Lane {
        let at = self.lanes.iter().position(|lane| lane.device == device).unwrap_or_else(|| {
            self.lanes.push(Lane { device, in_flight: 0, line: VecDeque::new() });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }

    /// Returns a lane with a waiting request that may use a slot.
    fn startable(&self) -> Option<usize> {
        let may_start = |lane: &Lane| !lane.line.is_empty() && lane.in_flight < SLOT_SHARE * self.free.len();
        let lanes = self.lanes.len();
        (0..lanes).map(|at| (self.turn + at) % lanes).find(|&at| may_start(&self.lanes[at]))
    }

    /// Returns the next request and a slot for it, which no longer counts as free.
    fn next(&mut self) -> Option<(usize, Submitted)> {
        let at = self.startable()?;
        let submitted = self.lanes[at].line.pop_front()?;
        let slot = self.free.pop()?;
        self.lanes[at].in_flight += 1;
        self.turn = at + 1;
        Some((slot, submitted))
    }

    /// Takes the request out of a slot, and frees the slot.
    fn take(&mut self, slot: usize) -> Option<InFlight> {
        let in_flight = self.slots[slot].take()?;
        self.free.push(slot);
        let device = in_flight.submitted.file.identity().device;
        if let Some(at) = self.lanes.iter().position(|lane| lane.device == device) {
            self.lanes[at].in_flight -= 1;
            if self.lanes[at].in_flight == 0 && self.lanes[at].line.is_empty() {
                self.lanes.swap_remove(at);
            }
        }
        Some(in_flight)
    }

    /// Returns whether the kernel certainly has a request that it will answer (U7).
    fn kernel_has_some(&self) -> bool {
        self.slots.len() - self.free.len() > self.entering
    }

    /// Marks the ring as dead: nothing is submitted any more. Returns the requests that were
    /// waiting in lanes.
    fn die(&mut self) -> Vec<Submitted> {
        self.dead = true;
        let waiting = self.lanes.iter_mut().flat_map(|lane| lane.line.drain(..)).collect();
        self.lanes.retain(|lane| lane.in_flight > 0);
        waiting
    }
}

impl Ring {
    pub(crate) fn descriptor(&self) -> RawFd {
        self.uring.as_raw_fd()
    }

    /// Creates a ring. `watch` registers it with the reaper.
    ///
    /// # Errors
    /// The system's: `EPERM`, `ENOSYS`, `ENOMEM`, `EMFILE`; `EOPNOTSUPP` if the kernel is too old.
    pub(crate) fn new(
        sizes: Sizes,
        others: &Arc<Others>,
        watch: impl FnOnce(&IoUring) -> Result<Watch, Errno>,
    ) -> Result<Arc<Self>, IoError> {
        let mut builder = IoUring::builder();
        let mut uring = builder.dontfork().setup_cqsize(sizes.in_flight).build(sizes.submissions).map_err(error_of)?;
        let params = uring.params();
        if !params.is_feature_nodrop() || !params.is_feature_rw_cur_pos() || !params.is_feature_ext_arg() {
            return Err(Errno::OPNOTSUPP.into());
        }
        probe(&mut uring)?;
        let watch = watch(&uring)?;
        let slots = uring.params().cq_entries() as usize;
        let state = State {
            lanes: Vec::new(),
            turn: 0,
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            submitting: false,
            entering: 0,
            summoned: false,
            dead: false,
        };
        Ok(Arc::new_cyclic(|me| Self {
            uring,
            reaping: Reaping::default(),
            state: Mutex::new(state),
            unfinished: AtomicUsize::new(0),
            watch,
            others: Arc::clone(others),
            me: Weak::clone(me),
        }))
    }

    /// Submits requests for a file. The leader or the reaper will complete them. Requests that
    /// can't be submitted here stay in `requests`.
    pub(crate) fn submit(&self, file: &Arc<PosixFile>, requests: &mut Vec<Request>) {
        let Some(mut state) = self.become_submitter() else { return };
        let device = file.identity().device;
        if state.free.is_empty() && state.lane(device).in_flight == 0 {
            return self.leave(state);
        }
        // Relaxed: L3, through the lock of `reaping`.
        self.unfinished.fetch_add(requests.len(), Ordering::Relaxed);
        let submitted = |request| Submitted { file: Arc::clone(file), request };
        state.lane(device).line.extend(requests.drain(..).map(submitted));
        drop(state);
        self.start();
        self.reaping.attend(self);
    }

    /// Makes the calling thread the submitter. Returns `None` if the ring is dead, or if another
    /// thread remains the submitter for too long.
    fn become_submitter(&self) -> Option<MutexGuard<'_, State>> {
        let mut backoff = Backoff::new();
        loop {
            let mut state = self.state.lock();
            if state.dead {
                return None;
            }
            if !state.submitting {
                state.submitting = true;
                return Some(state);
            }
            drop(state);
            if !backoff.wait_awake() {
                return None;
            }
        }
    }

    fn leave(&self, mut state: MutexGuard<'_, State>) {
        state.submitting = false;
        state.lanes.retain(|lane| lane.in_flight > 0 || !lane.line.is_empty());
    }

    /// See [`Reaping::help`].
    pub(crate) fn help(&self, how: Helping, done: &dyn Fn() -> bool) {
        self.reaping.help(self, how, done);
    }

    /// See [`Reaping::visit`].
    pub(crate) fn visit(&self) {
        self.reaping.visit(self);
    }

    /// Returns whether no request is unfinished here.
    pub(crate) fn is_idle(&self) -> bool {
        // Relaxed: L1 and L3.
        self.unfinished.load(Ordering::Relaxed) == 0
    }

    /// Stops using the ring: the pool's threads perform the requests that haven't been started.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        let waiting = state.die();
        drop(state);
        self.hand_over(waiting);
    }

    /// Submits requests from the lanes as long as there are slots for them, then leaves. Only for
    /// the submitter.
    fn start(&self) {
        loop {
            let mut pushed = ArrayVec::<usize, PUSHED_MAX>::new();
            let mut state = self.state.lock();
            state.entering = 0;
            let entries = self.uring.params().sq_entries() as usize;
            while pushed.len() < entries.min(PUSHED_MAX) && !state.dead {
                let Some((slot, submitted)) = state.next() else { break };
                let (in_flight, entry) = prepare(submitted);
                // Transition: ring slot, free → in flight.
                state.slots[slot] = Some(in_flight);
                let entry = entry.user_data(slot as u64);
                // SAFETY: U1 makes this thread the only one that uses the submission queue. The
                // slot keeps everything that the entry points to until the answer is taken (U3):
                // memory that doesn't move, as `StableBytes` guarantees; the list of runs, which is
                // on the heap; and the file, whose descriptor stays open.
                #[allow(unsafe_code)]
                let push = unsafe { self.uring.submission_shared().push(&entry) };
                let _ = push.inspect_err(|_| unreachable!("the kernel has taken everything"));
                pushed.push(slot);
            }
            if pushed.is_empty() {
                return self.leave(state);
            }
            state.entering = pushed.len();
            drop(state);
            if let Err((refusal, taken)) = self.enter(pushed.len()) {
                if is_passing(&refusal) {
                    tracing::warn!(%refusal, "the kernel had no room for requests for a second; threads do those of \
                                              one ring");
                } else {
                    // Sometimes: the kernel refuses io_uring after the start.
                    self.others.refuse(&refusal);
                }
                let mut state = self.state.lock();
                state.entering = 0;
                // U6: the entries that the kernel hasn't taken are the last ones pushed.
                let mut waiting: Vec<_> =
                    pushed[taken..].iter().filter_map(|&slot| Some(state.take(slot)?.submitted)).collect();
                waiting.extend(state.die());
                self.leave(state);
                return self.hand_over(waiting);
            }
        }
    }

    /// Makes the kernel take all entries of the submission queue (U1). If the kernel temporarily
    /// has no memory for a request, pauses and retries, up to `PAUSES_MAX` times.
    ///
    /// # Errors
    /// The kernel's error, and the number of the `pushed` entries that it has taken.
    fn enter(&self, pushed: usize) -> Result<(), (io::Error, usize)> {
        let mut pauses = 0;
        loop {
            // SAFETY: U1.
            #[allow(unsafe_code)]
            let left = unsafe { self.uring.submission_shared().len() };
            if left == 0 {
                return Ok(());
            }
            let Err(error) = self.uring.submit() else { continue };
            if error.raw_os_error() == Some(libc::EINTR) {
            } else if is_passing(&error) && pauses < PAUSES_MAX {
                pauses += 1;
                thread::sleep(PAUSE);
            } else {
                return Err((error, pushed.saturating_sub(left)));
            }
        }
    }

    /// Hands requests that this ring won't perform to the pool's threads.
    fn hand_over(&self, waiting: Vec<Submitted>) {
        let count = waiting.len();
        self.others.put(waiting);
        // Relaxed: as in `reap`. Decremented last, so that a helper finds each request here or in
        // the pool.
        self.unfinished.fetch_sub(count, Ordering::Relaxed);
    }

    /// Takes answers from the completion queue, and starts waiting requests in the slots that this
    /// frees.
    fn take_answers(&self, visit: Visit) -> ArrayVec<(InFlight, i32), ANSWERS_MAX> {
        let mut answers = ArrayVec::new();
        let mut state = self.state.lock();
        // SAFETY: U2 makes this thread the only one that uses the completion queue.
        #[allow(unsafe_code)]
        let completions = unsafe { self.uring.completion_shared() };
        for completion in completions.take(ANSWERS_MAX) {
            if let Some(in_flight) = state.take(completion.user_data() as usize) {
                // Transition: ring slot, in flight → free.
                answers.push((in_flight, completion.result()));
            }
        }
        if state.submitting || state.dead {
            // Sometimes: answers are taken while another thread submits.
            return answers; // U5
        }
        if state.startable().is_none() {
            return answers;
        }
        if visit != Visit::Reaper {
            state.submitting = true;
            drop(state);
            self.start();
        } else if !std::mem::replace(&mut state.summoned, true) {
            // Sometimes: the reaper has a thread submit.
            drop(state);
            if let Some(me) = self.me.upgrade() {
                let place = Identity { device: RINGS_DEVICE, inode: Arc::as_ptr(&me).addr() as u64 };
                self.others.pool.put(place, std::iter::once(Work::Call(Box::new(move || me.summoned()))));
            }
        }
        answers
    }

    /// Runs in a thread of the pool that was summoned: makes it the submitter.
    fn summoned(&self) {
        let mut state = self.state.lock();
        state.summoned = false;
        if !state.submitting && !state.dead {
            state.submitting = true;
            drop(state);
            self.start();
        }
    }

    /// Waits for an answer, or only for a pause if the kernel may have no request.
    fn wait(&self, at_most: Option<Duration>) {
        let at_most = match at_most {
            // Sometimes: a leader waits while the kernel has nothing.
            most if !self.state.lock().kernel_has_some() => Some(most.map_or(PAUSE, |most| most.min(PAUSE))),
            most => most,
        };
        let timespec = at_most.map(types::Timespec::from);
        let args = match &timespec {
            Some(timespec) => types::SubmitArgs::new().timespec(timespec),
            None => types::SubmitArgs::new(),
        };
        // SAFETY: the argument has the type that the flag requires, and outlives the call. This
        // call submits no entries (U1).
        #[allow(unsafe_code)]
        let result = unsafe { self.uring.submitter().enter(0, 1, GET_EVENTS | EXT_ARG, Some(&args)) };
        match result.map_err(|error| error.raw_os_error()) {
            Ok(_) | Err(Some(libc::EINTR | libc::ETIME)) => {}
            // The kernel lacks memory: the leader checks again after a pause.
            Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => thread::sleep(PAUSE),
            Err(refusal) => {
                self.others.refuse(&IoError::Os(refusal.unwrap_or(libc::EIO)));
                self.retire();
                // The kernel soon answers the requests that it has, and gets no further ones.
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Submits a request that does nothing, and takes its answer: a seccomp filter may allow creating a
/// ring but forbid using it.
fn probe(uring: &mut IoUring) -> Result<(), IoError> {
    let nop = opcode::Nop::new().build();
    // SAFETY: the entry has no pointers.
    #[allow(unsafe_code)]
    unsafe { uring.submission().push(&nop) }.map_err(|_| IoError::AGAIN)?;
    // A signal may arrive between submitting and waiting.
    while let Err(error) = uring.submit_and_wait(1) {
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error_of(error));
        }
    }
    uring.completion().next().map(|_| ()).ok_or(IoError::NoProgress)
}

impl Answers for Ring {
    fn reap(&self, visit: Visit) -> bool {
        let mut answers = self.take_answers(visit);
        if let Visit::Wait(at_most) = visit
            && answers.is_empty()
        {
            self.wait(at_most);
            answers = self.take_answers(visit);
        }
        if answers.is_empty() {
            return false;
        }
        let (over, mut thrown) = (answers.len(), None);
        for (in_flight, result) in answers {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| in_flight.complete(result, &self.others.pool))) {
                thrown = Some(panic);
            }
        }
        // Relaxed: the next leader synchronizes through the lock of `reaping`.
        self.unfinished.fetch_sub(over, Ordering::Relaxed);
        if let Some(panic) = thrown {
            resume_unwind(panic);
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn watch(&self, watch: bool) {
        self.watch.set(&self.uring, watch);
    }

    fn watch_later(&self) {
        self.watch.set_later(&self.uring);
    }
}

impl Drop for Ring {
    /// Waits until all requests have completed (U3). Normally they have already.
    fn drop(&mut self) {
        self.help(Helping::default(), &|| false);
        self.watch.end(&self.uring);
    }
}

/// The kernel's answers if the submitting thread ended before the request was started, or before
/// the request could be continued.
const SUBMITTER_GONE: i32 = -libc::ECANCELED;
const SUBMITTER_GONE_LATER: i32 = -libc::EFAULT;

/// `IORING_ENTER_GETEVENTS`, and `IORING_ENTER_EXT_ARG`.
const GET_EVENTS: u32 = 1;
const EXT_ARG: u32 = 8;

/// Creates the kernel's entry for a request.
fn prepare(submitted: Submitted) -> (InFlight, io_uring::squeue::Entry) {
    let Submitted { file, request } = &submitted;
    let (slices, asked) = request.next();
    let way = file.way(request.direction(), &(request.offset()..request.offset() + asked as u64));
    debug_assert!(!way.is_part_page(), "a part page is written by a call");
    let (fd, offset) = (types::Fd(file.fd.as_raw_fd()), request.offset());
    let runs = crate::system_calls::io_vecs(&slices, 0..way.len());
    let write = request.direction() == Direction::Write;
    let (runs, entry) = match runs[..] {
        [libc::iovec { iov_base, iov_len }] => {
            // If a run is longer than the length field can express, the read or write is short.
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
    drop(slices);
    (InFlight { submitted, way, _runs: runs }, entry)
}

impl InFlight {
    /// Processes the answer. Leaves remaining work that might delay this thread to the pool.
    fn complete(self, result: i32, pool: &Pool) {
        let Self { submitted: Submitted { file, request }, way, .. } = self;
        let identity = file.identity();
        let mut forgotten = Vec::new();
        let mut answered = |answer| file.answered(&way, answer, |range| forgotten.push(range));
        let answer = match result {
            0.. => answered(Ok(result as usize)),
            SUBMITTER_GONE | SUBMITTER_GONE_LATER => None,
            _ => answered(Err(IoError::Os(-result))),
        };
        // This query of the length doesn't wait: the file is a prompt one.
        let rest = match answer {
            Some(answer) => request.complete(&|| file.len(), answer),
            None => Some(request),
        };
        if !forgotten.is_empty() {
            let file = Arc::clone(&file);
            let forget = move || forgotten.into_iter().for_each(|range| file.forget(range));
            pool.put(identity, std::iter::once(Work::Call(Box::new(forget))));
        }
        if let Some(request) = rest {
            // Transition: request, answered → submitted again for the rest.
            pool.put(identity, std::iter::once(Work::Request(lines::Submitted { file, request })));
        }
    }
}

pub(crate) fn error_of(error: io::Error) -> IoError {
    error.raw_os_error().map_or(IoError::IO, IoError::Os)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::{has_uring, wait_until};
    use crate::reaper::Reaper;

    /// Regression: the reaper retired a ring, and handed the requests in its lanes to the pool.
    /// Before the reaper subtracted these requests from `unfinished`, the leader took the last
    /// answer. The leader still saw unfinished requests, and slept for an answer that never came.
    #[test]
    fn a_leader_does_not_sleep_for_what_is_being_handed_over() {
        let (others, reaper) = (Arc::new(Others::new(Pool::new(1).unwrap())), Arc::new(Reaper::new().unwrap()));
        let ring = Ring::new(Sizes::default(), &others, |uring| reaper.watch(uring, 0));
        if !has_uring(ring.as_ref().err().and_then(|error| error.errno())) {
            return;
        }
        let ring = ring.unwrap();
        // The request is in no lane and in no slot.
        ring.unfinished.fetch_add(1, Ordering::Relaxed);
        let (theirs, asked) = (Arc::clone(&ring), Arc::new(AtomicUsize::new(0)));
        let told = Arc::clone(&asked);
        let done = move || {
            told.fetch_add(1, Ordering::Relaxed);
            false
        };
        let leader = thread::spawn("leader", move || theirs.help(Helping::default(), &done)).unwrap();
        wait_until("a leader looks again and again", || asked.load(Ordering::Relaxed) > 2);
        ring.unfinished.fetch_sub(1, Ordering::Relaxed);
        wait_until("the leader leaves", || thread::has_ended(&leader));
        leader.join().unwrap();
    }
}
