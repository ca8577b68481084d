//! One io_uring: submits requests to the kernel and takes its answers.
//!
//! A request waits in the *lane* of its device until it gets a *slot*, and occupies the slot
//! while the kernel has the request ([`lanes`]). The completion queue has one entry for each
//! slot, so it can't overflow.
//!
//! The submission queue is deliberately short. Each time it is full, the submitter enters the
//! kernel. So the device starts on the first few requests of a batch while the submitter prepares
//! the rest.
//!
//! | slot | touched by | becomes |
//! |---|---|---|
//! | free | the submitter, under the lock | in flight |
//! | in flight | the kernel, which has pointers into the request's memory, and reads the list of runs | free, when the leader has taken its answer, or the submitter has taken back its request (U6) |
//!
//! - U1. One thread at a time is the *submitter*: it has set `submitting`, pushes entries, and
//!   enters the kernel to submit them. The submitter holds no lock while it is in the kernel.
//!   Another thread that has requests to submit waits for the submitter only briefly, without
//!   sleeping. Then it leaves its requests to the pool. While `submitting` is unset, the submission
//!   queue is empty, unless the ring is dead.
//! - U2. Only the leader ([`Reaping`]) reads the completion queue. It holds the lock meanwhile,
//!   because it also frees slots.
//! - U3. While a slot is in flight, no thread accesses, moves or drops its contents: the request,
//!   the list of runs, and the open file. This ends when the leader has taken the kernel's answer,
//!   or when the submitter takes back a request that the kernel never saw (U6). So dropping a ring
//!   first waits until no slot is in flight.
//! - U4. `unfinished` counts a request from before it enters a lane until after it has completed,
//!   or was handed to the pool's threads.
//! - U5. The submitter unsets `submitting` under the lock, and only when no waiting request may use
//!   a slot. A thread that frees a slot does so under the lock, too. If a waiting request may then
//!   use the slot, and there is no submitter, the thread that freed the slot becomes the submitter.
//!   The reaper never submits, so it summons a thread of the pool to become the submitter. So no
//!   request is left waiting in a lane while it may use a slot:
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
//!   either: the submitter may have to take back all requests that it is submitting at that moment
//!   (U6). Requests in lanes may be handed over, too. So two conditions make it certain that the
//!   kernel answers all unfinished requests: the slots in flight are as many as the unfinished
//!   requests, and no request is being submitted. Only if both hold does a thread sleep here
//!   without a time limit (L7 of [`reaping`](crate::reaping)). Otherwise it checks again after a
//!   pause:
//!
//! ```text
//! reaper: ring dead, takes the lanes ──────────────────────────── with the threads, counts them off
//! leader:                            └─ last answer, not idle yet: no sleep without end
//! ```
//!
//! The reaper serves all rings, so it leaves all work that may delay it to the threads of the pool:
//! submitting requests, continuing a request after a short read or write, dropping pages from the
//! kernel's cache, and closing a file whose last handle was dropped before its last request
//! completed. A leader leaves all of this to the threads too, except submitting. The reaper does
//! query a file's length itself. This query can't delay it, because only requests for *prompt*
//! files go to rings.
//!
//! The kernel posts an answer in the context of the thread that submitted the request: when this
//! thread next leaves the kernel, or while it sleeps there in a call that signals can interrupt. If
//! necessary, the kernel interrupts the thread. If the thread has ended, the kernel posts the
//! answer from another context, such as a kernel worker. While the thread is in a call that signals
//! can't interrupt, such as a direct `pread` or an `fsync`, its answers wait for the end of that
//! call.

mod in_flight;
mod lanes;

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::panic::resume_unwind;

use arrayvec::ArrayVec;
use in_flight::InFlight;
pub(crate) use in_flight::Submitted;
use io_uring::{IoUring, opcode, types};
use lanes::Lanes;
use rustix::io::Errno;
use sync::atomic::{AtomicBool, AtomicUsize, Backoff, Ordering};
use sync::lock::{Mutex, MutexGuard};
use sync::time::Duration;
use sync::{Arc, Weak, thread};

use crate::lines::{self, Work};
use crate::posix::PosixFile;
use crate::reaper::Watch;
use crate::reaping::{Answers, PAUSE, Reaping, Visit};
use crate::thread_pool::Pool;
use crate::{BackingFile as _, Helping, Identity, IoError, Request};

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

/// The most answers taken at once. The number is small, so that threads soon learn that their
/// requests have completed. They can then submit more while the device still works on others.
const ANSWERS_MAX: usize = 16;
/// The most entries pushed before the kernel is entered.
const PUSHED_MAX: usize = 16;
/// How many times a submitter pauses before it gives up the ring, if the kernel has no memory for a
/// request.
const PAUSES_MAX: u32 = 1000;

/// The longest single wait for an answer: more than a century. The kernel adds the length of the
/// wait to its clock's time, in signed nanoseconds. With a longer wait this sum could overflow, and
/// the kernel would take the wait to have ended already.
const WAIT_MAX: Duration = Duration::from_secs(1 << 32);

/// The device number of the pool queue in which threads are summoned to submit. No file's device
/// has this number.
const RINGS_DEVICE: u64 = u64::MAX;

/// The pool, whose threads perform the requests that a ring can't perform.
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

/// Returns whether the refusal is transient. If it is, only the ring that was refused is given up:
/// the kernel may have memory for the requests of other rings.
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
    lanes: Lanes,
    /// There is a submitter.
    submitting: bool,
    /// The number of slots whose entries the submitter is just submitting.
    entering: usize,
    /// A thread of the pool is on its way to become the submitter.
    summoned: bool,
    dead: bool,
}

impl State {
    /// Returns whether the kernel certainly answers all of the ring's `unfinished` requests, and
    /// there is at least one (U7).
    fn kernel_has_all(&self, unfinished: usize) -> bool {
        unfinished > 0 && self.lanes.in_flight() == unfinished && self.entering == 0
    }

    /// Marks the ring as dead: nothing is submitted any more. Returns the requests that were
    /// waiting in lanes.
    fn die(&mut self) -> Vec<Submitted> {
        self.dead = true;
        self.lanes.drain()
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
        let lanes = Lanes::new(slots);
        let state = State { lanes, submitting: false, entering: 0, summoned: false, dead: false };
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
        if !state.lanes.may_wait(device) {
            return self.leave(state);
        }
        // Relaxed: L3, through the lock of `reaping`.
        self.unfinished.fetch_add(requests.len(), Ordering::Relaxed);
        let submitted = |request| Submitted { file: Arc::clone(file), request };
        state.lanes.wait(device, requests.drain(..).map(submitted));
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
        state.lanes.forget_unused();
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
                let Some((slot, submitted)) = state.lanes.next() else { break };
                let (in_flight, entry) = in_flight::prepare(submitted);
                // Transition: ring slot, free → in flight.
                state.lanes.occupy(slot, in_flight);
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
                    tracing::warn!(%refusal, "the kernel had no room for requests for a second; threads perform the \
                                              requests of one ring");
                } else {
                    // Sometimes: the kernel refuses io_uring after the start.
                    self.others.refuse(&refusal);
                }
                let mut state = self.state.lock();
                state.entering = 0;
                // U6: the entries that the kernel hasn't taken are the last ones pushed.
                let mut waiting: Vec<_> =
                    pushed[taken..].iter().filter_map(|&slot| Some(state.lanes.take(slot)?.submitted)).collect();
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
        // Decremented last, so that a helper finds each request here or in the pool. Release pairs
        // with the Acquire in `will_answer`.
        self.unfinished.fetch_sub(count, Ordering::Release);
    }

    /// Takes answers from the completion queue, and starts waiting requests in the slots that
    /// become free.
    fn take_answers(&self, visit: Visit) -> ArrayVec<(InFlight, i32), ANSWERS_MAX> {
        let mut answers = ArrayVec::new();
        let mut state = self.state.lock();
        // SAFETY: U2 makes this thread the only one that uses the completion queue.
        #[allow(unsafe_code)]
        let completions = unsafe { self.uring.completion_shared() };
        for completion in completions.take(ANSWERS_MAX) {
            if let Some(in_flight) = state.lanes.take(completion.user_data() as usize) {
                // Transition: ring slot, in flight → free.
                answers.push((in_flight, completion.result()));
            }
        }
        if state.submitting || state.dead {
            // Sometimes: answers are taken while another thread submits.
            return answers; // U5
        }
        if !state.lanes.can_start() {
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

    /// Waits for an answer, for at most the given time.
    fn wait(&self, at_most: Option<Duration>) {
        let timespec = at_most.map(|time| types::Timespec::from(capped(time)));
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

/// Returns `time`, or `WAIT_MAX` if `time` is longer.
fn capped(time: Duration) -> Duration {
    time.min(WAIT_MAX)
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
    fn others_over(&self) -> u64 {
        self.others.pool.tally().over()
    }

    fn will_answer(&self, others_over: u64) -> bool {
        let state = self.state.lock();
        // Acquire: if a request was handed over, it is visible that it was queued in the pool.
        let kernel_has_all = state.kernel_has_all(self.unfinished.load(Ordering::Acquire));
        drop(state);
        kernel_has_all && self.others.pool.tally().are_all_over(others_over)
    }

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
            if let Err(panic) = in_flight.complete(result, &self.others.pool) {
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

/// `IORING_ENTER_GETEVENTS`, and `IORING_ENTER_EXT_ARG`.
const GET_EVENTS: u32 = 1;
const EXT_ARG: u32 = 8;

pub(crate) fn error_of(error: io::Error) -> IoError {
    error.raw_os_error().map_or(IoError::IO, IoError::Os)
}

#[cfg(test)]
mod tests {
    use sync::atomic::AtomicU64;

    use super::*;
    use crate::patience::{has_uring, wait_until};
    use crate::reaper::Reaper;
    use crate::{Access, Batch, DirectIo, Posix};

    /// Creates a ring. `None` if this machine has no io_uring.
    fn ring() -> Option<Arc<Ring>> {
        let (others, reaper) = (Arc::new(Others::new(Pool::new(1).unwrap())), Arc::new(Reaper::new().unwrap()));
        let ring = Ring::new(Sizes::default(), &others, |uring| reaper.watch(uring, 0));
        has_uring(ring.as_ref().err().and_then(|error| error.errno())).then(|| ring.unwrap())
    }

    /// Puts a request into a slot, as if it were with the kernel, which never answers it. Returns
    /// the slot.
    fn occupy(ring: &Ring, submitted: Submitted) -> usize {
        let mut state = ring.state.lock();
        ring.unfinished.fetch_add(1, Ordering::Relaxed);
        state.lanes.wait(submitted.file.identity().device, std::iter::once(submitted));
        let (slot, submitted) = state.lanes.next().unwrap();
        state.lanes.occupy(slot, in_flight::prepare(submitted).0);
        slot
    }

    /// Ends what [`occupy`] began.
    fn vacate(ring: &Ring, slot: usize) {
        drop(ring.state.lock().lanes.take(slot));
        ring.unfinished.fetch_sub(1, Ordering::Relaxed);
    }

    fn file() -> (tempfile::TempDir, Arc<PosixFile>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 4096]).unwrap();
        let file = Posix::new(DirectIo::Never).open_file(&path, Access::Read).unwrap();
        (directory, Arc::new(file))
    }

    fn read(then: impl FnOnce() + Send + 'static) -> Request {
        let memory: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
        Request::read(0, memory, move |_, _| then()).unwrap()
    }

    /// Regression: the reaper retired a ring, and handed the requests in its lanes to the pool.
    /// Before the reaper subtracted these requests from `unfinished`, the leader took the last
    /// answer. The leader still saw unfinished requests, and slept until an answer came, which
    /// never happened.
    ///
    /// The same happened if the kernel still had another request, whose device didn't answer.
    #[test]
    fn a_leader_does_not_sleep_for_what_is_being_handed_over() {
        for has_another in [false, true] {
            let Some(ring) = ring() else { return };
            let (_directory, file) = file();
            let another = has_another.then(|| occupy(&ring, Submitted { file, request: read(|| {}) }));
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
            // The slot is vacated before the decrement. In the other order, the leader could find
            // one unfinished request and one slot in flight, and sleep without a limit.
            another.into_iter().for_each(|slot| vacate(&ring, slot));
            ring.unfinished.fetch_sub(1, Ordering::Relaxed);
            wait_until("the leader leaves", || thread::has_ended(&leader));
            leader.join().unwrap();
        }
    }

    /// Regression: a thread waited for a batch whose only request was with the threads of the pool,
    /// such as the write of a part page. When they had completed the request, the batch was over.
    /// But the thread still slept on its ring, until a request of another device was answered, and
    /// that device didn't answer.
    #[test]
    fn a_leader_does_not_sleep_for_what_threads_do() {
        let Some(ring) = ring() else { return };
        let (_directory, file) = file();
        let another = occupy(&ring, Submitted { file: Arc::clone(&file), request: read(|| {}) });
        let (batch, may_go_on) = (Batch::default(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&may_go_on);
        let wait = move || wait_until("the leader leads", || told.load(Ordering::Acquire));
        ring.others.put([Submitted { file, request: read(wait).in_batch(&batch) }]);
        let (theirs, told) = (Arc::clone(&ring), Arc::clone(&may_go_on));
        let done = move || {
            told.store(true, Ordering::Release);
            batch.unfinished() == 0
        };
        let leader = thread::spawn("leader", move || theirs.help(Helping::default(), &done)).unwrap();
        wait_until("the leader leaves", || thread::has_ended(&leader));
        vacate(&ring, another);
        leader.join().unwrap();
    }
    /// Regression: the kernel treated a very long time limit as a negative one, so each wait ended
    /// at once. A leader with such a time limit kept a CPU busy.
    #[test]
    fn a_wait_of_any_length_is_one_that_the_kernel_makes() {
        const HOUR: Duration = Duration::from_secs(3600);
        assert_eq!(capped(HOUR), HOUR);
        for time in [Duration::from_secs(i64::MAX as u64), Duration::from_secs(1 << 63), Duration::MAX] {
            let nanoseconds = i64::try_from(capped(time).as_nanos()).expect("it isn't negative for the kernel");
            assert!(nanoseconds < i64::MAX / 2, "the sum with the clock's time may be negative");
        }
    }
}
