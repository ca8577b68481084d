//! The machine's files and block devices, with requests given to the kernel through io_uring.
//!
//! Files are those of [`Posix`], and calls are made in the caller's thread as there; requests that
//! are submitted go through rings. As long as there are few threads, each has a ring of its own, so
//! that a thread that submits and then helps meets no other thread. With more, rings are shared. A
//! ring isn't tied to a CPU: threads that wait for a disk come and go on a CPU, and would wait for
//! each other's answers. A ring is made when a thread first needs it. If the system refuses, or the
//! ring would take one of the last descriptors of the process, the first ring is shared.
//!
//! What a ring can't do, or can't do now, threads do ([`Pool`]):
//!
//! | | done by |
//! |---|---|
//! | requests for files on ext4, XFS, Btrfs, F2FS, and block devices | the ring of the thread that submits |
//! | those for files on tmpfs, which are the kernel's memory | the submitter |
//! | those for files on other file systems (FUSE, NFS, overlays), where the kernel might keep the submitter waiting | threads |
//! | what is left of a request that was answered short; the part page at the end of a file with direct I/O | threads |
//! | those of a ring for which the kernel has had no memory for a second | threads |
//! | all, once the kernel has refused a call of io_uring: a seccomp filter may come after the start | threads |
//!
//! After a fork the child has no rings: requests are done in the caller there, and nothing of the
//! parent's is touched.

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

/// Rings for each CPU, and altogether: many threads may wait for a disk on few CPUs.
const RINGS_PER_CPU: usize = 4;
const RINGS: std::ops::RangeInclusive<usize> = 16..=256;

/// The backend of the machine's file systems, with io_uring.
pub struct Uring {
    posix: Posix,
    rings: Arc<Rings>,
}

impl Uring {
    /// Files read and written as `direct` says.
    ///
    /// # Errors
    /// The system's, if it has no ring to give: `EPERM` and `ENOSYS` if it isn't allowed, or not
    /// known; `ENOMEM`, `EMFILE`; `EAGAIN` if there is no thread left.
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

/// All rings, for the backend and its files. When none of them is left, what is in flight is waited
/// for.
struct Rings {
    /// Never dropped in a forked child, to whom they don't belong.
    shared: ManuallyDrop<Arc<Shared>>,
    thread: ManuallyDrop<JoinHandle<()>>,
    fork: ForkMark,
}

/// What the reaper has too.
struct Shared {
    /// Each with the first thread that needs it; none if the system refused it then.
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
        // The reaper has a thread to leave things to, also if there is none to be had later.
        others.pool.start().map_err(error_of)?;
        let rings: Box<[_]> = (0..count.max(1)).map(|_| OnceCell::new()).collect();
        let _ = rings[0].set(Some(first));
        let shared = Arc::new(Shared { rings, sizes, reaper, others });
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn("pagefold-reaper", move || theirs.look_after()).map_err(error_of)?;
        Ok(Arc::new(Self { shared: ManuallyDrop::new(shared), thread: ManuallyDrop::new(thread), fork }))
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        if self.fork.is_child() {
            return;
        }
        self.shared.reaper.end();
        // SAFETY: taken once, here.
        #[allow(unsafe_code)]
        let thread = unsafe { ManuallyDrop::take(&mut self.thread) };
        // The reaper itself may have had the last handle: then it ends when it has done what it is
        // at.
        if !thread::is_current(&thread) {
            let _ = thread.join();
            // Rings are idle now, but what they handed over may be under way. Dropping the pool's
            // last handle would wait for that too; but a thread that was summoned to a ring may
            // have that handle, and not be through.
            self.shared.others.pool.end();
        }
        // SAFETY: dropped once, here, and not used afterwards.
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.shared);
        }
    }
}

/// How often the reaper looks for answers that it isn't told of.
const LOOKS: Duration = Duration::from_millis(1);
/// How long it looks on after the last one: a thread may be about to submit that doesn't know yet
/// that rings are refused.
const LOOKED_FOR: Duration = Duration::from_secs(1);

impl Shared {
    /// The reaper's life. At its end all that was submitted is over.
    fn look_after(&self) {
        let attend = |ring: &Ring, body: &dyn Fn(&Ring)| {
            let body = std::panic::AssertUnwindSafe(|| body(ring));
            let thrown = std::panic::catch_unwind(body).is_err();
            if thrown {
                tracing::error!("what was to be done after a read or write panicked");
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

    /// The calling thread's ring.
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

/// Whether a descriptor is of the last quarter that the process may have. Descriptors get the
/// lowest free number, so that many are in use. They are left to the program.
fn is_among_the_last(descriptor: RawFd) -> bool {
    let number = u64::try_from(descriptor).unwrap_or(0);
    soft_limit(Limit::Descriptors).is_some_and(|max| number >= max - max / 4)
}

/// The place of what goes to threads alone.
const POOL: u32 = u32::MAX;

impl Submission for Rings {
    type File = PosixFile;

    fn submit(&self, file: &Arc<PosixFile>, requests: &mut Vec<Request>) -> Queue {
        let mut queue = Queue::of(POOL, requests);
        // What isn't for the device is done here. It may submit more, so the ring isn't touched
        // yet.
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
        if queue.place != POOL {
            self.shared.of(queue.place).help(how, &over);
        }
        // And what the ring has left to threads.
        if !over() {
            self.shared.others.pool.help_with(file.identity(), queue, how, done);
        }
    }
}

/// Whether the request is the write of a part page, which no ring makes.
fn is_part_page(file: &PosixFile, request: &mut Request) -> bool {
    let range = |request: &mut Request| request.offset()..request.offset() + request.next().1 as u64;
    request.direction() == Direction::Write && file.way(Direction::Write, &range(request)).is_part_page()
}

/// What would go wrong with the request before the device has it.
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
