//! The backend for the machine's files and block devices that submits requests to the kernel
//! through io_uring.
//!
//! Files are opened as by [`Posix`], and synchronous calls are made in the caller's thread.
//! Submitted requests go through rings. As long as there are few threads, each thread has a ring of
//! its own. So a thread that submits requests and then helps with them contends with no other
//! thread. If there are more threads than rings, threads share rings.
//!
//! Rings belong to threads rather than to CPUs. While one thread waits for a disk, others run on
//! the same CPU. With one ring per CPU, all these threads would share a ring, and wait for each
//! other's answers.
//!
//! A ring is created when a thread first needs it. If the system refuses to create the ring, or if
//! the ring's descriptor would be one of the last that the process may open, the thread shares the
//! first ring.
//!
//! The submitter, or the threads of a pool ([`Pool`]), perform the requests that a ring can't
//! accept, or can't accept now:
//!
//! | | done by |
//! |---|---|
//! | requests for files on ext4, XFS, Btrfs, F2FS, and block devices | the ring of the thread that submits |
//! | requests for files on tmpfs, whose bytes are in the kernel's memory | the submitter |
//! | requests for files on other file systems (FUSE, NFS, overlays), where the kernel might keep the submitter waiting | threads |
//! | what is left of a request that was answered short; the part page at the end of a file with direct I/O | threads |
//! | the requests of a ring, if the kernel has lacked memory for them for about a second | threads |
//! | all requests, once the kernel has refused an io_uring call: a seccomp filter may be installed after the start | threads |
//!
//! After a fork the child has no rings: its callers perform their requests themselves, and it
//! touches none of the parent's rings.

use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::path::Path;

use sync::lock::OnceCell;
use sync::thread::{self, JoinHandle};
use sync::time::{Duration, Instant};
use sync::{Arc, ForkMark};

use crate::posix::{PosixFile, range_of};
use crate::queued_file::{QueuedFile, Submission};
use crate::reaper::Reaper;
use crate::ring::{Others, Ring, Sizes, Submitted, error_of};
use crate::system_calls::{Limit, soft_limit};
use crate::thread_pool::Pool;
use crate::{Access, Backend, BackingFile, DirectIo, Direction, Helping, IoError, Posix, Queue, Request, ThreadPool};

/// The number of rings per CPU, and the limits of the total number. Usually there are more rings
/// than CPUs, because many threads may wait for a disk on few CPUs.
const RINGS_PER_CPU: usize = 4;
const RINGS: std::ops::RangeInclusive<usize> = 16..=256;

/// The backend of the machine's file systems, with io_uring. Needs the feature `uring`.
pub struct Uring {
    posix: Posix,
    rings: Arc<Rings>,
}

impl Uring {
    /// Creates the backend. Files are read and written as `direct` specifies.
    ///
    /// # Errors
    /// The system's, if it can't create a ring: `EPERM` and `ENOSYS` if io_uring isn't permitted or
    /// not supported; `ENOMEM`, `EMFILE`; `EAGAIN` if it can't create a thread.
    pub fn new(direct: DirectIo) -> Result<Self, IoError> {
        let rings = (sync::cpu::count() * RINGS_PER_CPU).clamp(*RINGS.start(), *RINGS.end());
        Self::with_rings(direct, rings, Sizes::default())
    }

    pub(crate) fn with_rings(direct: DirectIo, rings: usize, sizes: Sizes) -> Result<Self, IoError> {
        Ok(Self { posix: Posix::new(direct), rings: Rings::start(rings, sizes)? })
    }
}

impl Backend for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let file = Arc::new(self.posix.open_file(path, access)?);
        Ok(Box::new(QueuedFile { file, submission: Arc::clone(&self.rings) }))
    }

    fn waits_in_submit(&self) -> bool {
        false
    }
}

/// All rings, owned by the backend and its files. Dropping the last handle waits until the requests
/// in flight have completed.
struct Rings {
    /// Never dropped in a forked child, which doesn't own them.
    shared: ManuallyDrop<Arc<Shared>>,
    /// `None` only while this is being dropped.
    thread: Option<JoinHandle<()>>,
    fork: ForkMark,
}

/// The part that the reaper owns too.
struct Shared {
    /// Each is created by the first thread that needs it; `None` if the system refused it then.
    rings: Box<[OnceCell<Option<Arc<Ring>>>]>,
    sizes: Sizes,
    reaper: Arc<Reaper>,
    others: Arc<Others>,
}

impl Rings {
    fn start(count: usize, sizes: Sizes) -> Result<Arc<Self>, IoError> {
        let fork = ForkMark::new().map_err(error_of)?;
        let reaper = Arc::new(Reaper::new()?);
        let others = Arc::new(Others::new(Pool::new(ThreadPool::THREADS_DEFAULT)?));
        let first = Ring::new(sizes, &others, |uring| reaper.watch(uring, 0))?;
        // Makes sure that there is a thread to which the reaper can leave work, even if no thread
        // can be started later.
        others.pool.start().map_err(error_of)?;
        let rings: Box<[_]> = (0..count.max(1)).map(|_| OnceCell::new()).collect();
        let _ = rings[0].set(Some(first));
        let shared = Arc::new(Shared { rings, sizes, reaper, others });
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn("pagefold-reaper", move || theirs.look_after()).map_err(error_of)?;
        Ok(Arc::new(Self { shared: ManuallyDrop::new(shared), thread: Some(thread), fork }))
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        if self.fork.is_child() {
            return;
        }
        self.shared.reaper.end();
        // The reaper itself may have dropped the last handle. Then it ends when it has completed
        // its current work.
        if let Some(thread) = self.thread.take().filter(|thread| !thread::is_current(thread)) {
            let _ = thread.join();
            // The rings are idle now, but requests that they handed to the pool may still be in
            // progress. Dropping this handle of the pool would wait for these requests only if it
            // were the pool's last handle. It may not be the last: a thread that was summoned to a
            // ring may still be running, and hold another handle. So the pool is ended explicitly
            // here.
            self.shared.others.pool.end();
        }
        // SAFETY: dropped once, here, and not used afterwards.
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.shared);
        }
    }
}

/// The interval at which the reaper polls for answers if the kernel doesn't notify it of them.
const LOOKS: Duration = Duration::from_millis(1);
/// How long the reaper continues to poll after all rings became idle. New requests already go to
/// the pool's threads. But a thread that hasn't noticed the kernel's refusal yet may still submit
/// requests to a ring.
const LOOKED_FOR: Duration = Duration::from_secs(1);

impl Shared {
    /// The reaper's main loop. When it returns, all submitted requests have completed.
    fn look_after(&self) {
        let attend = |ring: &Ring, body: &dyn Fn(&Ring)| {
            let body = std::panic::AssertUnwindSafe(|| body(ring));
            let thrown = std::panic::catch_unwind(body).is_err();
            if thrown {
                tracing::error!("the completion of a read or write panicked");
            }
            thrown
        };
        let told = self.reaper.run(|number| {
            if let Some(Some(ring)) = self.rings.get(number).and_then(OnceCell::get) {
                attend(ring, &Ring::visit);
            }
        });
        if let Err(refusal) = told {
            self.others.refuse(&refusal);
            let mut idle_since = Instant::now();
            while !self.reaper.has_ended() && idle_since.elapsed() < LOOKED_FOR {
                for ring in self.there() {
                    ring.retire();
                    if !ring.is_idle() {
                        attend(ring, &Ring::visit);
                        idle_since = Instant::now();
                    }
                }
                thread::sleep(LOOKS);
            }
        }
        for ring in self.there() {
            while attend(ring, &|ring| ring.help(Helping::default(), &|| false)) {}
        }
    }

    fn there(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter_map(|ring| ring.get()?.as_deref())
    }

    /// Returns the calling thread's ring and its number. Creates the ring if necessary.
    fn here(&self) -> (u32, &Ring) {
        let number = thread::number() % self.rings.len();
        let make = || {
            let ring = Ring::new(self.sizes, &self.others, |uring| self.reaper.watch(uring, number)).ok()?;
            (!is_among_the_last(ring.descriptor())).then_some(ring)
        };
        match self.rings[number].get_or_init(make) {
            Some(ring) => (number as u32, ring),
            None => (0, self.of(0)),
        }
    }

    fn of(&self, number: u32) -> &Ring {
        let ring = |number: usize| self.rings.get(number).and_then(OnceCell::get).and_then(Option::as_deref);
        ring(number as usize).or_else(|| ring(0)).expect("the first one was made at the start")
    }
}

/// Returns whether a descriptor is in the last quarter of the process's limit. The kernel assigns
/// the lowest free number, so a number in the last quarter means that most descriptors are in use.
/// The remaining ones are left to the program.
fn is_among_the_last(descriptor: RawFd) -> bool {
    let number = u64::try_from(descriptor).unwrap_or(0);
    soft_limit(Limit::Descriptors).is_some_and(|max| number >= max - max / 4)
}

/// The place of requests that go to threads only.
const POOL: u32 = u32::MAX;

impl Submission for Rings {
    type File = PosixFile;

    fn submit(&self, file: &Arc<PosixFile>, requests: &mut Vec<Request>) -> Queue {
        let mut queue = Queue::of(POOL, requests);
        // This thread itself performs requests for files in memory, requests of a forked child, and
        // empty or invalid requests. Their completions may submit more requests, so this thread
        // uses its ring only afterwards.
        let here = file.is_in_memory() || self.fork.is_child();
        let odd = |request: &mut Request| here || request.next().1 == 0 || check(file, request).is_err();
        requests.extract_if(.., odd).for_each(|request| request.run(&**file));
        if requests.is_empty() {
            return queue;
        }
        let to_threads = |request| Submitted { file: Arc::clone(file), request };
        if file.is_prompt() && !self.shared.others.refused() {
            let (place, ring) = self.shared.here();
            queue.place = place;
            self.shared.others.put(requests.extract_if(.., |request| is_part_page(file, request)).map(to_threads));
            if !requests.is_empty() {
                ring.submit(file, requests);
            }
        }
        self.shared.others.put(requests.drain(..).map(to_threads));
        queue
    }

    fn queue(&self) -> Queue {
        let unusable = self.fork.is_child() || self.shared.others.refused();
        Queue { place: if unusable { POOL } else { self.shared.here().0 }, batch: None }
    }

    fn help(&self, file: &Arc<PosixFile>, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        if self.fork.is_child() || queue.is_over() {
            return;
        }
        let over = || done() || queue.is_over();
        let time = how.at_most.map(|most| (most, Instant::now()));
        if queue.place() != POOL {
            self.shared.of(queue.place()).help(how, &over);
        }
        // Help with the requests that the ring has left to threads.
        if !over() {
            let at_most = time.map(|(most, start)| most.saturating_sub(start.elapsed()));
            self.shared.others.pool.help_with(file.identity(), queue, Helping { at_most, ..how }, done);
        }
    }
}

/// Returns whether the request writes a part page, which rings don't support.
fn is_part_page(file: &PosixFile, request: &mut Request) -> bool {
    let range = |request: &mut Request| request.offset()..request.offset() + request.next().1 as u64;
    request.direction() == Direction::Write && file.way(Direction::Write, &range(request)).is_part_page()
}

/// Returns the error with which the request would fail before it reaches the device.
fn check(file: &PosixFile, request: &Request) -> Result<(), IoError> {
    if request.direction() == Direction::Write {
        file.check_writable()?;
        file.check_limit(request.offset())?;
    }
    range_of(request.offset(), request.next().1).map(|_| ())
}

#[cfg(test)]
#[path = "uring_tests.rs"]
mod tests;
